package ledger

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
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
