package round

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		return r.promised(ctx, wl, m, placement)
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
	if why := uncharged(p, req); why != "" && steered(wl, m) {
		return r.Evictor.Evict(ctx, wl, p, v1alpha1.ReasonQuotaMismatch, why)
	}
	switch {
	case dec.Verdict == v1alpha1.VerdictAdmit, dec.Coming:
		if r.conflicts(ctx, wl, key, dec.PodSets) {
			return r.anew(ctx, wl, m)
		}
		r.halves(ctx, wl, m, req, &dec)
		return r.promise(ctx, wl, p, key, dec)
	case !steered(wl, m), dec.Reason == v1alpha1.ReasonPoolStale: // nobody loses quota because we hear nothing
		return r.pending(ctx, wl, m, dec)
	case req.Refusal == nil && dec.Reason == v1alpha1.ReasonQuotaMismatch:
		return r.Evictor.Evict(ctx, wl, p, dec.Reason, dec.Message)
	}
	return r.refuse(ctx, wl, m, req, dec)
}

// refuse takes the quota back from a Workload that has no place, and none on its way: nobody keeps quota for devices that
// are not there. It is closed for the flavors that it held.
func (r *round) refuse(ctx context.Context, wl *kueue.Workload, m *policies.Managed, req *admission.Request, dec admission.Decision) error {
	var held []string
	for i := range req.PodSets {
		ps := &req.PodSets[i]
		if m.Policy.Asks(ps.Shape) && ps.Assigned != nil && !slices.Contains(held, ps.Assigned.Flavor) {
			held = append(held, ps.Assigned.Flavor)
		}
	}
	r.halves(ctx, wl, m, req, &dec)
	if err := r.record(ctx, wl, m.Policy, dec); err != nil {
		return err
	}
	return r.Evictor.Refuse(ctx, wl, m.Policy, held, flavors.Refusal{Reason: dec.Reason, Message: dec.Message})
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
	delete(r.Store.Offers, wl.UID)
	r.measurePromise(wl, p, &dec)
	r.snapshot = r.Book.Snapshot()
	if dec.Coming {
		faultpoint.Reach(log.FromContext(ctx), faultpoint.AfterComing)
	}
	return r.record(ctx, wl, p, dec)
}

// promised turns the check Ready once the promise has come back on the watch and all of it is there.
func (r *round) promised(ctx context.Context, wl *kueue.Workload, m *policies.Managed, placement *v1alpha1.Placement) error {
	r.mu.Lock()
	delete(r.written, wl.UID)
	r.mu.Unlock()
	delete(r.Store.Offers, wl.UID) // the promise has it now, whatever became of the answer to its write
	if !r.known(placement) {
		r.again(r.now.Add(ledger.ReserveAgain))
		return nil
	}
	if done, err := r.yield(ctx, wl, placement); done || err != nil {
		return err
	}
	c := steering.CheckState(wl, m.Checks[0])
	if c == nil {
		return nil
	}
	if c.State == kueue.CheckStateReady {
		if len(c.PodSetUpdates) > 0 && done(placement) {
			r.settle(wl, placement)
		}
		return r.reserved(ctx, wl, placement)
	}
	// One that is admitted came from another check of ours, or from before the queue had none: its pods use the promise.
	if !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
		if done, err := r.awaited(ctx, wl, m, placement); done || err != nil {
			return err
		}
	}
	if err := r.reserved(ctx, wl, placement); err != nil {
		return err
	}
	logger := log.FromContext(ctx)
	faultpoint.Reach(logger, faultpoint.AfterPlacement)
	written, err := r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{State: kueue.CheckStateReady, Message: "every pod has a place that is kept for it"})
	if err != nil || !written {
		return err
	}
	logger.V(2).Info("Turned check Ready")
	faultpoint.Reach(logger, faultpoint.AfterReady)
	return nil
}

// reserved says in the status that a promise is kept, and ends what was remembered of the wait.
func (r *round) reserved(ctx context.Context, wl *kueue.Workload, placement *v1alpha1.Placement) error {
	if done(placement) {
		return nil
	}
	return r.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), func(s *v1alpha1.PlacementStatus) {
		s.Waits, s.Closed, s.Victims = nil, nil, nil
		if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.PlacementReserved) {
			setReserved(s, placement.Generation, true, "Promised", "every pod has a place that is kept for it")
			if s.Record != nil && s.Record.Verdict != v1alpha1.VerdictAdmit {
				rec := *s.Record
				rec.Time, rec.Verdict, rec.Reason, rec.Message = metav1.NewTime(r.now), v1alpha1.VerdictAdmit, "", "what its place waited for has come"
				admission.Push(s, &rec)
			}
		}
	})
}

// done says that the status of a promise that is kept has nothing left of the wait.
func done(placement *v1alpha1.Placement) bool {
	s := &placement.Status
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.PlacementReserved) && len(s.Waits)+len(s.Closed)+len(s.Victims) == 0
}

// awaited looks at a promise that may count on what is ending or was lost within the grace. done is false where all of it
// is there. It is waited for up to release.waitSeconds; where it does not come the promise is withdrawn, and decided anew.
// Without a policy nobody can tell, and nothing is admitted until it is back.
func (r *round) awaited(ctx context.Context, wl *kueue.Workload, m *policies.Managed, placement *v1alpha1.Placement) (done bool, err error) {
	if m.Policy == nil {
		dec := admission.Decision{Reason: v1alpha1.ReasonPolicyNotReady, Message: "its place is kept, and cannot be held against what is there: " + notReady(m)}
		_, err = r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{State: kueue.CheckStatePending, Message: checkMessage(dec)})
		return true, err
	}
	if why := r.stale(m.Policy); why != "" { // what is promised stays promised
		dec := admission.Decision{Reason: v1alpha1.ReasonPoolStale, Message: "its place is kept, and cannot be held against what is there: " + why}
		_, err = r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{State: kueue.CheckStatePending, Message: checkMessage(dec)})
		return true, err
	}
	req, err := Requests{Client: r.Client, Policies: r.Policies}.Of(ctx, r.now, wl, m.Policy)
	if err != nil || req.Refusal != nil {
		return err != nil, err
	}
	hold := admission.Holds(r.snapshot, req, admission.Promise{Workload: wl.UID, Placement: placement.UID, PodSets: placement.Spec.PodSets})
	if !hold.Until.IsZero() {
		r.again(hold.Until)
	}
	switch hold.Keeping {
	case admission.Kept:
		return false, nil
	case admission.Broken:
		log.FromContext(ctx).V(2).Info("Withdrew promise that cannot be kept", "reason", hold.Reason)
		err := r.withdraw(ctx, wl, string(hold.Reason), hold.Message)
		r.look() // what it gave back may be what keeps the next
		return true, err
	}
	deadline := placement.Spec.Key.ReservedAt.Add(m.Policy.ReleaseWait())
	if !r.now.Before(deadline) {
		return true, r.Evictor.Evict(ctx, wl, m.Policy, v1alpha1.ReasonReleaseTimeout, "what its place waits for did not come: "+hold.Message)
	}
	r.again(deadline)
	dec := admission.Decision{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonDevicesFreeing, Coming: true, Message: hold.Message}
	_, err = r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{State: kueue.CheckStatePending, Message: checkMessage(dec)})
	return true, err
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
	if m.Policy == nil || r.stale(m.Policy) != "" {
		return nil
	}
	deadline := admitted.LastTransitionTime.Add(m.Policy.ReleaseWait())
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
