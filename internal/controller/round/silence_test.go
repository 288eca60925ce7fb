package round

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// hearing is a bench whose watches are heard until it is told otherwise.
type hearing struct {
	*bench
	// last is when something was heard last, in seconds after noon.
	last int
}

func newHearing(t *testing.T, nodes map[string]string) *hearing {
	h := &hearing{bench: newBench(t, nodes, nil)}
	h.Heard = func() admission.Heard {
		return admission.Heard{Kind: "ResourceSlice", At: noon.Add(time.Duration(h.last) * time.Second)}
	}
	return h
}

// turned says whether a round is due by itself at so many seconds after noon.
func (h *hearing) turned(at int) bool {
	h.clock.SetTime(noon.Add(time.Duration(at) * time.Second))
	return h.Turned()
}

func TestNothingIsOpenWhileAWatchIsSilent(t *testing.T) {
	h := newHearing(t, map[string]string{"h": "h100"})
	h.waits("wl", nil)
	h.settle(10)
	if got := h.open("wl"); got != "wl=h100" || h.turned(180) {
		t.Fatalf("open is %q while all is heard", got)
	}
	if !h.turned(181) {
		t.Error("no round is due when a watch was silent for longer than the window")
	}
	h.settle(181)
	if got := h.open("wl"); got != "" {
		t.Errorf("open is %q", got)
	}
	rec := h.placement("wl").Status.Record
	if rec == nil || rec.Reason != v1alpha1.ReasonPoolStale || !strings.Contains(rec.Message, "nothing was heard of ResourceSlices since 2026-01-01T12:00:00Z") {
		t.Errorf("the record is %+v", rec)
	}
	if h.turned(500) {
		t.Error("a round is due although nothing has changed")
	}
	if got := h.round(500); len(got) > 0 {
		t.Errorf("a round writes %v although nothing has changed", got)
	}
	h.last = 501
	if !h.turned(502) {
		t.Error("no round is due when the watch is heard again")
	}
	h.settle(502)
	if got := h.open("wl"); got != "wl=h100" || h.turned(503) {
		t.Errorf("open is %q when the watch is heard again", got)
	}
}

func TestNobodyLosesQuotaBecauseAWatchIsSilent(t *testing.T) {
	h := newHearing(t, map[string]string{"h": "h100"})
	h.waits("wl", nil)
	h.settle(0)
	h.reserve("wl", "h100") // as Kueue may at the moment at which the watch falls silent
	h.settle(181)
	for _, at := range []int{181, 4000} {
		h.settle(at)
		if wl := h.workload("wl"); steering.Deactivated(wl) || h.placement("wl").Spec.Key != nil || !strings.HasPrefix(h.check("wl"), "Pending PoolStale: ") {
			t.Errorf("after %d s it is deactivated %t, promised %+v, and its check is %q", at, steering.Deactivated(wl), h.placement("wl").Spec, h.check("wl"))
		}
	}
	h.last = 4001
	h.settle(4002)
	if got := h.check("wl"); got != "Ready every pod has a place that is kept for it" {
		t.Errorf("its check is %q when the watch is heard again", got)
	}
}

func TestAPromiseIsKeptAndNotUsedWhileAWatchIsSilent(t *testing.T) {
	h := newHearing(t, map[string]string{"h": "h100"})
	h.waits("wl", nil)
	h.settle(0)
	h.reserve("wl", "h100")
	h.round(1) // it is promised, and that has not come back yet
	promised := h.placement("wl").Spec.PodSets
	h.settle(4000)
	if got := h.placement("wl").Spec.PodSets; len(promised) == 0 || len(got) != len(promised) || !strings.HasPrefix(h.check("wl"), "Pending PoolStale: ") {
		t.Errorf("it is promised %+v, and its check is %q", got, h.check("wl"))
	}
	if steering.Deactivated(h.workload("wl")) {
		t.Error("it is evicted")
	}
	h.last = 4001
	h.settle(4002)
	if got := h.check("wl"); got != "Ready every pod has a place that is kept for it" {
		t.Errorf("its check is %q when the watch is heard again", got)
	}
}

func TestNobodyIsTakenForOneThatRanBeforeWhileAWatchIsSilent(t *testing.T) {
	h := newHearing(t, map[string]string{"h": "h100"})
	h.waits("wl", nil)
	h.reserve("wl", "h100")
	h.change("wl", func(wl *kueue.Workload) {
		meta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted"})
	})
	h.settle(181)
	if got := h.check("wl"); got != "Pending " {
		t.Errorf("its check is %q, whose pods nobody sees", got)
	}
	h.last = 182
	h.settle(183)
	if got := h.check("wl"); got != "Ready "+adopted {
		t.Errorf("its check is %q when the watch is heard again", got)
	}
}
