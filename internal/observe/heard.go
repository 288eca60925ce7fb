package observe

import (
	"context"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// physical are the kinds that say what is there and who has it. Every server serves them for as long as it runs.
var physical = map[string]bool{"Node": true, "Pod": true, "ResourceSlice": true, "ResourceClaim": true}

const (
	// leastWindow is the shortest that a policy may let a watch be silent.
	leastWindow = 90 * time.Second
	// settling is how long a watch that was silent for longer counts as silent still once it is heard again: what it brings
	// must have reached the book before anything is decided on it.
	settling = 3 * time.Second
)

// Heard keeps when anything came last from each of our own watches of what is physically there. It listens between the API
// server and the reflectors, since those swallow bookmarks, which are all that comes while nothing changes. It is safe for
// concurrent use.
type Heard struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	ears []*ear
}

// NewHeard returns one that has heard of nothing yet.
func NewHeard(c clock.PassiveClock) *Heard { return &Heard{clock: c} }

// NewInformer makes an informer that is listened to if its kind matters; for cache.Options.
func (h *Heard) NewInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if kind := kindOf(obj); physical[kind] {
		lw = h.listen(kind, lw)
	}
	return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
}

func kindOf(obj runtime.Object) string {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(obj).Elem().Name()
}

// Oldest returns the watch that was silent for longest. One of which nothing came yet is silent since it was made.
func (h *Heard) Oldest() admission.Heard {
	var out admission.Heard
	h.each(func(kind string, at time.Time) {
		if out.At.IsZero() || at.Before(out.At) {
			out = admission.Heard{Kind: kind, At: at}
		}
	})
	return out
}

// Ages returns how long each kind's watch has been silent; of several watches of a kind, the one that was for longest.
func (h *Heard) Ages() map[string]time.Duration {
	now, out := h.clock.Now(), map[string]time.Duration{}
	h.each(func(kind string, at time.Time) { out[kind] = max(out[kind], now.Sub(at)) })
	return out
}

func (h *Heard) each(do func(kind string, at time.Time)) {
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ears {
		at := e.at
		if now.Before(e.from) {
			at = e.before
		}
		do(e.kind, at)
	}
}

// listen returns a ListerWatcher that notes whatever comes: a list, that a watch is opened, its events and bookmarks.
func (h *Heard) listen(kind string, lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	e := &ear{heard: h, kind: kind, at: h.clock.Now()}
	h.mu.Lock()
	h.ears = append(h.ears, e)
	h.mu.Unlock()
	of := toolscache.ToListerWatcherWithContext(lw)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := of.ListWithContext(ctx, o)
			if err == nil {
				e.note()
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := of.WatchWithContext(ctx, o)
			if err != nil {
				return nil, err
			}
			e.note() // the server takes it up where the last one ended; its first bookmark is a minute away
			return e.over(w), nil
		},
	}
}

// ear is one watch.
type ear struct {
	heard *Heard
	kind  string
	// at is when anything came last; until from, what counts is before.
	at, from, before time.Time
}

func (e *ear) note() {
	now := e.heard.clock.Now()
	e.heard.mu.Lock()
	defer e.heard.mu.Unlock()
	if now.Sub(e.at) > leastWindow {
		e.before, e.from = e.at, now.Add(settling)
	}
	e.at = now
}

// over returns w with all that comes noted. An error is no news: the watch is over.
func (e *ear) over(w watch.Interface) watch.Interface {
	out := &noted{of: w, events: make(chan watch.Event), done: make(chan struct{})}
	go out.pass(e)
	return out
}

// noted is a watch whose events pass through an ear.
type noted struct {
	of     watch.Interface
	events chan watch.Event
	once   sync.Once
	done   chan struct{}
}

// ResultChan is where the events come out.
func (n *noted) ResultChan() <-chan watch.Event { return n.events }

// Stop ends the watch.
func (n *noted) Stop() {
	n.once.Do(func() {
		close(n.done)
		n.of.Stop()
	})
}

// pass hands the events on until the watch is over. Once nobody reads them they are dropped: whoever writes them must not be
// left waiting.
func (n *noted) pass(e *ear) {
	defer close(n.events)
	for event := range n.of.ResultChan() {
		if event.Type != watch.Error {
			e.note()
		}
		select {
		case n.events <- event:
		case <-n.done:
		}
	}
}
