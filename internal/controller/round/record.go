package round

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// offeredReason is why nothing is reserved for a Workload that waits for no more than that Kueue takes what is open to it.
const offeredReason = "Offered"

// recordEvery is how often at most a record is rewritten while verdict and reason stay the same.
const recordEvery = 10 * time.Second

// record writes a decision into the Workload's Placement where it tells something new, and says it as an event.
func (r *round) record(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, dec admission.Decision) error {
	return r.recordWith(ctx, wl, p, dec, nil)
}

// recordWith is record with a change of what else the status keeps; nil for none. A change is written at once.
func (r *round) recordWith(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, dec admission.Decision, change func(*v1alpha1.PlacementStatus)) error {
	rec := admission.Record(dec, p, r.now)
	placement, err := r.Store.Get(ctx, wl)
	if err != nil {
		return err
	}
	var old *v1alpha1.DecisionRecord
	if placement != nil {
		old = placement.Status.Record
	}
	admitted := dec.Verdict == v1alpha1.VerdictAdmit
	if admission.SameRecord(old, rec) && !admitted && change == nil {
		return nil
	}
	if old != nil && old.Verdict == rec.Verdict && old.Reason == rec.Reason && !admitted && change == nil {
		if next := old.Time.Add(recordEvery); r.now.Before(next) {
			r.again(next)
			if r.due.IsZero() || next.Before(r.due) {
				r.due = next
			}
			return nil
		}
	}
	rec = rec.DeepCopy() // what is written must not share memory with a choice that others share
	if placement == nil {
		if placement, err = r.Store.Ensure(ctx, wl); err != nil {
			return err
		}
	}
	err = r.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), func(s *v1alpha1.PlacementStatus) {
		admission.Push(s, rec)
		if change != nil {
			change(s)
		}
		if admitted {
			setReserved(s, placement.Generation, true, "Promised", dec.Message)
		} else {
			setReserved(s, placement.Generation, false, cmp.Or(string(dec.Reason), offeredReason), dec.Message)
		}
	})
	if err != nil {
		return err
	}
	if (admitted || dec.Reason != "") && (old == nil || old.Verdict != rec.Verdict || old.Reason != rec.Reason) {
		r.announce(wl, dec)
	}
	return nil
}

// setReserved sets the condition Reserved. A Placement that keeps nothing has neither released nor bound anything.
func setReserved(s *v1alpha1.PlacementStatus, generation int64, kept bool, reason, message string) {
	status := metav1.ConditionFalse
	if kept {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.PlacementReserved, Status: status, ObservedGeneration: generation, Reason: reason, Message: message,
	})
	for _, c := range []string{v1alpha1.PlacementReleased, v1alpha1.PlacementBound, v1alpha1.PlacementDiverged} {
		meta.RemoveStatusCondition(&s.Conditions, c)
	}
}

// announce says a decision as an event on the Workload and on what owns it, where its user looks.
func (r *round) announce(wl *kueue.Workload, dec admission.Decision) {
	kind, reason := corev1.EventTypeNormal, "Placed"
	if dec.Verdict != v1alpha1.VerdictAdmit {
		kind, reason = corev1.EventTypeWarning, string(dec.Reason)
	}
	for _, on := range []runtime.Object{wl, ownerOf(wl)} {
		if on != nil {
			r.Events.Eventf(on, nil, kind, reason, "Decide", "%s", dec.Message)
		}
	}
}

// ownerOf returns a reference to a Workload's controller; nil without one.
func ownerOf(wl *kueue.Workload) runtime.Object {
	ref := metav1.GetControllerOfNoCopy(wl)
	if ref == nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, Namespace: wl.Namespace, UID: ref.UID}
}
