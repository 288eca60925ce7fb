package ledger

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// view works out the accounts of one node from what was observed; nil if there is no such node. The book's lock is held.
func (b *Book) view(name string) *Node {
	o := b.nodes[b.nodeByName[name]]
	if o == nil {
		return nil
	}
	n := &Node{
		Name: name, Object: o.Node, Ready: nodeReady(o.Node),
		Allocatable: o.allocatable, Managed: Amounts{}, Mapped: Amounts{}, SeenAt: b.firstSeen[o.Ref.UID],
		guises: &guises{},
	}
	if !n.Ready {
		n.NotReadySince = ReadySince(o.Node)
	}
	if host := o.Node.Labels[corev1.LabelHostname]; b.nodesAt[host].len() == 1 {
		n.Hostname = host
	}
	n.Free = n.Allocatable.Clone()
	n.Pools, n.Stopped = b.pools(o.Node), b.stopped(o.Node)
	promised := b.countRequests(n)
	var unlisted []Device // of pools that are not complete: they are not the node's, but may be held and take of it
	for i := range n.Pools {
		p := &n.Pools[i]
		switch p.State {
		case PoolFresh:
			n.Devices = b.listed(n.Devices, o.Node, p, promised)
			n.Elsewhere = b.elsewhere(n.Elsewhere, o.Node, p, promised)
		case PoolRegressed:
			n.Withheld = b.listed(n.Withheld, o.Node, p, promised)
			n.Elsewhere = b.elsewhere(n.Elsewhere, o.Node, p, promised)
		case PoolIncomplete:
			unlisted = b.devices(unlisted, o.Node, p.list, promised, time.Time{})
		case PoolImpossible:
			n.Withheld = b.impossible(n.Withheld, o.Node, p, promised)
		}
	}
	for _, at := range []string{name, ""} {
		for id := range b.lostOn[at] {
			m := b.memory[id]
			n.Lost = b.devices(n.Lost, o.Node, m.slices, promised, m.lost)
		}
	}
	n.Lost = latest(n.Lost)
	for _, list := range [][]Device{n.Devices, n.Withheld, n.Elsewhere} {
		slices.SortStableFunc(list, func(x, y Device) int { return compareDeviceIDs(x.ID, y.ID) })
	}
	b.bySpec(n)
	n.shared = n.promisedTwice()
	n.cards()
	b.countMapped(n, n.Devices, n.Withheld, unlisted)
	n.Agents, n.AgentsGone = b.agentsOn(name)
	return n
}

// latest sorts devices that were lost; of several of one name, in slices that moved, it keeps the one that was lost last.
func latest(lost []Device) []Device {
	slices.SortFunc(lost, func(x, y Device) int {
		return cmp.Or(compareDeviceIDs(x.ID, y.ID), y.Lost.Compare(x.Lost), cmp.Compare(x.Slice.Name, y.Slice.Name), cmp.Compare(x.Slice.UID, y.Slice.UID))
	})
	return slices.CompactFunc(lost, func(x, y Device) bool { return x.ID == y.ID })
}

// listed appends the devices that a complete pool lists for a node, those that draw on more than there is among them.
func (b *Book) listed(list []Device, n *corev1.Node, p *Pool, promised map[DeviceID][]Holder) []Device {
	others := len(list)
	list = b.devices(list, n, p.list, promised, time.Time{})
	if totals := totalsOf(p.list); totals.sets != nil {
		totals.keepOut(list[others:])
	}
	return list
}

// devices appends the devices of slices that a node may use, with who holds them.
func (b *Book) devices(list []Device, n *corev1.Node, of []*slice, promised map[DeviceID][]Holder, lost time.Time) []Device {
	more := 0
	for _, s := range of {
		more += len(s.Spec.Devices)
	}
	list = slices.Grow(list, more)
	for _, s := range of {
		for i := range s.Spec.Devices {
			if !s.offers(i, n) {
				continue
			}
			d := b.device(s, i, promised)
			d.Lost = lost
			list = append(list, d)
		}
	}
	return list
}

// impossible appends the devices of a pool that cannot be, each once, so that who holds them is known.
func (b *Book) impossible(list []Device, n *corev1.Node, p *Pool, promised map[DeviceID][]Holder) []Device {
	seen := map[string]bool{}
	for _, d := range b.devices(nil, n, p.list, promised, time.Time{}) {
		if !seen[d.ID.Device] {
			seen[d.ID.Device], d.Unusable = true, "its pool cannot be: "+p.Problem
			list = append(list, d)
		}
	}
	return list
}

// elsewhere appends the devices of a wide pool that draw on its counters and are for other nodes alone.
func (b *Book) elsewhere(list []Device, n *corev1.Node, p *Pool, promised map[DeviceID][]Holder) []Device {
	if !p.Wide || !slices.ContainsFunc(p.list, (*slice).counts) {
		return list
	}
	for _, listed := range p.Every {
		s := b.slices[listed.UID]
		for i := range s.Spec.Devices {
			if s.Spec.Pool.Generation == p.Generation && len(s.Spec.Devices[i].ConsumesCounters) > 0 && !s.offers(i, n) {
				list = append(list, b.device(s, i, promised))
			}
		}
	}
	return list
}

// device returns one device of a slice with who holds it.
func (b *Book) device(s *slice, i int, promised map[DeviceID][]Holder) Device {
	spec := &s.Spec.Devices[i]
	id := DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: spec.Name}
	d := Device{
		ID: id, Spec: spec, Slice: s.ResourceSlice, Taints: b.taints(id, spec), Mappings: s.mappings[spec.Name],
		Wide: s.wide() && (s.each == nil || s.each[i].node == ""), Holders: b.holders(id, promised[id]),
	}
	d.Unusable = cmp.Or(s.problems[i], unusable(&d))
	if d.Multiple() {
		for j := range d.Holders {
			if h := &d.Holders[j]; h.Kind != HolderClaim {
				h.Consumed = DefaultConsumption(spec)
			}
		}
	}
	return d
}

// unusable says why a device is never lent; empty where it can be.
func unusable(d *Device) string {
	if d.Mappings == nil {
		return ""
	}
	return d.Mappings.Problem
}

// taints returns the taints of a device: those that its slice lists and those of the rules that select it, in order of the
// rules' names, as kube-scheduler adds them.
func (b *Book) taints(id DeviceID, d *resourcev1.Device) []resourcev1.DeviceTaint {
	if len(b.rules) == 0 {
		return d.Taints
	}
	var by []*TaintRule
	for _, r := range b.rules {
		if r.selects(id) {
			by = append(by, r)
		}
	}
	if len(by) == 0 {
		return d.Taints
	}
	slices.SortFunc(by, func(x, y *TaintRule) int { return cmp.Compare(x.Name, y.Name) })
	all := slices.Clone(d.Taints)
	for _, r := range by {
		all = append(all, r.Taint)
	}
	return all
}

func (r *TaintRule) selects(id DeviceID) bool {
	if r.All || r.None {
		return r.All
	}
	is := func(want, have string) bool { return want == "" || want == have }
	return is(r.Driver, id.Driver) && is(r.Pool, id.Pool) && is(r.Device, id.Device)
}

// podsOnNode returns the pods that are bound to a node, and those that were released to its hostname. A pod has one place.
func (b *Book) podsOnNode(n *Node) iter.Seq2[types.UID, *Pod] {
	return func(yield func(types.UID, *Pod) bool) {
		for uid := range b.podsAt[place{node: n.Name}].all() {
			if !yield(uid, b.pods[uid]) {
				return
			}
		}
		if n.Hostname == "" {
			return
		}
		for uid := range b.podsAt[place{host: n.Hostname}].all() {
			if !yield(uid, b.pods[uid]) {
				return
			}
		}
	}
}

type slotKey struct {
	workload types.UID
	podSet   string
}

// countRequests takes the pods' and the promised slots' requests from n, and returns who is promised which device. A
// slot whose pod is on the node, or released to it, is counted by that pod and not again. A pod from before the quota
// reservation took none of its slots.
func (b *Book) countRequests(n *Node) map[DeviceID][]Holder {
	taken, given := map[slotKey]int32{}, map[slotKey][][]DeviceID{}
	n.Uses = make([]Use, 0, b.podsAt[place{node: n.Name}].len()+len(n.Pools))
	for uid, p := range b.podsOnNode(n) {
		w, managed := b.workloadOf(p.Namespace, p.Owner)
		if managed && b.takesSlot(p, w) {
			taken[slotKey{w, p.PodSet}]++
			given[slotKey{w, p.PodSet}] = append(given[slotKey{w, p.PodSet}], b.allocatedTo(uid))
		}
		freeing, until := b.freeing(p, w)
		n.use(Use{Workload: w, Requests: p.Requests, Times: 1, Freeing: freeing, Until: until}, managed)
		for i := range p.Mapped {
			n.Mapped.Add(p.Mapped[i].Amounts, 1)
			if p.Node == n.Name {
				n.mapsFor(p, uid, p.Mapped[i].Claim)
			}
		}
	}
	sortMapped(n.MappedClaims)
	promised := map[DeviceID][]Holder{}
	var counted []byCount
	var pools map[pool]struct{} // once a promise is on another node
	for uid := range b.promisesFor(n) {
		p := b.placements[uid]
		w := b.workloads[p.Spec.Key.WorkloadUID]
		if w == nil || w.Key == nil || !SameKey(w.Key, p.Spec.Key) || p.Namespace != w.Namespace || p.Name != w.Name {
			continue // of an earlier reservation, or not the one Placement of its Workload
		}
		holder := Holder{Kind: HolderPlacement, Managed: true, UID: uid, Namespace: p.Namespace, Name: p.Name, Workload: p.Spec.Key.WorkloadUID, Created: p.CreatedUnix}
		for _, ps := range p.Spec.PodSets {
			for _, pn := range ps.Nodes {
				holder.at = pn.Name
				if pn.Name != n.Name {
					if pools == nil {
						pools = poolsOf(n)
					}
					promise(promised, holder, pn.Requests, w.Referring[ps.Name], pools)
					counted = append(counted, b.countedElsewhere(holder, ps.Name, pn.Requests, pools)...)
					continue
				}
				open := max(0, pn.Slots-taken[slotKey{p.Spec.Key.WorkloadUID, ps.Name}])
				n.use(Use{Workload: holder.Workload, Requests: b.asks(p.Spec.Key.WorkloadUID, ps.Name), Times: int64(open), Placement: uid}, true)
				promise(promised, holder, pn.Requests, w.Referring[ps.Name], nil)
				for _, c := range countedOf(holder, pn.Requests) {
					for _, devices := range given[slotKey{p.Spec.Key.WorkloadUID, ps.Name}] {
						if len(devices) == 0 {
							n.Unallocated++
						}
						c.give(devices)
					}
					counted = append(counted, c)
				}
			}
		}
	}
	b.promiseByCount(promised, counted)
	return promised
}

// takesSlot says whether a pod has one of the slots of its Workload's promise.
func (b *Book) takesSlot(p *Pod, workload types.UID) bool {
	key := b.workloads[workload].Key
	return key != nil && p.CreatedUnix >= key.ReservedAt.Unix()
}

// freeing says whether a pod is ending, and until when that is waited for: it has a deletionTimestamp, or its Workload has
// lost its quota.
func (b *Book) freeing(p *Pod, workload types.UID) (bool, time.Time) {
	if p.Terminating {
		if p.EndsUnix == 0 {
			return true, time.Time{}
		}
		return true, time.Unix(p.EndsUnix, 0).Add(freeingGrace)
	}
	w := b.workloads[workload]
	return w != nil && w.Key == nil, time.Time{}
}

// promisesFor returns the Placements that promise something on a node, or devices of its pools on others, each once.
func (b *Book) promisesFor(n *Node) iter.Seq[types.UID] {
	here := b.promisedOn[n.Name]
	var more map[types.UID]struct{}
	for i := range n.Pools {
		for uid := range b.promisedIn[pool{n.Pools[i].Driver, n.Pools[i].Name}].all() {
			if here.has(uid) {
				continue
			}
			if more == nil {
				more = map[types.UID]struct{}{}
			}
			more[uid] = struct{}{}
		}
	}
	if more == nil {
		return here.all()
	}
	return func(yield func(types.UID) bool) {
		for uid := range here.all() {
			if !yield(uid) {
				return
			}
		}
		maps.Keys(more)(yield)
	}
}

// poolsOf returns the names of a node's pools.
func poolsOf(n *Node) map[pool]struct{} {
	out := make(map[pool]struct{}, len(n.Pools))
	for i := range n.Pools {
		out[pool{n.Pools[i].Driver, n.Pools[i].Name}] = struct{}{}
	}
	return out
}

// promise records the devices of one node of a Placement, those of some pools alone if any are given. An id that does not
// parse names no device. referring is how often containers refer to the claims, by their names.
func promise(promised map[DeviceID][]Holder, holder Holder, requests []v1alpha1.PlacementRequest, referring map[string]int, of map[pool]struct{}) {
	for _, r := range requests {
		holder.referring = referring[r.Claim]
		if r.Claim == v1alpha1.ExtendedResourcesClaim {
			continue // by number
		}
		for _, s := range r.Devices {
			id, err := ParseDeviceID(s)
			if err != nil {
				continue
			}
			if _, ok := of[pool{id.Driver, id.Pool}]; ok || of == nil {
				promised[id] = append(promised[id], holder)
			}
		}
	}
}

// SameKey says that two keys name the same quota reservation.
func SameKey(a, b *v1alpha1.PlacementKey) bool {
	return a != nil && b != nil && a.WorkloadUID == b.WorkloadUID && a.Admission == b.Admission && a.ReservedAt.Equal(&b.ReservedAt)
}

// holders lists who holds a device: claims that have it allocated, claims of released pods that are cut to it, and
// the given promises.
func (b *Book) holders(id DeviceID, promises []Holder) []Holder {
	var hs []Holder
	for uid := range b.claimsOf[id].all() {
		c := b.claims[uid]
		h := Holder{Kind: HolderClaim, UID: uid, Namespace: c.Namespace, Name: c.Name, again: slices.Contains(c.Repeated, id)}
		if c.Allocated == nil {
			if pod := b.pods[c.Pod]; pod == nil || !pod.released() {
				continue
			}
			h.Kind = HolderReleased
		}
		b.serves(&h, c)
		hs = append(hs, b.shares(h, c, id)...)
	}
	hs = append(hs, promises...)
	slices.SortFunc(hs, compareHolders)
	return hs
}

// shares returns a holder once for each share that its claim has of a device; the holder itself for a device that is its alone.
func (b *Book) shares(h Holder, c *Claim, id DeviceID) []Holder {
	var hs []Holder
	for i := range c.Shares {
		if s := &c.Shares[i]; s.Device == id {
			h.Share, h.Consumed = s.ID, s.Consumed
			hs = append(hs, h)
		}
	}
	if hs == nil {
		return []Holder{h}
	}
	return hs
}

// serves says in a holder whom its claim serves: the Workload of the pod that owns it, or that of all the pods that use it.
// What has such pods ends with the last of them.
func (b *Book) serves(h *Holder, c *Claim) {
	found, managed := 0, true
	for _, uid := range c.pods() {
		p := b.pods[uid]
		if p == nil {
			continue
		}
		w, _ := b.workloadOf(p.Namespace, p.Owner)
		freeing, until := b.freeing(p, w)
		if found == 0 {
			h.Workload, h.Freeing, h.Until = w, freeing, until
			h.at, h.bound, h.referring = b.nodeOf(p), p.Node != "", b.referring(p, w, c)
		} else {
			if w != h.Workload {
				h.Workload = ""
			}
			h.Freeing = h.Freeing && freeing
			h.Until = later(h.Until, until)
			h.bound = h.bound && p.Node != ""
			h.referring = max(h.referring, b.referring(p, w, c))
		}
		managed = managed && w != ""
		found++
	}
	if found == 0 { // a claim that a pod had made goes with it, one that a user made for pods is given back
		h.Freeing = c.Pod != "" || len(c.Pods) > 0
	}
	if !h.Freeing {
		h.Until = time.Time{}
	}
	h.Managed = found > 0 && managed || c.Promised != nil
}

// referring is how often a pod's containers refer to a claim. Before its status names the claim that was made for it, it is how
// often they do to any at the most.
func (b *Book) referring(p *Pod, workload types.UID, c *Claim) int {
	if i := slices.Index(p.Claims, c.Name); i >= 0 && i < len(p.Referring) {
		return p.Referring[i]
	}
	most := 0
	if w := b.workloads[workload]; w != nil {
		for _, times := range w.Referring[p.PodSet] {
			most = max(most, times)
		}
	}
	return most
}

// later returns the later of two times; zero, which is for ever, is later than any.
func later(a, c time.Time) time.Time {
	if a.IsZero() || c.IsZero() {
		return time.Time{}
	}
	if a.Before(c) {
		return c
	}
	return a
}

// nodeOf returns the node that a pod is bound to, or was released to; empty where that is not known.
func (b *Book) nodeOf(p *Pod) string {
	if p.Node != "" || p.Pin == "" || b.nodesAt[p.Pin].len() != 1 {
		return p.Node
	}
	for uid := range b.nodesAt[p.Pin].all() {
		return b.nodes[uid].Node.Name
	}
	return ""
}

// ReadySince returns since when a node is, or is not, Ready; zero if its condition does not say.
func ReadySince(n *corev1.Node) time.Time {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func nodeReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
