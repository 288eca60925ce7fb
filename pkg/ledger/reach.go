package ledger

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// slice is a ResourceSlice with what was worked out of it once.
type slice struct {
	*resourcev1.ResourceSlice
	// mappings are those of its devices that have any, by name; nil for none. published are those of them that only the
	// observation told.
	mappings  map[string]*Mappings
	published map[string]Mappings
	// unread is what the observation told that cannot be counted with; empty for nothing.
	unread string
	// reach says which nodes may use it; each says so for each of its devices, and is nil where they are all the same.
	reach reach
	each  []reach
	// problem says why the whole slice cannot be, problems why devices of it cannot, by their places; empty for none.
	problem  string
	problems map[int]string
	// unreadable says that a node selector of it cannot be read.
	unreadable bool
}

// reach is the nodes that a slice or a device is for. The zero value is none.
type reach struct {
	node     string
	all      bool
	selector *nodeaffinity.NodeSelector
}

// newSlice reads a slice. published are the mappings that its typed form cannot hold, by device, and unread is what nobody reads
// of it; empty for nothing.
func newSlice(s *resourcev1.ResourceSlice, published map[string]Mappings, unread string) *slice {
	x := &slice{ResourceSlice: s, published: published, unread: unread, reach: reachOf(s.Spec.NodeName, s.Spec.AllNodes, s.Spec.NodeSelector)}
	if each := s.Spec.PerDeviceNodeSelection; each != nil && *each {
		x.each = make([]reach, len(s.Spec.Devices))
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			x.each[i] = reachOf(d.NodeName, d.AllNodes, d.NodeSelector)
		}
	}
	x.problem, x.unreadable = cmp.Or(impossibleSlice(s), unread), hasUnreadable(s)
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if why := impossibleDevice(d, s); why != "" {
			if x.problems == nil {
				x.problems = map[int]string{}
			}
			x.problems[i] = why
		}
		var m *Mappings
		if p, ok := published[d.Name]; ok {
			m = &p
		} else {
			m = MappingsOf(d)
		}
		if m != nil {
			if x.mappings == nil {
				x.mappings = map[string]*Mappings{}
			}
			x.mappings[d.Name] = m
		}
	}
	return x
}

// reachOf reads a node selection. A selector that does not parse selects nothing.
func reachOf(node *string, all *bool, selector *corev1.NodeSelector) reach {
	switch {
	case node != nil && *node != "":
		return reach{node: *node}
	case all != nil && *all:
		return reach{all: true}
	case selector != nil:
		if parsed, err := nodeaffinity.NewNodeSelector(selector); err == nil {
			return reach{selector: parsed}
		}
	}
	return reach{}
}

func (r *reach) includes(n *corev1.Node) bool {
	switch {
	case r.node != "":
		return r.node == n.Name
	case r.all:
		return true
	}
	return r.selector != nil && r.selector.Match(n)
}

// wide says that the slice may be for more than one node.
func (s *slice) wide() bool { return s.reach.node == "" }

// counts says that the slice lists counters, which a pool needs on whatever node.
func (s *slice) counts() bool { return len(s.Spec.SharedCounters) > 0 }

// concerns says whether the slice is for a node, as kube-scheduler has it.
func (s *slice) concerns(n *corev1.Node) bool {
	if s.counts() {
		return true
	}
	if s.each == nil {
		return s.reach.includes(n)
	}
	return slices.ContainsFunc(s.each, func(r reach) bool { return r.includes(n) })
}

// offers says whether a node may use the slice's i-th device.
func (s *slice) offers(i int, n *corev1.Node) bool {
	if s.each != nil {
		return s.each[i].includes(n)
	}
	return s.reach.includes(n)
}

// home returns the node whose slices alone a slice is one of; empty for a wide one.
func (s *slice) home() string { return s.reach.node }

func (s *slice) pool() pool { return pool{s.Spec.Driver, s.Spec.Pool.Name} }

// touchSlice marks the nodes that a slice concerns.
func (b *Book) touchSlice(s *slice) {
	b.touch(s.home())
	b.touchPool(s.pool()) // whether it is complete may be another on every node
}

// touchPool marks the nodes that slices of a pool concern, or did when it was last complete.
func (b *Book) touchPool(id pool) {
	for uid := range b.slicesOf[id].all() {
		s := b.slices[uid]
		if !s.wide() {
			b.touch(s.home())
			continue
		}
		b.touchConcerned(s)
	}
	for lost := range b.lostOf[id] {
		b.touchLost(lost)
	}
}

// touchConcerned marks the nodes that a wide slice is for.
func (b *Book) touchConcerned(s *slice) {
	for _, o := range b.nodes {
		if s.concerns(o.Node) {
			b.touch(o.Node.Name)
		}
	}
}

// pools returns the newest generation of each pool that is for a node.
func (b *Book) pools(n *corev1.Node) []Pool {
	ids := map[pool]bool{}
	for uid := range b.slicesOn[n.Name].all() {
		if s := b.slices[uid]; !s.counts() {
			ids[s.pool()] = true
		}
	}
	for uid := range b.wide {
		if s := b.slices[uid]; !s.counts() && !ids[s.pool()] && s.concerns(n) {
			ids[s.pool()] = true
		}
	}
	list := make([]Pool, 0, len(ids))
	for id := range ids {
		if p := b.newest(id, n); p != nil {
			if p.State == PoolFresh && (b.regressed(lossKey{id, n.Name}, p.Generation) || p.Wide && b.regressed(lossKey{id, ""}, p.Generation)) {
				p.State = PoolRegressed
			}
			list = append(list, *p)
		}
	}
	slices.SortFunc(list, func(x, y Pool) int { return cmp.Or(cmp.Compare(x.Driver, y.Driver), cmp.Compare(x.Name, y.Name)) })
	return list
}

// newest returns the newest generation of a pool as a node sees it; nil if none of its slices is for the node. It is
// complete where all its slices are there, for whatever node, and no newer one is on its way: as kube-scheduler has it.
func (b *Book) newest(id pool, n *corev1.Node) *Pool {
	var p *Pool
	var every []*slice
	var newest int64
	for uid := range b.slicesOf[id].all() {
		s := b.slices[uid]
		every = append(every, s)
		newest = max(newest, s.Spec.Pool.Generation)
		if s.concerns(n) && (p == nil || s.Spec.Pool.Generation > p.Generation) {
			p = &Pool{Driver: id.driver, Name: id.name, Generation: s.Spec.Pool.Generation}
		}
	}
	if p == nil {
		return nil
	}
	slices.SortFunc(every, func(x, y *slice) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID)) })
	var there int64
	for _, s := range every {
		p.Wide = p.Wide || s.wide()
		if s.Spec.Pool.Generation != p.Generation {
			continue
		}
		there++
		if s.concerns(n) {
			p.Slices, p.list = append(p.Slices, s.ResourceSlice), append(p.list, s)
		}
	}
	p.State = PoolFresh
	if count := p.Slices[0].Spec.Pool.ResourceSliceCount; int64(len(p.Slices)) != count && (newest > p.Generation || there != count) {
		p.State = PoolIncomplete
	}
	p.check(every, n)
	// The pools of one driver that have one name on many nodes are small each, and must not be listed on all of them.
	for _, s := range every {
		if s.unread == "" && (p.Wide || p.State != PoolFresh || s.concerns(n)) {
			p.Every = append(p.Every, s.ResourceSlice)
		}
	}
	if len(p.Every) < len(every) {
		p.Unlike = p.unlike(every, n)
	}
	return p
}

// unlike returns the devices of the pool by whose names other nodes list some that take otherwise of their nodes' own resources.
func (p *Pool) unlike(every []*slice, n *corev1.Node) []string {
	if !slices.ContainsFunc(every, func(s *slice) bool { return s.mappings != nil }) {
		return nil
	}
	own := map[string]*resourcev1.Device{}
	for _, s := range p.list {
		for i := range s.Spec.Devices {
			own[s.Spec.Devices[i].Name] = &s.Spec.Devices[i]
		}
	}
	var out []string
	for _, s := range every {
		if s.concerns(n) {
			continue
		}
		for i := range s.Spec.Devices {
			other := &s.Spec.Devices[i]
			d := own[other.Name]
			if d != nil && !apiequality.Semantic.DeepEqual(d.NodeAllocatableResourceMappings, other.NodeAllocatableResourceMappings) && !slices.Contains(out, d.Name) {
				out = append(out, d.Name)
			}
		}
	}
	return out
}

// check notes what about a pool's slices cannot be. every holds all slices of the pool.
func (p *Pool) check(every []*slice, n *corev1.Node) {
	if p.Problem = impossibleSlices(p.list, nil); p.Problem == "" && p.State == PoolFresh {
		var others []*slice
		if int64(len(p.list)) != p.list[0].Spec.Pool.ResourceSliceCount {
			for _, s := range every {
				if s.Spec.Pool.Generation == p.Generation && !s.concerns(n) {
					others = append(others, s)
				}
			}
		}
		p.Problem = impossiblePool(p.list, others)
	}
	if p.Problem != "" {
		p.State = PoolImpossible
	}
}

// whole says whether the newest generation of a pool is complete, for whatever node, and returns its slices; none where
// the pool has no slices that are wide.
func (b *Book) whole(id pool) ([]*slice, bool) {
	var newest []*slice
	for uid := range b.slicesOf[id].all() {
		s := b.slices[uid]
		if len(newest) > 0 && s.Spec.Pool.Generation > newest[0].Spec.Pool.Generation {
			newest = nil
		}
		if len(newest) == 0 || s.Spec.Pool.Generation == newest[0].Spec.Pool.Generation {
			newest = append(newest, s)
		}
	}
	return newest, len(newest) > 0 && int64(len(newest)) == newest[0].Spec.Pool.ResourceSliceCount
}
