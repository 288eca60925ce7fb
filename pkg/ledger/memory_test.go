package ledger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(o Observation, seconds int) Observation {
	o.At = noon.Add(time.Duration(seconds) * time.Second)
	return o
}

// lost returns how many devices a node lost, and when in seconds after noon.
func lost(s *Snapshot, node string) (devices, seconds int) {
	n := s.Node(node)
	if len(n.Lost) == 0 {
		return 0, 0
	}
	return len(n.Lost), int(n.Lost[0].Lost.Sub(noon).Seconds())
}

func TestWhatAPoolListedIsRememberedWhileItIsNotComplete(t *testing.T) {
	cases := map[string]struct {
		then          []Observation
		devices, when int
		free          int
	}{
		"a complete pool has lost nothing": {free: 4},
		"its slice goes":                   {then: []Observation{at(gone(seeSlice("a", 2, 1, 1, 0, 4)), 10)}, devices: 4, when: 10},
		"a newer generation shows one of two slices, then the other": {
			then: []Observation{at(seeSlice("a", 3, 2, 2, 0, 2), 10), at(seeSlice("a", 4, 2, 2, 1, 2), 12)}, free: 4,
		},
		"a newer generation shows one of two slices": {
			then: []Observation{at(seeSlice("a", 3, 2, 2, 0, 2), 10)}, devices: 4, when: 10,
		},
		"a second loss does not start the time anew": {
			then: []Observation{at(seeSlice("a", 3, 2, 2, 0, 2), 10), at(gone(seeSlice("a", 2, 1, 1, 0, 4)), 20), at(gone(seeSlice("a", 3, 2, 2, 0, 2)), 30)}, devices: 4, when: 10,
		},
		"it comes back, and goes again": {
			then: []Observation{at(gone(seeSlice("a", 2, 1, 1, 0, 4)), 10), at(seeSlice("a", 5, 3, 1, 0, 3), 20), at(gone(seeSlice("a", 5, 3, 1, 0, 3)), 40)}, devices: 3, when: 40,
		},
		"slices that come before their node are its own": {
			then: []Observation{
				at(gone(seeNode("a", 1, nil)), 10), at(gone(seeSlice("a", 2, 1, 1, 0, 4)), 11), at(seeSlice("a", 6, 4, 1, 0, 2), 12),
				at(Observation{Ref: ref(KindNode, "a2", 7), Node: seeNode("a", 7, nil).Node}, 13), at(gone(seeSlice("a", 6, 4, 1, 0, 2)), 50),
			}, devices: 2, when: 50,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := bookOf(at(seeNode("a", 1, nil), 0), at(seeSlice("a", 2, 1, 1, 0, 4), 0))
			for _, o := range c.then {
				b.Apply(o)
			}
			s := b.Snapshot()
			if devices, when := lost(s, "a"); devices != c.devices || when != c.when {
				t.Errorf("lost %d devices at %ds, want %d at %ds", devices, when, c.devices, c.when)
			}
			if devices, _ := free(s, "a"); devices != c.free {
				t.Errorf("%d devices are free, want %d", devices, c.free)
			}
		})
	}
}

func TestADeletedNodeIsRememberedUntilItComesBack(t *testing.T) {
	b := bookOf(at(seeNode("a", 1, nil), 0), at(seeSlice("a", 2, 1, 1, 0, 4), 0))
	b.Apply(at(gone(seeNode("a", 1, nil)), 10))
	b.Apply(at(gone(seeSlice("a", 2, 1, 1, 0, 4)), 11))
	s := b.Snapshot()
	if s.Node("a") != nil {
		t.Error("a deleted node is still there")
	}
	if d := s.Departed(); len(d) != 1 || len(d[0].Lost) != 4 || !d[0].Lost[0].Lost.Equal(noon.Add(10*time.Second)) || len(d[0].Devices) != 0 {
		t.Fatalf("departed: %+v, want node a with four devices lost at 10s", d)
	}
	b.Apply(at(Observation{Ref: ref(KindNode, "a2", 9), Node: seeNode("a", 9, nil).Node}, 20))
	if d := b.Snapshot().Departed(); len(d) != 0 {
		t.Errorf("departed: %+v, want none once the node is back", d)
	}
}

func TestWhenANodeBecameNotReadyIsItsOwnWord(t *testing.T) {
	b := bookOf(at(seeNode("a", 1, func(n *corev1.Node) {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(noon)}
	}), 90))
	n := b.Snapshot().Node("a")
	if !n.NotReadySince.Equal(noon) || !n.SeenAt.Equal(noon.Add(90*time.Second)) {
		t.Errorf("not ready since %v, seen at %v", n.NotReadySince, n.SeenAt)
	}
}

func TestWhatEndsIsWaitedForAMinutePastItsGrace(t *testing.T) {
	ends := noon.Add(30 * time.Second)
	claim := seeClaim("c", 3, Claim{Pod: "p", Allocated: []DeviceID{device("a", 0, 0)}})
	slice := seeSlice("a", 2, 1, 1, 0, 1)
	cases := map[string]struct {
		pod      Pod
		workload Observation
		freeing  bool
		until    time.Time
	}{
		"a pod that runs":                       {pod: Pod{Node: "a", Owner: "job-w"}, workload: seeWorkload("w", 4, 100)},
		"a pod that was deleted":                {pod: Pod{Node: "a", Owner: "job-w", Terminating: true, EndsUnix: ends.Unix()}, workload: seeWorkload("w", 4, 100), freeing: true, until: ends.Add(time.Minute)},
		"a pod whose Workload lost its quota":   {pod: Pod{Node: "a", Owner: "job-w"}, workload: seeWorkload("w", 4, 0), freeing: true},
		"a pod of nobody that Kueue manages":    {pod: Pod{Node: "a"}, workload: seeWorkload("w", 4, 0)},
		"a deleted pod of nobody's that it is!": {pod: Pod{Node: "a", Terminating: true, EndsUnix: ends.Unix()}, workload: seeWorkload("w", 4, 0), freeing: true, until: ends.Add(time.Minute)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := bookOf(seeNode("a", 1, nil), slice, seePod("p", 1, c.pod), claim, c.workload).Snapshot().Node("a")
			h, u := n.Devices[0].Holders[0], n.Uses[0]
			if h.Freeing != c.freeing || !h.Until.Equal(c.until) || u.Freeing != c.freeing || !u.Until.Equal(c.until) {
				t.Fatalf("holder %+v, use %+v, want freeing %t until %v", h, u, c.freeing, c.until)
			}
			if !c.until.IsZero() && (!h.Ending(c.until.Add(-time.Second)) || h.Ending(c.until) || u.Ending(c.until)) {
				t.Error("a holder is waited for until its time, and no longer")
			}
		})
	}
}

func TestWithoutTakesAWorkloadsPodsClaimsAndPromisesOut(t *testing.T) {
	b := bookOf(
		seeNode("a", 1, nil), seeSlice("a", 2, 1, 1, 0, 4), seeWorkload("w", 3, 100), seeWorkload("v", 3, 100),
		seePod("p", 4, Pod{Node: "a", Owner: "job-w", PodSet: "main", CreatedUnix: 200}),
		seeClaim("c", 5, Claim{Pod: "p", Allocated: []DeviceID{device("a", 0, 0)}}),
		seePlacement("w", 6, 100, "a", 2, device("a", 0, 0), device("a", 0, 1)),
		seePlacement("v", 7, 100, "a", 1, device("a", 0, 2)),
		seePod("stranger", 8, Pod{Node: "a"}),
	)
	s := b.Snapshot()
	digest := s.Digest()
	if devices, cpu := free(s, "a"); devices != 1 || cpu != 60000 {
		t.Fatalf("%d devices and %d cpu are free, want 1 and 60000", devices, cpu)
	}
	without := s.Without(map[types.UID]bool{"w": true})
	if devices, cpu := free(without, "a"); devices != 3 || cpu != 62000 {
		t.Errorf("without w %d devices and %d cpu are free, want 3 and 62000", devices, cpu)
	}
	if got := without.Node("a").Managed["cpu"]; got != 1000 {
		t.Errorf("without w the managed workloads use %d cpu, want 1000", got)
	}
	if s.Without(nil) != s || s.Without(map[types.UID]bool{"": true}).Digest() != digest || s.Digest() != digest {
		t.Error("nobody is taken out for no uid, and the snapshot itself stays as it is")
	}
}

// A pod may be gone some milliseconds before its claim is given back. Whoever is asked about without others must not take that
// for something that stays: a waiter whose victim is just ending would be sent to another flavor.
func TestWithoutTakesWhatIsBeingGivenBackOut(t *testing.T) {
	dev := device("n", 0, 0)
	ours := Claim{Namespace: "ns", Name: "c", Pod: "ended", Promised: []DeviceID{dev}, Allocated: []DeviceID{dev}}
	theirs := Claim{Namespace: "ns", Name: "c", Pod: "ended", Allocated: []DeviceID{dev}}
	for name, c := range map[string]struct {
		claim Claim
		want  int
	}{
		"a claim of ours whose pod is gone": {ours, 2},
		"somebody else's stays":             {theirs, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := bookOf(seeNode("n", 1, nil), seeSlice("n", 1, 1, 1, 0, 2), seeClaim("c", 1, c.claim)).Snapshot()
			if got, _ := free(s, "n"); got != 1 {
				t.Fatalf("%d devices are free, want 1", got)
			}
			if got, _ := free(s.Without(map[types.UID]bool{"victim": true}), "n"); got != c.want {
				t.Errorf("without the victim %d devices are free, want %d", got, c.want)
			}
		})
	}
}
