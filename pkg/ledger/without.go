package ledger

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Without returns a snapshot in which a holder has given back what it takes of some nodes: the inverse of With. A device
// stays with its other holders. Slots counts those whose requests the promise itself holds, not those whose pods are on
// the node. s is unchanged.
func (s *Snapshot) Without(holder types.UID, podSets []PodSetClaim) *Snapshot {
	c := &Snapshot{Version: s.Version, nodes: maps.Clone(s.nodes), names: s.names, classes: s.classes}
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
		n.Free.Add(ps.Requests, int64(ps.Slots))
		n.Managed.Add(ps.Requests, -int64(ps.Slots))
		for i := range n.Devices {
			if slices.Contains(ps.Devices, n.Devices[i].ID) {
				n.Devices[i].Holders = slices.DeleteFunc(slices.Clone(n.Devices[i].Holders), func(h Holder) bool { return h.UID == holder })
			}
		}
	}
	return c
}
