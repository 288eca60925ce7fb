package ledger

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Takes returns what a device takes of its node's own resources for one claim of one pod that consumes so much of it, one
// of whose containers refers to it. Each device is rounded up by itself, so that a claim of several is never counted for less
// than kube-scheduler does. Nil for nothing.
func (d *Device) Takes(consumed Consumption) Amounts {
	if d.Mappings == nil {
		return nil
	}
	list := corev1.ResourceList{}
	for i := range d.Mappings.List {
		m := &d.Mappings.List[i]
		total := m.PerPod.DeepCopy()
		total.Add(m.PerContainer)
		if m.Capacity == "" {
			total.Add(m.Multiplier)
		} else if q, ok := consumed[m.Capacity]; ok {
			total.Add(times(q, m.Multiplier))
		}
		if had, ok := list[m.Resource]; ok {
			total.Add(had)
		}
		list[m.Resource] = total
	}
	return AmountsOf(list)
}

// times multiplies exactly.
func times(a, b resource.Quantity) resource.Quantity {
	x, y := a.AsDec(), b.AsDec()
	product := *x
	product.Mul(x, y)
	return *resource.NewDecimalQuantity(product, a.Format)
}

// countMapped takes from n what the devices map to its own resources that are promised there, or given to pods that are not
// bound yet. What bound pods take is in their requests, as their status says it.
func (b *Book) countMapped(n *Node) {
	for _, list := range [][]Device{n.Devices, n.Lost} {
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
	if a := d.Takes(h.Consumed); len(a) > 0 {
		n.use(Use{Workload: h.Workload, Requests: a, Times: count, Freeing: h.Freeing, Until: h.Until, mapped: true}, h.Managed)
		n.Mapped.Add(a, count)
	}
}
