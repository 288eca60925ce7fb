package scenarios

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

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

// why tells a Workload's reason and standings.
func why(w *result.Workload) string {
	parts := []string{string(ptr.Deref(w.Reason, ""))}
	for i := range w.Standings {
		s := []string{w.Standings[i].Flavor, string(w.Standings[i].Standing)}
		for _, reason := range w.Standings[i].Reasons {
			s = append(s, string(reason.Reason))
		}
		parts = append(parts, strings.Join(s, " "))
	}
	return strings.Join(parts, "; ")
}
