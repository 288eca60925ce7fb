package round

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
)

// notUsed is said of a promise to a Workload that Kueue started without it.
const notUsed = "its pods run without the gate: Kueue started them while its queue had no check of ours"

// leave ends our part in a Workload that is not ours to steer any more. One that holds no quota gets back what its user
// wrote and goes Kueue's way, active again if it was an eviction of ours that kept it; one that runs on a promise is served
// to its end.
func (r *round) leave(ctx context.Context, wl *kueue.Workload) error {
	evicted := meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
	if reserved(wl) && ptr.Deref(wl.Spec.Active, true) && !evicted {
		return r.letRun(ctx, wl)
	}
	if err := r.withdraw(ctx, wl, "Evicted", "the workload holds no quota"); err != nil || reserved(wl) {
		return err
	}
	_, err := r.Writer.Leave(ctx, wl)
	return err
}

// letRun does what is left to do for a Workload that holds quota and is not asked about any more. Its pods that carry the
// gate are released on its promise; a promise that none of its pods will ask for is withdrawn. Where there is a gate and no
// promise, nobody will make one: it is evicted, and comes back without a gate.
func (r *round) letRun(ctx context.Context, wl *kueue.Workload) error {
	live, err := r.livePromise(ctx, wl)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
		return r.withdraw(ctx, wl, "NotUsed", "the queue has no check of ours any more: Kueue starts the pods without the gate")
	}
	crew, err := r.crewOf(ctx, wl)
	if err != nil {
		return err
	}
	switch {
	case live && crew.ours == 0 && crew.others > 0:
		return r.withdraw(ctx, wl, "NotUsed", notUsed)
	case live:
		return nil
	case crew.gated > 0 && !asksForGate(wl):
		log.FromContext(ctx).Info("Evicted workload that waits behind the gate in a queue without a check")
		return r.Writer.Deactivate(ctx, wl)
	}
	return r.withdraw(ctx, wl, "Evicted", "the promise was for an earlier reservation")
}

// asksForGate says whether a Workload's own pod templates carry the label: then its pods are gated whatever we do, and
// evicting it would go on for ever.
func asksForGate(wl *kueue.Workload) bool {
	for i := range wl.Spec.PodSets {
		if _, ok := wl.Spec.PodSets[i].Template.Labels[v1alpha1.ManagedLabel]; ok {
			return true
		}
	}
	return false
}

// carries says whether an unfinished Workload has anything of ours: what steering wrote, an eviction that is not over, or
// a promise.
func (r *round) carries(ctx context.Context, wl *kueue.Workload) bool {
	if _, steered := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation]; steered || steering.Deactivated(wl) {
		return true
	}
	live, err := r.livePromise(ctx, wl)
	return live || err != nil
}
