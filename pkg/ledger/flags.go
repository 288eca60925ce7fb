package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Flags returns what is odd about a node, sorted by reason, object and message: what is listed or held twice, drawn on beyond
// its total, or cannot be. What is lent is settled by a rule in each case, which the message tells.
func (n *Node) Flags() []Flag {
	if n.told != nil {
		return n.told.flags
	}
	flags := slices.Concat(n.twice(), n.misnoted(), n.splits(), n.overdrawn(), n.impossible(), n.stops())
	slices.SortFunc(flags, func(x, y Flag) int {
		return cmp.Or(cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Object, y.Object), cmp.Compare(x.Message, y.Message))
	})
	return slices.Compact(flags)
}

// splits flags cards that are listed whole and in parts without counters.
func (n *Node) splits() []Flag {
	if !n.split {
		return nil
	}
	parts := map[DeviceID]int{}
	for i := range n.Devices {
		if whole := n.Devices[i].whole; whole != (DeviceID{}) {
			parts[whole]++
		}
	}
	var flags []Flag
	for whole, count := range parts {
		flags = append(flags, Flag{Reason: FlagListedTwice, Object: whole.String(),
			Message: fmt.Sprintf("device %s is listed whole and in %d parts, and no counters tell them apart: it lends its parts alone", whole, count)})
	}
	return flags
}

// overdrawn flags counters, capacities and resources of which more is held than there is.
func (n *Node) overdrawn() []Flag {
	var flags []Flag
	add := func(object, format string, args ...any) {
		flags = append(flags, Flag{Reason: FlagOverdrawn, Object: object, Message: fmt.Sprintf(format, args...)})
	}
	for _, c := range n.Counters() {
		if c.Used.Cmp(c.Total) > 0 {
			add(c.Driver+"/"+c.Pool, "counter %s of %s in pool %s: %s of %s are drawn", c.Name, c.Set, c.Pool, c.Used.String(), c.Total.String())
		}
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		if !d.Multiple() || len(d.Holders) == 0 {
			continue
		}
		used := Consumption{}
		for j := range d.Holders {
			used.Add(d.Holders[j].Consumed)
		}
		for _, name := range slices.Sorted(maps.Keys(d.Spec.Capacity)) {
			if u, all := used[name], d.Spec.Capacity[name].Value; u.Cmp(all) > 0 {
				add(d.ID.String(), "capacity %s of device %s: %s of %s are consumed", name, d.ID, u.String(), all.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Free)) {
		if n.Free[name] < 0 {
			add("", "%s: %d are asked for beyond the %d that the node lists", name, -n.Free[name], n.Allocatable[name])
		}
	}
	return flags
}

// impossible flags pools and devices whose slices list what cannot be.
func (n *Node) impossible() []Flag {
	var flags []Flag
	for i := range n.Pools {
		if p := &n.Pools[i]; p.State == PoolImpossible && !n.Stopped.by(p) {
			flags = append(flags, Flag{Reason: FlagImpossible, Object: p.Driver + "/" + p.Name, Message: fmt.Sprintf("pool %s of %s is kept out: %s", p.Name, p.Driver, p.Problem)})
		}
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		if d.Unusable == "" || d.WholeOf(n) {
			continue
		}
		flags = append(flags, Flag{Reason: FlagImpossible, Object: d.ID.String(), Message: fmt.Sprintf("device %s is kept out: %s", d.ID, d.Unusable)})
	}
	return flags
}

// WholeOf says whether the device is a card that other devices of the node are parts of, without counters.
func (d *Device) WholeOf(n *Node) bool {
	return n.split && slices.ContainsFunc(n.Devices, func(x Device) bool { return x.whole == d.ID })
}
