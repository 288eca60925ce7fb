package round

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
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

// unknown leaves a promise that the accounts have not yet to the next round.
func (r *round) unknown(ctx context.Context, wl *kueue.Workload, m *policies.Managed, placement *v1alpha1.Placement) error {
	if m.Policy != nil {
		req, err := Requests{Client: r.Client, Policies: r.Policies}.Of(ctx, r.now, wl, m.Policy)
		if err != nil {
			return err
		}
		r.about(wl, req, placement.Spec.PodSets)
	}
	r.toNext(wl)
	return nil
}

// anew is holder, for a Workload whose decision was not written.
func (r *round) anew(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if r.tried[wl.UID]++; r.tried[wl.UID] >= maxAnew {
		r.toNext(wl)
		return nil
	}
	return r.holder(ctx, wl, m)
}

// about notes what a Workload that holds quota is about to be promised. The promise ends it.
func (r *round) about(wl *kueue.Workload, req *admission.Request, podSets []v1alpha1.PlacementPodSet) {
	if r.Store.Offers == nil {
		r.Store.Offers = map[types.UID]placements.Offer{}
	}
	r.Store.Offers[wl.UID] = offerOf(wl, req, podSets)
}

// toNext leaves a Workload that holds quota to the next round. What it is about to be promised is offered to nobody in this one:
// Kueue would give quota for it to who has to give that back at once.
func (r *round) toNext(wl *kueue.Workload) {
	r.left = append(r.left, wl.UID)
	r.again(r.now.Add(ledger.ReserveAgain))
}

// withoutLeft returns the accounts in which those that are left to the next round have what they are about to be promised.
func (r *round) withoutLeft() *ledger.Snapshot {
	s := r.snapshot
	for _, uid := range r.left {
		if o, ok := r.Store.Offers[uid]; ok {
			s = s.With(o.Holder, o.Claims)
		}
	}
	return s
}
