package report

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// why returns the reason and one sentence. The reason is empty for what runs or has finished, and for what waits
// for no more than somebody's next step.
func (in *Input) why(outcome Outcome) (v1alpha1.Reason, string) {
	switch outcome {
	case OutcomeFinished:
		c := meta.FindStatusCondition(in.Workload.Status.Conditions, kueue.WorkloadFinished)
		switch c.Reason {
		case kueue.WorkloadFinishedReasonSucceeded:
			return "", "it ran and succeeded"
		case kueue.WorkloadFinishedReasonFailed:
			return "", "it ran and failed"
		}
		return "", "Kueue ended it: " + c.Reason
	case OutcomeRejected:
		reason := v1alpha1.Reason(in.Workload.Annotations[v1alpha1.RejectedAnnotation])
		if r := in.record(); r != nil && r.Message != "" {
			return reason, r.Message
		}
		return reason, "no inventory that the policy allows could ever hold it"
	case OutcomeRunning:
		if r := in.record(); r != nil && r.Verdict == v1alpha1.VerdictAdmit {
			return "", r.Message
		}
		return "", "Kueue admitted it"
	}
	if !in.active() {
		return in.inactive()
	}
	if in.is(kueue.WorkloadEvicted) && in.Reserved() {
		c := meta.FindStatusCondition(in.Workload.Status.Conditions, kueue.WorkloadEvicted)
		return "", "Kueue is evicting it: " + c.Reason
	}
	if in.Reserved() {
		return in.whyReserved()
	}
	return in.whyUnreserved()
}

func (in *Input) inactive() (v1alpha1.Reason, string) {
	if _, ours := in.Workload.Annotations[v1alpha1.SteeringAnnotation]; !ours {
		return "", "it is deactivated (spec.active is false) and stays so until somebody sets it to true"
	}
	if reason, message, ok := in.backoff(); ok {
		return reason, "Plimsoll takes it back to queue it again: " + message
	}
	return "", "Plimsoll takes it back to queue it again"
}

// whyReserved is about a Workload that holds quota and is not admitted.
func (in *Input) whyReserved() (v1alpha1.Reason, string) {
	r := in.record()
	switch {
	case r != nil && r.Verdict != v1alpha1.VerdictAdmit:
		return r.Reason, r.Message
	case in.Management() == Managed && r == nil:
		return v1alpha1.ReasonUndecided, "Kueue reserved quota, Plimsoll has not decided yet"
	}
	var pending []string
	for _, c := range in.Workload.Status.AdmissionChecks {
		if c.State != kueue.CheckStateReady && !slices.Contains(in.Checks, string(c.Name)) {
			pending = append(pending, fmt.Sprintf("%s is %s", c.Name, c.State))
		}
	}
	if len(pending) > 0 && (in.Management() == NotManaged || in.Checks != nil) {
		return v1alpha1.ReasonChecksPending, "it waits for other admission checks: " + strings.Join(pending, ", ")
	}
	return "", "it holds quota and waits for its admission checks and for Kueue to admit it"
}

// whyUnreserved is about a Workload without quota. Where Kueue may try some flavor, quota is all that is missing,
// whatever an older decision said of devices.
func (in *Input) whyUnreserved() (v1alpha1.Reason, string) {
	if reason, message, ok := in.queueInactive(); ok {
		return reason, message
	}
	if reason, message, ok := in.backoff(); ok {
		return reason, message
	}
	flavors, steered := in.AllowedFlavors()
	r := in.record()
	switch {
	case r != nil && r.Verdict == v1alpha1.VerdictWait && (!steered || len(flavors) == 0 || aboutKueue(r.Reason)):
		return r.Reason, r.Message
	case steered && len(flavors) == 0:
		return v1alpha1.ReasonUndecided, "Plimsoll has not opened a flavor for it yet"
	case !in.lookedAt():
		if len(flavors) > 0 {
			return "", "Kueue has not looked at it since it may try " + strings.Join(flavors, ", ")
		}
		return "", "Kueue has not looked at it yet"
	}
	message := "Kueue has no quota for it yet"
	if cq := in.ClusterQueue(); cq != "" {
		message += " in ClusterQueue " + cq
	}
	if steered {
		message += "; it may try " + strings.Join(flavors, ", ")
	}
	return v1alpha1.ReasonQuotaExhausted, message
}

// aboutKueue says whether a reason to wait is Kueue's to end: it stands while flavors are open, and none says that one is
// offered.
func aboutKueue(r v1alpha1.Reason) bool {
	return r == "" || r == v1alpha1.ReasonQuotaExhausted || r == v1alpha1.ReasonQueueInactive
}

// lookedAt says whether Kueue refused quota to the Workload as it is now.
func (in *Input) lookedAt() bool {
	c := meta.FindStatusCondition(in.Workload.Status.Conditions, kueue.WorkloadQuotaReserved)
	return c != nil && (c.ObservedGeneration == 0 || c.ObservedGeneration >= in.Workload.Generation)
}

func (in *Input) queueInactive() (v1alpha1.Reason, string, bool) {
	if in.QueueMissing {
		return v1alpha1.ReasonQueueInactive, fmt.Sprintf("LocalQueue %q does not exist in namespace %s", in.Workload.Spec.QueueName, in.Workload.Namespace), true
	}
	if in.LocalQueue == nil {
		return "", "", false
	}
	c := meta.FindStatusCondition(in.LocalQueue.Status.Conditions, kueue.LocalQueueActive)
	if c == nil || c.Status == metav1.ConditionTrue {
		return "", "", false
	}
	return v1alpha1.ReasonQueueInactive, fmt.Sprintf("LocalQueue %s, or its ClusterQueue %s, takes nothing: %s", in.LocalQueue.Name, in.LocalQueue.Spec.ClusterQueue, c.Reason), true
}

// backoff says that Plimsoll evicted the Workload and opens it again later.
func (in *Input) backoff() (v1alpha1.Reason, string, bool) {
	if in.Placement == nil || in.Placement.Status.Retry == nil {
		return "", "", false
	}
	r := in.Placement.Status.Retry
	if r.NotBefore == nil || !r.NotBefore.After(in.Now) {
		return "", "", false
	}
	message := fmt.Sprintf("it was taken back (%s) and is tried again in %s", Plural(int(r.Count), "time"), ClockOf(in.Now, r.NotBefore.Time))
	if r.Message != "" {
		message += ": " + r.Message
	}
	return r.Reason, message, true
}
