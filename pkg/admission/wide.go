package admission

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// barring returns the node as if it had not the devices that were given out on others, nor what they draw of its pools' counters;
// n itself where it has none of either.
func (n *nodeFit) barring(given map[ledger.DeviceID]bool) *nodeFit {
	barred := func(d *ledger.Device) bool { return given[d.ID] }
	draws := func(d ledger.Device) bool { return given[d.ID] && len(d.Spec.ConsumesCounters) > 0 }
	if len(given) == 0 || !slices.ContainsFunc(n.matching(), barred) &&
		!(n.counted() && (slices.ContainsFunc(n.node.Devices, draws) || slices.ContainsFunc(n.node.Elsewhere, draws))) {
		return n
	}
	c := *n
	c.given = given
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

// drawnOnTwice says whether pods on several nodes draw on the counters of one pool: what is left of them was not looked at.
func drawnOnTwice(chosen []*trial, podSets []v1alpha1.PlacementPodSet) bool {
	type pool struct{ driver, name string }
	at := map[pool]string{}
	for i, ps := range podSets {
		for _, n := range ps.Nodes {
			fit := slices.IndexFunc(chosen[i].fits, func(f *nodeFit) bool { return f.node.Name == n.Name })
			for _, r := range n.Requests {
				for _, name := range r.Devices {
					id, err := ledger.ParseDeviceID(name)
					if err != nil || fit < 0 {
						continue
					}
					d := chosen[i].fits[fit].node.Device(id)
					if d == nil || len(d.Spec.ConsumesCounters) == 0 {
						continue
					}
					p := pool{id.Driver, id.Pool}
					if other, drawn := at[p]; drawn && other != n.Name {
						return true
					}
					at[p] = n.Name
				}
			}
		}
	}
	return false
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
