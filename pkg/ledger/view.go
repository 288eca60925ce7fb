package ledger

import (
	"cmp"
	"slices"

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
		Allocatable: AmountsOf(o.Node.Status.Allocatable), Managed: Amounts{},
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
		for _, s := range p.Slices {
			for i := range s.Spec.Devices {
				d := &s.Spec.Devices[i]
				id := DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: d.Name}
				n.Devices = append(n.Devices, Device{
					ID: id, Spec: d, Slice: s, Unusable: unusable(d), Holders: b.holders(id, promised[id]),
				})
			}
		}
	}
	slices.SortStableFunc(n.Devices, func(x, y Device) int { return compareDeviceIDs(x.ID, y.ID) })
	return n
}

// podsOnNode returns the pods that are bound to a node, and those that were released to its hostname.
func (b *Book) podsOnNode(n *Node) []*Pod {
	var pods []*Pod
	for uid := range b.podsAt[place{node: n.Name}] {
		pods = append(pods, b.pods[uid])
	}
	if n.Hostname == "" {
		return pods
	}
	for uid := range b.podsAt[place{host: n.Hostname}] {
		pods = append(pods, b.pods[uid])
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
	taken := map[slotKey]int32{}
	for _, p := range b.podsOnNode(n) {
		n.Free.Add(p.Requests, -1)
		if w, ok := b.byOwner[ownerKey{p.Namespace, p.Owner}]; ok {
			if key := b.workloads[w].Key; key != nil && p.CreatedUnix >= key.ReservedAt.Unix() {
				taken[slotKey{w, p.PodSet}]++
			}
			n.Managed.Add(p.Requests, 1)
		}
	}
	promised := map[DeviceID][]Holder{}
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
				n.Free.Add(w.Requests[ps.Name], -int64(open))
				n.Managed.Add(w.Requests[ps.Name], int64(open))
				promise(promised, holder, pn.Requests)
			}
		}
	}
	return promised
}

// promise records the devices of one node of a Placement. An id that does not parse names no device.
func promise(promised map[DeviceID][]Holder, holder Holder, requests []v1alpha1.PlacementRequest) {
	for _, r := range requests {
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
			h.Workload, h.Freeing = b.byOwner[ownerKey{pod.Namespace, pod.Owner}], pod.Terminating
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

// pools groups a node's slices by pool and keeps the newest generation of each.
func (b *Book) pools(node string) []Pool {
	byID := map[pool]*Pool{}
	for uid := range b.slicesOn[node] {
		s := b.slices[uid]
		id := pool{s.Spec.Driver, s.Spec.Pool.Name}
		p := byID[id]
		if p == nil || s.Spec.Pool.Generation > p.Generation {
			p = &Pool{Driver: id.driver, Name: id.name, Generation: s.Spec.Pool.Generation}
			byID[id] = p
		}
		if s.Spec.Pool.Generation == p.Generation {
			p.Slices = append(p.Slices, s)
		}
	}
	list := make([]Pool, 0, len(byID))
	for _, p := range byID {
		slices.SortFunc(p.Slices, func(x, y *resourcev1.ResourceSlice) int { return cmp.Compare(x.Name, y.Name) })
		p.State = PoolFresh
		if int64(len(p.Slices)) != p.Slices[0].Spec.Pool.ResourceSliceCount {
			p.State = PoolIncomplete
		}
		list = append(list, *p)
	}
	slices.SortFunc(list, func(x, y Pool) int { return cmp.Or(cmp.Compare(x.Driver, y.Driver), cmp.Compare(x.Name, y.Name)) })
	return list
}

func nodeReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
