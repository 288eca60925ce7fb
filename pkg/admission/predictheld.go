package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// allocate has kube-scheduler's allocator find devices for the claims that have none.
func (f *foresight) allocate(ctx context.Context) *refusal {
	var open []*podClaim
	var claims []*resourcev1.ResourceClaim
	for _, c := range f.claims {
		if !c.allocated() {
			open, claims = append(open, c), append(claims, c.ResourceClaim)
		}
	}
	switch {
	case len(open) == 0:
		return nil
	case f.short(claims):
		return refuse(v1alpha1.ReasonNotEnoughDevices, "node %s has too few devices for what the claims ask for", f.n.Name)
	}
	if f.n.Stopped != nil {
		f.odd("kube-scheduler gives up such a pod on all nodes")
		return refuse(v1alpha1.ReasonDevicesUnhealthy, "%s", f.n.Stopped.Message)
	}
	results, no := f.search(ctx, claims)
	if no != nil {
		return no
	}
	for i, c := range open {
		c.result = &results[i]
		for j := range c.result.Devices.Results {
			if r := &c.result.Devices.Results[j]; r.ShareID != nil {
				r.ShareID = ptr.To(types.UID(fmt.Sprintf("%s-%d", c.UID, j)))
			}
		}
	}
	return nil
}

// search is what the allocator finds, whichever slices it sees first. Where that matters, what it may find is a refusal if any is.
func (f *foresight) search(ctx context.Context, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, *refusal) {
	visible := f.visible(claims)
	results, no := f.searchIn(ctx, claims, visible)
	for _, order := range orders(visible) {
		others, other := f.searchIn(ctx, claims, order)
		if (no == nil) == (other == nil) && slices.EqualFunc(results, others, sameDevices) {
			continue
		}
		f.unsure = true
		f.odd("slices of one pool do not agree on how many there are: which kube-scheduler counts by is chance")
		if no == nil {
			no = other
		}
	}
	return results, no
}

// searchIn has the allocator look through slices.
func (f *foresight) searchIn(ctx context.Context, claims []*resourcev1.ResourceClaim, in []*resourcev1.ResourceSlice) ([]resourcev1.AllocationResult, *refusal) {
	bounded := &stepping{Context: ctx, more: 4 * maxAllocatorSteps}
	of := allocation{classes: f.s.Classes(), node: f.n.Object, slices: in, held: held(f.n, f.own), claims: claims}
	results, err := f.decider.call(bounded, of)
	switch {
	case ctx.Err() == nil && bounded.ended() && (f.hopeless(claims) || f.alone(ctx, of)):
		return nil, refuse(v1alpha1.ReasonNotEnoughDevices, "node %s has too few devices for what the claims ask for", f.n.Name)
	case ctx.Err() != nil, bounded.ended():
		f.odd("whether it fits takes more steps to find out than are taken here; kube-scheduler gives up after ten seconds")
		f.unsure = true
		return nil, refuse(v1alpha1.ReasonUndecided, "node %s: what devices the claims can have was not found in %d steps", f.n.Name, bounded.steps.Load())
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, refuse(v1alpha1.ReasonNotEnoughDevices, "node %s: %v", f.n.Name, err)
	case err != nil:
		f.odd("kube-scheduler gives up such a pod on all nodes")
		return nil, refuse(v1alpha1.ReasonClaimUnsupported, "node %s: %v", f.n.Name, err).everywhere()
	case len(results) != len(claims):
		return nil, refuse(v1alpha1.ReasonNotEnoughDevices, "node %s has not the devices that the claims ask for", f.n.Name)
	}
	return results, nil
}

// maxOrders bounds how many other orders of slices are looked at.
const maxOrders = 8

// orders returns other orders in which kube-scheduler may see slices, as far as that matters: the allocator takes the first of
// a pool that it sees for the one that says how many there are.
func orders(in []*resourcev1.ResourceSlice) [][]*resourcev1.ResourceSlice {
	type pool struct {
		driver, name string
		generation   int64
	}
	said := map[pool][]int64{}
	var out [][]*resourcev1.ResourceSlice
	for i, s := range in {
		id := pool{s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Pool.Generation}
		if slices.Contains(said[id], s.Spec.Pool.ResourceSliceCount) {
			continue
		}
		if said[id] = append(said[id], s.Spec.Pool.ResourceSliceCount); len(said[id]) > 1 && len(out) < maxOrders {
			out = append(out, slices.Insert(slices.Delete(slices.Clone(in), i, i+1), 0, s))
		}
	}
	return out
}

// sameDevices says that two results are for the same devices.
func sameDevices(a, b resourcev1.AllocationResult) bool {
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(x, y resourcev1.DeviceRequestAllocationResult) bool {
		return x.Request == y.Request && x.Driver == y.Driver && x.Pool == y.Pool && x.Device == y.Device
	})
}

// own says whether a holder is a claim of the pod that has no devices yet.
func (f *foresight) own(h *ledger.Holder) bool {
	return h.Kind == ledger.HolderReleased && slices.ContainsFunc(f.claims, func(c *podClaim) bool { return c.UID == h.UID })
}

// listed are the devices that the accounts of a node have, each but once: what is listed now goes before what was.
func listed(n *ledger.Node) []*ledger.Device {
	var out []*ledger.Device
	seen := map[ledger.DeviceID]bool{}
	for _, list := range [][]ledger.Device{n.Devices, n.Withheld, n.Elsewhere, n.Lost} {
		for i := range list {
			if !seen[list[i].ID] {
				seen[list[i].ID] = true
				out = append(out, &list[i])
			}
		}
	}
	return out
}

// visible are the slices that kube-scheduler's allocator looks at for the node, of every generation, with the taints of
// DeviceTaintRules in them. Slices with counters it looks at for every node: of pools without devices for this one that
// matters to claims for all devices, which fail where any pool is incomplete.
func (f *foresight) visible(claims []*resourcev1.ResourceClaim) []*resourcev1.ResourceSlice {
	ruled := map[ledger.DeviceID][]resourcev1.DeviceTaint{}
	for _, d := range listed(f.n) {
		if own := len(d.Spec.Taints); len(d.Taints) > own {
			ruled[d.ID] = d.Taints[own:]
		}
	}
	var out []*resourcev1.ResourceSlice
	type pool struct{ driver, name string }
	seen := map[pool]bool{}
	for i := range f.n.Pools {
		p := &f.n.Pools[i]
		seen[pool{p.Driver, p.Name}] = true
		for _, s := range p.Every {
			out = append(out, withTaints(workable(s), ruled))
		}
	}
	if slices.ContainsFunc(claims, wantsAll) {
		for _, n := range f.s.Nodes() {
			for i := range n.Pools {
				p := &n.Pools[i]
				if id := (pool{p.Driver, p.Name}); !seen[id] && slices.ContainsFunc(p.Every, func(s *resourcev1.ResourceSlice) bool { return len(s.Spec.SharedCounters) > 0 }) {
					seen[id] = true
					for _, s := range p.Every {
						out = append(out, workable(s))
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *resourcev1.ResourceSlice) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// wantsAll says whether a claim asks for all devices of a kind.
func wantsAll(c *resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeAll ||
			slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool {
				return s.AllocationMode == resourcev1.DeviceAllocationModeAll
			})
	})
}

// workable returns a slice without the devices that the allocator would not survive; the slice itself where there are none.
func workable(s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	breaks := func(d resourcev1.Device) bool { return !ledger.Workable(&d) }
	if !slices.ContainsFunc(s.Spec.Devices, breaks) {
		return s
	}
	out := &resourcev1.ResourceSlice{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
	out.Spec.Devices = slices.DeleteFunc(slices.Clone(s.Spec.Devices), breaks)
	return out
}

// withTaints returns a slice with more taints in its devices; the slice itself where there are none.
func withTaints(s *resourcev1.ResourceSlice, ruled map[ledger.DeviceID][]resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	out := s
	for i := range s.Spec.Devices {
		more := ruled[ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: s.Spec.Devices[i].Name}]
		if len(more) == 0 {
			continue
		}
		if out == s {
			out = &resourcev1.ResourceSlice{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
			out.Spec.Devices = slices.Clone(s.Spec.Devices)
		}
		d := &out.Spec.Devices[i]
		d.Taints = append(slices.Clone(d.Taints), more...)
	}
	return out
}

// held is what is allocated, promised or released of the devices that a node may see, as kube-scheduler's allocator takes it;
// but says of which holders it is not.
func held(n *ledger.Node, but func(*ledger.Holder) bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for _, d := range listed(n) {
		id := structured.MakeDeviceID(d.ID.Driver, d.ID.Pool, d.ID.Device)
		for i := range d.Holders {
			h := &d.Holders[i]
			if but(h) {
				continue
			}
			share := h.Share
			if share == "" && h.Kind != ledger.HolderClaim && d.Multiple() {
				share = types.UID(fmt.Sprintf("%s-%d", h.UID, i))
			}
			if share == "" {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &share))
			if h.Consumed != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, h.Consumed.Clone()))
			}
		}
	}
	return state
}
