package release

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// silent has a watch fall silent when the bench began.
func (b *bench) silent() {
	b.Heard = func() admission.Heard { return admission.Heard{Kind: "Pod", At: began} }
}

// at sets the clock to so long after the bench began.
func (b *bench) at(after time.Duration) { b.clock.SetTime(began.Add(after)) }

func TestNoPodIsReleasedWhileAWatchIsSilent(t *testing.T) {
	b := newBench(t, map[string]int{"h": 2}, 0, "h", "h")
	b.pod("p1", nil)
	b.silent()
	b.at(181 * time.Second)
	if got := b.reconcile("p1"); got.RequeueAfter == 0 || !observe.Gated(b.get("p1")) {
		t.Errorf("it is released, or does not look again: %+v", got)
	}
	b.at(2 * time.Hour) // and nobody waited too long
	b.reconcile("p1")
	b.expectNotEvicted()
	b.Heard = func() admission.Heard { return admission.Heard{Kind: "Pod", At: b.clock.Now()} }
	b.reconcile("p1")
	if observe.Gated(b.get("p1")) {
		t.Error("it is not released when the watch is heard again")
	}
}

func TestNoPodIsTakenForUnboundWhileAWatchIsSilent(t *testing.T) {
	b := newBench(t, map[string]int{"h": 2}, 0, "h", "h")
	b.pod("p1", nil)
	b.reconcile("p1")
	if observe.Gated(b.get("p1")) {
		t.Fatal("it is not released")
	}
	b.silent()
	b.at(902 * time.Second)
	if got := b.reconcile("p1"); got.RequeueAfter == 0 {
		t.Error("it does not look again")
	}
	b.expectNotEvicted()
	b.Heard = nil
	b.reconcile("p1")
	if reason, _ := b.evicted(); reason == "" {
		t.Error("it is not evicted when all is heard, and it is unbound still")
	}
}
