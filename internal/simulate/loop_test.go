package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// bench is a loop with a store and nothing in it.
type bench struct {
	loop
	start  time.Time
	calls  []string
	warned []string
}

func newBench() *bench {
	b := &bench{start: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.clock = testingclock.NewFakeClock(b.start)
	b.store = store.New(parts.Scheme(), b.clock.Now)
	b.seen = func(store.Event) {}
	b.loop.warn = func(s string) { b.warned = append(b.warned, s) }
	return b
}

// controller adds one that is woken by Namespaces and answers what answer says.
func (b *bench) controller(name string, answer func(reconcile.Request) (time.Duration, error)) *controller {
	return b.add(parts.Controller{
		Name: name,
		Reconciler: reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			b.calls = append(b.calls, fmt.Sprintf("%s %s %s", b.clock.Since(b.start), name, r.Name))
			after, err := answer(r)
			return reconcile.Result{RequeueAfter: after}, err
		}),
		Watches: []parts.Watch{{Kind: &corev1.Namespace{}, Requests: parts.Itself}},
	})
}

func (b *bench) create(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := b.store.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	b.deliver(t.Context())
}

// until runs timers to a time.
func (b *bench) until(t *testing.T, end time.Duration) {
	t.Helper()
	for {
		for _, c := range b.controllers {
			if _, err := b.drain(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		at, ok := b.next()
		if !ok || at.Sub(b.start) > end {
			return
		}
		b.clock.SetTime(at)
		b.fire()
	}
}

func (b *bench) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(b.calls, want) {
		t.Errorf("called\n  %s\nwant\n  %s", strings.Join(b.calls, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestRequestsAreServedByName(t *testing.T) {
	b := newBench()
	b.controller("first", func(reconcile.Request) (time.Duration, error) { return 0, nil })
	b.controller("second", func(reconcile.Request) (time.Duration, error) { return 0, nil })
	b.create(t, "c", "a", "b")
	b.until(t, 0)
	b.expect(t, "0s first a", "0s first b", "0s first c", "0s second a", "0s second b", "0s second c")
}

func TestTimersAreExact(t *testing.T) {
	b := newBench()
	again := map[string][]time.Duration{"a": {7 * time.Second, 3 * time.Second}, "b": {5 * time.Second}}
	b.controller("c", func(r reconcile.Request) (time.Duration, error) {
		if len(again[r.Name]) == 0 {
			return 0, nil
		}
		after := again[r.Name][0]
		again[r.Name] = again[r.Name][1:]
		return after, nil
	})
	b.create(t, "a", "b")
	b.until(t, time.Hour)
	b.expect(t, "0s c a", "0s c b", "5s c b", "7s c a", "10s c a")
}

// A timer that was overtaken by an event does not fire a second time.
func TestTimerIsOvertakenByAnEvent(t *testing.T) {
	b := newBench()
	first := true
	c := b.controller("c", func(reconcile.Request) (time.Duration, error) {
		if first {
			first = false
			return 10 * time.Second, nil
		}
		return 0, nil
	})
	b.create(t, "a")
	b.until(t, 0)
	b.clock.SetTime(b.start.Add(4 * time.Second))
	c.queue[reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}}] = true
	b.until(t, time.Hour)
	b.expect(t, "0s c a", "4s c a")
}

// Whoever polls for what nobody tells it of is asked less and less often while nothing changes, and soon after something has.
func TestPollsSpread(t *testing.T) {
	b := newBench()
	b.controller("c", func(reconcile.Request) (time.Duration, error) { return 500 * time.Millisecond, nil })
	b.create(t, "a")
	b.until(t, 8*time.Second)
	b.expect(t, "0s c a", "500ms c a", "1.5s c a", "3.5s c a", "5.5s c a", "7.5s c a")
}

// Who looks every second does so to the second: a backoff may hang on it.
func TestSlowPollsDoNotSpread(t *testing.T) {
	b := newBench()
	b.controller("c", func(reconcile.Request) (time.Duration, error) { return time.Second, nil })
	b.create(t, "a")
	b.until(t, 4*time.Second)
	b.expect(t, "0s c a", "1s c a", "2s c a", "3s c a", "4s c a")
}

// Whoever polls looks again, once, at the end of an instant at which something changed, and whoever has a time to wait for does
// not.
func TestPollsAreWokenByAChange(t *testing.T) {
	b := newBench()
	every := map[string]time.Duration{"polls": 500 * time.Millisecond, "waits": time.Minute}
	b.controller("c", func(r reconcile.Request) (time.Duration, error) { return every[r.Name], nil })
	deaf := b.controller("deaf", func(r reconcile.Request) (time.Duration, error) { return every[r.Name], nil })
	b.create(t, "polls", "waits")
	b.until(t, 2*time.Second)
	b.clock.SetTime(b.start.Add(2 * time.Second))
	b.calls = nil
	if b.wakePolls(deaf) {
		t.Error("nothing has changed")
	}
	b.create(t, "other")
	b.until(t, 2*time.Second)
	if !b.wakePolls(deaf) {
		t.Error("nobody looks at what has changed")
	}
	b.until(t, 2*time.Second)
	b.create(t, "another")
	b.until(t, 2*time.Second)
	if b.wakePolls(deaf) {
		t.Error("it is looked at twice at one instant")
	}
	b.expect(t, "2s c other", "2s deaf other", "2s c polls", "2s c another", "2s deaf another")
}

// What fails is tried again at once, then a second later, and is said.
func TestFailureIsTriedAgainAndSaid(t *testing.T) {
	b := newBench()
	b.controller("c", func(reconcile.Request) (time.Duration, error) {
		if b.clock.Since(b.start) < 2*time.Second {
			return 0, errors.New("broken")
		}
		return 0, nil
	})
	b.create(t, "a")
	b.until(t, time.Minute)
	if want := 2*maxTries + 1; len(b.calls) != want {
		t.Errorf("called %d times, want %d", len(b.calls), want)
	}
	if want := "c fails for a and is tried again: broken"; len(b.warned) != 2 || b.warned[0] != want {
		t.Errorf("said %q, want %q twice", b.warned, want)
	}
}

// Two that undo each other's writes would never come to the next instant.
func TestCircleEndsTheRun(t *testing.T) {
	b := newBench()
	c := b.controller("c", func(reconcile.Request) (time.Duration, error) { return 0, nil })
	c.Reconciler = reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		ns := &corev1.Namespace{}
		if err := b.store.Client().Get(ctx, r.NamespacedName, ns); err != nil {
			return reconcile.Result{}, err
		}
		ns.Labels = map[string]string{"n": fmt.Sprint(len(b.calls))}
		b.calls = append(b.calls, "")
		return reconcile.Result{}, b.store.Client().Update(ctx, ns)
	})
	b.create(t, "a")
	if _, err := b.drain(t.Context(), c); err == nil || !strings.Contains(err.Error(), "goes in a circle at 2030-01-01T00:00:00Z: c") {
		t.Errorf("it ended with %v", err)
	}
}
