package release

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// slot is one pod's place in a Placement.
type slot struct {
	podSet, node string
	index        int32
	requests     []admission.Dealt
	// label is the id that the slot's pod was given with it; empty while it has none.
	label string
}

// id names the slot, as the annotation of its template does. One that is written keeps it, whatever the slots beside it
// become.
func (s slot) id() string {
	if s.label != "" {
		return s.label
	}
	return slotID(s.podSet, s.node, s.index)
}

func slotID(podSet, node string, index int32) string {
	return podSet + "/" + node + "/" + strconv.Itoa(int(index))
}

// slotKey tells a slot from the others of its Placement and stays the same when the Placement is amended: a slot is its
// devices, of which no other has any. Those of a node without devices are all alike, so that an index will do.
type slotKey struct {
	podSet, node string
	device       ledger.DeviceID
	index        int32
}

func (s slot) key() slotKey {
	for _, r := range s.requests {
		if len(r.Devices) > 0 {
			return slotKey{podSet: s.podSet, node: s.node, device: r.Devices[0]}
		}
	}
	return slotKey{podSet: s.podSet, node: s.node, index: s.index}
}

func (s slot) ids() []ledger.DeviceID {
	var out []ledger.DeviceID
	for _, r := range s.requests {
		out = append(out, r.Devices...)
	}
	return out
}

// named are the devices that are promised by name, which the pod's claims are cut to. The others are promised by their
// number, for extended resources.
func (s slot) named() []ledger.DeviceID {
	var out []ledger.DeviceID
	for _, r := range s.requests {
		if r.Claim != v1alpha1.ExtendedResourcesClaim {
			out = append(out, r.Devices...)
		}
	}
	return out
}

func (s slot) devices() []string { return names(s.ids()) }

// place is the slot as package admission looks at it.
func (s slot) place() admission.Slot { return admission.Slot{Node: s.node, Devices: s.named()} }

// slotsOf lists the slots of a podset in order of node and index.
func slotsOf(ps *v1alpha1.PlacementPodSet) ([]slot, error) {
	var out []slot
	for n := range ps.Nodes {
		slots, err := admission.Deal(&ps.Nodes[n])
		if err != nil {
			return nil, err
		}
		for i, requests := range slots {
			out = append(out, slot{podSet: ps.Name, node: ps.Nodes[n].Name, index: int32(i), requests: requests})
		}
	}
	return out, nil
}

// errUnlike: the slots of one node do not ask for the same, which a Placement has no words for.
var errUnlike = errors.New("slots of one node are unlike")

// regroup is the inverse of slotsOf: it writes slots by node, in the order given. It also returns the slots as slotsOf
// would list them, in the given order.
func regroup(all []slot) ([]v1alpha1.PlacementNode, []slot, error) {
	byNode := map[string]*v1alpha1.PlacementNode{}
	numbered := make([]slot, len(all))
	for i, s := range all {
		n := byNode[s.node]
		if n == nil {
			n = &v1alpha1.PlacementNode{Name: s.node}
			for _, r := range s.requests {
				n.Requests = append(n.Requests, v1alpha1.PlacementRequest{Claim: r.Claim, Request: r.Request})
			}
			byNode[s.node] = n
		}
		if len(n.Requests) != len(s.requests) {
			return nil, nil, errUnlike
		}
		for j, r := range s.requests {
			to := &n.Requests[j]
			if to.Claim != r.Claim || to.Request != r.Request || len(to.Devices) != int(n.Slots)*len(r.Devices) {
				return nil, nil, errUnlike
			}
			for _, d := range r.Devices {
				to.Devices = append(to.Devices, d.String())
			}
		}
		s.index = n.Slots
		n.Slots++
		numbered[i] = s
	}
	nodes := make([]v1alpha1.PlacementNode, 0, len(byNode))
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		nodes = append(nodes, *byNode[name])
	}
	return nodes, numbered, nil
}
