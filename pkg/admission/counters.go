package admission

import (
	"context"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// unmarked is the mark of a device that is offered to no request, but counts for what it draws.
const unmarked = -1

// counted says whether any of the devices that the podset may have draws on shared counters: then which devices can be given
// together is for the allocator alone to judge, on all of their pools.
func (n *nodeFit) counted() bool {
	return slices.ContainsFunc(n.matching(), func(d *ledger.Device) bool { return len(d.Spec.ConsumesCounters) > 0 })
}

// anyCounted is counted of any of the parts.
func anyCounted(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.fit.counted() })
}

// drawing adds to what is offered what draws on the same counters as any of the parts may, and is held in a book: it is listed,
// given to nobody, and counts as allocated. It returns what is allocated in the book, of devices that can be given once more too.
func drawing(parts []part, b book, marks map[ledger.DeviceID]int64) structured.AllocatedState {
	n := parts[0].fit
	state := held(n.node, func(h *ledger.Holder) bool { return !n.keeps(h, b) })
	if !anyCounted(parts) {
		return state
	}
	for _, list := range [][]ledger.Device{n.node.Devices, n.node.Elsewhere} {
		for i := range list {
			d := &list[i]
			if _, given := marks[d.ID]; given || len(d.Spec.ConsumesCounters) == 0 {
				continue
			}
			if n.given[d.ID] {
				marks[d.ID] = unmarked
				state.AllocatedDevices.Insert(structured.MakeDeviceID(d.ID.Driver, d.ID.Pool, d.ID.Device))
			}
			if slices.ContainsFunc(d.Holders, func(h ledger.Holder) bool { return n.keeps(&h, b) }) {
				marks[d.ID] = unmarked
			}
		}
	}
	return state
}

// serveCounted finds devices that draw on shared counters for all pods of the parts: the allocator searches on all that is
// left of the counters.
func (d *Decider) serveCounted(ctx context.Context, parts []part, b book) ([][]share, answer) {
	if _, a := shareOut(parts, b); a == no {
		return nil, no
	}
	return d.searchAllocator(ctx, parts, b)
}

// withCounters returns the slices of a node's pools that are to be offered beside those that list its devices: with counters,
// or with devices of other nodes that draw on them.
func (n *nodeFit) withCounters(p *ledger.Pool) []*resourcev1.ResourceSlice {
	if !p.Wide || len(n.node.Elsewhere) == 0 {
		return p.Slices
	}
	var out []*resourcev1.ResourceSlice
	for _, s := range p.Every {
		if s.Spec.Pool.Generation == p.Generation {
			out = append(out, s)
		}
	}
	return out
}
