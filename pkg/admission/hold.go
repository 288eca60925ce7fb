package admission

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Keeping says how a promise that nothing was released on stands.
type Keeping string

// The ways in which a promise stands.
const (
	// Kept: all of it is there.
	Kept Keeping = "Kept"
	// Coming: what is not there is ending, or was lost within the grace.
	Coming Keeping = "Coming"
	// Broken: some of it is not to be waited for.
	Broken Keeping = "Broken"
)

// Hold is how a promise stands.
type Hold struct {
	Keeping Keeping
	// Reason and Message say what is not there; empty for Kept.
	Reason  v1alpha1.Reason
	Message string
	// Until is when time alone may next change it; zero for never.
	Until time.Time
}

// Holds says how the promise that a Workload was made stands on the accounts, in which that promise itself counts as its
// own. r is the Request that it was decided by.
func (d *Decider) Holds(s *ledger.Snapshot, r *Request, workload types.UID, promised []v1alpha1.PlacementPodSet) Hold {
	free := s.Without(map[types.UID]bool{workload: true})
	hold := Hold{Keeping: Kept}
	asked := map[string]ledger.Amounts{}
	for i := range promised {
		p := &promised[i]
		var ps *PodSet
		for j := range r.PodSets {
			if r.PodSets[j].Name == p.Name {
				ps = &r.PodSets[j]
			}
		}
		if ps == nil {
			return Hold{Keeping: Broken, Reason: v1alpha1.ReasonPodChanged, Message: fmt.Sprintf("podset %s is gone", p.Name)}
		}
		for j := range p.Nodes {
			pn := &p.Nodes[j]
			n := free.Node(pn.Name)
			if n == nil {
				return Hold{Keeping: Broken, Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s is gone", pn.Name)}
			}
			if asked[pn.Name] == nil {
				asked[pn.Name] = ledger.Amounts{}
			}
			asked[pn.Name].Add(ps.Requests, int64(pn.Slots))
			hold.worsen(d.holdsOn(n, r, ps, p.Flavor, pn, asked[pn.Name]))
		}
	}
	return hold
}

// worsen takes over what is worse in h, and the earlier time.
func (hold *Hold) worsen(h Hold) {
	if !h.Until.IsZero() && (hold.Until.IsZero() || h.Until.Before(hold.Until)) {
		hold.Until = h.Until
	}
	if h.Keeping == Kept || hold.Keeping == Broken || hold.Keeping == Coming && h.Keeping == Coming {
		return
	}
	hold.Keeping, hold.Reason, hold.Message = h.Keeping, h.Reason, h.Message
}

// holdsOn is Holds for one podset on one node, where asked is what all podsets up to it ask of the node.
func (d *Decider) holdsOn(n *ledger.Node, r *Request, ps *PodSet, flavor string, pn *v1alpha1.PlacementNode, asked ledger.Amounts) Hold {
	f := d.standsOn(n, r, ps, flavor)
	hold := Hold{Keeping: Kept, Until: until([]*nodeFit{f})}
	if f.unavailable != "" {
		hold.worsen(f.grade(f.available(onTheWay), v1alpha1.ReasonNodeUnavailable, f.unavailable))
	}
	fits := func(b book) bool {
		k, _ := f.room(b).Times(asked, 1)
		return k == 1
	}
	if !fits(asIs) {
		hold.worsen(f.grade(fits(onTheWay), v1alpha1.ReasonNodeResources, fmt.Sprintf("node %s has too little left beside its devices", n.Name)))
	}
	for _, request := range pn.Requests {
		for _, name := range request.Devices {
			id, err := ledger.ParseDeviceID(name)
			dev := f.device(id)
			switch {
			case err != nil || dev == nil:
				hold.worsen(f.grade(false, v1alpha1.ReasonDevicesUnhealthy, fmt.Sprintf("device %s is gone", name)))
			case tainted(ps.tolerations(), dev) != nil:
				hold.worsen(f.grade(false, v1alpha1.ReasonDevicesUnhealthy, fmt.Sprintf("device %s is tainted", name)))
			case !f.usable(dev, asIs):
				hold.worsen(f.grade(f.usable(dev, onTheWay), v1alpha1.ReasonDevicesFreeing, fmt.Sprintf("device %s is not free", name)))
			}
		}
	}
	return hold
}

// grade is Coming or Broken, with why.
func (n *nodeFit) grade(coming bool, reason v1alpha1.Reason, message string) Hold {
	if coming {
		return Hold{Keeping: Coming, Reason: reason, Message: message}
	}
	return Hold{Keeping: Broken, Reason: reason, Message: message}
}

// standsOn looks at one node for one podset without its claims.
func (d *Decider) standsOn(n *ledger.Node, r *Request, ps *PodSet, flavor string) *nodeFit {
	var tolerations []corev1.Toleration
	tolerations = append(tolerations, ps.Spec.Tolerations...)
	if ps.Assigned != nil {
		tolerations = append(tolerations, ps.Assigned.Tolerations...)
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *ps.Spec})
	f := &nodeFit{windows: windowsOf(r), ps: ps, node: n, plain: len(ps.Shape.Claims) == 0}
	if f.unavailable, f.meant = unavailable(n, affinity, tolerations); f.unavailable != "" && !f.meant {
		f.absentSince = absentSince(n, affinity, tolerations)
	}
	if i := r.Policy.Flavor(flavor); i >= 0 {
		f.devices = d.ofFlavor(d.ofFlavor(nil, r.Policy, n.Devices, i), r.Policy, n.Lost, i)
	}
	return f
}

// tolerations are those of all requests of a pod together.
func (ps *PodSet) tolerations() []resourcev1.DeviceToleration {
	var out []resourcev1.DeviceToleration
	for _, c := range ps.Shape.Claims {
		for _, r := range c.Requests {
			for _, a := range r.Alternatives {
				out = append(out, a.Tolerations...)
			}
		}
	}
	return out
}
