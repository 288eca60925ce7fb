package ledger

import (
	"slices"
	"time"
)

// lossKey names a pool on one node.
type lossKey struct {
	pool
	node string
}

// remembered is a pool as it was when it was last complete.
type remembered struct {
	slices []*slice
	// lost is when it ceased to be complete; zero while it is.
	lost time.Time
	gone bool
}

// published notes what the coming or going of a slice means for its pool: its newest generation, and whether it is complete,
// which may be another on nodes that the slice is not for.
func (b *Book) published(s *slice, at time.Time) {
	id := lossKey{s.pool(), s.home()}
	left := false
	for uid := range b.slicesOf[id.pool].all() {
		if x := b.slices[uid]; x.home() == id.node {
			left = true
			b.highest[id] = max(b.highest[id], x.Spec.Pool.Generation)
		}
	}
	if !left {
		delete(b.highest, id) // a pool that was empty starts again, as drivers do
	}
	for _, home := range b.leaning(s) {
		b.remember(lossKey{id.pool, home}, at)
	}
}

// leaning returns the homes of a pool whose slices may be complete, or not, because this one came or went, in order: its own
// alone, unless it is for several nodes, or all slices of a generation are there or one more or less. A pool of one name that
// thousands of nodes have each for itself is not gone through for each of them.
func (b *Book) leaning(s *slice) []string {
	there := map[int64]int64{}
	for uid := range b.slicesOf[s.pool()].all() {
		there[b.slices[uid].Spec.Pool.Generation]++
	}
	shared, homes := s.wide() || s.counts(), []string{s.home()}
	for uid := range b.slicesOf[s.pool()].all() {
		x := b.slices[uid]
		missing := x.Spec.Pool.ResourceSliceCount - there[x.Spec.Pool.Generation]
		shared = shared || -1 <= missing && missing <= 1
		homes = append(homes, x.home())
	}
	if !shared {
		return homes[:1]
	}
	for lost := range b.lostOf[s.pool()] {
		homes = append(homes, lost.node)
	}
	slices.Sort(homes)
	return slices.Compact(homes)
}

// regressed says whether a pool's newest generation was taken back while slices of an older one are left.
func (b *Book) regressed(id lossKey, generation int64) bool { return b.highest[id] > generation }

// complete returns the slices of a pool for one node, or those for several, if all of its newest generation are there; nil
// otherwise.
func (b *Book) complete(id lossKey) []*slice {
	if id.node == "" {
		list, whole := b.whole(id.pool)
		if !whole || b.regressed(id, list[0].Spec.Pool.Generation) {
			return nil
		}
		return slices.DeleteFunc(list, func(s *slice) bool { return !s.wide() })
	}
	p := b.newest(id.pool, b.nodes[b.nodeByName[id.node]].Node)
	if p == nil || p.State != PoolFresh || b.regressed(id, p.Generation) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.list), func(s *slice) bool { return s.wide() })
}

// remember keeps what a pool lists while it is complete, and notes when it ceased to be. What was lost counts since the
// first loss: a driver that republishes slice by slice does not start the time anew.
func (b *Book) remember(id lossKey, at time.Time) {
	if id.node != "" && b.nodeByName[id.node] == "" {
		return // what a node that is not there lists is taken in when it comes
	}
	list, m := b.complete(id), b.memory[id]
	switch {
	case list != nil:
		if m != nil && m.gone {
			b.dropLost(id)
		}
		if m != nil {
			b.keepMappings(id.pool, m.slices, list)
		}
		b.memory[id] = &remembered{slices: list}
	case m != nil && !m.gone:
		m.lost, m.gone = at, true
		if b.lostOn[id.node] == nil {
			b.lostOn[id.node] = map[lossKey]struct{}{}
		}
		b.lostOn[id.node][id] = struct{}{}
		if b.lostOf[id.pool] == nil {
			b.lostOf[id.pool] = map[lossKey]struct{}{}
		}
		b.lostOf[id.pool][id] = struct{}{}
		b.touchLost(id)
	}
}

func (b *Book) dropLost(id lossKey) {
	if _, lost := b.lostOn[id.node][id]; !lost {
		return
	}
	b.touchLost(id)
	if delete(b.lostOn[id.node], id); len(b.lostOn[id.node]) == 0 {
		delete(b.lostOn, id.node)
	}
	if delete(b.lostOf[id.pool], id); len(b.lostOf[id.pool]) == 0 {
		delete(b.lostOf, id.pool)
	}
}

// touchLost marks the nodes that have lost what a pool listed.
func (b *Book) touchLost(id lossKey) {
	if id.node != "" {
		b.touch(id.node)
		return
	}
	for _, s := range b.memory[id].slices {
		b.touchConcerned(s)
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
		n.Devices, n.Withheld, n.Elsewhere, n.Lost, n.Pools, n.Ready, n.NotReadySince = nil, nil, nil, lost, nil, false, time.Time{}
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
	for uid := range b.slicesOn[name].all() {
		s := b.slices[uid]
		b.remember(lossKey{s.pool(), name}, time.Time{})
	}
}
