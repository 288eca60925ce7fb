package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// accounts writes out all that a snapshot says but what depends on how it came to be, in an order of its own.
func accounts(s *Snapshot) string {
	var out strings.Builder
	for _, n := range s.Nodes() {
		out.WriteString(account(n))
	}
	for _, c := range s.DeviceClasses() {
		fmt.Fprintf(&out, "class %s %s\n", c.Name, c.UID)
	}
	return out.String()
}

// known is what everybody knows, whenever it started.
func known(s *Snapshot) string {
	var out strings.Builder
	for _, n := range s.Nodes() {
		out.WriteString(listing(n.asListed()))
	}
	for _, c := range s.DeviceClasses() {
		fmt.Fprintf(&out, "class %s %s\n", c.Name, c.UID)
	}
	return out.String()
}

func regressed(n *Node) bool {
	return slices.ContainsFunc(n.Pools, func(p Pool) bool { return p.State == PoolRegressed })
}

// account is one node's part of accounts.
func account(n *Node) string { return listing(n) + sums(n) }

// listing is what a node lists, whether or not a pool of it lends nothing for what it was before.
func listing(n *Node) string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("node %s %s host %q ready %t cordoned %t unallocated %d", n.Name, n.Object.UID, n.Hostname, n.Ready, n.Object.Spec.Unschedulable, n.Unallocated)
	line(" allocatable %s free %s managed %s mapped %s", amounts(n.Allocatable), amounts(n.Free), amounts(n.Managed), amounts(n.Mapped))
	if n.Stopped != nil {
		line(" stopped: %s", n.Stopped.Message)
	}
	var uses []string
	for _, u := range n.Uses {
		if u.Times == 0 || amounts(u.Requests) == "{}" { // of nothing
			continue
		}
		uses = append(uses, fmt.Sprintf(" use %s %s ×%d freeing %t %s\n", u.Workload, amounts(u.Requests), u.Times, u.Freeing, u.Until.UTC()))
	}
	slices.Sort(uses)
	out.WriteString(strings.Join(uses, ""))
	for _, p := range n.Pools {
		if p.State == PoolRegressed {
			p.State = PoolFresh
		}
		line(" pool %s/%s %d %s of %d slices", p.Driver, p.Name, p.Generation, p.State, len(p.Slices))
	}
	listed := n.Listed()
	for i := range listed {
		line(" %s", deviceLine(&listed[i]))
	}
	for _, a := range n.Agents {
		line(" agent %s/%s %v %t", a.Namespace, a.Name, a.Labels, a.Serving)
	}
	return out.String()
}

// sums is what follows from a node's listing.
func sums(n *Node) string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	for _, c := range n.Counters() {
		line(" counter %s/%s %s %s %s of %s", c.Driver, c.Pool, c.Set, c.Name, c.Used.String(), c.Total.String())
	}
	for _, z := range n.Zones() {
		line(" zone %d: %d of %d devices, %s of %s", z.Number, z.FreeDevices, z.Devices, amounts(z.Free), amounts(z.Allocatable))
	}
	for _, f := range n.Flags() {
		line(" flag %s %s: %s", f.Reason, f.Object, f.Message)
	}
	return out.String()
}

func deviceLine(d *Device) string {
	var out strings.Builder
	fmt.Fprintf(&out, "device %s of %s unusable %q wide %t cover %q", d.ID, d.Slice.UID, d.Unusable, d.Wide, d.Cover)
	for _, t := range d.Taints {
		fmt.Fprintf(&out, " taint %s=%s:%s", t.Key, t.Value, t.Effect)
	}
	if d.Mappings != nil {
		fmt.Fprintf(&out, " maps %s %q", d.Mappings.Rules, d.Mappings.Problem)
		for _, m := range d.Mappings.List {
			fmt.Fprintf(&out, " %s:%s:%s:%s:%s", m.Resource, m.Capacity, m.Multiplier.String(), m.PerPod.String(), m.PerContainer.String())
		}
	}
	for _, h := range d.Holders {
		fmt.Fprintf(&out, " held by %s %s %s/%s for %q managed %t by number %q share %q of %s freeing %t %s",
			h.Kind, h.UID, h.Namespace, h.Name, h.Workload, h.Managed, h.Resource, h.Share, consumed(h.Consumed), h.Freeing, h.Until.UTC())
	}
	return out.String()
}

// amounts leaves out what is zero.
func amounts(a Amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != 0 {
			parts = append(parts, fmt.Sprintf("%s:%d", name, a[name]))
		}
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func consumed(c Consumption) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		q := c[name]
		parts = append(parts, string(name)+":"+q.String())
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// difference is the first line in which two texts differ, either way; empty for none.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var x, y string
		if i < len(g) {
			x = g[i]
		}
		if i < len(w) {
			y = w[i]
		}
		if x != y {
			return fmt.Sprintf("line %d\n is: %s\nnot: %s", i, x, y)
		}
	}
	return ""
}

// memories is what a node's part of accounts leaves out: what depends on how it came to be.
func memories(n *Node) string {
	var out strings.Builder
	for _, list := range [][]Device{n.Lost, n.Withheld, n.Elsewhere} {
		for i := range list {
			fmt.Fprintf(&out, " lost %s\n", deviceLine(&list[i]))
		}
	}
	for _, p := range n.Pools {
		fmt.Fprintf(&out, " pool %s/%s %s\n", p.Driver, p.Name, p.State)
	}
	for _, a := range n.AgentsGone {
		fmt.Fprintf(&out, " gone %s/%s\n", a.Namespace, a.Name)
	}
	return out.String()
}

// afresh is what a book says if it remembers nothing of what it worked out before.
func (b *Book) afresh() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b.nodeByName)) {
		if n := b.view(name); n != nil {
			out.WriteString(account(n) + memories(n))
		}
	}
	return out.String()
}

// written is the same of its snapshot.
func (s *Snapshot) written() string {
	var out strings.Builder
	for _, n := range s.Nodes() {
		out.WriteString(account(n) + memories(n))
	}
	return out.String()
}

// sum adds up what zones say.
func sum(zones []Zone, of func(*Zone) Amounts) Amounts {
	total := Amounts{}
	for i := range zones {
		total.Add(of(&zones[i]), 1)
	}
	return total
}

// consumedOf adds up what all holders of a device take of its capacities.
func consumedOf(d *Device) Consumption {
	total := Consumption{}
	for _, h := range d.Holders {
		for name, q := range h.Consumed {
			have := total[name].DeepCopy()
			have.Add(q)
			total[name] = have
		}
	}
	return total
}

// drawn adds up what the devices of a node that are held draw of a pool's counters.
func drawnOf(n *Node, c *Counter) resource.Quantity {
	var total resource.Quantity
	for i := range n.Devices {
		d := &n.Devices[i]
		if d.Free() || d.ID.Driver != c.Driver || d.ID.Pool != c.Pool {
			continue
		}
		for _, from := range d.Spec.ConsumesCounters {
			if q, ok := from.Counters[c.Name]; ok && from.CounterSet == c.Set {
				total.Add(q.Value)
			}
		}
	}
	return total
}

// flagged says whether a node has a flag for a reason.
func flagged(n *Node, reason FlagReason) bool {
	return slices.ContainsFunc(n.Flags(), func(f Flag) bool { return f.Reason == reason })
}
