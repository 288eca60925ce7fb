package admission

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

var background = context.Background()

var ownKey = &v1alpha1.PlacementKey{WorkloadUID: "own", Admission: "a"}

// inOrder leaves pods as they are; orders draws an order of theirs.
func inOrder(list []*releasing) []*releasing { return list }

func anyOrder(t *rapid.T) func([]*releasing) []*releasing {
	return func(list []*releasing) []*releasing {
		if len(list) < 2 || rapid.Bool().Draw(t, "as they are") {
			return list
		}
		return rapid.Permutation(list).Draw(t, "order")
	}
}

// TestWhatIsPlacedFits holds Decide against what is predicted of kube-scheduler: whatever is placed, each pod, released as the
// manager releases it, is bound to its node with its own devices.
func TestWhatIsPlacedFits(t *testing.T) {
	placed, slots := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlenty(rt, 2)
		r := &Request{Policy: p.drawPolicy(t, false), Namespace: "team", Now: noon, PodSets: p.drawGang(2, 3)}
		dec := anew().Decide(background, p.book.Snapshot(), r)
		if dec.Verdict != v1alpha1.VerdictAdmit {
			t.Log(dec.Reason, dec.Message)
			return
		}
		placed++
		slots += agrees(rt, p.world, r, dec, anyOrder(rt))
	})
	if t.Logf("%d gangs placed, of %d pods", placed, slots); placed < 20 || slots <= placed {
		t.Errorf("%d gangs of %d pods are too few to say anything", placed, slots)
	}
}
