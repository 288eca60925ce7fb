package ledger

import (
	"k8s.io/apimachinery/pkg/types"
)

// Maps returns what a device takes of its node's own resources for one claim of one pod that consumes so much of it, and whose
// containers refer to it so often; not at all counts as once. Each device is rounded up by itself, so that a claim of several
// is never counted for less than kube-scheduler does. Nil for nothing, and for what kube-scheduler fails on.
func (d *Device) Maps(consumed Consumption, referring int) Amounts {
	if d.Mappings == nil {
		return nil
	}
	a, err := MappedBy([]Taken{{Device: d.ID, Mappings: d.Mappings, Consumed: consumed}}, max(1, referring))
	if err != nil {
		return nil
	}
	return a
}

// countMapped takes from n what devices map to its own resources that are promised there, or given to pods that are not bound
// yet. What bound pods take is in their requests, as their status says it. What no slice lists any more counts for nothing,
// as nobody who starts now could know it.
func (n *Node) countMapped(lists ...[]Device) {
	for _, list := range lists {
		for i := range list {
			d := &list[i]
			if d.Mappings == nil {
				continue
			}
			given := map[types.UID]int{}
			for _, h := range d.Holders {
				if h.Kind != HolderPlacement && h.at == n.Name {
					given[h.Workload]++
				}
			}
			for j := range d.Holders {
				h := &d.Holders[j]
				if h.at != n.Name || h.bound {
					continue
				}
				if h.Kind == HolderPlacement && given[h.Workload] > 0 {
					given[h.Workload]-- // the pod that has the slot takes it
					continue
				}
				n.takeMapped(d, h, 1)
			}
		}
	}
}

// takeMapped takes from n, so often, what a device maps to for a holder.
func (n *Node) takeMapped(d *Device, h *Holder, count int64) {
	if a := d.Maps(h.Consumed, h.referring); len(a) > 0 {
		n.use(Use{Workload: h.Workload, Requests: a, Times: count, Freeing: h.Freeing, Until: h.Until, mapped: true}, h.Managed)
		n.Mapped.Add(a, count)
	}
}
