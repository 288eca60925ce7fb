package ledger

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
)

// lossKey names a pool on one node.
type lossKey struct {
	pool
	node string
}

// remembered is a pool as it was when it was last complete.
type remembered struct {
	slices []*resourcev1.ResourceSlice
	// lost is when it ceased to be complete; zero while it is.
	lost time.Time
	gone bool
}

// remember keeps what a pool lists while it is complete, and notes when it ceased to be. What was lost counts since the
// first loss: a driver that republishes slice by slice does not start the time anew.
func (b *Book) remember(id lossKey, at time.Time) {
	if id.node == "" || b.nodeByName[id.node] == "" {
		return // what a node that is not there lists is taken in when it comes
	}
	p, m := b.newest(id.pool, id.node), b.memory[id]
	switch {
	case p != nil && p.State == PoolFresh:
		if m != nil && m.gone {
			b.dropLost(id)
		}
		b.memory[id] = &remembered{slices: p.Slices}
	case m != nil && !m.gone:
		m.lost, m.gone = at, true
		if b.lostOn[id.node] == nil {
			b.lostOn[id.node] = map[lossKey]struct{}{}
		}
		b.lostOn[id.node][id] = struct{}{}
	}
}

func (b *Book) dropLost(id lossKey) {
	if delete(b.lostOn[id.node], id); len(b.lostOn[id.node]) == 0 {
		delete(b.lostOn, id.node)
	}
}

// departedNodes is how many deleted nodes are remembered.
const departedNodes = 1024

// depart keeps what a node that is being deleted listed. A deletion is meant: nothing of it is expected back, but what was
// there a while ago makes nothing impossible.
func (b *Book) depart(name string, at time.Time) {
	if n := b.view(name); n != nil {
		lost := slices.Concat(n.Devices, n.Lost)
		for i := range lost {
			lost[i].Lost = at
		}
		n.Devices, n.Lost, n.Pools, n.Ready, n.NotReadySince = nil, lost, nil, false, time.Time{}
		b.departed[name], b.lentDeparted = n, nil
		b.departures = append(b.departures, name)
		if len(b.departures) > departedNodes {
			delete(b.departed, b.departures[0])
			b.departures = b.departures[1:]
		}
	}
	for id := range b.memory {
		if id.node == name {
			b.dropLost(id)
			delete(b.memory, id)
		}
	}
}

// arrive drops what is remembered of an earlier node of the name, and learns what its slices list already.
func (b *Book) arrive(name string) {
	if _, known := b.departed[name]; known {
		delete(b.departed, name)
		b.lentDeparted = nil
	}
	b.departures = slices.DeleteFunc(b.departures, func(n string) bool { return n == name })
	for uid := range b.slicesOn[name] {
		s := b.slices[uid]
		b.remember(lossKey{pool{s.Spec.Driver, s.Spec.Pool.Name}, name}, time.Time{})
	}
}
