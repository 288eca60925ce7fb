package report

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Workload reports one Workload. Admissions has the last one only, since the objects tell of no other, and after an
// eviction not even that.
func Workload(in Input) Entry {
	if in.Start.IsZero() {
		in.Start = in.Workload.CreationTimestamp.Time
	}
	wl := in.Workload
	e := Entry{
		Namespace:    wl.Namespace,
		Queue:        string(wl.Spec.QueueName),
		ClusterQueue: in.ClusterQueue(),
		Outcome:      in.outcome(),
		SubmittedAt:  ptr.To(ClockOf(in.Start, wl.CreationTimestamp.Time)),
		Admissions:   []Admission{},
		Flavors:      map[string]string{},
		Charged:      map[string]string{},
		Pods:         []Pod{},
		Standings:    []Standing{},
	}
	e.Kind, e.Name = in.Owner()
	if finished := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); in.is(kueue.WorkloadFinished) {
		e.FinishedAt = ptr.To(ClockOf(in.Start, finished.LastTransitionTime.Time))
	}
	if in.is(kueue.WorkloadAdmitted) && wl.Status.Admission != nil {
		in.admission(&e)
	}
	reason, message := in.why(e.Outcome)
	e.Message = message
	if reason != "" {
		e.Reason = &reason
	}
	if in.Placement != nil {
		e.decisions(&in)
	}
	return e
}

func (in *Input) outcome() Outcome {
	_, rejected := in.Workload.Annotations[v1alpha1.RejectedAnnotation]
	switch {
	case in.is(kueue.WorkloadFinished):
		return OutcomeFinished
	case rejected && !in.active():
		return OutcomeRejected
	case in.Admitted():
		return OutcomeRunning
	}
	return OutcomeWaiting
}

// admission fills in what the last admission gave.
func (in *Input) admission(e *Entry) {
	name := in.QuotaResource()
	total := resource.Quantity{}
	for i := range in.Workload.Status.Admission.PodSetAssignments {
		a := &in.Workload.Status.Admission.PodSetAssignments[i]
		e.Flavors[string(a.Name)] = AssignedFlavor(a, name)
		if q, ok := a.ResourceUsage[name]; ok {
			total.Add(q)
		}
	}
	if !total.IsZero() {
		e.Charged[string(name)] = total.String()
	}
	e.Pods = in.pods()

	admitted := meta.FindStatusCondition(in.Workload.Status.Conditions, kueue.WorkloadAdmitted)
	e.AdmittedAt = ptr.To(ClockOf(in.Start, admitted.LastTransitionTime.Time))
	a := Admission{At: *e.AdmittedAt, Flavors: e.Flavors, EndedAt: e.FinishedAt}
	if evicted := meta.FindStatusCondition(in.Workload.Status.Conditions, kueue.WorkloadEvicted); e.FinishedAt != nil {
		a.End = ptr.To(kueue.WorkloadFinished)
	} else if evicted != nil && evicted.Status == metav1.ConditionTrue {
		a.EndedAt, a.End = ptr.To(ClockOf(in.Start, evicted.LastTransitionTime.Time)), &evicted.Reason
	}
	e.Admissions = append(e.Admissions, a)
}

// Standings lists a record's standings. A nil record has none.
func Standings(r *v1alpha1.DecisionRecord) []Standing {
	out := []Standing{}
	if r == nil {
		return out
	}
	for i := range r.Standings {
		s := &r.Standings[i]
		told := Standing{
			PodSet: s.PodSet, Flavor: s.Flavor, Alternative: s.Alternative, Standing: s.Standing, Quota: s.Quota, Reasons: []StandingReason{},
		}
		for _, why := range s.Reasons {
			told.Reasons = append(told.Reasons, StandingReason(why))
		}
		out = append(out, told)
	}
	return out
}

// decisions fills in what the record says.
func (e *Entry) decisions(in *Input) {
	e.Standings = Standings(in.record())
	for _, h := range in.Placement.Status.History {
		d := Decision{At: ClockOf(in.Start, h.Time.Time), Verdict: h.Verdict, Message: h.Message}
		if h.Reason != "" {
			d.Reason = &h.Reason
		}
		e.History = append(e.History, d)
	}
}
