package scenarios

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
	result "github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// TestOnTheWay holds why a Job waits, which its end does not tell, against what the README says of it.
func TestOnTheWay(t *testing.T) {
	for _, c := range []struct {
		folder   string
		at       time.Duration
		workload string
		// want is the reason, then each standing with its own.
		want string
	}{
		{"best-effort-fifo", 8 * time.Second, "head", "DevicesInUse; h100 Busy DevicesInUse"},
		{"borrowing-limit", 16 * time.Second, "pair-3", "QuotaExhausted; h100 Fits"},
		{"check-joins", 12 * time.Second, "next", "DevicesInUse; h100 Busy DevicesInUse"},
		{"class-later", 4 * time.Second, "early", "DeviceClassNotFound; h100 Blocked DeviceClassNotFound"},
		{"cohort-tree", 12 * time.Second, "borrowed", "QuotaExhausted; h100 Busy DevicesInUse"},
		{"cordon-running", 12 * time.Second, "next", "NodeUnavailable; h100 Blocked NodeUnavailable"},
		{"cordon-running", 20 * time.Second, "next", "NodeUnavailable; h100 Blocked NodeUnavailable"},
		{"cpu-only", 8 * time.Second, "second", "NodeResources; h100 Busy NodeResources"},
		{"driver-gone", 12 * time.Second, "train", "PoolRebuilding; h100 Busy PoolRebuilding; a100 Fits"},
		{"driver-pod-gone", 10 * time.Second, "second", "DriverNotServing; h100 Busy DriverNotServing"},
		{"driver-pod-gone", 20 * time.Second, "second", "DriverNotServing; h100 Blocked DriverNotServing"},
		{"driver-restart", 10 * time.Second, "second", "PoolRebuilding; h100 Busy PoolRebuilding; a100 Fits"},
		{"flavor-later", 4 * time.Second, "early", "QueueInactive"},
		{"foreign-use", 8 * time.Second, "train", "ForeignUse; h100 Blocked ForeignUse"},
		{"freeing", 6 * time.Second, "next", "DevicesInUse; h100 Busy DevicesInUse; a100 Fits"},
		{"freeing", 17 * time.Second, "next", "DevicesFreeing; h100 Busy DevicesFreeing; a100 Fits"},
		{"frozen-then-enforce", 12 * time.Second, "new", "PolicyFrozen"},
		{"gang-fourth-node", 6 * time.Second, "gang", "DevicesInUse; h100 Busy DevicesInUse NotEnoughDevices GangShort"},
		{"gang-one-flavor", 16 * time.Second, "gang", "DevicesInUse; h100 Busy DevicesInUse NotEnoughDevices GangShort; a100 Impossible NotEnoughDevices GangShort"},
		{"hugepages", 8 * time.Second, "second", "NodeResources; h100 Busy NodeResources"},
		{"in-line", 22 * time.Second, "waits-2", "DevicesInUse; h100 Busy DevicesInUse"},
		{"kueue-alone", 8 * time.Second, "checked", "DevicesInUse; h100 Busy DevicesInUse"},
		{"last-flavor-overlap", 8 * time.Second, "two", "DevicesInUse; h100 Fits; other Busy DevicesInUse"},
		{"lending-limit", 6 * time.Second, "second", "QuotaExhausted; h100 Fits"},
		{"local-queue-hold", 6 * time.Second, "held", "QueueInactive; h100 Fits"},
		{"mapped-cpu", 10 * time.Second, "second", "NodeResources; h100 Busy NodeResources"},
		{"mapped-cpu", 22 * time.Second, "second", "NodeResources; h100 Busy NodeResources"},
		{"max-execution-time", 8 * time.Second, "next", "DevicesInUse; h100 Busy DevicesInUse"},
		{"nine-rejected", 0, "nine", "Rejected; NotEnoughDevices; h100 Impossible NotEnoughDevices; a100 Impossible NotEnoughDevices"},
		{"nine-waits", 0, "nine", "NotEnoughDevices; h100 Impossible NotEnoughDevices; a100 Impossible NotEnoughDevices"},
		{"node-added", 8 * time.Second, "train", "DevicesInUse; h100 Busy DevicesInUse; a100 Fits"},
		{"node-deleted-evicted", 100 * time.Second, "train", "NodeUnavailable; h100 Fits"},
		{"node-memory", 10 * time.Second, "next", "NodeResources; h100 Busy NodeResources"},
		{"node-not-ready", 45 * time.Second, "train", "NodeUnavailable; h100 Busy NodeUnavailable; a100 Fits"},
		{"node-selector", 12 * time.Second, "second", "DevicesInUse; h100 Busy DevicesInUse NodeUnavailable"},
		{"numa-constraint", 8 * time.Second, "two", "ConstraintUnsatisfied; h100 Busy ConstraintUnsatisfied"},
		{"ordering-spread", 12 * time.Second, "whole", "DevicesInUse; h100 Busy DevicesInUse"},
		{"other-check", 20 * time.Second, "next", "DevicesInUse; h100 Busy DevicesInUse"},
		{"plugin-node", 12 * time.Second, "two", "DevicesInUse; t4 Busy DevicesInUse"},
		{"plugin-to-dra", 8 * time.Second, "train", "ForeignUse; h100 Blocked ForeignUse"},
		{"pool-incomplete", 4 * time.Second, "train", "PoolIncomplete; h100 Blocked PoolIncomplete"},
		{"pool-regenerates", 20 * time.Second, "train", "PoolRebuilding; h100 Blocked PoolRebuilding"},
		{"pool-regresses", 20 * time.Second, "train", "PoolRegressed; h100 Blocked PoolRegressed"},
		{"preempt-grace", 20 * time.Second, "high", "DevicesFreeing; h100 Busy DevicesFreeing"},
		{"preempt-not-for-nothing", 20 * time.Second, "pair", "DevicesInUse; h100 Busy DevicesInUse"},
		{"priorities", 14 * time.Second, "later", "DevicesInUse; h100 Busy DevicesInUse"},
		{"priority-inverted", 12 * time.Second, "high", "DevicesInUse; h100 Busy DevicesInUse PriorityInverted"},
		{"queue-drain", 12 * time.Second, "running", "QueueInactive; h100 Fits"},
		{"queue-hold", 12 * time.Second, "new", "QueueInactive; h100 Fits"},
		{"reclaim", 16 * time.Second, "borrowed", "QuotaExhausted; h100 Busy DevicesInUse"},
		{"reclaimable-pods", 8 * time.Second, "next", "QuotaExhausted; h100 Busy DevicesInUse"},
		{"shadow-then-enforce", 16 * time.Second, "next", "DevicesInUse; h100 Busy DevicesInUse"},
		{"shared-claim", 20 * time.Second, "next", "DevicesInUse; h100 Busy DevicesInUse"},
		{"strict-fifo", 12 * time.Second, "head", "DevicesInUse; h100 Busy DevicesInUse"},
		{"strict-fifo", 12 * time.Second, "small", "BehindQueueHead"},
		{"taint-cleared", 6 * time.Second, "four", "DevicesUnhealthy; h100 Blocked DevicesUnhealthy"},
		{"taint-rule", 6 * time.Second, "four", "DevicesUnhealthy; h100 Blocked DevicesUnhealthy"},
		{"template-later", 4 * time.Second, "early", "ClaimTemplateNotFound"},
		{"toleration", 10 * time.Second, "second", "DevicesInUse; h100 Busy DevicesInUse NodeUnavailable"},
		{"two-podsets", 12 * time.Second, "mpi-1", "DevicesInUse; h100 Busy DevicesInUse GangShort"},
		{"two-requests", 12 * time.Second, "twins-2", "DevicesInUse; h100 Busy DevicesInUse"},
		{"waited-out", 16 * time.Second, "train", "DevicesInUse; h100 Busy DevicesInUse; a100 Blocked NodeUnavailable"},
	} {
		t.Run(c.folder+"/"+c.at.String(), func(t *testing.T) {
			r := run(t, c.folder, &c.at)
			for i := range r.Workloads {
				if w := &r.Workloads[i]; w.Name == c.workload {
					if got := why(w); got != c.want {
						t.Errorf("got  %s\nwant %s\n%s", got, c.want, w.Message)
					}
					return
				}
			}
			t.Errorf("there is no %s", c.workload)
		})
	}
}

// why tells a Workload's reason and standings, and before them that it waits no more.
func why(w *result.Workload) string {
	parts := []string{string(ptr.Deref(w.Reason, ""))}
	if w.Outcome != report.OutcomeWaiting {
		parts = []string{string(w.Outcome), parts[0]}
	}
	for i := range w.Standings {
		s := []string{w.Standings[i].Flavor, string(w.Standings[i].Standing)}
		for _, reason := range w.Standings[i].Reasons {
			s = append(s, string(reason.Reason))
		}
		parts = append(parts, strings.Join(s, " "))
	}
	return strings.Join(parts, "; ")
}
