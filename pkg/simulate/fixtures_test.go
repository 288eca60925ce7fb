package simulate

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

func clock(seconds int) *report.Clock { return ptr.To(report.Clock(seconds)) }

// job is a Job of one podset that was submitted and waits.
func job(queue, name string, submitted int) Workload {
	return Workload{Entry: report.Entry{
		Namespace: queue, Name: name, Kind: "Job", Queue: "gpus", ClusterQueue: queue,
		Outcome: report.OutcomeWaiting, SubmittedAt: clock(submitted),
	}}
}

// ran is a Job that was admitted on a flavor with devices, on node-<flavor>, and runs; with end >= 0 it finished then.
func ran(w Workload, at int, flavor string, devices int64, end int) Workload {
	flavors := map[string]string{"main": flavor}
	a := report.Admission{At: report.Clock(at), Flavors: flavors}
	w.Outcome, w.AdmittedAt, w.Flavors = report.OutcomeRunning, clock(at), flavors
	w.Pods = []report.Pod{{PodSet: "main", Node: "node-" + flavor, Devices: []string{}}}
	if end >= 0 {
		a.EndedAt, a.End = clock(end), ptr.To("Finished")
		w.Outcome, w.FinishedAt = report.OutcomeFinished, clock(end)
	}
	w.Held = append(w.Held, Held{Admission: len(w.Admissions), PodSet: "main", Flavor: flavor, Devices: devices})
	w.Admissions = append(w.Admissions, a)
	return w
}

// evicted is a Job that lost its last admission.
func evicted(w Workload, at int) Workload {
	last := &w.Admissions[len(w.Admissions)-1]
	last.EndedAt, last.End = clock(at), ptr.To("Preempted")
	w.Outcome = report.OutcomeWaiting
	return w
}

// waitsFor is a Job whose last decision tried flavors in this order.
func waitsFor(w Workload, flavors ...string) Workload {
	w.Reason, w.Message = ptr.To(v1alpha1.ReasonDevicesInUse), "flavor "+flavors[0]+" is Busy"
	for _, f := range flavors {
		w.Standings = append(w.Standings, report.Standing{PodSet: "main", Flavor: f, Standing: v1alpha1.StandingBusy})
	}
	return w
}

func result(seconds int, workloads ...Workload) *Result {
	return &Result{
		Workloads: workloads, Ended: time.Duration(seconds) * time.Second,
		FirstFlavors: map[string]string{"team-a": "h100", "team-b": "h100"},
		Shares: []Share{
			{Name: "team-a", Kind: "ClusterQueue", Weight: "1", Share: 125},
			{Name: "team-b", Kind: "ClusterQueue", Weight: "3", Share: 0},
			{Name: "all", Kind: "Cohort", Weight: "1", Share: 0},
		},
		Ledger: Ledger{Digest: "sha256:00"},
	}
}
