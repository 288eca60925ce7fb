package report

import "github.com/plimsoll-dev/plimsoll/api/v1alpha1"

// Outcome is where a Job or Workload has got to.
type Outcome string

// The outcomes.
const (
	// OutcomeFinished: it ran and ended, well or not.
	OutcomeFinished Outcome = "Finished"
	// OutcomeRunning: Kueue admitted it.
	OutcomeRunning Outcome = "Running"
	// OutcomeWaiting: it is queued, or deactivated; Reason and Message say why.
	OutcomeWaiting Outcome = "Waiting"
	// OutcomeRejected: the policy's onInfeasible ended it.
	OutcomeRejected Outcome = "Rejected"
	// OutcomeDeleted: it is gone.
	OutcomeDeleted Outcome = "Deleted"
	// OutcomeNotSubmitted: it was never created.
	OutcomeNotSubmitted Outcome = "NotSubmitted"
)

// Entry is one Job, or one Workload without one. Clocks count from the report's start and are null where the thing did
// not happen. Maps and lists are never null; all but standings and history, which keep the record's order, are sorted.
type Entry struct {
	Namespace string `json:"namespace"`
	// Name and Kind are those of the object that owns the Workload; its own where nobody does.
	Name         string  `json:"name"`
	Kind         string  `json:"kind"`
	Queue        string  `json:"queue"`
	ClusterQueue string  `json:"clusterQueue"`
	Outcome      Outcome `json:"outcome"`

	SubmittedAt *Clock `json:"submittedAt"`
	// AdmittedAt is the last admission.
	AdmittedAt *Clock      `json:"admittedAt"`
	FinishedAt *Clock      `json:"finishedAt"`
	Admissions []Admission `json:"admissions"`

	// Flavors (by podset), Charged (the Workload's total by resource) and Pods are those of the last admission, kept
	// after the end and empty before any.
	Flavors map[string]string `json:"flavors"`
	Charged map[string]string `json:"charged"`
	Pods    []Pod             `json:"pods"`

	// Standings are those of the last decision, in the order in which flavors were tried.
	Standings []Standing `json:"standings"`
	// Reason is why it waits, null for what runs or has finished.
	Reason  *v1alpha1.Reason `json:"reason"`
	Message string           `json:"message"`

	// History holds earlier decisions, newest first. Absent where none were kept.
	History []Decision `json:"history,omitempty"`
}

// Admission is one time that Kueue admitted the Workload.
type Admission struct {
	At      Clock             `json:"at"`
	Flavors map[string]string `json:"flavors"`
	EndedAt *Clock            `json:"endedAt"`
	// End is Finished, or the reason of Kueue's condition Evicted.
	End *string `json:"end"`
}

// Pod is one pod's place. Index counts from 0 within the podset, by node and slot.
type Pod struct {
	PodSet string `json:"podSet"`
	Index  int    `json:"index"`
	Node   string `json:"node"`
	// Devices are ids "driver/pool/device".
	Devices []string `json:"devices"`
}

// Standing is what the ledger said of one flavor for one podset.
type Standing struct {
	PodSet string `json:"podSet"`
	Flavor string `json:"flavor"`
	// Alternative names the subrequests of firstAvailable that it is about; absent without any.
	Alternative string            `json:"alternative,omitempty"`
	Standing    v1alpha1.Standing `json:"standing"`
	// Quota is what Kueue would do if this flavor alone were open: Fit, Borrow, Preempt, Wait or NoFit; absent where it was
	// not asked.
	Quota   string           `json:"quota,omitempty"`
	Reasons []StandingReason `json:"reasons"`
}

// StandingReason is one reason, on how many nodes it holds, and one example.
type StandingReason struct {
	Reason  v1alpha1.Reason `json:"reason"`
	Nodes   int32           `json:"nodes"`
	Message string          `json:"message"`
}

// Decision is one decision in a line.
type Decision struct {
	At      Clock            `json:"at"`
	Verdict v1alpha1.Verdict `json:"verdict"`
	Reason  *v1alpha1.Reason `json:"reason"`
	Message string           `json:"message"`
}
