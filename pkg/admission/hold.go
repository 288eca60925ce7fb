package admission

import (
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
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

// Promise is what Holds looks at: the podsets that a Placement promises to a Workload, with the uids of both.
type Promise struct {
	Workload, Placement types.UID
	PodSets             []v1alpha1.PlacementPodSet
}

// Holds says how a promise stands on the accounts, in which it counts as its own. r is the Request that it was decided by.
func Holds(s *ledger.Snapshot, r *Request, p Promise) Hold {
	h := &holding{windows: windowsOf(r), policy: r.Policy, snapshot: s, promise: p, hold: Hold{Keeping: Kept}}
	asked := map[string]ledger.Amounts{}
	for i := range p.PodSets {
		ps := r.podSet(p.PodSets[i].Name)
		if ps == nil {
			h.worse(Broken, v1alpha1.ReasonPodChanged, fmt.Sprintf("podset %s is gone", p.PodSets[i].Name))
			continue
		}
		for j := range p.PodSets[i].Nodes {
			pn := &p.PodSets[i].Nodes[j]
			h.slots(ps, pn)
			if asked[pn.Name] == nil {
				asked[pn.Name] = ledger.Amounts{}
			}
			asked[pn.Name].Add(ps.Requests, int64(pn.Slots))
			h.mapped(ps, pn, asked[pn.Name])
			h.room(pn.Name, asked[pn.Name])
		}
	}
	return h.hold
}

func (r *Request) podSet(name string) *PodSet {
	for i := range r.PodSets {
		if r.PodSets[i].Name == name {
			return &r.PodSets[i]
		}
	}
	return nil
}

// holding is one Holds.
type holding struct {
	*windows
	policy   *flavors.Policy
	snapshot *ledger.Snapshot
	promise  Promise
	hold     Hold
}

// worse takes over what is worse than what was found before.
func (h *holding) worse(k Keeping, reason v1alpha1.Reason, message string) {
	if h.hold.Keeping == Kept || h.hold.Keeping == Coming && k == Broken {
		h.hold.Keeping, h.hold.Reason, h.hold.Message = k, reason, message
	}
}

func (h *holding) note(t time.Time) {
	if t.After(h.now) && (h.hold.Until.IsZero() || t.Before(h.hold.Until)) {
		h.hold.Until = t
	}
}

// slots holds the slots on one node against it and its devices, all at once.
func (h *holding) slots(ps *PodSet, pn *v1alpha1.PlacementNode) {
	s, o := Slot{Node: pn.Name}, Ours{Workload: h.promise.Workload, Placement: h.promise.Placement, Policy: h.policy, Now: h.now}
	n := asServed(h.snapshot.Node(pn.Name), h.policy)
	for _, r := range pn.Requests {
		if r.Claim == v1alpha1.ExtendedResourcesClaim {
			continue // the scheduler chooses which
		}
		for _, name := range r.Devices {
			id, err := ledger.ParseDeviceID(name)
			if err != nil {
				h.worse(Broken, v1alpha1.ReasonDevicesUnhealthy, err.Error())
				continue
			}
			s.Devices = append(s.Devices, id)
			if n == nil {
				continue
			}
			if d := n.Device(id); d != nil {
				for _, holder := range d.Holders {
					h.note(holder.Until)
				}
			}
		}
	}
	t := s.Trouble(h.snapshot, ps, o)
	switch {
	case t == nil:
	case t.Freeing:
		h.worse(Coming, t.Reason, t.Message)
	case t.Lost && h.back(t.Since, onTheWay):
		h.note(t.Since.Add(h.grace))
		h.worse(Coming, t.Reason, t.Message)
		// what a node that comes back would not give is not waited for
		o.snapshot = h.snapshot
		if more := s.deviceTrouble(n, ps, o); more != nil && !more.Freeing && !more.Lost {
			h.worse(Broken, more.Reason, more.Message)
		}
	default:
		h.worse(Broken, t.Reason, t.Message)
	}
}

// mapped adds what the devices that are promised by name on one node take of its own resources.
func (h *holding) mapped(ps *PodSet, pn *v1alpha1.PlacementNode, asked ledger.Amounts) {
	n := h.snapshot.Node(pn.Name)
	if n == nil {
		return
	}
	for _, r := range pn.Requests {
		for _, name := range r.Devices {
			if id, err := ledger.ParseDeviceID(name); err == nil && r.Claim != v1alpha1.ExtendedResourcesClaim {
				if dev := n.Device(id); dev != nil {
					asked.Add(mapsTo(dev, ps.referringTo(r.Claim)), 1)
				}
			}
		}
	}
}

// room holds what all podsets up to one ask of a node against what it has.
func (h *holding) room(node string, asked ledger.Amounts) {
	n := h.snapshot.NodeWithout(node, h.promise.Workload)
	if n == nil {
		return // told by the slots
	}
	f := &nodeFit{windows: h.windows, node: n}
	for _, u := range n.Uses {
		h.note(u.Until)
	}
	k, scarce := f.room(asIs).Times(h.counted(n, asked), 1)
	if k == 1 {
		return
	}
	message := fmt.Sprintf("node %s has not the %s any more that was promised", node, scarce)
	if k, _ := f.room(onTheWay).Times(h.counted(n, asked), 1); k == 1 {
		h.worse(Coming, v1alpha1.ReasonDevicesFreeing, message)
		return
	}
	h.worse(Broken, v1alpha1.ReasonNodeResources, message)
}

// counted leaves out what a DeviceClass serves on the node.
func (h *holding) counted(n *ledger.Node, asked ledger.Amounts) ledger.Amounts {
	out := asked.Clone()
	for name := range asked {
		if h.snapshot.ClassOn(n, name) != nil {
			delete(out, name)
		}
	}
	return out
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
