package admission

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// barring returns the node as if it had not the devices that were given out on others; n itself where it has none of them.
func (n *nodeFit) barring(given map[ledger.DeviceID]bool) *nodeFit {
	barred := func(d *ledger.Device) bool { return given[d.ID] }
	if len(given) == 0 || !slices.ContainsFunc(n.matching(), barred) {
		return n
	}
	c := *n
	c.wants = slices.Clone(n.wants)
	for i := range c.wants {
		c.wants[i].matching = slices.DeleteFunc(slices.Clone(c.wants[i].matching), barred)
	}
	c.selected = nil
	c.forget()
	return &c
}

// give adds the devices of some pods' shares to those that were given out: other nodes may have them as well, or list others by the
// same names, which to kube-scheduler are the same.
func give(given map[ledger.DeviceID]bool, pods []share) {
	for _, sh := range pods {
		for _, devices := range sh {
			for _, d := range devices {
				given[d.ID] = true
			}
		}
	}
}

// givenTwice says whether a promise names a device more than once.
func givenTwice(podSets []v1alpha1.PlacementPodSet) bool {
	seen := map[string]bool{}
	for _, ps := range podSets {
		for _, n := range ps.Nodes {
			for _, r := range n.Requests {
				for _, d := range r.Devices {
					if seen[d] {
						return true
					}
					seen[d] = true
				}
			}
		}
	}
	return false
}
