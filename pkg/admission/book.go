package admission

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// book says on which accounts a standing is taken. Each is more hopeful than the one before, but for onTheWay, which
// leaves out what runs.
type book int

const (
	// asIs: what is free now.
	asIs book = iota
	// returning: and what was lost within the grace is back.
	returning
	// onTheWay: and what is ending has ended, where nobody else is promised it.
	onTheWay
	// managedGone: and every Workload that Kueue manages has finished.
	managedGone
	// emptyHealthy: the whole inventory, and what is remembered of it, empty and healthy.
	emptyHealthy

	books
)

// windows are a policy's times, from which on something counts for more or less.
type windows struct {
	now                   time.Time
	window, grace, memory time.Duration
	// others are Workloads of which what is ending is somebody else's.
	others map[types.UID]bool
}

func windowsOf(r *Request) *windows {
	f := &r.Policy.Spec.Freshness
	return &windows{
		now:    r.Now,
		others: r.Others,
		window: Window(r.Policy),
		grace:  time.Duration(flavors.Seconds(f.LossGraceSeconds, 60)) * time.Second,
		memory: time.Duration(flavors.Seconds(f.InventoryMemorySeconds, 3600)) * time.Second,
	}
}

// back says whether what was lost at t counts as there in a book.
func (w *windows) back(t time.Time, b book) bool {
	switch b {
	case asIs:
		return false
	case emptyHealthy:
		return w.now.Before(t.Add(max(w.memory, w.grace)))
	}
	return w.now.Before(t.Add(w.grace))
}

// usable says whether a device can be given in a book, taints aside.
func (w *windows) usable(d *ledger.Device, b book) bool {
	if d.Unusable != "" || !d.Lost.IsZero() && !w.back(d.Lost, b) && !(d.Unserved && b == emptyHealthy) {
		return false
	}
	if d.Cover != "" && b != managedGone && b != emptyHealthy {
		return false
	}
	return d.Left(ledger.DefaultConsumption(d.Spec), func(h *ledger.Holder) bool { return w.keeps(h, b) })
}

// keeps says whether a holder still has what it holds in a book.
func (w *windows) keeps(h *ledger.Holder, b book) bool {
	switch b {
	case asIs, returning:
		return true
	case onTheWay:
		return !h.Ending(w.now) || w.others[h.Workload]
	case managedGone:
		return h.Freeing && !h.Ending(w.now) || !h.Managed && !h.Freeing
	}
	return false
}

// overdue says that a device is held by what should have ended longer ago than that is waited for.
func (w *windows) overdue(d *ledger.Device) bool {
	return slices.ContainsFunc(d.Holders, func(h ledger.Holder) bool { return h.Freeing && !h.Ending(w.now) })
}

// room is what a node has for pods in a book, beside its devices.
func (n *nodeFit) room(b book) ledger.Amounts {
	switch b {
	case asIs, returning:
		return n.node.Free
	case emptyHealthy:
		return n.node.Allocatable
	}
	room := n.node.Free.Clone()
	if b == managedGone {
		room.Add(n.node.Managed, 1)
	}
	for i := range n.node.Uses {
		u := &n.node.Uses[i]
		if u.Ending(n.now) && (b == onTheWay || u.Workload == "") {
			room.Add(u.Requests, u.Times)
		}
	}
	return room
}

// mayReturn says that the node lost something within the grace: a pool, its readiness, or what it has yet to publish.
func (n *nodeFit) mayReturn() bool {
	return n.mayPublish() || n.absentSince != nil && n.back(*n.absentSince, returning) ||
		slices.ContainsFunc(n.devices, func(d *ledger.Device) bool { return !d.Lost.IsZero() && n.back(d.Lost, returning) })
}

// mayPublish says that a node that was seen within the grace has not listed a complete pool yet, and no device is
// remembered of it.
func (n *nodeFit) mayPublish() bool {
	return n.unpublished() && n.back(n.node.SeenAt, returning)
}

// unpublished says whether a node that the podset could run on carries the flavor's labels without a complete pool: what
// it has is not known, so nothing about it is impossible.
func (n *nodeFit) unpublished() bool {
	if n.plugin != "" && len(n.wants) == 0 { // its device plugin lists the name once it has registered
		_, listed := n.node.Allocatable[n.plugin]
		return !n.meant && !n.departed && !listed
	}
	return !n.meant && !n.plain && !n.departed && !slices.ContainsFunc(n.node.Lost, func(d ledger.Device) bool { return n.back(d.Lost, emptyHealthy) }) &&
		(len(n.node.Pools) == 0 || slices.ContainsFunc(n.node.Pools, func(p ledger.Pool) bool { return p.State != ledger.PoolFresh }))
}

// until returns when time alone may next change what can be placed on nodes; zero for never.
func until(nodes []*nodeFit) time.Time {
	var next time.Time
	for _, n := range nodes {
		note := func(t time.Time) {
			if t.After(n.now) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
		if n.absentSince != nil {
			note(n.absentSince.Add(n.grace))
		}
		if n.unpublished() {
			note(n.node.SeenAt.Add(n.grace))
		}
		for _, d := range n.devices {
			if !d.Lost.IsZero() {
				note(d.Lost.Add(n.grace))
				note(d.Lost.Add(n.memory))
			}
			for _, h := range d.Holders {
				note(h.Until)
			}
		}
	}
	return next
}

// settled says that what the nodes have is known for longer than the policy's window: every node is Ready and has listed
// what it has, and nothing was lost.
func settled(nodes []*nodeFit) bool {
	has := false
	for _, n := range nodes {
		if n.meant {
			continue
		}
		if !n.node.Ready || n.unpublished() || len(n.node.Lost) > 0 || n.now.Before(n.node.SeenAt.Add(n.window)) {
			return false
		}
		has = has || len(n.devices) > 0 || n.plugin != "" && n.node.Allocatable[n.plugin] > 0
	}
	return has
}

// settles returns when the next of the nodes will be known for as long as the policy's window, or other if that comes before.
func settles(nodes []*nodeFit, other time.Time) time.Time {
	next := other
	for _, n := range nodes {
		if t := n.node.SeenAt.Add(n.window); t.After(n.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// largest returns how many devices one of the nodes has at most for a request of a pod.
func largest(nodes []*nodeFit) int64 {
	var most int64
	for _, n := range nodes {
		for _, w := range n.wants {
			most = max(most, int64(len(w.matching)))
		}
		if n.plugin != "" {
			most = max(most, n.node.Allocatable[n.plugin])
		}
	}
	return most
}
