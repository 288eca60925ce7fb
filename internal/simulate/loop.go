package simulate

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

const (
	// maxPasses bounds what may happen at one instant: a cluster that goes in a circle would never come to the next.
	maxPasses = 100_000
	// maxTries is how often a request that fails is tried at one instant; then it waits for failedAgain.
	maxTries    = 10
	failedAgain = time.Second
	// A controller that looks again after at most pollAtMost is looking for a change that nobody tells it of: it looks again
	// at the end of an instant at which something changed. One that looks again after less than spreadBelow and has found
	// nothing new looks less and less often, down to once in pollAtMost, while nothing changes.
	pollAtMost  = 2 * time.Second
	spreadBelow = time.Second
)

// loop calls reconcilers as their watches and timers say, one at a time and in an order that depends on names alone.
type loop struct {
	clock *testingclock.FakeClock
	store *store.Store
	// seen is called with every event before any controller is woken.
	seen        func(store.Event)
	controllers []*controller
	timers      timers
	// warn is told what went wrong, a sentence each.
	warn func(string)
}

// controller is one reconciler with its queue.
type controller struct {
	parts.Controller
	at int
	// watches are by Go type.
	watches map[reflect.Type][]watch
	queue   map[reconcile.Request]bool
	// due is when a request is looked at again, unless something happens before; tries counts failures at this instant.
	due   map[reconcile.Request]time.Time
	tries map[reconcile.Request]int
	polls map[reconcile.Request]poll
}

// watch is what an event of a kind asks of a controller.
type watch struct {
	when     predicate.Predicate
	requests func(ctx context.Context, was, is client.Object) []reconcile.Request
}

func (c *controller) watch(kind client.Object, when predicate.Predicate, requests func(context.Context, client.Object, client.Object) []reconcile.Request) {
	key := reflect.TypeOf(kind)
	c.watches[key] = append(c.watches[key], watch{when, requests})
}

// poll is a request that is looked at again and again, and what it found last.
type poll struct {
	version int64
	every   time.Duration
	// woken is when it was looked at last because something had changed.
	woken time.Time
}

func (l *loop) add(c parts.Controller) *controller {
	out := &controller{
		Controller: c, at: len(l.controllers), watches: map[reflect.Type][]watch{}, queue: map[reconcile.Request]bool{},
		due: map[reconcile.Request]time.Time{}, tries: map[reconcile.Request]int{}, polls: map[reconcile.Request]poll{},
	}
	for _, w := range c.Watches {
		out.watch(w.Kind, w.When, func(ctx context.Context, was, is client.Object) []reconcile.Request {
			var requests []reconcile.Request
			for _, o := range []client.Object{was, is} {
				if o != nil {
					requests = append(requests, w.Requests(ctx, o)...)
				}
			}
			return requests
		})
	}
	l.controllers = append(l.controllers, out)
	return out
}

// deliver hands out what was written since the last time.
func (l *loop) deliver(ctx context.Context) {
	for events := l.store.Events(); len(events) > 0; events = l.store.Events() {
		for _, e := range events {
			l.seen(e)
		}
		for _, e := range events {
			l.wake(ctx, e)
		}
	}
}

func (l *loop) wake(ctx context.Context, e store.Event) {
	key := reflect.TypeOf(cmp.Or(e.New, e.Old))
	for _, c := range l.controllers {
		for _, w := range c.watches[key] {
			if !passes(w.when, e) {
				continue
			}
			for _, r := range w.requests(ctx, e.Old, e.New) {
				c.queue[r] = true
			}
		}
	}
}

func passes(p predicate.Predicate, e store.Event) bool {
	switch {
	case p == nil:
		return true
	case e.Old == nil:
		return p.Create(event.CreateEvent{Object: e.New})
	case e.New == nil:
		return p.Delete(event.DeleteEvent{Object: e.Old})
	}
	return p.Update(event.UpdateEvent{ObjectOld: e.Old, ObjectNew: e.New})
}

// drain serves a controller's queue, in order of name, until it is empty. It returns whether there was anything.
func (l *loop) drain(ctx context.Context, c *controller) (any bool, err error) {
	for n := 0; len(c.queue) > 0; n++ {
		if n > maxPasses {
			return any, l.circle(c)
		}
		batch := slices.SortedFunc(maps.Keys(c.queue), byName)
		clear(c.queue)
		for _, r := range batch {
			any = true
			l.serve(ctx, c, r)
			l.deliver(ctx)
			if err := ctx.Err(); err != nil {
				return any, err
			}
		}
	}
	return any, nil
}

func byName(a, b reconcile.Request) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (l *loop) circle(c *controller) error {
	return fmt.Errorf("the cluster goes in a circle at %s: %s is asked for the same again and again", l.clock.Now().UTC().Format(time.RFC3339), c.Name)
}

// serve calls the reconciler once.
func (l *loop) serve(ctx context.Context, c *controller, r reconcile.Request) {
	before := l.store.Version()
	delete(c.due, r)
	result, err := c.Reconcile(ctx, r)
	if err != nil {
		if c.tries[r]++; c.tries[r] < maxTries {
			c.queue[r] = true
			return
		}
		l.warn(fmt.Sprintf("%s fails for %s and is tried again: %v", c.Name, strings.TrimPrefix(r.String(), "/"), err))
		result = reconcile.Result{RequeueAfter: failedAgain}
	}
	delete(c.tries, r)
	if result.RequeueAfter <= 0 {
		delete(c.polls, r)
		return
	}
	l.again(c, r, l.spread(c, r, result.RequeueAfter, before))
}

// spread returns when a request is really looked at again that asks for it after a while.
func (l *loop) spread(c *controller, r reconcile.Request, after time.Duration, before int64) time.Duration {
	if after > pollAtMost {
		delete(c.polls, r)
		return after
	}
	now := l.store.Version()
	last, again := c.polls[r]
	same := again && now == before && now == last.version
	last.version = now
	switch {
	case !same || after >= spreadBelow:
		last.every = after
	default:
		last.every = min(2*last.every, pollAtMost)
	}
	c.polls[r] = last
	return max(after, last.every)
}

// wakePolls queues, once an instant, what is looked at again and again, if something has changed since it was looked at last.
// It returns whether there was any. Of one controller, which hears of everything, nothing is queued.
func (l *loop) wakePolls(but *controller) (any bool) {
	now, version := l.clock.Now(), l.store.Version()
	for _, c := range l.controllers {
		if c == but {
			continue
		}
		for r, p := range c.polls {
			if p.version == version || p.woken.Equal(now) {
				continue
			}
			p.woken = now
			c.polls[r], c.queue[r], any = p, true, true
		}
	}
	return any
}

// again has a request looked at after a while, if that is sooner than what it was to be.
func (l *loop) again(c *controller, r reconcile.Request, after time.Duration) {
	at := l.clock.Now().Add(after)
	if due, ok := c.due[r]; ok && !at.Before(due) {
		return
	}
	c.due[r] = at
	heap.Push(&l.timers, timer{at: at, controller: c, request: r})
}

// next returns when the next timer is due; false for none.
func (l *loop) next() (time.Time, bool) {
	for len(l.timers) > 0 {
		t := l.timers[0]
		if due, ok := t.controller.due[t.request]; ok && due.Equal(t.at) {
			return t.at, true
		}
		heap.Pop(&l.timers) // it was looked at since
	}
	return time.Time{}, false
}

// fire queues what is due.
func (l *loop) fire() {
	for {
		at, ok := l.next()
		if !ok || at.After(l.clock.Now()) {
			return
		}
		t := heap.Pop(&l.timers).(timer)
		delete(t.controller.due, t.request)
		t.controller.queue[t.request] = true
	}
}

// timer is when a request is due.
type timer struct {
	at         time.Time
	controller *controller
	request    reconcile.Request
}

// timers is a heap of what is due, earliest first, and then by controller and name.
type timers []timer

func (t timers) Len() int      { return len(t) }
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t timers) Less(i, j int) bool {
	a, b := t[i], t[j]
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.controller.at, b.controller.at), byName(a.request, b.request)) < 0
}

// Push adds a timer, for package heap.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop takes the last, for package heap.
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}
