package ledger

import (
	"cmp"
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
		Allocatable: AmountsOf(o.Node.Status.Allocatable), Managed: Amounts{}, SeenAt: b.firstSeen[o.Ref.UID],
	}
	if !n.Ready {
		n.NotReadySince = ReadySince(o.Node)
	}
	if host := o.Node.Labels[corev1.LabelHostname]; len(b.nodesAt[host]) == 1 {
		n.Hostname = host
	}
	n.Free = n.Allocatable.Clone()
	promised := b.countRequests(n)
	n.Pools = b.pools(name)
	for _, p := range n.Pools {
		if p.State != PoolFresh {
			continue
		}
		n.Devices = b.devices(n.Devices, p.Slices, promised, time.Time{})
	}
	for id := range b.lostOn[name] {
		m := b.memory[id]
		n.Lost = b.devices(n.Lost, m.slices, promised, m.lost)
	}
	for _, list := range [][]Device{n.Devices, n.Lost} {
		slices.SortStableFunc(list, func(x, y Device) int { return compareDeviceIDs(x.ID, y.ID) })
	}
	return n
}

// devices appends the devices of slices with who holds them.
func (b *Book) devices(list []Device, of []*resourcev1.ResourceSlice, promised map[DeviceID][]Holder, lost time.Time) []Device {
	for _, s := range of {
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			id := DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: d.Name}
			list = append(list, Device{
				ID: id, Spec: d, Slice: s, Unusable: unusable(d), Holders: b.holders(id, promised[id]), Lost: lost,
			})
		}
	}
	return list
}

// podsOnNode returns the pods that are bound to a node, and those that were released to its hostname.
func (b *Book) podsOnNode(n *Node) map[types.UID]*Pod {
	pods := map[types.UID]*Pod{}
	for uid := range b.podsAt[place{node: n.Name}] {
		pods[uid] = b.pods[uid]
	}
	if n.Hostname == "" {
		return pods
	}
	for uid := range b.podsAt[place{host: n.Hostname}] {
		pods[uid] = b.pods[uid]
	}
	return pods
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
	for uid, p := range b.podsOnNode(n) {
		w, managed := b.byOwner[ownerKey{p.Namespace, p.Owner}]
		if managed {
			if key := b.workloads[w].Key; key != nil && p.CreatedUnix >= key.ReservedAt.Unix() {
				taken[slotKey{w, p.PodSet}]++
				given[slotKey{w, p.PodSet}] = append(given[slotKey{w, p.PodSet}], b.allocatedTo(uid))
			}
		}
		freeing, until := b.freeing(p, w)
		n.use(Use{Workload: w, Requests: p.Requests, Times: 1, Freeing: freeing, Until: until}, managed)
	}
	promised := map[DeviceID][]Holder{}
	var counted []byCount
	for uid := range b.promisedOn[n.Name] {
		p := b.placements[uid]
		w := b.workloads[p.Spec.Key.WorkloadUID]
		if w == nil || w.Key == nil || !SameKey(w.Key, p.Spec.Key) {
			continue
		}
		holder := Holder{Kind: HolderPlacement, Managed: true, UID: uid, Namespace: p.Namespace, Name: p.Name, Workload: p.Spec.Key.WorkloadUID}
		for _, ps := range p.Spec.PodSets {
			for _, pn := range ps.Nodes {
				if pn.Name != n.Name {
					continue
				}
				open := max(0, pn.Slots-taken[slotKey{p.Spec.Key.WorkloadUID, ps.Name}])
				n.use(Use{Workload: holder.Workload, Requests: w.Requests[ps.Name], Times: int64(open), Placement: uid}, true)
				promise(promised, holder, pn.Requests)
				for _, c := range countedOf(holder, pn.Requests) {
					for _, devices := range given[slotKey{p.Spec.Key.WorkloadUID, ps.Name}] {
						if len(devices) == 0 {
							n.Unallocated++
						}
						for _, d := range devices {
							c.taken[d] = true
						}
					}
					counted = append(counted, c)
				}
			}
		}
	}
	b.promiseByCount(promised, counted)
	return promised
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

// promise records the devices of one node of a Placement. An id that does not parse names no device.
func promise(promised map[DeviceID][]Holder, holder Holder, requests []v1alpha1.PlacementRequest) {
	for _, r := range requests {
		if r.Claim == v1alpha1.ExtendedResourcesClaim {
			continue // by number
		}
		for _, s := range r.Devices {
			if id, err := ParseDeviceID(s); err == nil {
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
	for uid := range b.claimsOf[id] {
		c := b.claims[uid]
		h := Holder{Kind: HolderClaim, UID: uid, Namespace: c.Namespace, Name: c.Name}
		pod := b.pods[c.Pod]
		if c.Allocated == nil {
			if pod == nil || !pod.released() {
				continue
			}
			h.Kind = HolderReleased
		}
		if pod != nil {
			h.Workload = b.byOwner[ownerKey{pod.Namespace, pod.Owner}]
			h.Freeing, h.Until = b.freeing(pod, h.Workload)
		} else {
			h.Freeing = c.Pod != ""
		}
		h.Managed = h.Workload != "" || c.Promised != nil
		hs = append(hs, h)
	}
	hs = append(hs, promises...)
	slices.SortFunc(hs, func(x, y Holder) int { return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.UID, y.UID)) })
	return hs
}

// pools returns the newest generation of each pool that a node's slices belong to.
func (b *Book) pools(node string) []Pool {
	ids := map[pool]bool{}
	for uid := range b.slicesOn[node] {
		s := b.slices[uid]
		ids[pool{s.Spec.Driver, s.Spec.Pool.Name}] = true
	}
	list := make([]Pool, 0, len(ids))
	for id := range ids {
		if p := b.newest(id, node); p != nil {
			list = append(list, *p)
		}
	}
	slices.SortFunc(list, func(x, y Pool) int { return cmp.Or(cmp.Compare(x.Driver, y.Driver), cmp.Compare(x.Name, y.Name)) })
	return list
}

// newest returns the newest generation of a pool among the slices of one node; nil if there is none.
func (b *Book) newest(id pool, node string) *Pool {
	var p *Pool
	for uid := range b.slicesOf[id] {
		s := b.slices[uid]
		if sliceNode(s) != node {
			continue
		}
		if p == nil || s.Spec.Pool.Generation > p.Generation {
			p = &Pool{Driver: id.driver, Name: id.name, Generation: s.Spec.Pool.Generation}
		}
		if s.Spec.Pool.Generation == p.Generation {
			p.Slices = append(p.Slices, s)
		}
	}
	if p == nil {
		return nil
	}
	slices.SortFunc(p.Slices, func(x, y *resourcev1.ResourceSlice) int { return cmp.Compare(x.Name, y.Name) })
	p.State = PoolFresh
	if int64(len(p.Slices)) != p.Slices[0].Spec.Pool.ResourceSliceCount {
		p.State = PoolIncomplete
	}
	return p
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
