package round

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// adopted is what the check says of a Workload that runs without us.
const adopted = "it was running before Plimsoll was asked: left as it is until it is queued again"

// adopt answers for a Workload that Kueue admitted without asking us: before the check joined its queue, or in Shadow.
// The check turns Ready without the label, and stays so; nothing else is written, nothing is promised, and what its pods
// and claims hold counts as it is. done is false for every other Workload, among them one that was admitted on a check of
// ours and whose pods are gated.
//
// All of that follows from what the API holds: a check of ours that let a Workload in carries the label, and so do the
// pods; an eviction resets the check.
func (r *round) adopt(ctx context.Context, wl *kueue.Workload, m *policies.Managed) (done bool, err error) {
	check := m.Checks[0]
	state := steering.CheckState(wl, check)
	if state != nil && state.State == kueue.CheckStateReady && len(state.PodSetUpdates) > 0 {
		return false, nil
	}
	if !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
		return r.takeBack(ctx, wl, m)
	}
	if r.stale(m.Policy) != "" { // whose pods it has is not known
		return true, nil
	}
	crew, err := r.crewOf(ctx, wl)
	if err != nil || crew.ours > 0 {
		return false, err
	}
	live, err := r.livePromise(ctx, wl)
	if err != nil || live && crew.others == 0 { // its pods are yet to come, and will be gated
		return false, err
	}
	if err := r.withdraw(ctx, wl, "NotUsed", notUsed); err != nil {
		return false, err
	}
	if state != nil && state.State == kueue.CheckStateReady {
		return true, nil
	}
	_, err = r.Writer.Check(ctx, wl, check, steering.Answer{State: kueue.CheckStateReady, Message: adopted, Bare: true})
	return true, err
}

// takeBack takes back a bare Ready, said in Shadow, from a Workload that waits for another check still: in Enforce it
// would let its pods go without a gate.
func (r *round) takeBack(ctx context.Context, wl *kueue.Workload, m *policies.Managed) (written bool, err error) {
	state := steering.CheckState(wl, m.Checks[0])
	if state == nil || state.State != kueue.CheckStateReady || m.Policy == nil || m.Policy.Shadow() {
		return false, nil
	}
	return r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{
		State: kueue.CheckStatePending, Message: fmt.Sprintf("DevicePolicy %s is not in Shadow any more", m.Policy.Name)})
}

// crew counts the pods of a Workload's current reservation that are neither terminal nor terminating.
type crew struct {
	// ours have, or had, the gate; gated still have it; others never did.
	ours, gated, others int
}

// crewOf counts a Workload's pods. A time stamp has whole seconds: a pod of the second in which quota was reserved counts.
func (r *round) crewOf(ctx context.Context, wl *kueue.Workload) (crew, error) {
	var c crew
	owner := observe.ControllerOf(wl)
	if owner == "" {
		return c, nil
	}
	list := &corev1.PodList{}
	err := r.Client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{observe.PodByController: string(owner)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return c, fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.CreationTimestamp.Unix() < reservedAt(wl) {
			continue
		}
		switch {
		case observe.Gated(p):
			c.ours++
			c.gated++
		case wasGated(p):
			c.ours++
		default:
			c.others++
		}
	}
	return c, nil
}

// wasGated says whether a pod without the gate had it once. Its label can be taken off, its claims are what they are.
func wasGated(p *corev1.Pod) bool {
	if _, ok := p.Labels[v1alpha1.ManagedLabel]; ok {
		return true
	}
	for i := range p.Spec.ResourceClaims {
		if name := p.Spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil && flavors.IsOwnedTemplateName(*name) {
			return true
		}
	}
	return false
}

// livePromise says whether a Workload has a Placement for its current reservation, seen back or not.
func (r *round) livePromise(ctx context.Context, wl *kueue.Workload) (bool, error) {
	key, err := admission.KeyOf(wl)
	if err != nil || key == nil {
		return false, err
	}
	p, err := r.Store.Get(ctx, wl)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return p != nil && ledger.SameKey(p.Spec.Key, key) || ledger.SameKey(r.written[wl.UID], key), nil
}

// uncharged says which podset with devices has quota and was charged nothing for them: it was reserved before the check
// joined, or after an eviction and before it was closed.
func uncharged(p *flavors.Policy, req *admission.Request) string {
	if req.Refusal != nil {
		return ""
	}
	for i := range req.PodSets {
		if ps := &req.PodSets[i]; p.Asks(ps.Shape) && ps.Assigned != nil && ps.Assigned.Charge == nil && ps.Count > 0 {
			return fmt.Sprintf("Kueue reserved quota for podset %s without its devices", ps.Name)
		}
	}
	return ""
}
