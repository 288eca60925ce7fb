package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Returned returns a snapshot in which a holder has given back what it takes of some nodes: the inverse of With. A device
// stays with its other holders. Slots counts those whose requests the promise itself holds, not those whose pods are on
// the node. s is unchanged.
func (s *Snapshot) Returned(holder types.UID, podSets []PodSetClaim) *Snapshot {
	c := s.clone()
	fresh := map[string]bool{}
	for _, ps := range podSets {
		n := c.nodes[ps.Node]
		if n == nil {
			continue
		}
		if !fresh[ps.Node] {
			fresh[ps.Node] = true
			n = n.clone()
			c.nodes[ps.Node] = n
		}
		n.use(Use{Requests: ps.Requests, Times: -int64(ps.Slots)}, true)
		for i := range n.Devices {
			if slices.Contains(ps.Devices, n.Devices[i].ID) {
				n.Devices[i].Holders = slices.DeleteFunc(slices.Clone(n.Devices[i].Holders), func(h Holder) bool { return h.UID == holder })
			}
		}
	}
	return c
}
