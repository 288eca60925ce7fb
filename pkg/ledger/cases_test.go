package ledger

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// TestWhatAPoolLends by its generations. A process that starts at the end of it knows as much, but for what was taken back.
func TestWhatAPoolLends(t *testing.T) {
	slice := func(version uint64, generation, count int64, part, devices int) Observation {
		return seeSlice("a", version, generation, count, part, devices)
	}
	for name, c := range map[string]struct {
		seen  []Observation
		state PoolState
		free  int
	}{
		"one slice of one":                           {seen: []Observation{slice(1, 1, 1, 0, 4)}, state: PoolFresh, free: 4},
		"both slices of two":                         {seen: []Observation{slice(1, 1, 2, 0, 4), slice(2, 1, 2, 1, 3)}, state: PoolFresh, free: 7},
		"one slice of two":                           {seen: []Observation{slice(1, 1, 2, 0, 4)}, state: PoolIncomplete},
		"one of two of a newer generation":           {seen: []Observation{slice(1, 1, 1, 0, 4), slice(2, 2, 2, 0, 4)}, state: PoolIncomplete},
		"two of two of a newer generation":           {seen: []Observation{slice(1, 1, 1, 0, 4), slice(2, 2, 2, 0, 4), slice(3, 2, 2, 1, 1)}, state: PoolFresh, free: 5},
		"a newer generation and what is left":        {seen: []Observation{slice(1, 6, 1, 0, 4), slice(2, 7, 1, 0, 2)}, state: PoolFresh, free: 2},
		"an older generation comes late":             {seen: []Observation{slice(2, 7, 1, 0, 2), slice(1, 6, 1, 0, 4)}, state: PoolFresh, free: 2},
		"generation 7, then none, then 1":            {seen: []Observation{slice(1, 7, 1, 0, 4), gone(slice(1, 7, 1, 0, 4)), slice(3, 1, 1, 0, 3)}, state: PoolFresh, free: 3},
		"generation 7, then 6, which was left of it": {seen: []Observation{slice(1, 6, 1, 0, 4), slice(2, 7, 1, 0, 4), gone(slice(2, 7, 1, 0, 4))}, state: PoolRegressed},
		"it regressed, and a newer generation comes": {seen: []Observation{slice(1, 6, 1, 0, 4), slice(2, 7, 1, 0, 4), gone(slice(2, 7, 1, 0, 4)), slice(4, 8, 1, 0, 2)}, state: PoolFresh, free: 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := bookOf(append([]Observation{seeNode("a", 1, nil)}, c.seen...)...)
			s := b.Snapshot()
			n := s.Node("a")
			if len(n.Pools) != 1 || n.Pools[0].State != c.state {
				t.Errorf("pools are %v, want one that is %s", n.Pools, c.state)
			}
			if free, _ := free(s, "a"); free != c.free {
				t.Errorf("%d devices are free, want %d", free, c.free)
			}
		})
	}
}

// sized is a device of a NUMA zone with so many gigabytes of huge pages, of which claims take what they ask for.
func sized(zone int64) resourcev1.Device {
	return resourcev1.Device{
		Name: fmt.Sprintf("hugepages-%d", zone), AllowMultipleAllocations: ptr.To(true),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"numaNode": {IntValue: ptr.To(zone)}},
		Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"size": {Value: resource.MustParse("8Gi")}},
		NodeAllocatableResourceMappings: map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
			"hugepages-1Gi": {CapacityKey: ptr.To(resourcev1.QualifiedName("size"))},
		},
	}
}

func TestHugePagesOfTwoZonesDoNotGiveTenOnOne(t *testing.T) {
	node := seeNode("a", 1, func(n *corev1.Node) { n.Status.Allocatable["hugepages-1Gi"] = resource.MustParse("16Gi") })
	slice := seeSlice("a", 1, 1, 1, 0, 0)
	slice.Slice.Spec.Driver = "dra.memory"
	slice.Slice.Spec.Devices = []resourcev1.Device{sized(0), sized(1)}
	first := DeviceID{Driver: "dra.memory", Pool: "a", Device: "hugepages-0"}
	b := bookOf(node, slice)
	takes := func(gigabytes int64) Consumption {
		return Consumption{"size": *resource.NewQuantity(gigabytes<<30, resource.BinarySI)}
	}
	counts := func(*Holder) bool { return true }
	fits := func(want int64) []int64 {
		n := b.Snapshot().Node("a")
		var zones []int64
		for i := range n.Devices {
			if zone, ok := n.Devices[i].Zone(); ok && n.Devices[i].Left(takes(want), counts) {
				zones = append(zones, zone)
			}
		}
		return zones
	}
	if got := fits(8); len(got) != 2 {
		t.Errorf("8 fit on zones %v, want both", got)
	}
	if got := fits(10); len(got) != 0 {
		t.Errorf("10 of 16 fit on zones %v, of which none has more than 8", got)
	}
	b.Apply(seePod("p", 1, Pod{Pin: "a", Claims: []string{"c"}, Referring: []int{1}}))
	b.Apply(seeClaim("c", 1, Claim{Pod: "p", Allocated: []DeviceID{}, Shares: []Share{{Device: first, ID: "s", Consumed: takes(6)}}}))
	if got := fits(3); len(got) != 1 || got[0] != 1 {
		t.Errorf("3 fit on zones %v, want 1 alone: 2 are left of zone 0", got)
	}
	n := b.Snapshot().Node("a")
	if got := n.Free["hugepages-1Gi"]; got != 10<<30 {
		t.Errorf("%d are free on the node, want 10Gi", got>>30)
	}
	for _, z := range n.Zones() {
		want := map[int64]int64{NoZone: 0, 0: 2 << 30, 1: 8 << 30}[z.Number]
		if got := z.Free["hugepages-1Gi"]; got != want {
			t.Errorf("zone %d has %d free, want %d", z.Number, got, want)
		}
	}
}

// TestANodeOf64CPUsOfWhichAClaimTakes40 leaves 24, whoever has the claim and however far it is.
func TestANodeOf64CPUsOfWhichAClaimTakes40(t *testing.T) {
	slice := seeSlice("a", 1, 1, 1, 0, 1)
	slice.Slice.Spec.Devices[0].NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
		"cpu": {AllocationMultiplier: ptr.To(resource.MustParse("40"))},
	}
	s := slot{device: device("a", 0, 0), mapped: Amounts{"cpu": 40000}}
	none := Amounts{"cpu": 0, "pods": 1}
	for name, seen := range map[string][]Observation{
		"promised": {seeWorkload("w", 1, 100), s.placement(100)},
		"cut to a released pod": {
			seePod("p", 1, Pod{Pin: "a", Requests: none}), seeClaim("c", 1, Claim{Pod: "p", Promised: []DeviceID{s.device}}),
		},
		"given to a pod that is not bound yet": {
			seePod("p", 1, Pod{Pin: "a", Requests: none}), seeClaim("c", 1, Claim{Pod: "p", Allocated: []DeviceID{s.device}}),
		},
		"given to a bound pod whose status says so": {
			seePod("p", 1, Pod{Node: "a", Requests: Amounts{"cpu": 40000, "pods": 1}, Mapped: []ClaimStatus{{Claim: "c", Amounts: s.mapped}}, Claims: []string{"c"}, Referring: []int{1}}),
			seeClaim("c", 1, Claim{Pod: "p", Allocated: []DeviceID{s.device}}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := bookOf(seeNode("a", 1, nil), slice)
			for _, o := range seen {
				b.Apply(o)
			}
			n, want := b.Snapshot().Node("a"), int64(24000)
			if name == "promised" {
				want -= 1000 // what its pod asks for
			}
			if got := n.Free["cpu"]; got != want {
				t.Errorf("%d of cpu is free, want %d:\n%s", got, want, account(n))
			}
			if fits, by := n.Free.Times(Amounts{"cpu": 30000}, 1); fits != 0 || by != "cpu" {
				t.Errorf("a pod that asks for 30 fits %d times", fits)
			}
		})
	}
}

// TestARestartKnowsWhatWasKnown: whatever the order in which a process that starts is told.
func TestARestartKnowsWhatWasKnown(t *testing.T) {
	d := device("a", 0, 0)
	live := bookOf(
		seeNode("a", 1, nil), seeNode("b", 2, nil), seeSlice("a", 3, 6, 1, 0, 8), seeSlice("a", 4, 7, 1, 0, 8), seeWorkload("w", 5, 100), seeWorkload("x", 6, 100),
		seePlacement("w", 7, 100, "a", 1, d), seePod("w-0", 8, Pod{Owner: "job-w", PodSet: "main", CreatedUnix: 200}), seeClaim("c", 9, Claim{Pod: "w-0", Promised: []DeviceID{d}}),
		gone(seeSlice("a", 3, 6, 1, 0, 8)), gone(seeNode("b", 2, nil)), gone(seeWorkload("x", 6, 100)),
	)
	released, bound := seePod("w-0", 10, Pod{Owner: "job-w", PodSet: "main", CreatedUnix: 200, Pin: "a"}), seeClaim("c", 11, Claim{Pod: "w-0", Promised: []DeviceID{d}, Allocated: []DeviceID{d}})
	for _, o := range []Observation{released, bound} {
		live.Apply(o)
		live.Snapshot()
	}
	same(t, live.Snapshot(), bookOf(
		bound, seePlacement("w", 7, 100, "a", 1, d), released, seeWorkload("w", 5, 100), seeSlice("a", 4, 7, 1, 0, 8), seeNode("a", 1, nil),
	).Snapshot())
}
