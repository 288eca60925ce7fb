package round

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// look takes the accounts as they are, and what promises overlap in them. A round's own promises never do.
func (r *round) look() {
	r.snapshot = r.Book.Snapshot()
	r.overlaps = map[types.UID]ledger.Overlap{}
	for _, o := range r.snapshot.Overlaps() {
		r.overlaps[o.Loser.UID] = o
	}
}

// overlapped says whether a Workload's promise loses to another's.
func (r *round) overlapped(wl *kueue.Workload) bool {
	p := r.promises[wl.UID]
	if p == nil {
		return false
	}
	_, loses := r.overlaps[p.UID]
	return loses
}

// yield withdraws a promise that loses a device to another's. Its Workload is decided anew. Once it is admitted its slots are
// placed anew as its pods come for them, since the others have a pod each by then.
func (r *round) yield(ctx context.Context, wl *kueue.Workload, placement *v1alpha1.Placement) (done bool, err error) {
	o, loses := r.overlaps[placement.UID]
	if !loses || meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
		return false, nil
	}
	// Whose the other is may be nothing to its user.
	message := fmt.Sprintf("device %s of node %s is promised to another workload as well, which comes before: the promise was withdrawn", o.Device, o.Node)
	if err := r.withdraw(ctx, wl, string(v1alpha1.ReasonPromiseOverlap), message); err != nil {
		return true, err
	}
	r.look()
	r.Metrics.Overlaps.Inc()
	log.FromContext(ctx).Info("Withdrew promise of a device that another has", "device", o.Device, "node", o.Node,
		"other", types.NamespacedName{Namespace: o.Winner.Namespace, Name: o.Winner.Name})
	for _, on := range []runtime.Object{wl, ownerOf(wl)} {
		if on != nil {
			r.Events.Eventf(on, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonPromiseOverlap), "Withdraw", "%s", message)
		}
	}
	return true, nil
}
