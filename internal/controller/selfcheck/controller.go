// Package selfcheck says where the ledger and the cluster differ, and what about a node is odd: as conditions of Placements,
// events and metrics. What differs is worked out by pkg/ledger; nothing is adopted from either side, and nothing is mended.
package selfcheck

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const (
	// checkEvery is the least time between two checks.
	checkEvery = time.Second
	// stands is how long a difference has to be there before it is said. Objects that change together are seen one after the
	// other, so that a claim has devices before its pod's status says what they take.
	stands = 10 * time.Second
	// maxEvents is how many events a check may write; what is left waits for the next.
	maxEvents = 10
)

// Controller compares whenever the ledger has changed. It has one worker.
type Controller struct {
	Client  client.Client
	Book    *ledger.Book
	Decider *admission.Decider
	Store   *placements.Store
	Events  events.EventRecorder
	Metrics *metrics.Metrics
	Clock   clock.PassiveClock
	// Synced says whether the book has seen all that existed at the start.
	Synced func() bool

	// last is when the last check was, and of which version; due is when what was found is to be said, zero for never.
	last    time.Time
	version int64
	due     time.Time
	started bool
	// nodes are as of the last check; found is what was found on each that has anything. A node that is the same by pointer has
	// the same.
	nodes   map[string]*ledger.Node
	classes *ledger.Classes
	found   map[string][]finding
	// sightings are what stands now, each with since when and whether it was said.
	sightings map[finding]*sighting
	// marked are the Placements whose condition is, or may be, true.
	marked map[types.NamespacedName]struct{}
}

// sighting is one finding over time.
type sighting struct {
	since time.Time
	// said is whether it stood for long enough; told whether its event was written, for one that concerns a Placement.
	said, told bool
	node       *ledger.Node
}

// Reconcile checks once, and again when what was found has stood for long enough. At rest it is not called.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		return reconcile.Result{RequeueAfter: checkEvery}, nil
	}
	now := c.Clock.Now()
	if wait := c.last.Add(checkEvery).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if !c.started {
		if err := c.start(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	snapshot := c.Book.Snapshot()
	if snapshot.Version == c.version && (c.due.IsZero() || now.Before(c.due)) {
		return c.again(now), nil
	}
	c.last, c.version = now, snapshot.Version
	c.see(snapshot, now)
	c.due = time.Time{}
	c.say(now)
	c.measure()
	if err := c.mark(ctx, now); err != nil {
		c.version = -1 // look again
		return reconcile.Result{}, err
	}
	return c.again(now), nil
}

// again asks to be called when the next thing is due.
func (c *Controller) again(now time.Time) reconcile.Result {
	if c.due.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(c.due.Sub(now), checkEvery)}
}

// at notes that something is due at a time.
func (c *Controller) at(t time.Time) {
	if c.due.IsZero() || t.Before(c.due) {
		c.due = t
	}
}

// see works out what stands. Only nodes that changed are looked at.
func (c *Controller) see(s *ledger.Snapshot, now time.Time) {
	if s.Classes() != c.classes { // they say which cards a node serves twice
		c.classes, c.nodes = s.Classes(), nil
	}
	nodes := make(map[string]*ledger.Node, len(s.Nodes()))
	sightings := map[finding]*sighting{}
	for _, n := range s.Nodes() {
		nodes[n.Name] = n
		if c.nodes[n.Name] != n {
			if list := c.findings(s, n); len(list) > 0 {
				c.found[n.Name] = list
			} else {
				delete(c.found, n.Name)
			}
		}
		for _, f := range c.found[n.Name] {
			if sightings[f] != nil {
				continue // of a device that several nodes share
			}
			x := c.sightings[f]
			if x == nil {
				x = &sighting{since: now, node: n}
			}
			sightings[f] = x
		}
	}
	for name := range c.found {
		if nodes[name] == nil {
			delete(c.found, name)
		}
	}
	c.nodes, c.sightings = nodes, sightings
}

// measure sets the gauges.
func (c *Controller) measure() {
	differences, flags := map[ledger.DivergenceKind]int{}, map[ledger.FlagReason]int{}
	for f, x := range c.sightings {
		switch {
		case !x.said:
		case f.flag != (ledger.Flag{}):
			flags[f.flag.Reason]++
		default:
			differences[f.difference.Kind]++
		}
	}
	for _, kind := range ledger.DivergenceKinds {
		c.Metrics.Differences.WithLabelValues(string(kind)).Set(float64(differences[kind]))
	}
	for _, reason := range ledger.FlagReasons {
		c.Metrics.Flags.WithLabelValues(string(reason)).Set(float64(flags[reason]))
	}
}
