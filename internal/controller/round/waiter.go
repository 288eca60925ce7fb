package round

import (
	"context"
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
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
}

// waiter takes up a Workload that holds no quota: it is offered what there is after those that hold quota were served.
func (r *round) waiter(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	if notReady(m) != "" {
		return nil
	}
	if !steered(wl, m) {
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
	if placement != nil && placement.Status.Retry != nil && placement.Status.Retry.NotBefore != nil {
		if until := placement.Status.Retry.NotBefore.Time; until.After(r.now) {
			r.again(until)
			return nil
		}
	}
	r.waiters = append(r.waiters, waiting{wl, m, placement})
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
	return r.Writer.Reactivate(ctx, wl, m.Policy, flavors.Plan{})
}
