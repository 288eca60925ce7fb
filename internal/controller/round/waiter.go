package round

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// multiKueueOrigin is on Workloads that a MultiKueue manager made; it deletes copies whose spec differs from its own.
const multiKueueOrigin = "kueue.x-k8s.io/multikueue-origin"

// steered says whether the allowed set is ours to write.
func steered(wl *kueue.Workload, m *policies.Managed) bool {
	if _, foreign := wl.Labels[multiKueueOrigin]; foreign {
		return false
	}
	return m.Steerable() && slices.ContainsFunc(wl.Spec.PodSets, func(ps kueue.PodSet) bool { return m.Policy.AsksDevices(&ps.Template.Spec) })
}

// waiting is a Workload that holds no quota and may be offered some.
type waiting struct {
	workload  *kueue.Workload
	managed   *policies.Managed
	placement *v1alpha1.Placement
	// rests says that it is not tried before a time, or is not ours to steer; in a StrictFIFO queue it stands before the
	// others all the same.
	rests bool
}

// waiter takes up a Workload that holds no quota: it is offered what there is after those that hold quota were served.
func (r *round) waiter(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if notReady(m) != "" {
		return nil
	}
	if !steered(wl, m) {
		r.waiters = append(r.waiters, waiting{workload: wl, managed: m, rests: true})
		return r.leave(ctx, wl)
	}
	p := m.Policy
	if p.Spec.Mode == v1alpha1.ModeFrozen {
		return r.close(ctx, wl, p, admission.Decision{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPolicyFrozen,
			Message: fmt.Sprintf("DevicePolicy %s is Frozen: nothing new is let in", p.Name)})
	}
	placement, err := r.Store.Get(ctx, wl)
	if err != nil {
		return err
	}
	rests := false
	if placement != nil && placement.Status.Retry != nil && placement.Status.Retry.NotBefore != nil {
		if until := placement.Status.Retry.NotBefore.Time; until.After(r.now) {
			r.again(until)
			rests = true
		}
	}
	r.waiters = append(r.waiters, waiting{workload: wl, managed: m, placement: placement, rests: rests})
	return nil
}

// close leaves a Workload the empty set, mends it where the webhook did not write it, and records why.
func (r *round) close(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, dec admission.Decision) error {
	if !p.Steered(wl) || len(flavors.AllowedOf(wl)) > 0 {
		if _, err := r.Writer.Steer(ctx, wl, p, flavors.Plan{}); err != nil {
			return err
		}
	}
	return r.record(ctx, wl, p, dec)
}

// reactivate ends an eviction of ours once Kueue has taken the quota back.
func (r *round) reactivate(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if m.Policy == nil { // what is written stays until somebody can say what else
		return r.Writer.Reactivate(ctx, wl, nil, flavors.Plan{})
	}
	if !steered(wl, m) {
		return r.leave(ctx, wl)
	}
	if err := r.Writer.Reactivate(ctx, wl, m.Policy, flavors.Plan{}); err != nil {
		return err
	}
	faultpoint.Reach(log.FromContext(ctx), faultpoint.AfterReactivate)
	return nil
}

// theirs looks whether a Workload that carries our nonce and is inactive was made so by somebody else, after us. Then the
// nonce is taken out and it stays inactive. It is read from the API server, once an eviction: the next round finds it active.
func (r *round) theirs(ctx context.Context, wl *kueue.Workload) (bool, error) {
	live := &kueue.Workload{}
	if err := r.Store.Live.Get(ctx, client.ObjectKeyFromObject(wl), live); err != nil {
		return false, fmt.Errorf("get workload: %w", err)
	}
	if live.UID != wl.UID || !steering.Deactivated(live) {
		return true, nil // the cache is behind
	}
	if !steering.SetByAnother(live) {
		return false, nil
	}
	log.FromContext(ctx).Info("Left workload to whoever deactivated it after we did")
	return true, r.Writer.Forget(ctx, wl)
}
