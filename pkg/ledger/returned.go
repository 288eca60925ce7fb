package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Returned returns a snapshot in which a holder has given back what it takes of some nodes: the inverse of With. A device
// stays with its other holders. Slots counts those whose requests the promise itself holds, not those whose pods are on
// the node. s is unchanged.
func (s *Snapshot) Returned(holder types.UID, podSets []PodSetClaim) *Snapshot {
	return s.edited(podSets, func(n *Node, ps *PodSetClaim) {
		n.use(Use{Requests: ps.Requests, Times: -int64(ps.Slots), Placement: holder}, true)
	}, func(n *Node, d *Device, at string, _ int) {
		i := slices.IndexFunc(d.Holders, func(h Holder) bool { return h.UID == holder && (h.at == at || h.at == "") })
		if i < 0 {
			return
		}
		h := d.Holders[i]
		d.Holders = slices.Delete(slices.Clone(d.Holders), i, i+1)
		if n.Name == at {
			n.takeMapped(d, &h, -1)
		}
	})
}

// referring is how often the containers of a pod refer to the claim that the k-th device is for.
func (ps *PodSetClaim) referring(k int) int {
	if k < len(ps.Referring) {
		return ps.Referring[k]
	}
	return 1
}
