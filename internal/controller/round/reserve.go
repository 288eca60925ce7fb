package round

import (
	"context"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// A decision that was not written because what it touches had changed is made anew at once, and after maxAnew times in one round
// in the next, ledger.ReserveAgain later.
const maxAnew = 3

// conflicts says whether what was decided on the round's snapshot must not be written, since the accounts that it touches have
// changed. The round goes on with newer ones then.
//
// The cache may show a quota reservation that the book has not been given yet. A promise for it would not count, and the next
// decision would give the same devices away.
func (r *round) conflicts(ctx context.Context, wl *kueue.Workload, key *v1alpha1.PlacementKey, podSets []v1alpha1.PlacementPodSet) bool {
	changed := r.Book.Reserve(r.snapshot, key, ledger.NodesOf(podSets)...)
	if len(changed) == 0 {
		return false
	}
	r.look()
	if changed[0] == ledger.KeyUnknown { // what the book has yet to see comes no sooner for asking again
		r.tried[wl.UID] = maxAnew
	}
	r.Metrics.Conflicts.WithLabelValues("Promise").Inc()
	log.FromContext(ctx).V(2).Info("Decided anew on newer accounts", "changed", changed)
	return true
}

// known says whether the accounts of the round have a promise as the cache shows it, which may be ahead of the book: one that it
// has not, would be held against accounts on which another has its devices. It takes newer accounts where they have it.
func (r *round) known(placement *v1alpha1.Placement) bool {
	version, err := strconv.ParseUint(placement.ResourceVersion, 10, 64)
	if err == nil && !r.Book.Seen(ledger.KindPlacement, placement.UID, version) {
		return false
	}
	if r.snapshot.Version != r.Book.Version() {
		r.look()
	}
	return true
}

// anew is holder, for a Workload whose decision was not written.
func (r *round) anew(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if r.tried[wl.UID]++; r.tried[wl.UID] >= maxAnew {
		r.again(r.now.Add(ledger.ReserveAgain))
		return nil
	}
	return r.holder(ctx, wl, m)
}
