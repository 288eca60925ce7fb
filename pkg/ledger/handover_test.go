package ledger

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// slot is one pod of a Workload from its promise to its end.
type slot struct {
	device   DeviceID
	mapped   Amounts
	consumed Consumption
}

func (s *slot) placement(at int64) Observation {
	return seePlacement("w", 1, at, "a", 1, s.device)
}

// podSteps and claimSteps are what the two watches show, each in its order.
func (s *slot) podSteps() []Observation {
	requests := Amounts{"cpu": 1000, "pods": 1}
	bound := requests.Clone()
	bound.Add(s.mapped, 1)
	status := []ClaimStatus{{Claim: "w-0-gpu", Amounts: s.mapped}}
	step := func(version uint64, change func(*Pod)) Observation {
		p := Pod{Owner: "job-w", PodSet: "main", CreatedUnix: 200, Requests: requests, Claims: []string{"w-0-gpu"}, Referring: []int{1}}
		change(&p)
		return seePod("w-0", version, p)
	}
	return []Observation{
		step(1, func(*Pod) {}),
		step(2, func(p *Pod) { p.Pin = "a" }),
		step(3, func(p *Pod) { p.Pin, p.Mapped = "a", status }),
		step(4, func(p *Pod) { p.Node, p.Mapped, p.Requests = "a", status, bound }),
	}
}

func (s *slot) claimSteps() []Observation {
	step := func(version uint64, change func(*Claim)) Observation {
		c := Claim{Pod: "w-0", Promised: []DeviceID{s.device}}
		change(&c)
		return seeClaim("w-0-gpu", version, c)
	}
	return []Observation{
		step(1, func(*Claim) {}),
		step(2, func(c *Claim) {
			c.Pods = []types.UID{"w-0"}
			if c.Allocated = []DeviceID{s.device}; s.consumed != nil {
				c.Allocated, c.Shares = []DeviceID{}, []Share{{Device: s.device, ID: "share", Consumed: s.consumed}}
			}
		}),
	}
}

// shaped is a slice of node a whose one device has the shape that the slot is for.
func (s *slot) shaped(c choices) Observation {
	o := seeSlice("a", 1, 1, 1, 0, 1)
	if s.device = device("a", 0, 0); c.upTo("wide", 1) == 1 {
		o.Slice.Spec.NodeName, o.Slice.Spec.AllNodes = nil, ptr.To(true)
	}
	d := &o.Slice.Spec.Devices[0]
	amount := int64(1 + c.upTo("amount", 7))
	switch c.upTo("shape", 2) {
	case 1:
		d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{"cpu": {AllocationMultiplier: resource.NewQuantity(amount, resource.DecimalSI)}}
		s.mapped = Amounts{"cpu": 1000 * amount}
	case 2:
		d.AllowMultipleAllocations = ptr.To(true)
		size := *resource.NewQuantity(amount<<30, resource.BinarySI)
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"size": {Value: size}}
		d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{"memory": {CapacityKey: ptr.To(resourcev1.QualifiedName("size"))}}
		s.mapped, s.consumed = Amounts{"memory": amount << 30}, Consumption{"size": size}
	}
	return o
}

// TestAHandOverTakesNothingTwice: from the promise to the end of the pod its slot is counted once, whichever of its watches is
// ahead.
func TestAHandOverTakesNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawing{t}
		s := &slot{}
		b := bookOf(seeNode("a", 1, nil), seeNode("b", 1, nil), s.shaped(c))
		before := accounts(b.Snapshot())
		wants := b.Snapshot().Node("a").Free.Clone()
		wants.Add(Amounts{"cpu": 1000, "pods": 1}, -1)
		wants.Add(s.mapped, -1)
		b.Apply(seeWorkload("w", 1, 100))
		b.Apply(s.placement(100))
		unseen := false // a pod is bound whose claim is not known: what that takes is held beside what its pod takes
		look := func(after string) {
			n := b.Snapshot().Node("a")
			if unseen {
				for name, v := range n.Free {
					if v > wants[name] {
						t.Fatalf("%d of %s is free after %s, want at most %d:\n%s", v, name, after, wants[name], account(n))
					}
				}
			} else if got, want := amounts(n.Free), amounts(wants); got != want {
				t.Fatalf("%s is free after %s, want %s:\n%s", got, after, want, account(n))
			}
			if d := n.Device(s.device); d.Free() || len(d.Holders) > 2 {
				t.Fatalf("device is held by %v after %s", d.Holders, after)
			}
		}
		look("the promise")
		pods, claims := s.podSteps(), s.claimSteps()
		for len(pods)+len(claims) > 0 {
			of := &pods
			if len(pods) == 0 || len(claims) > 0 && c.upTo("claim next", 1) == 1 {
				of = &claims
			}
			o := (*of)[0]
			*of = (*of)[1:]
			b.Apply(o)
			unseen = len(pods) == 0 && len(claims) == 2
			look(fmt.Sprintf("%s version %d", o.Ref.Kind, o.Ref.ResourceVersion))
		}
		for _, o := range []Observation{gone(s.podSteps()[3]), gone(s.claimSteps()[1]), gone(s.placement(100)), gone(seeWorkload("w", 1, 100))} {
			b.Apply(o)
		}
		if d := difference(accounts(b.Snapshot()), before); d != "" {
			t.Fatalf("a pod that came and went left %s", d)
		}
	})
}

// TestWhatSeveralDevicesMapToIsTheirSum: whole numbers, which need no rounding, add up over a claim's devices.
func TestWhatSeveralDevicesMapToIsTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var claim []Taken
		want := Amounts{}
		for range rapid.IntRange(1, 4).Draw(t, "devices") {
			d := Taken{Mappings: &Mappings{Rules: Rules136}, Consumed: Consumption{"size": *resource.NewQuantity(rapid.Int64Range(0, 1<<40).Draw(t, "size"), resource.BinarySI)}}
			for _, name := range []corev1.ResourceName{"cpu", "memory"} {
				m := Mapping{Resource: name, Multiplier: *resource.NewQuantity(rapid.Int64Range(1, 1<<20).Draw(t, "multiplier"), resource.DecimalSI)}
				if rapid.Bool().Draw(t, "by capacity") {
					m.Capacity = "size"
				}
				d.Mappings.List = append(d.Mappings.List, m)
			}
			claim = append(claim, d)
			one, err := MappedBy([]Taken{d}, 1)
			if err != nil {
				t.Fatal(err)
			}
			want.Add(one, 1)
		}
		got, err := MappedBy(claim, 1)
		if err != nil || amounts(got) != amounts(want) {
			t.Fatalf("%d devices map to %s (%v), each by itself to %s in all", len(claim), amounts(got), err, amounts(want))
		}
	})
}
