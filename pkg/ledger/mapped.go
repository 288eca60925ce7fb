package ledger

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Maps returns what a device takes of its node's own resources for one claim of one pod that consumes so much of it, and whose
// containers refer to it so often. Each device is rounded up by itself, so that a claim of several is never counted for less
// than kube-scheduler does. Nil for nothing, and for what kube-scheduler fails on.
func (d *Device) Maps(consumed Consumption, references int) Amounts {
	if d.Mappings == nil {
		return nil
	}
	a, err := MappedBy([]Taken{{Device: d.ID, Mappings: d.Mappings, Consumed: consumed}}, references)
	if err != nil {
		return nil
	}
	return a
}

// countMapped takes from n what devices map to its own resources that are promised there, or given to pods that are not bound
// yet. What bound pods take is in their requests, as their status says it.
//
// A promise is not less because its driver republishes: of a device that a complete pool listed and that is not listed now, or
// is without its mapping, what it mapped to is held still. That is remembered, and not among what everybody knows.
func (b *Book) countMapped(n *Node, lists ...[]Device) {
	for _, list := range lists {
		for i := range list {
			d := &list[i]
			if d.Mappings == nil {
				b.countUnmapped(n, d)
				continue
			}
			for j := range d.Holders {
				if d.takes(j, n.Name) {
					n.takeMapped(d, &d.Holders[j], 1)
				}
			}
		}
	}
	for i := range n.Lost {
		d := &n.Lost[i]
		now := shownAs(d.ID, lists)
		if d.Mappings == nil {
			if now == nil {
				b.countUnmapped(n, d)
			}
			continue
		}
		for j := range d.Holders {
			if !d.takes(j, n.Name) {
				continue
			}
			h := &d.Holders[j]
			a := d.Maps(h.Consumed, h.times())
			if now != nil {
				a = a.beyond(now.countedFor(h, n.Name))
			}
			n.takeRemembered(a, h)
		}
	}
}

// countedFor returns what a device, as it is listed now, is counted to take of a node's own resources for a holder.
func (d *Device) countedFor(h *Holder, node string) Amounts {
	for i := range d.Holders {
		if x := &d.Holders[i]; compareHolders(*x, *h) == 0 && d.takes(i, node) {
			return d.Maps(x.Consumed, x.times())
		}
	}
	return nil
}

// shownAs returns a device as it is listed now; nil where it is not.
func shownAs(id DeviceID, lists [][]Device) *Device {
	for _, list := range lists {
		for i := range list {
			if list[i].ID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// takes says whether the holder at i takes of a node's own resources what the device maps to. Of a promise that is so while no
// pod has its slot.
func (d *Device) takes(i int, node string) bool {
	h := &d.Holders[i]
	if h.at != node || h.bound {
		return false
	}
	if h.Kind != HolderPlacement || len(d.Holders) == 1 {
		return true
	}
	given, before := 0, 0
	for j := range d.Holders {
		switch x := &d.Holders[j]; {
		case x.at != node || x.Workload != h.Workload:
		case x.Kind != HolderPlacement:
			given++
		case j < i:
			before++
		}
	}
	return before >= given
}

// takeRemembered takes from n what a device mapped to for a holder.
func (n *Node) takeRemembered(a Amounts, h *Holder) {
	if len(a) > 0 {
		n.use(Use{Workload: h.Workload, Requests: a, Times: 1, Freeing: h.Freeing, Until: h.Until, mapped: true, remembered: true}, h.Managed)
		n.Mapped.Add(a, 1)
	}
}

// unmapped is a device that its pool lists without the mapping that it had while something of the pool was promised.
type unmapped struct {
	// was is the device as it was listed.
	was Device
	// promised are the Workloads that it was promised to by then: who comes later is told what is listed.
	promised map[types.UID]struct{}
}

// countUnmapped takes from n what a device mapped to when it was promised.
func (b *Book) countUnmapped(n *Node, d *Device) {
	if len(b.unmapped) == 0 {
		return
	}
	u := b.unmapped[d.ID]
	if u == nil {
		return
	}
	for j := range d.Holders {
		h := &d.Holders[j]
		if _, ok := u.promised[h.Workload]; !ok || !d.takes(j, n.Name) {
			continue
		}
		consumed := h.Consumed
		if h.Share == "" {
			consumed = DefaultConsumption(u.was.Spec)
		}
		n.takeRemembered(u.was.Maps(consumed, h.times()), h)
	}
}

// keepMappings notes which devices of a pool are listed without the mapping that they had, and forgets it once they have one
// again or nobody is left whom it was promised to.
func (b *Book) keepMappings(id pool, was, now []*slice) {
	mapped := func(name string) bool {
		return slices.ContainsFunc(now, func(s *slice) bool { return s.mappings[name] != nil })
	}
	for _, s := range was {
		for i := range s.Spec.Devices {
			spec := &s.Spec.Devices[i]
			d := DeviceID{id.driver, id.name, spec.Name}
			m := s.mappings[spec.Name]
			if m == nil || b.unmapped[d] != nil || mapped(spec.Name) {
				continue
			}
			if promised := b.promisedOf(id); len(promised) > 0 {
				b.unmapped[d] = &unmapped{Device{ID: d, Spec: spec, Mappings: m}, promised}
			}
		}
	}
	for d, u := range b.unmapped {
		if (pool{d.Driver, d.Pool}) != id {
			continue
		}
		left := b.promisedOf(id)
		if mapped(d.Device) || !slices.ContainsFunc(slices.Collect(maps.Keys(u.promised)), func(w types.UID) bool { _, ok := left[w]; return ok }) {
			delete(b.unmapped, d)
		}
	}
}

// promisedOf returns the Workloads that devices of a pool are promised to.
func (b *Book) promisedOf(id pool) map[types.UID]struct{} {
	out := map[types.UID]struct{}{}
	for uid := range b.promisedIn[id].all() {
		out[b.placements[uid].Spec.Key.WorkloadUID] = struct{}{}
	}
	return out
}

// takeMapped takes from n, so often, what a device maps to for a holder.
func (n *Node) takeMapped(d *Device, h *Holder, count int64) {
	if a := d.Maps(h.Consumed, h.times()); len(a) > 0 {
		n.use(Use{Workload: h.Workload, Requests: a, Times: count, Freeing: h.Freeing, Until: h.Until, mapped: true}, h.Managed)
		n.Mapped.Add(a, count)
	}
}
