package ledger

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Each apply function replaces what the book holds of one object, marks the nodes whose accounts it touches, and says
// whether any did change.

func (b *Book) applyNode(o Observation) bool {
	old := b.nodes[o.Ref.UID]
	if o.Node == nil {
		if old == nil {
			return false
		}
		if b.nodesNamed[old.Node.Name].len() == 1 {
			b.depart(old.Node.Name, o.At)
			delete(b.agents, old.Node.Name)
		}
		delete(b.nodes, o.Ref.UID)
		delete(b.firstSeen, o.Ref.UID)
		unlink(b.nodesAt, old.Node.Labels[corev1.LabelHostname], o.Ref.UID)
		unlink(b.nodesNamed, old.Node.Name, o.Ref.UID)
		b.nameNode(old.Node.Name)
		b.touchHost(old.Node.Labels[corev1.LabelHostname])
		b.touch(old.Node.Name)
		return true
	}
	if old != nil && sameNode(old, &o) {
		return false
	}
	if old != nil {
		unlink(b.nodesAt, old.Node.Labels[corev1.LabelHostname], o.Ref.UID)
		b.touchHost(old.Node.Labels[corev1.LabelHostname])
	}
	if old == nil {
		b.firstSeen[o.Ref.UID] = o.At
	}
	o.allocatable = AmountsOf(o.Node.Status.Allocatable)
	b.nodes[o.Ref.UID] = &o
	link(b.nodesNamed, o.Node.Name, o.Ref.UID)
	b.nameNode(o.Node.Name)
	if old == nil && b.nodesNamed[o.Node.Name].len() == 1 {
		b.arrive(o.Node.Name)
	}
	link(b.nodesAt, o.Node.Labels[corev1.LabelHostname], o.Ref.UID)
	b.touchHost(o.Node.Labels[corev1.LabelHostname])
	b.touch(o.Node.Name)
	return true
}

// nameNode finds which node a name is of. Of two the newer has it: the other is gone, which was not seen yet.
func (b *Book) nameNode(name string) {
	var newest *Observation
	for uid := range b.nodesNamed[name].all() {
		if o := b.nodes[uid]; newest == nil || o.Ref.newerThan(newest.Ref) {
			newest = o
		}
	}
	if newest == nil {
		delete(b.nodeByName, name)
		return
	}
	b.nodeByName[name] = newest.Ref.UID
}

// newerThan puts versions of objects that follow each other under one name in their order.
func (r Ref) newerThan(o Ref) bool {
	return cmp.Or(cmp.Compare(r.ResourceVersion, o.ResourceVersion), cmp.Compare(r.UID, o.UID)) > 0
}

// sameNode leaves out what no account depends on, such as heartbeats and images.
func sameNode(a, c *Observation) bool {
	return a.Node.Name == c.Node.Name && a.Node.Spec.Unschedulable == c.Node.Spec.Unschedulable &&
		nodeReady(a.Node) == nodeReady(c.Node) &&
		reflect.DeepEqual(a.Node.Labels, c.Node.Labels) &&
		apiequality.Semantic.DeepEqual(a.Node.Spec.Taints, c.Node.Spec.Taints) &&
		apiequality.Semantic.DeepEqual(a.Node.Status.Allocatable, c.Node.Status.Allocatable)
}

func (b *Book) applyPod(uid types.UID, p *Pod, at time.Time) bool {
	old := b.pods[uid]
	if old != nil && p != nil && reflect.DeepEqual(old, p) {
		return false
	}
	if old == nil && p == nil {
		return false
	}
	if old != nil {
		unlink(b.podsAt, old.place(), uid)
		unlink(b.podsOf, old.Owner, uid)
		b.touchPlace(old.place())
		b.touchSlots(old)
	}
	b.agentChanged(uid, old, p, at)
	if p == nil {
		delete(b.pods, uid)
	} else {
		one := *p
		one.Requests = b.alike(p.Requests)
		p = &one
		b.pods[uid] = p
		link(b.podsAt, p.place(), uid)
		link(b.podsOf, p.Owner, uid)
		b.touchPlace(p.place())
		b.touchSlots(p)
	}
	for claim := range b.claimOfPod[uid].all() {
		b.touchClaim(b.claims[claim])
	}
	return true
}

func (b *Book) applySlice(uid types.UID, o *Observation) bool {
	old := b.slices[uid]
	if old == nil && o.Slice == nil {
		return false
	}
	if old != nil && o.Slice != nil && apiequality.Semantic.DeepEqual(old.Spec, o.Slice.Spec) && reflect.DeepEqual(old.published, o.Mappings) && old.unread == o.Unread {
		old.ResourceSlice = o.Slice
		return false
	}
	since := o.At
	if was, known := b.stopping[uid]; known {
		since = was.since
	}
	if old != nil {
		b.touchSlice(old)
		unlink(b.slicesOn, old.home(), uid)
		unlink(b.slicesOf, old.pool(), uid)
		delete(b.wide, uid)
		delete(b.slices, uid)
		delete(b.stopping, uid)
		b.touchStopped(old)
		b.touchSlice(old)
	}
	if o.Slice != nil {
		s := newSlice(o.Slice, o.Mappings, o.Unread)
		b.slices[uid] = s
		link(b.slicesOn, s.home(), uid)
		link(b.slicesOf, s.pool(), uid)
		if s.wide() {
			b.wide[uid] = struct{}{}
		}
		if s.unreadable {
			b.stopping[uid] = stopping{s, since}
			b.touchStopped(s)
		}
		b.touchSlice(s)
		b.published(s, o.At)
	}
	if old != nil {
		b.published(old, o.At)
	}
	return true
}

func (b *Book) applyClaim(uid types.UID, c *Claim) bool {
	old := b.claims[uid]
	if old == nil && c == nil {
		return false
	}
	if c != nil {
		c = c.once()
	}
	if old != nil && c != nil && reflect.DeepEqual(old, c) {
		return false
	}
	if old != nil {
		b.touchClaim(old)
		for _, d := range old.devices() {
			unlink(b.claimsOf, d, uid)
		}
		for _, pod := range old.pods() {
			unlink(b.claimOfPod, pod, uid)
		}
		delete(b.claims, uid)
	}
	if c != nil {
		b.claims[uid] = c
		for _, d := range c.devices() {
			link(b.claimsOf, d, uid)
		}
		for _, pod := range c.pods() {
			link(b.claimOfPod, pod, uid)
		}
		b.touchClaim(c)
	}
	return true
}

// devices returns the devices that a claim holds or, once its pod is released, would hold.
func (c *Claim) devices() []DeviceID {
	if c.Allocated == nil {
		return c.Promised
	}
	if len(c.Shares) == 0 {
		return c.Allocated
	}
	all := slices.Clone(c.Allocated)
	for i := range c.Shares {
		all = append(all, c.Shares[i].Device)
	}
	return all
}

// pods returns the pods that own a claim or use it.
func (c *Claim) pods() []types.UID {
	if c.Pod == "" {
		return c.Pods
	}
	return []types.UID{c.Pod}
}

// touchClaim marks the nodes of a claim's devices, those whose slices list the devices' pools, and those of its pods. A pool
// that is not known yet marks its nodes when its slice comes.
func (b *Book) touchClaim(c *Claim) {
	if c == nil {
		return
	}
	for _, d := range c.devices() {
		b.touchPool(pool{d.Driver, d.Pool})
	}
	for _, uid := range c.pods() {
		if p := b.pods[uid]; p != nil {
			b.touchPlace(p.place())
			b.touchSlots(p)
		}
	}
}

func (b *Book) applyClass(o Observation) bool {
	old := b.classes[o.Ref.UID]
	switch {
	case old == nil && o.Class == nil:
		return false
	case o.Class == nil:
		delete(b.classes, o.Ref.UID)
	case old != nil && apiequality.Semantic.DeepEqual(old.Class.Spec, o.Class.Spec):
		return false
	default:
		b.classes[o.Ref.UID] = &o
	}
	b.lentClasses = nil
	return true
}

// classesByName returns the classes by their names. Of two of one name it is the newer: the other is gone, which was not seen yet.
func (b *Book) classesByName() *Classes {
	newest := make(map[string]*Observation, len(b.classes))
	for _, o := range b.classes {
		if x := newest[o.Class.Name]; x == nil || o.Ref.newerThan(x.Ref) {
			newest[o.Class.Name] = o
		}
	}
	byName := make(map[string]*resourcev1.DeviceClass, len(newest))
	for name, o := range newest {
		byName[name] = o.Class
	}
	return &Classes{byName}
}

func (b *Book) applyPlacement(uid types.UID, p *Placement) bool {
	old := b.placements[uid]
	if old == nil && p == nil {
		return false
	}
	if old != nil && p != nil && apiequality.Semantic.DeepEqual(old, p) {
		return false
	}
	if old != nil {
		for _, node := range placementNodes(old.Spec) {
			unlink(b.promisedOn, node, uid)
			b.touch(node)
		}
		delete(b.countedIn, uid)
		for id := range placementPools(old.Spec, all) {
			unlink(b.promisedIn, id, uid)
			b.touchPool(id)
		}
		unlink(b.placedFor, old.Spec.Key.WorkloadUID, uid)
		delete(b.placements, uid)
	}
	if p != nil {
		b.placements[uid] = p
		for _, node := range placementNodes(p.Spec) {
			link(b.promisedOn, node, uid)
			b.touch(node)
		}
		if pools := placementPools(p.Spec, byNumber); len(pools) > 0 {
			b.countedIn[uid] = pools
		}
		for id := range placementPools(p.Spec, all) {
			link(b.promisedIn, id, uid)
			b.touchPool(id)
		}
		link(b.placedFor, p.Spec.Key.WorkloadUID, uid)
	}
	return true
}

func placementNodes(s *v1alpha1.PlacementSpec) []string {
	var names []string
	for _, ps := range s.PodSets {
		for _, n := range ps.Nodes {
			names = append(names, n.Name)
		}
	}
	return names
}

func all(*v1alpha1.PlacementRequest) bool { return true }

func byNumber(r *v1alpha1.PlacementRequest) bool { return r.Claim == v1alpha1.ExtendedResourcesClaim }

// placementPools returns the pools of the devices that some requests of a promise name.
func placementPools(s *v1alpha1.PlacementSpec, of func(*v1alpha1.PlacementRequest) bool) map[pool]struct{} {
	pools := map[pool]struct{}{}
	for _, ps := range s.PodSets {
		for _, n := range ps.Nodes {
			for i := range n.Requests {
				r := &n.Requests[i]
				if !of(r) {
					continue
				}
				for _, name := range r.Devices {
					if id, err := ParseDeviceID(name); err == nil {
						pools[pool{id.Driver, id.Pool}] = struct{}{}
					}
				}
			}
		}
	}
	return pools
}

func (b *Book) applyWorkload(uid types.UID, w *Workload) bool {
	old := b.workloads[uid]
	if old == nil && w == nil {
		return false
	}
	if old != nil && w != nil && sameWorkload(old, w) {
		b.workloads[uid] = w
		if !b.create(uid) {
			return false
		}
		b.touchPromised(uid)
		return true
	}
	if old != nil {
		unlink(b.ownedBy, ownerKey{old.Namespace, old.Owner}, uid)
		b.touchPodsOf(old.Owner)
		delete(b.workloads, uid)
	}
	if w != nil {
		b.workloads[uid] = w
		if w.Owner != "" {
			link(b.ownedBy, ownerKey{w.Namespace, w.Owner}, uid)
		}
		b.touchPodsOf(w.Owner)
	}
	b.create(uid)
	b.touchPromised(uid)
	return true
}

// sameWorkload leaves out the templates, of which only what their pods ask for counts.
func sameWorkload(a, c *Workload) bool {
	x, y := *a, *c
	x.Templates, y.Templates = nil, nil
	return apiequality.Semantic.DeepEqual(&x, &y)
}

// touchPromised marks the nodes on which a Workload's Placements promise something.
func (b *Book) touchPromised(workload types.UID) {
	for p := range b.placedFor[workload].all() {
		for _, node := range placementNodes(b.placements[p].Spec) {
			b.touch(node)
		}
		for id := range placementPools(b.placements[p].Spec, all) {
			b.touchPool(id)
		}
	}
}

// workloadOf returns the Workload that a namespace's owner of pods has; false for none. Of several, as when one takes another's
// place, it is the one that has quota, then the one that was given it last, then the first by uid.
func (b *Book) workloadOf(namespace string, owner types.UID) (types.UID, bool) {
	var best types.UID
	for uid := range b.ownedBy[ownerKey{namespace, owner}].all() {
		if best == "" || b.before(uid, best) {
			best = uid
		}
	}
	return best, best != ""
}

func (b *Book) before(x, y types.UID) bool {
	given := func(uid types.UID) int64 {
		if key := b.workloads[uid].Key; key != nil {
			return key.ReservedAt.Unix()
		}
		return math.MinInt64
	}
	return cmp.Or(cmp.Compare(given(y), given(x)), cmp.Compare(x, y)) < 0
}

// touchPodsOf marks the nodes of the pods that owner controls, and of their claims, which may be elsewhere: whose they are
// may have changed.
func (b *Book) touchPodsOf(owner types.UID) {
	for uid := range b.podsOf[owner].all() {
		b.touchPlace(b.pods[uid].place())
		for claim := range b.claimOfPod[uid].all() {
			b.touchClaim(b.claims[claim])
		}
	}
}

// place is where a pod's requests count: on a node by name, or on the node of a hostname label.
type place struct {
	node, host string
}

func (p *Pod) place() place {
	if p.Node != "" {
		return place{node: p.Node}
	}
	return place{host: p.Pin}
}

// released says that the pod may be, or is, on a node.
func (p *Pod) released() bool { return p.place() != place{} }

func (b *Book) touchPlace(p place) {
	b.touch(p.node)
	b.touchHost(p.host)
}

// touchHost marks the nodes that carry a hostname label: whether the value is unique may have changed.
func (b *Book) touchHost(host string) {
	if host == "" {
		return
	}
	for uid := range b.nodesAt[host].all() {
		b.touch(b.nodes[uid].Node.Name)
	}
}

func (b *Book) touch(node string) {
	if node != "" {
		b.dirty[node] = struct{}{}
	}
}
