package ledger

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Reserve holds what was decided on a snapshot of this book against the book as it is now, before it is written. key names
// the reservation of quota that it is for, nodes those whose resources or devices it takes.
//
// changed names, sorted and each once, the nodes whose accounts are not those of the snapshot any more, or KeyUnknown where
// the book does not know that reservation of quota as current, so that a promise for it would not count. Where it is empty
// the decision may be written; otherwise nothing may be, and it is made anew on a newer one. A device that several nodes may use is
// in the accounts of each, so a change of it changes all of them.
//
// s must be as Book.Snapshot returned it: a snapshot With something has nodes of its own.
func (b *Book) Reserve(s *Snapshot, key *v1alpha1.PlacementKey, nodes ...string) (changed []string) {
	now := b.Snapshot()
	if !SameKey(b.Live(key.WorkloadUID), key) {
		return []string{KeyUnknown}
	}
	for _, name := range nodes {
		if now.Node(name) != s.Node(name) { // a node that did not change is the same by pointer
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// ReserveAgain is after how long to decide once more where Reserve refused, and trying at once is of no use or was of none: what the
// book has yet to see comes within that, and on a cluster where nodes change faster others must have their turn.
const ReserveAgain = 20 * time.Millisecond

// KeyUnknown stands among the names of nodes for a reservation of quota that the book has not seen, or not as current. No node
// has such a name.
const KeyUnknown = "(quota reservation)"

// NodesOf returns the names of the nodes on which a Placement's podsets have slots, in their order.
func NodesOf(podSets []v1alpha1.PlacementPodSet) []string {
	var names []string
	for _, ps := range podSets {
		for _, n := range ps.Nodes {
			names = append(names, n.Name)
		}
	}
	return names
}
