package placements

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Offer is what a Workload was offered and is not promised yet.
type Offer struct {
	Holder ledger.Holder
	Claims []ledger.PodSetClaim
}

// Beside returns a snapshot in which what other Workloads were offered is taken: who is promised a place looks for one there
// first, so that nobody loses what Kueue is about to give it for a choice that could have been another. Call it with
// Deciding held.
func (s *Store) Beside(snapshot *ledger.Snapshot, own types.UID) *ledger.Snapshot {
	for _, uid := range slices.Sorted(maps.Keys(s.Offers)) {
		if uid != own {
			snapshot = snapshot.With(s.Offers[uid].Holder, s.Offers[uid].Claims)
		}
	}
	return snapshot
}
