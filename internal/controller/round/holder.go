package round

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// holder does the next step for a Workload that holds quota: decide and promise, or, once the promise has come back on
// the watch, turn the check Ready.
func (r *round) holder(ctx context.Context, wl *kueue.Workload, m *policies.Managed) error {
	check := m.Checks[0]
	key, err := admission.KeyOf(wl)
	if err != nil || key == nil {
		return err
	}
	placement, err := r.Store.Get(ctx, wl)
	if err != nil {
		return err
	}
	if placement != nil && ledger.SameKey(placement.Spec.Key, key) {
		return r.promised(ctx, wl, placement, check)
	}
	r.mu.Lock()
	pending := ledger.SameKey(r.written[wl.UID], key)
	r.mu.Unlock()
	if pending {
		return nil
	}
	if err := r.withdraw(ctx, wl, "Evicted", "the promise was for an earlier reservation"); err != nil {
		return err
	}
	if !steering.OthersReady(wl, check) {
		return nil
	}
	if why := notReady(m); why != "" {
		return r.pending(ctx, wl, m, admission.Decision{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPolicyNotReady, Message: why})
	}
	p := m.Policy
	if p.Spec.Mode == v1alpha1.ModeFrozen {
		return r.pending(ctx, wl, m, admission.Decision{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPolicyFrozen,
			Message: fmt.Sprintf("DevicePolicy %s is Frozen: nothing new is let in", p.Name)})
	}
	req, dec, err := r.decide(ctx, wl, p)
	if err != nil {
		return err
	}
	if p.Shadow() {
		if err := r.record(ctx, wl, p, dec); err != nil {
			return err
		}
		_, err := r.Writer.Check(ctx, wl, check, steering.Answer{State: kueue.CheckStateReady, Message: "DevicePolicy " + p.Name + " is in Shadow: " + dec.Message, Bare: true})
		return err
	}
	if steered(wl, m) && req.Refusal == nil {
		if why := mismatch(wl, p, req); why != "" {
			return r.Evictor.Evict(ctx, wl, p, v1alpha1.ReasonQuotaMismatch, why)
		}
	}
	if dec.Verdict != v1alpha1.VerdictAdmit {
		return r.pending(ctx, wl, m, dec)
	}
	return r.promise(ctx, wl, p, key, dec)
}

// mismatch says how what Kueue reserved differs from what was allowed and charged: a patch can be overtaken.
func mismatch(wl *kueue.Workload, p *flavors.Policy, req *admission.Request) string {
	allowed := flavors.AllowedOf(wl)
	for i := range req.PodSets {
		ps := &req.PodSets[i]
		a := assignment(wl, ps.Name)
		if len(ps.Shape.Claims) == 0 || a == nil || ps.Assigned == nil {
			continue
		}
		f := p.Flavor(ps.Assigned.Flavor)
		if f < 0 || !slices.Contains(allowed, ps.Assigned.Flavor) {
			return fmt.Sprintf("Kueue reserved flavor %q for podset %s, allowed were %q", ps.Assigned.Flavor, ps.Name, allowed)
		}
		count := ps.Count
		if a.Count != nil {
			count = *a.Count
		}
		used := a.ResourceUsage[corev1.ResourceName(p.Spec.QuotaResource)]
		if want := p.Charge(ps.Shape, ps.Shape.Variants()[0], f) * int64(count); used.Value() != want {
			return fmt.Sprintf("Kueue charged %s of %s for podset %s, it costs %d", used.String(), p.Spec.QuotaResource, ps.Name, want)
		}
	}
	return ""
}

// promise writes the Placement. The check is turned Ready by the round that sees it come back.
func (r *round) promise(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, key *v1alpha1.PlacementKey, dec admission.Decision) error {
	spec := &v1alpha1.PlacementSpec{Key: key, Policy: p.Name, Revision: p.Revision, PodSets: dec.PodSets}
	if _, err := r.Store.Promise(ctx, wl, spec); err != nil {
		return err
	}
	r.mu.Lock()
	if r.written == nil {
		r.written = map[types.UID]*v1alpha1.PlacementKey{}
	}
	r.written[wl.UID] = key
	r.mu.Unlock()
	r.snapshot = r.Book.Snapshot()
	return r.record(ctx, wl, p, dec)
}

// promised turns the check Ready: the promise has come back on the watch.
func (r *round) promised(ctx context.Context, wl *kueue.Workload, placement *v1alpha1.Placement, check string) error {
	r.mu.Lock()
	delete(r.written, wl.UID)
	r.mu.Unlock()
	if !meta.IsStatusConditionTrue(placement.Status.Conditions, v1alpha1.PlacementReserved) { // a crash came between the two writes
		err := r.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), func(s *v1alpha1.PlacementStatus) {
			setReserved(s, placement.Generation, true, "Promised", "every pod has a place that is kept for it")
		})
		if err != nil {
			return err
		}
	}
	c := steering.CheckState(wl, check)
	if c == nil || c.State == kueue.CheckStateReady {
		return nil
	}
	logger := log.FromContext(ctx)
	faultpoint.Reach(logger, faultpoint.AfterPlacement)
	written, err := r.Writer.Check(ctx, wl, check, steering.Answer{State: kueue.CheckStateReady, Message: "every pod has a place that is kept for it"})
	if err != nil || !written {
		return err
	}
	logger.V(2).Info("Turned check Ready")
	faultpoint.Reach(logger, faultpoint.AfterReady)
	return nil
}

// pending records why a quota holder waits and says it on the check. One that Kueue has admitted all the same, by a
// check that was turned Ready for an older reservation, waits for at most release.waitSeconds; its pods stay gated.
func (r *round) pending(ctx context.Context, wl *kueue.Workload, m *policies.Managed, dec admission.Decision) error {
	if err := r.record(ctx, wl, m.Policy, dec); err != nil {
		return err
	}
	admitted := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != "True" {
		_, err := r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{State: kueue.CheckStatePending, Message: checkMessage(dec)})
		return err
	}
	if m.Policy == nil {
		return nil
	}
	deadline := admitted.LastTransitionTime.Add(time.Duration(flavors.Seconds(m.Policy.Spec.Release.WaitSeconds, 600)) * time.Second)
	if r.now.Before(deadline) {
		r.again(deadline)
		return nil
	}
	return r.Evictor.Evict(ctx, wl, m.Policy, v1alpha1.ReasonReleaseTimeout, "admitted without a place: "+dec.Message)
}

func checkMessage(dec admission.Decision) string {
	if dec.Reason == "" {
		return dec.Message
	}
	return string(dec.Reason) + ": " + dec.Message
}
