package ledger

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestWhatAPromiseTakesIsHeldWhileItsDriverRepublishes: two gangs would be promised the same cpu otherwise.
func TestWhatAPromiseTakesIsHeldWhileItsDriverRepublishes(t *testing.T) {
	mapped := func(cpu string, o Observation) Observation {
		for i := range o.Slice.Spec.Devices {
			o.Slice.Spec.Devices[i].NodeAllocatableResourceMappings = mapped136("cpu", "", cpu, nil).NodeAllocatableResourceMappings
		}
		return o
	}
	slice := mapped("8", seeSlice("a", 1, 1, 1, 0, 2))
	promise := seePlacement("w", 1, 100, "a", 1, device("a", 0, 0))
	pod := func(p Pod) Observation {
		p.Owner, p.PodSet, p.CreatedUnix = "job-w", "main", 101
		return seePod("p", 1, p)
	}
	claim := func(version uint64, allocated bool) Observation {
		c := Claim{Pod: "p", Promised: []DeviceID{device("a", 0, 0)}}
		if allocated {
			c.Allocated, c.Pods = c.Promised, []types.UID{"p"}
		}
		return seeClaim("c", version, c)
	}
	later := []Observation{seeWorkload("v", 9, 100), seePlacement("v", 9, 100, "a", 1, device("a", 0, 1))}
	for name, tc := range map[string]struct {
		before, then []Observation
		used         int64
	}{
		"while its slice is there":                        {before: []Observation{promise}, used: 9000},
		"while its slice is gone":                         {before: []Observation{promise}, then: []Observation{gone(slice)}, used: 9000},
		"while a newer generation is not complete":        {before: []Observation{promise}, then: []Observation{mapped("8", seeSlice("a", 2, 2, 2, 0, 2))}, used: 9000},
		"which maps less":                                 {before: []Observation{promise}, then: []Observation{mapped("2", seeSlice("a", 2, 2, 2, 0, 2))}, used: 9000},
		"or more":                                         {before: []Observation{promise}, then: []Observation{mapped("10", seeSlice("a", 2, 2, 2, 0, 2))}, used: 11000},
		"or nothing":                                      {before: []Observation{promise}, then: []Observation{seeSlice("a", 2, 2, 2, 0, 2)}, used: 9000},
		"while it is complete without the mapping":        {before: []Observation{promise}, then: []Observation{seeSlice("a", 2, 2, 1, 0, 2)}, used: 9000},
		"and goes then":                                   {before: []Observation{promise}, then: []Observation{gone(slice), seeSlice("a", 2, 2, 1, 0, 2), gone(seeSlice("a", 2, 2, 1, 0, 2))}, used: 9000},
		"what is listed once it is mapped anew":           {before: []Observation{promise}, then: []Observation{seeSlice("a", 2, 2, 1, 0, 2), mapped("4", seeSlice("a", 3, 3, 1, 0, 2))}, used: 5000},
		"nothing for who is promised it afterwards":       {before: []Observation{promise}, then: append([]Observation{seeSlice("a", 2, 2, 1, 0, 2)}, later...), used: 10000},
		"nothing once the promise is withdrawn":           {before: []Observation{promise}, then: []Observation{gone(slice), gone(promise)}, used: 0},
		"for a pod that was released":                     {before: []Observation{promise, pod(Pod{Pin: "a"}), claim(1, false)}, then: []Observation{gone(slice)}, used: 9000},
		"for one that has its claim and is not bound yet": {before: []Observation{promise, pod(Pod{Pin: "a"}), claim(1, true)}, then: []Observation{gone(slice)}, used: 9000},
		"once for one that is bound, whose status says it": {
			before: []Observation{promise, pod(Pod{Node: "a", Requests: Amounts{"cpu": 9000, "pods": 1}, Mapped: []ClaimStatus{{Claim: "c", Amounts: Amounts{"cpu": 8000}}}}), claim(1, true)},
			then:   []Observation{gone(slice)}, used: 9000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := bookOf(append([]Observation{seeNode("a", 1, nil), slice, seeWorkload("w", 1, 100)}, tc.before...)...)
			for _, o := range tc.then {
				b.Apply(o)
				b.Snapshot()
			}
			s := b.Snapshot()
			n := s.Node("a")
			if used := n.Allocatable["cpu"] - n.Free["cpu"]; used != tc.used {
				t.Errorf("%d thousandths of cpu are held, want %d", used, tc.used)
			}
			if n := s.Without(map[types.UID]bool{"w": true, "v": true}).Node("a"); n.Free["cpu"] != n.Allocatable["cpu"] {
				t.Errorf("%d of %d thousandths are free without them", n.Free["cpu"], n.Allocatable["cpu"])
			}
		})
	}
}

// TestWhatAPromiseTakesIsHeldThoughItsPoolIsOfSeveralNodes, whichever of its slices came last, and whichever goes.
func TestWhatAPromiseTakesIsHeldThoughItsPoolIsOfSeveralNodes(t *testing.T) {
	of := func(part int, change func(*resourcev1.ResourceSliceSpec)) Observation {
		o := seeSlice("a", 1, 1, 2, part, 1)
		o.Slice.Spec.Devices[0].NodeAllocatableResourceMappings = mapped136("cpu", "", "8", nil).NodeAllocatableResourceMappings
		change(&o.Slice.Spec)
		return o
	}
	own := of(0, func(*resourcev1.ResourceSliceSpec) {})
	wide := of(1, func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.AllNodes = nil, ptr.To(true) })
	others := of(1, func(s *resourcev1.ResourceSliceSpec) { s.NodeName = ptr.To("b") })
	for name, tc := range map[string]struct {
		slices, then []Observation
		part         int
		lost         int
	}{
		"one for all came last, its own goes":           {slices: []Observation{own, wide}, then: []Observation{own}, lost: 2},
		"its own came last, and goes":                   {slices: []Observation{wide, own}, then: []Observation{own}, lost: 2},
		"one for all came last, both go":                {slices: []Observation{own, wide}, then: []Observation{wide, own}, lost: 2},
		"its own came last, one for all goes":           {slices: []Observation{wide, own}, then: []Observation{wide}, part: 1, lost: 2},
		"one for all came last, and goes":               {slices: []Observation{own, wide}, then: []Observation{wide}, part: 1, lost: 2},
		"another node's came last, its own goes":        {slices: []Observation{own, others}, then: []Observation{own}, lost: 1},
		"its own came last, another node's and it go":   {slices: []Observation{others, own}, then: []Observation{others, own}, lost: 1},
		"all are there":                                 {slices: []Observation{own, wide}},
		"its own came last, and comes again":            {slices: []Observation{wide, own}, then: []Observation{own, again(own)}},
		"one for all came last, which comes again":      {slices: []Observation{own, wide}, then: []Observation{wide, again(wide)}},
		"another node's came last, which comes again":   {slices: []Observation{own, others}, then: []Observation{others, again(others)}},
		"its own came last, another node's comes again": {slices: []Observation{others, own}, then: []Observation{others, again(others)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := bookOf(append([]Observation{seeNode("a", 1, nil), seeNode("b", 1, nil)}, tc.slices...)...)
			b.Apply(seeWorkload("w", 1, 100))
			b.Apply(seePlacement("w", 1, 100, "a", 1, device("a", tc.part, 0)))
			for _, o := range tc.then {
				if o.Ref.ResourceVersion == 1 {
					o = gone(o)
				}
				b.Apply(o)
				b.Snapshot()
			}
			n := b.Snapshot().Node("a")
			if used := n.Allocatable["cpu"] - n.Free["cpu"]; used != 9000 {
				t.Errorf("%d thousandths of cpu are held, want 9000:\n%s", used, account(n))
			}
			if len(n.Lost) != tc.lost {
				t.Errorf("%d devices are lost, want %d:\n%s", len(n.Lost), tc.lost, account(n))
			}
		})
	}
}

// again is a slice that comes once more, as another object.
func again(o Observation) Observation {
	o.Ref.UID += "-again"
	o.Ref.ResourceVersion = 9
	o.Slice = o.Slice.DeepCopy()
	o.Slice.UID, o.Slice.Name = o.Ref.UID, o.Slice.Name+"-again"
	return o
}

// TestWhatIsRememberedOfAPromiseIsBounded by those who were promised.
func TestWhatIsRememberedOfAPromiseIsBounded(t *testing.T) {
	slice := seeSlice("a", 1, 1, 1, 0, 2)
	slice.Slice.Spec.Devices[0].NodeAllocatableResourceMappings = mapped136("cpu", "", "8", nil).NodeAllocatableResourceMappings
	promise := seePlacement("w", 1, 100, "a", 1, device("a", 0, 0))
	b := bookOf(seeNode("a", 1, nil), slice, seeWorkload("w", 1, 100), promise, seeSlice("a", 2, 2, 1, 0, 2))
	if len(b.unmapped) != 1 {
		t.Fatalf("%d devices without their mapping are remembered, want 1", len(b.unmapped))
	}
	b.Apply(gone(promise))
	changed := seeSlice("a", 3, 2, 1, 0, 2)
	changed.Slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "x", Effect: resourcev1.DeviceTaintEffectNone}}
	b.Apply(changed)
	if len(b.unmapped) != 0 {
		t.Errorf("%d devices without their mapping are remembered once the promise is gone, want none", len(b.unmapped))
	}
}
