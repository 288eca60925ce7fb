package admission

import (
	"context"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxChoices bounds how many choices among alternatives are counted.
const maxChoices = 256

// short says at a glance that the node has fewer devices left than the claims ask for in all, where kube-scheduler's allocator
// would find just that. False says nothing.
func (f *foresight) short(claims []*resourcev1.ResourceClaim) bool {
	var want int64
	for _, c := range claims {
		var of int64
		for i := range c.Spec.Devices.Requests {
			least, ok := atLeast(&c.Spec.Devices.Requests[i])
			if !ok {
				return false
			}
			of += least
		}
		if of > resourcev1.AllocationResultsMaxSize {
			return false // kube-scheduler gives up the pod over that
		}
		want += of
	}
	var left int64
	for i := range f.n.Pools {
		for _, s := range f.n.Pools[i].Every {
			for j := range s.Spec.Devices {
				if ptr.Deref(s.Spec.Devices[j].AllowMultipleAllocations, false) {
					return false
				}
			}
			left += int64(len(s.Spec.Devices))
		}
	}
	for _, list := range [][]ledger.Device{f.n.Devices, f.n.Withheld} {
		for i := range list {
			if slices.ContainsFunc(list[i].Holders, func(h ledger.Holder) bool { return h.Share == "" && !f.own(&h) }) {
				left--
			}
		}
	}
	if want <= left {
		return false
	}
	// Whether a device is held is what the allocator looks at first: where some are not, a selector may fail.
	return left <= 0 || f.evaluates(claims)
}

// evaluates says that no selector of the claims fails on a device of the node.
func (f *foresight) evaluates(claims []*resourcev1.ResourceClaim) bool {
	for _, c := range claims {
		for i := range c.Spec.Devices.Requests {
			r := &c.Spec.Devices.Requests[i]
			if r.Exactly != nil && !f.selects(r.Exactly.DeviceClassName, r.Exactly.Selectors) {
				return false
			}
			for j := range r.FirstAvailable {
				if s := &r.FirstAvailable[j]; !f.selects(s.DeviceClassName, s.Selectors) {
					return false
				}
			}
		}
	}
	return true
}

// selects says that each device of the node is one that a class and selectors select, or none, but that none of them fails.
func (f *foresight) selects(class string, selectors []resourcev1.DeviceSelector) bool {
	expressions, ok := f.expressions(class, selectors)
	if !ok {
		return false
	}
	for _, list := range [][]ledger.Device{f.n.Devices, f.n.Withheld} {
		var slice *resourcev1.ResourceSlice
		var selects func(*ledger.Device) (bool, error)
		for i := range list {
			if d := &list[i]; d.Slice != slice {
				slice, selects = d.Slice, f.decider.Matcher.Selected(d.Slice, expressions...)
			}
			if _, err := selects(&list[i]); err != nil {
				return false
			}
		}
	}
	return true
}

// expressions are those of a class and of a request's own selectors; false where one of them is of a kind that is not known.
func (f *foresight) expressions(class string, selectors []resourcev1.DeviceSelector) ([]string, bool) {
	out := ClassSelectors(f.s.DeviceClass(class))
	for _, s := range selectors {
		if s.CEL == nil {
			return nil, false
		}
		out = append(out, s.CEL.Expression)
	}
	return out, true
}

// atLeast is how many devices a request takes at the least; false where that cannot be told from it alone.
func atLeast(r *resourcev1.DeviceRequest) (least int64, ok bool) {
	if e := r.Exactly; e != nil {
		return e.Count, e.AllocationMode == resourcev1.DeviceAllocationModeExactCount && !ptr.Deref(e.AdminAccess, false)
	}
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		if s.AllocationMode != resourcev1.DeviceAllocationModeExactCount {
			return 0, false
		}
		if i == 0 || s.Count < least {
			least = s.Count
		}
	}
	return least, true
}

// hopeless says that the node has too few devices for the claims, whatever else they ask for: by counting, where the
// allocator's search takes too long. False says nothing.
func (f *foresight) hopeless(claims []*resourcev1.ResourceClaim) bool {
	state := held(f.n, f.own)
	var requests [][]counts
	ways := 1
	for _, c := range claims {
		for i := range c.Spec.Devices.Requests {
			options, ok := f.options(&c.Spec.Devices.Requests[i], &state)
			if !ok {
				return false
			}
			if options != nil {
				requests = append(requests, options)
				ways = min(ways*len(options), maxChoices+1)
			}
		}
	}
	if ways > maxChoices {
		return false
	}
	at := make([]int, len(requests))
	for range ways {
		chosen := make([]counts, len(requests))
		for i, options := range requests {
			chosen[i] = options[at[i]]
		}
		if enough(chosen) {
			return false
		}
		for i := range at {
			if at[i]++; at[i] < len(requests[i]) {
				break
			}
			at[i] = 0
		}
	}
	return true
}

// alone says that one of the claims cannot be had even without the others.
func (f *foresight) alone(ctx context.Context, of allocation) bool {
	claims := of.claims
	for i := range claims {
		of.claims = claims[i : i+1]
		bounded := &stepping{Context: ctx}
		if results, err := f.decider.call(bounded, of); len(claims) > 1 && err == nil && results == nil && !bounded.ended() {
			return true
		}
	}
	return false
}

// counts is what one request takes at least: so many of some devices.
type counts struct {
	need int
	of   []*ledger.Device
}

// enough says whether each can have as many devices as it needs. A device that allows several allocations is enough for any
// number of requests, though but once for each.
func enough(chosen []counts) bool {
	group := map[ledger.DeviceID]int{}
	groups := 0
	of := make([][]int, len(chosen))
	for i := range chosen {
		for _, d := range chosen[i].of {
			g, known := group[d.ID]
			if !known || d.Multiple() {
				g = groups
				group[d.ID] = g
				groups++
			}
			of[i] = append(of[i], g)
		}
	}
	sizes, demands := make([]int, groups), make([]demand, len(chosen))
	for g := range sizes {
		sizes[g] = 1
	}
	for i := range chosen {
		demands[i] = demand{need: chosen[i].need, of: make([]bool, groups)}
		for _, g := range of[i] {
			demands[i].of[g] = true
		}
	}
	_, ok := satisfy(sizes, demands)
	return ok
}

// options are what a request takes at least by each of its alternatives; nil for nothing that counts. It is false where that
// cannot be told.
func (f *foresight) options(r *resourcev1.DeviceRequest, state *structured.AllocatedState) ([]counts, bool) {
	if e := r.Exactly; e != nil {
		if ptr.Deref(e.AdminAccess, false) {
			return nil, true
		}
		c, ok := f.count(e, state)
		return []counts{c}, ok
	}
	var out []counts
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		c, ok := f.count(&resourcev1.ExactDeviceRequest{
			DeviceClassName: s.DeviceClassName, Selectors: s.Selectors, AllocationMode: s.AllocationMode, Count: s.Count, Tolerations: s.Tolerations, Capacity: s.Capacity,
		}, state)
		if !ok {
			return nil, false
		}
		out = append(out, c)
	}
	return out, true
}

func (f *foresight) count(r *resourcev1.ExactDeviceRequest, state *structured.AllocatedState) (counts, bool) {
	expressions, ok := f.expressions(r.DeviceClassName, r.Selectors)
	if !ok {
		return counts{}, false
	}
	all := r.AllocationMode == resourcev1.DeviceAllocationModeAll
	c := counts{need: int(min(r.Count, resourcev1.AllocationResultsMaxSize+1))}
	if all {
		c.need = 0
	}
	for _, list := range [][]ledger.Device{f.n.Devices, f.n.Withheld} {
		for i := range list {
			d := &list[i]
			ok, err := f.decider.Matcher.Matches(d.ID.Driver, d.Spec, expressions...)
			if err != nil {
				return counts{}, false
			}
			if !ok {
				continue
			}
			if all && !d.Multiple() && r.Capacity == nil {
				c.need++
			}
			plain := ledger.Device{Taints: d.Taints}
			if !state.AllocatedDevices.Has(structured.MakeDeviceID(d.ID.Driver, d.ID.Pool, d.ID.Device)) && tainted(r.Tolerations, &plain) == nil {
				c.of = append(c.of, d)
			}
		}
	}
	return c, true
}
