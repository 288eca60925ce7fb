package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestAReservationIsRefusedIfWhatItTouchesHasChanged, and only then.
func TestAReservationIsRefusedIfWhatItTouchesHasChanged(t *testing.T) {
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	for name, tc := range map[string]struct {
		since []Observation
		nodes []string
		want  []string
	}{
		"nothing has changed":            {nodes: []string{"a", "b"}},
		"another node has changed":       {since: []Observation{seeNode("c", 2, cordon)}, nodes: []string{"a", "b"}},
		"a heartbeat changes no account": {since: []Observation{seeNode("a", 2, nil)}, nodes: []string{"a"}},
		"one was cordoned":               {since: []Observation{seeNode("b", 2, cordon)}, nodes: []string{"a", "b"}, want: []string{"b"}},
		"one is gone":                    {since: []Observation{gone(seeNode("b", 2, nil))}, nodes: []string{"b", "a", "b"}, want: []string{"b"}},
		"a claim was given its device":   {since: []Observation{seeClaim("c", 1, Claim{Allocated: []DeviceID{device("a", 0, 0)}})}, nodes: []string{"a"}, want: []string{"a"}},
		"a pod was bound there":          {since: []Observation{seePod("p", 1, Pod{Node: "a"})}, nodes: []string{"a"}, want: []string{"a"}},
		"another was promised there":     {since: []Observation{seeWorkload("v", 1, 50), seePlacement("v", 1, 50, "a", 1)}, nodes: []string{"a"}, want: []string{"a"}},
		"its pool is being republished":  {since: []Observation{seeSlice("a", 1, 2, 2, 0, 2)}, nodes: []string{"a"}, want: []string{"a"}},
		"its quota was taken back":       {since: []Observation{seeWorkload("w", 2, 0)}, nodes: []string{"a"}, want: []string{KeyUnknown}},
		"and reserved anew":              {since: []Observation{seeWorkload("w", 2, 200)}, nodes: []string{"a"}, want: []string{KeyUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			b := bookOf(seeNode("a", 1, nil), seeNode("b", 1, nil), seeNode("c", 1, nil), seeSlice("a", 1, 1, 1, 0, 2), seeWorkload("w", 1, 100))
			s := b.Snapshot()
			for _, o := range tc.since {
				b.Apply(o)
			}
			got := b.Reserve(s, keyOf("w", 100), tc.nodes...)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("changed (-want +got):\n%s", d)
			}
		})
	}
}

// TestAReservationThatIsWrittenRefusesTheNext: of two decisions on one snapshot that take from one node, one is written.
func TestAReservationThatIsWrittenRefusesTheNext(t *testing.T) {
	b := bookOf(seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 2), seeWorkload("w", 1, 100), seeWorkload("v", 1, 100))
	s := b.Snapshot()
	if changed := b.Reserve(s, keyOf("w", 100), "a"); len(changed) > 0 {
		t.Fatalf("the first conflicts: %v", changed)
	}
	b.Apply(seePlacement("w", 1, 100, "a", 1, device("a", 0, 0)))
	if changed := b.Reserve(s, keyOf("v", 100), "a"); len(changed) == 0 {
		t.Error("the second is let through on the old snapshot")
	}
}
