package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Status counts what is in a book.
type Status struct {
	// Source, Leader, Version, Digest and Time are those of the export.
	Source  ledger.Source `json:"source"`
	Leader  bool          `json:"leader"`
	Version int64         `json:"version"`
	Digest  string        `json:"digest"`
	Time    time.Time     `json:"time"`
	// Flavors are in order of policy and preference; what no flavor takes comes last, under no name.
	Flavors []FlavorCount `json:"flavors"`
	// Nodes are the same by node, in order of the names; nil where that was not asked for.
	Nodes []NodeCount `json:"nodes,omitempty"`
	// Notes say what could not be counted, a sentence each.
	Notes []string `json:"notes,omitempty"`
}

// FlavorCount is the devices of one flavor of one policy.
type FlavorCount struct {
	Policy string `json:"policy"`
	Flavor string `json:"flavor"`
	// Nodes is how many nodes have some.
	Nodes int `json:"nodes"`
	Counts
	// Flags is how many oddities are noted of those nodes.
	Flags int `json:"flags"`
}

// NodeCount is the devices of one flavor on one node.
type NodeCount struct {
	Node   string `json:"node"`
	Policy string `json:"policy"`
	Flavor string `json:"flavor"`
	Counts
	// Why says why devices are unhealthy, stale or not served, each reason once, sorted.
	Why []Why `json:"why,omitempty"`
	// Flags are the oddities that are noted of the node.
	Flags []Flag `json:"flags,omitempty"`
}

// Counts is how many devices there are. Each is in Total and in one of the others.
type Counts struct {
	Total     int64 `json:"total"`
	Free      int64 `json:"free"`
	Held      int64 `json:"held"`
	Reserved  int64 `json:"reserved"`
	Unhealthy int64 `json:"unhealthy"`
	Stale     int64 `json:"stale"`
	// NotServing are those that only their driver keeps from being lent: no pod of it is Ready on the node.
	NotServing int64 `json:"notServing"`
}

// Why is why devices are not lent.
type Why struct {
	State   admission.DeviceState `json:"state"`
	Message string                `json:"message"`
	Devices int64                 `json:"devices"`
}

// Flag is something odd about a node.
type Flag struct {
	Reason  ledger.FlagReason `json:"reason"`
	Object  string            `json:"object,omitempty"`
	Message string            `json:"message"`
}

func (c *Counts) add(state admission.DeviceState, n int64) {
	c.Total += n
	switch state {
	case admission.DeviceFree:
		c.Free += n
	case admission.DeviceHeld:
		c.Held += n
	case admission.DeviceReserved:
		c.Reserved += n
	case admission.DeviceUnhealthy:
		c.Unhealthy += n
	case admission.DeviceStale:
		c.Stale += n
	case admission.DeviceNotServing:
		c.NotServing += n
	}
}

func (c *Counts) addAll(o Counts) {
	c.Total += o.Total
	c.Free += o.Free
	c.Held += o.Held
	c.Reserved += o.Reserved
	c.Unhealthy += o.Unhealthy
	c.Stale += o.Stale
	c.NotServing += o.NotServing
}

// Of counts the devices of an export by the flavors of policies: which flavor takes one is what admission would say, and what
// state it is in as well. An export whose lines do not belong together is an error.
func Of(e *ledger.Export, policies []*flavors.Policy) (*Status, error) {
	s, err := e.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("the export does not add up: %w", err)
	}
	c := &counter{
		Snapshot: s, now: e.Header.Time, decider: &admission.Decider{Matcher: flavors.NewMatcher()},
		claimed: map[ledger.DeviceID]bool{}, flags: map[string][]Flag{},
	}
	for i := range e.Entries {
		if l, ok := e.Entries[i].Line.(*ledger.FlagLine); ok {
			c.flags[l.Node] = append(c.flags[l.Node], Flag{l.Reason, l.Object, l.Message})
		}
	}
	for _, n := range s.Nodes() {
		for _, f := range c.decider.Flags(s, n) {
			c.flags[n.Name] = append(c.flags[n.Name], Flag{f.Reason, f.Object, f.Message})
		}
	}
	h := &e.Header
	out := &Status{Source: h.Source, Leader: h.Leader, Version: h.Version, Digest: h.Digest, Time: h.Time, Flavors: []FlavorCount{}}
	for _, p := range policies {
		seen := map[ledger.DeviceID]bool{}
		first := len(out.Flavors)
		for i := range p.Flavors {
			out.Flavors = append(out.Flavors, FlavorCount{Policy: p.Name, Flavor: p.Flavors[i].Name})
		}
		for _, n := range s.Nodes() {
			c.ofNode(p, n, out.Flavors[first:], seen, &out.Nodes)
		}
	}
	c.ofNobody(out)
	slices.SortStableFunc(out.Nodes, func(a, b NodeCount) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
}

// counter counts one snapshot.
type counter struct {
	*ledger.Snapshot
	now     time.Time
	decider *admission.Decider
	// claimed are the devices that a flavor of any policy takes.
	claimed map[ledger.DeviceID]bool
	flags   map[string][]Flag
}

// tally is what of one flavor is on one node.
type tally struct {
	Counts
	// once is what of it no other node has counted.
	once Counts
	why  map[Why]int64
}

func (t *tally) add(state admission.DeviceState, why string, n int64, again bool) {
	if n == 0 {
		return
	}
	t.Counts.add(state, n)
	if !again {
		t.once.add(state, n)
	}
	if why != "" {
		if t.why == nil {
			t.why = map[Why]int64{}
		}
		t.why[Why{State: state, Message: why}] += n
	}
}

// ofNode counts one node's devices for one policy. seen are the devices that other nodes have counted: several may have the
// use of one.
func (c *counter) ofNode(p *flavors.Policy, n *ledger.Node, into []FlavorCount, seen map[ledger.DeviceID]bool, nodes *[]NodeCount) {
	tallies := make([]tally, len(p.Flavors))
	plugged, served := c.decider.Plugged(c.Snapshot, n), map[corev1.ResourceName]int{}
	if name := corev1.ResourceName(p.Spec.QuotaResource); ledger.IsExtended(name) && n.Allocatable[name] > 0 {
		if f := slices.IndexFunc(p.Flavors, func(f flavors.Flavor) bool {
			return len(f.NodeLabels) > 0 && labels.SelectorFromSet(f.NodeLabels).Matches(labels.Set(n.Object.Labels))
		}); f >= 0 {
			served[name] = f
		}
	}
	type found struct {
		dev *ledger.Device
		of  int
	}
	var own []found
	for _, dev := range devicesOf(n) {
		f := c.decider.Matcher.FlavorOf(p, dev)
		if f < 0 {
			continue
		}
		c.claimed[dev.ID] = true
		if name, ok := plugged[dev]; ok {
			if _, known := served[name]; !known {
				served[name] = f
			}
			continue
		}
		own = append(own, found{dev, f})
	}
	plugs := map[int]bool{}
	for name, f := range served {
		plugs[f] = true
		c.ofPlugin(n, name, &tallies[f])
	}
	for _, x := range own {
		if plugs[x.of] {
			continue // the same cards, which the plugin has
		}
		state, why := admission.StateOf(n, x.dev, p, c.now)
		tallies[x.of].add(state, why, 1, seen[x.dev.ID])
		seen[x.dev.ID] = true
	}
	for f := range tallies {
		t := &tallies[f]
		if t.Total == 0 {
			continue
		}
		into[f].Nodes++
		into[f].addAll(t.once)
		into[f].Flags += len(c.flags[n.Name])
		*nodes = append(*nodes, c.row(n, p.Name, p.Flavors[f].Name, t))
	}
}

func (c *counter) row(n *ledger.Node, policy, flavor string, t *tally) NodeCount {
	row := NodeCount{Node: n.Name, Policy: policy, Flavor: flavor, Counts: t.Counts, Flags: c.flags[n.Name]}
	for w, devices := range t.why {
		w.Devices = devices
		row.Why = append(row.Why, w)
	}
	slices.SortFunc(row.Why, func(a, b Why) int { return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Message, b.Message)) })
	return row
}

// ofPlugin counts what a device plugin serves on a node.
func (c *counter) ofPlugin(n *ledger.Node, name corev1.ResourceName, t *tally) {
	var held, reserved int64
	for i := range n.Uses {
		u := &n.Uses[i]
		if u.Placement != "" {
			reserved += u.Requests[name] * u.Times
		} else {
			held += u.Requests[name] * u.Times
		}
	}
	total := n.Allocatable[name]
	held = min(max(held, 0), total)
	reserved = min(max(reserved, 0), total-held)
	state, why := admission.NodeState(n)
	t.add(admission.DeviceHeld, "", held, false)
	t.add(admission.DeviceReserved, "", reserved, false)
	t.add(state, why, total-held-reserved, false)
}

// devicesOf returns the devices of a node: those that can be lent, those that were lost, and those that pools show which do not
// lend. Each is there once.
func devicesOf(n *ledger.Node) []*ledger.Device {
	var out []*ledger.Device
	known := map[ledger.DeviceID]bool{}
	for _, list := range [][]ledger.Device{n.Devices, n.Withheld, n.Lost} {
		for i := range list {
			if d := &list[i]; !known[d.ID] {
				known[d.ID] = true
				out = append(out, d)
			}
		}
	}
	for i := range n.Pools {
		p := &n.Pools[i]
		if p.State == ledger.PoolFresh {
			continue
		}
		for _, s := range p.Slices {
			for k := range s.Spec.Devices {
				id := ledger.DeviceID{Driver: p.Driver, Pool: p.Name, Device: s.Spec.Devices[k].Name}
				if !known[id] {
					known[id] = true
					out = append(out, &ledger.Device{ID: id, Slice: s, Spec: &s.Spec.Devices[k], Taints: s.Spec.Devices[k].Taints})
				}
			}
		}
	}
	return out
}

// ofNobody counts the devices that no flavor of any policy takes.
func (c *counter) ofNobody(out *Status) {
	row, seen := FlavorCount{}, map[ledger.DeviceID]bool{}
	for _, n := range c.Nodes() {
		t := tally{}
		plugged := c.decider.Plugged(c.Snapshot, n)
		for _, dev := range devicesOf(n) {
			if _, twice := plugged[dev]; twice || c.claimed[dev.ID] {
				continue
			}
			state, why := admission.StateOf(n, dev, nil, c.now)
			t.add(state, why, 1, seen[dev.ID])
			seen[dev.ID] = true
		}
		if t.Total > 0 {
			row.Nodes++
			row.addAll(t.once)
			row.Flags += len(c.flags[n.Name])
			out.Nodes = append(out.Nodes, c.row(n, "", "", &t))
		}
	}
	if row.Total > 0 {
		out.Flavors = append(out.Flavors, row)
	}
}

// Only keeps the rows of nodes where they were asked for: all, or those of one, which must exist.
func (s *Status) Only(node string, all bool) error {
	switch {
	case node != "":
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n NodeCount) bool { return n.Node != node })
		if len(s.Nodes) == 0 {
			return fmt.Errorf("node %s has no device in the ledger", node)
		}
	case !all:
		s.Nodes = nil
	}
	return nil
}
