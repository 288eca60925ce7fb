package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// attempt is one look for a node for one pod.
type attempt struct {
	*Scheduler
	pod      *corev1.Pod
	snapshot *ledger.Snapshot
	requests ledger.Amounts
	// open are the pod's claims that are to be allocated, have those that are.
	open, have []*resourcev1.ResourceClaim
	// tried is how many nodes were looked at; first says why the first of them did not do.
	tried int
	first string
}

// placed is where a pod fits.
type placed struct {
	node *ledger.Node
	// open are its claims with what each is given; the last is that for extended resources, if the pod has mappings.
	open     []*resourcev1.ResourceClaim
	results  []resourcev1.AllocationResult
	have     []*resourcev1.ResourceClaim
	mappings []corev1.ContainerExtendedResourceRequest
}

// attempt gathers what a pod needs; nil while a claim of its is not there.
func (s *Scheduler) attempt(ctx context.Context, p *corev1.Pod) (*attempt, error) {
	a := &attempt{Scheduler: s, pod: p, snapshot: s.book.Snapshot(), requests: ledger.RequestsOf(p, false)}
	seen := map[string]bool{}
	for i := range p.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[i])
		if err != nil { // it is not made yet, or of a kind that is not known
			return nil, nil
		}
		if name == nil || seen[*name] {
			continue
		}
		seen[*name] = true
		claim := &resourcev1.ResourceClaim{}
		if err := s.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *name}, claim); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		switch {
		case claim.DeletionTimestamp != nil, owned && resourceclaim.IsForPod(p, claim, false) != nil:
			return nil, nil
		case claim.Status.Allocation == nil:
			a.open = append(a.open, claim)
		default:
			a.have = append(a.have, claim)
		}
	}
	return a, nil
}

// on returns how the pod fits on a node; nil where it does not.
func (a *attempt) on(ctx context.Context, n *ledger.Node) *placed {
	out, why := a.fits(ctx, n)
	if out == nil {
		if a.tried++; a.tried == 1 {
			a.first = why
		}
	}
	return out
}

// why says that no node does.
func (a *attempt) why() string {
	s := fmt.Sprintf("0/%d nodes are available", len(a.snapshot.Nodes()))
	if a.first != "" {
		s += ": " + a.first
	}
	return s
}

func (a *attempt) fits(ctx context.Context, n *ledger.Node) (*placed, string) {
	named := *n
	named.Hostname = n.Name // that a hostname is a node's own matters to who pins pods by it
	if why := admission.Unavailable(&named, &a.pod.Spec); why != "" {
		return nil, why
	}
	for _, c := range a.have {
		if why := a.usable(c, n); why != "" {
			return nil, why
		}
	}
	requests, extended := a.extended(n)
	if k, scarce := n.Free.Times(requests, 1); k < 1 {
		return nil, fmt.Sprintf("node %s has too little %s", n.Name, scarce)
	}
	out := &placed{node: n, open: a.open, have: a.have}
	if len(extended) > 0 {
		if special, mappings := extendedClaim(a.pod, extended); len(mappings) > 0 {
			out.open, out.mappings = append(slices.Clone(a.open), special), mappings
		}
	}
	if len(out.open) == 0 {
		return out, ""
	}
	offered, held := a.devices(n)
	if !enough(offered, held, out.open) {
		return nil, fmt.Sprintf("node %s has too few devices", n.Name)
	}
	results, err := a.decider.Allocate(ctx, admission.Allocation{Classes: a.snapshot.Classes(), Node: n.Object, Slices: offered, Held: held, Claims: out.open})
	if err != nil {
		return nil, fmt.Sprintf("node %s: %v", n.Name, err)
	}
	if len(results) != len(out.open) {
		return nil, fmt.Sprintf("node %s has no devices for the pod's claims", n.Name)
	}
	out.results = results
	return out, ""
}

// usable says why an allocated claim keeps the pod from a node.
func (a *attempt) usable(c *resourcev1.ResourceClaim, n *ledger.Node) string {
	if !resourceclaim.IsReservedForPod(a.pod, c, false) && !resourceclaim.CanBeReserved(c) {
		return fmt.Sprintf("claim %s is in use", c.Name)
	}
	if c.Status.Allocation.NodeSelector == nil {
		return ""
	}
	selector, err := nodeaffinity.NewNodeSelector(c.Status.Allocation.NodeSelector)
	if err != nil || !selector.Match(n.Object) {
		return fmt.Sprintf("claim %s is not available on node %s", c.Name, n.Name)
	}
	return ""
}

// extended returns what the pod asks of the node itself, and what of extended resources a DeviceClass has to serve.
func (a *attempt) extended(n *ledger.Node) (ledger.Amounts, map[corev1.ResourceName]*resourcev1.DeviceClass) {
	requests := a.requests
	var served map[corev1.ResourceName]*resourcev1.DeviceClass
	for name, v := range a.requests {
		if v == 0 {
			continue
		}
		if class := a.snapshot.ClassOn(n, name); class != nil {
			if served == nil {
				served, requests = map[corev1.ResourceName]*resourcev1.DeviceClass{}, a.requests.Clone()
			}
			served[name] = class
			delete(requests, name)
		}
	}
	return requests, served
}

// devices returns the slices that a node may be given devices from, and which of their devices are held.
func (a *attempt) devices(n *ledger.Node) ([]*resourcev1.ResourceSlice, structured.AllocatedState) {
	var list []*resourcev1.ResourceSlice
	for _, p := range n.Pools {
		list = append(list, p.Slices...)
	}
	for _, s := range a.wide {
		if !slices.ContainsFunc(list, func(have *resourcev1.ResourceSlice) bool { return have.UID == s.UID }) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(x, y *resourcev1.ResourceSlice) int { return cmp.Compare(x.Name, y.Name) })
	if len(a.rules) > 0 {
		tainted(list, n)
	}
	held := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	seen, counted := map[pool]bool{}, map[types.UID]bool{}
	for _, s := range list {
		at := pool{s.Spec.Driver, s.Spec.Pool.Name}
		if seen[at] {
			continue
		}
		seen[at] = true
		for uid := range a.byPool[at] {
			if !counted[uid] {
				counted[uid] = true
				hold(&held, a.claims[uid])
			}
		}
	}
	return list, held
}

// tainted puts in place of slices such with the taints that DeviceTaintRules put on their devices, as the node's accounts have
// them.
func tainted(list []*resourcev1.ResourceSlice, n *ledger.Node) {
	taints := map[ledger.DeviceID][]resourcev1.DeviceTaint{}
	for _, d := range n.Listed() {
		taints[d.ID] = d.Taints
	}
	for i, s := range list {
		var devices []resourcev1.Device
		for k := range s.Spec.Devices {
			t := taints[ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: s.Spec.Devices[k].Name}]
			if len(t) <= len(s.Spec.Devices[k].Taints) {
				continue
			}
			if devices == nil {
				devices = slices.Clone(s.Spec.Devices)
			}
			devices[k].Taints = t
		}
		if devices != nil {
			changed := *s
			changed.Spec.Devices, list[i] = devices, &changed
		}
	}
}

// hold counts what a claim has been given, as kube-scheduler does.
func hold(held *structured.AllocatedState, c *resourcev1.ResourceClaim) {
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		switch {
		case ptr.Deref(r.AdminAccess, false):
		case r.ShareID == nil:
			held.AllocatedDevices.Insert(id)
		default:
			held.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			if r.ConsumedCapacity != nil {
				held.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			}
		}
	}
}

// enough says whether there are as many free devices as the claims ask for: the allocator takes long to find out. Where a
// device may be given more than once it is not asked.
func enough(list []*resourcev1.ResourceSlice, held structured.AllocatedState, claims []*resourcev1.ResourceClaim) bool {
	var free, want int64
	for _, s := range list {
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			if ptr.Deref(d.AllowMultipleAllocations, false) {
				return true
			}
			if !held.AllocatedDevices.Has(structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, d.Name)) {
				free++
			}
		}
	}
	for _, c := range claims {
		for i := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[i]
			switch {
			case r.Exactly == nil:
				want++
			case ptr.Deref(r.Exactly.AdminAccess, false):
				return true
			case r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeAll:
				want++
			default:
				want += max(r.Exactly.Count, 1)
			}
		}
	}
	return want <= free
}
