package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// properties hold in every world, by what they say.
var properties = map[string]property{
	"AnyOrderAndRepetitionGivesOneDigest": anyOrderAndRepetitionGivesOneDigest,
	"LiveEqualsColdRebuild":               liveEqualsColdRebuild,
	"WhatIsRememberedIsWhatIsWorkedOut":   whatIsRememberedIsWhatIsWorkedOut,
	"ZonesAddUpToTheirNode":               zonesAddUpToTheirNode,
	"NothingIsFreeTwice":                  nothingIsFreeTwice,
	"NothingIsDrawnOnBeyondItsTotal":      nothingIsDrawnOnBeyondItsTotal,
	"ReleaseUndoesReserveExactly":         releaseUndoesReserveExactly,
	"ASnapshotStaysAsItWas":               aSnapshotStaysAsItWas,
	"ReturnedUndoesWith":                  returnedUndoesWith,
	"WithoutLeavesNothingOfTheirs":        withoutLeavesNothingOfTheirs,
	"UnlikeAccountsHaveUnlikeDigests":     unlikeAccountsHaveUnlikeDigests,
	"WhatPodsAskForIsTaken":               whatPodsAskForIsTaken,
	"SharesTakeWhatTheyConsume":           sharesTakeWhatTheyConsume,
	"EveryRuleTaintsWhatItSelects":        everyRuleTaintsWhatItSelects,
	"WhatIsPromisedStaysHeld":             whatIsPromisedStaysHeld,
}

func TestWorlds(t *testing.T) {
	for _, name := range propertyNames() {
		t.Run(name, func(t *testing.T) { always(t, properties[name]) })
	}
}

func propertyNames() []string { return slices.Sorted(maps.Keys(properties)) }

// history is a world as it is seen, and as a process that starts at its end sees it.
func history(t *rapid.T) (all, last []Observation) {
	w := worldOf(drawing{t})
	return w.all, w.cold()
}

func anyOrderAndRepetitionGivesOneDigest(t failer, w *world) {
	cold := bookOf(w.cold()...).Snapshot()
	r := w.order()
	shuffled := append(append([]Observation{}, w.all...), w.all...)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	b := New()
	for _, o := range shuffled {
		b.Apply(o)
		if r.IntN(4) == 0 {
			b.Snapshot() // work out part of the accounts on the way, as a live book does
		}
	}
	same(t, b.Snapshot(), cold)
}

func liveEqualsColdRebuild(t failer, w *world) {
	r := w.order()
	b := New()
	for _, o := range w.live() {
		for range 1 + r.IntN(2) {
			b.Apply(o)
		}
		if r.IntN(3) == 0 {
			b.Snapshot()
		}
	}
	cold := w.cold()
	r.Shuffle(len(cold), func(i, j int) { cold[i], cold[j] = cold[j], cold[i] })
	same(t, b.Snapshot(), bookOf(cold...).Snapshot())
}

func same(t failer, got, want *Snapshot) {
	t.Helper()
	if d := difference(known(got), known(want)); d != "" {
		t.Fatalf("the accounts of a cold rebuild are others: %s", d)
	}
	for _, n := range got.Nodes() {
		if d := difference(sums(n.asListed()), sums(want.Node(n.Name).asListed())); d != "" && len(n.Lost) == 0 && !regressed(n) {
			t.Fatalf("what follows from the accounts of a cold rebuild is other: %s", d)
		}
	}
	if g, w := got.Digest(), want.Digest(); g != w {
		t.Fatalf("digest %s, and %s of a cold rebuild with the same accounts: %s\n%s", g, w, difference(digested(got), digested(want)), accounts(got))
	}
}

// digested is what a digest is of.
func digested(s *Snapshot) string {
	var out strings.Builder
	for _, l := range s.lines() {
		if !l.History() {
			out.Write(bytesOf(l))
		}
	}
	return out.String()
}

// whatIsRememberedIsWhatIsWorkedOut: a node whose accounts an observation touches is worked out anew, whichever it is.
func whatIsRememberedIsWhatIsWorkedOut(t failer, w *world) {
	b := New()
	before := b.afresh()
	for _, o := range w.live() {
		outcome, changed := b.Apply(o)
		after := b.afresh()
		if d := difference(after, before); d != "" && !changed {
			t.Fatalf("%s %s version %d was %s and changed nothing, yet %s", o.Ref.Kind, o.Ref.UID, o.Ref.ResourceVersion, outcome, d)
		}
		if d := difference(b.Snapshot().written(), after); d != "" {
			t.Fatalf("%s %s version %d leaves accounts as they were: %s", o.Ref.Kind, o.Ref.UID, o.Ref.ResourceVersion, d)
		}
		before = after
	}
}

func zonesAddUpToTheirNode(t failer, w *world) {
	for _, n := range bookOf(w.live()...).Snapshot().Nodes() {
		zones := n.Zones()
		for what, pair := range map[string][2]Amounts{
			"allocatable": {sum(zones, func(z *Zone) Amounts { return z.Allocatable }), n.Allocatable},
			"free":        {sum(zones, func(z *Zone) Amounts { return z.Free }), n.Free},
		} {
			if got, want := amounts(pair[0]), amounts(pair[1]); got != want {
				t.Fatalf("%s of the zones of node %s is %s, of the node %s", what, n.Name, got, want)
			}
		}
		var devices, free, freeOfZones, ofZones int
		for i := range n.Devices {
			if devices++; n.Devices[i].Free() {
				free++
			}
		}
		for i, z := range zones {
			if ofZones, freeOfZones = ofZones+z.Devices, freeOfZones+z.FreeDevices; i > 0 && z.Number <= zones[i-1].Number {
				t.Fatalf("zone %d of node %s comes after %d", z.Number, n.Name, zones[i-1].Number)
			}
		}
		if devices != ofZones || free != freeOfZones {
			t.Fatalf("node %s has %d devices, %d free, and its zones %d and %d", n.Name, devices, free, ofZones, freeOfZones)
		}
	}
}

// nothingIsFreeTwice: what a claim has is held wherever it can be used from, by that claim, and every device is listed once.
func nothingIsFreeTwice(t failer, w *world) {
	s := bookOf(w.live()...).Snapshot()
	frees := map[DeviceID]bool{}
	for _, n := range s.Nodes() {
		for i := range n.Devices {
			d := &n.Devices[i]
			if i > 0 && compareDeviceIDs(n.Devices[i-1].ID, d.ID) >= 0 {
				t.Fatalf("device %s is listed twice or out of order", d.ID)
			}
			if free, known := frees[d.ID]; known && free != d.Free() {
				t.Fatalf("device %s is free on one node and held on another:\n%s", d.ID, account(n))
			}
			frees[d.ID] = d.Free()
			for _, o := range w.cold() {
				if o.Claim != nil && o.Claim.has(d.ID) != heldBy(d, HolderClaim, o.Ref.UID) {
					t.Fatalf("claim %s has device %s: %t, and holds it on node %s: %t", o.Ref.UID, d.ID, o.Claim.has(d.ID), n.Name, !o.Claim.has(d.ID))
				}
			}
		}
		freeOnce(t, n)
	}
}

// freeOnce: of a card that is listed whole and in parts, what is held covers the other.
func freeOnce(t failer, n *Node) {
	for i := range n.Devices {
		part := &n.Devices[i]
		parent := part.Spec.Attributes["parentUUID"].StringValue
		if parent == nil || len(part.Spec.ConsumesCounters) > 0 {
			continue
		}
		for j := range n.Devices {
			whole := &n.Devices[j]
			uuid := whole.Spec.Attributes["uuid"].StringValue
			if i == j || uuid == nil || *uuid != *parent || whole.ID.Driver != part.ID.Driver || len(whole.Spec.ConsumesCounters) > 0 {
				continue
			}
			for _, pair := range [][2]*Device{{whole, part}, {part, whole}} {
				if !pair[0].Free() && pair[1].Cover == "" && pair[1].Unusable == "" {
					t.Fatalf("device %s is held, and %s of the same card can be given", pair[0].ID, pair[1].ID)
				}
			}
		}
	}
}

func (c *Claim) has(id DeviceID) bool {
	for _, d := range c.Allocated {
		if d == id {
			return true
		}
	}
	for _, s := range c.Shares {
		if s.Device == id {
			return true
		}
	}
	return false
}

func heldBy(d *Device, kind HolderKind, uid types.UID) bool {
	for _, h := range d.Holders {
		if h.Kind == kind && h.UID == uid {
			return true
		}
	}
	return false
}

// nothingIsDrawnOnBeyondItsTotal, unless the world itself did so, which is flagged.
func nothingIsDrawnOnBeyondItsTotal(t failer, w *world) {
	for _, n := range bookOf(w.live()...).Snapshot().Nodes() {
		over := ""
		for _, c := range n.Counters() {
			if c.Used.Cmp(c.Total) > 0 {
				over = fmt.Sprintf("counter %s of pool %s", c.Name, c.Pool)
			}
			if drawn := drawnOf(n, &c); drawn.Cmp(c.Used) > 0 {
				t.Fatalf("devices on node %s that are held draw %s of counter %s of pool %s, of which %s is used", n.Name, drawn.String(), c.Name, c.Pool, c.Used.String())
			}
		}
		for i := range n.Devices {
			d := &n.Devices[i]
			for name, q := range consumedOf(d) {
				if total := d.Spec.Capacity[name].Value; d.Multiple() && q.Cmp(total) > 0 {
					over = fmt.Sprintf("capacity %s of device %s", name, d.ID)
				}
			}
		}
		for name, v := range n.Free {
			if v < 0 {
				over = "resource " + string(name)
			}
		}
		if (over != "") != flagged(n, FlagOverdrawn) {
			t.Fatalf("node %s: drawn on beyond its total is %q, and flags are %v:\n%s", n.Name, over, n.Flags(), account(n))
		}
	}
}

// releaseUndoesReserveExactly: a reservation that comes and goes leaves nothing.
func releaseUndoesReserveExactly(t failer, w *world) {
	b := bookOf(w.all...)
	before, digest := accounts(b.Snapshot()), b.Snapshot().Digest()
	reserved, promised := seeWorkload("new", 1_000_000, 500), seePlacement("new", 1_000_001, 500, w.nodeName(), 1, w.anyDevice(), w.anyDevice())
	for _, o := range []Observation{reserved, promised, gone(promised), gone(reserved)} {
		b.Apply(o)
		b.Snapshot()
	}
	if d := difference(accounts(b.Snapshot()), before); d != "" {
		t.Fatalf("a reservation that came and went left %s", d)
	}
	if got := b.Snapshot().Digest(); got != digest {
		t.Fatalf("digest %s after a reservation came and went, %s before", got, digest)
	}
}

func aSnapshotStaysAsItWas(t failer, w *world) {
	b := New()
	var shots []*Snapshot
	var were []string
	for _, o := range w.live() {
		b.Apply(o)
		s := b.Snapshot()
		shots, were = append(shots, s), append(were, accounts(s))
	}
	for i, s := range shots {
		if d := difference(accounts(s), were[i]); d != "" {
			t.Fatalf("snapshot %d of %d has changed since it was taken: %s", i, len(shots), d)
		}
		for _, n := range s.Nodes() {
			if s.Node(n.Name) != n {
				t.Fatalf("node %s by name is not the one that is listed", n.Name)
			}
			if i > 0 && shots[i-1].Node(n.Name) != n && shots[i-1].Version == s.Version {
				t.Fatalf("node %s was worked out anew though nothing changed", n.Name)
			}
		}
	}
}

// whatIsPromisedStaysHeld: what devices map to that are promised on a node is not less because any slice goes.
func whatIsPromisedStaysHeld(t failer, w *world) {
	seen := w.live()
	for _, goes := range w.cold() {
		if goes.Slice == nil {
			continue
		}
		b := bookOf(seen...)
		want := map[string]map[types.UID]Amounts{}
		for _, n := range b.Snapshot().Nodes() {
			want[n.Name] = map[types.UID]Amounts{}
			for i := range n.Devices {
				d := &n.Devices[i]
				for j := range d.Holders {
					if h := &d.Holders[j]; d.takes(j, n.Name) && remembers(b, d, n.Name) {
						sum := want[n.Name][h.Workload].Clone()
						sum.Add(d.Maps(h.Consumed, 1), 1)
						want[n.Name][h.Workload] = sum
					}
				}
			}
		}
		b.Apply(gone(goes))
		for _, n := range b.Snapshot().Nodes() {
			held := map[types.UID]Amounts{}
			for _, u := range n.Uses {
				if u.mapped {
					sum := held[u.Workload].Clone()
					sum.Add(u.Requests, u.Times)
					held[u.Workload] = sum
				}
			}
			for workload, of := range want[n.Name] {
				for name, v := range n.Counted(of) {
					if held[workload][name] < v {
						t.Fatalf("slice %s goes, and of %d %s that devices of Workload %q map to on node %s, %d are held:\n%s",
							goes.Slice.Name, v, name, workload, n.Name, held[workload][name], account(n))
					}
				}
			}
		}
	}
}

// remembers says that what a device of a complete pool maps to is held when its pool loses a slice. Pools of one node are so
// always, those of several nodes while all their slices are of one generation and as many as they say. Not held is what is
// listed in two generations that are complete on one node each, as the newer is not for all nodes of the older, or in more
// slices than they say, as not all are for the node: one generation is remembered for all nodes, and the other takes its place.
func remembers(b *Book, d *Device, node string) bool {
	id := pool{d.ID.Driver, d.ID.Pool}
	several := false
	for uid := range b.slicesOf[id].all() {
		several = several || b.slices[uid].home() != node
	}
	newest, whole := b.whole(id)
	return !several || whole && len(newest) == b.slicesOf[id].len()
}

// everyRuleTaintsWhatItSelects, on every node that may use the device, and nothing else.
func everyRuleTaintsWhatItSelects(t failer, w *world) {
	for _, n := range bookOf(w.live()...).Snapshot().Nodes() {
		listed := n.Listed()
		for i := range listed {
			d := &listed[i]
			want := len(d.Spec.Taints)
			for _, o := range w.cold() {
				if r := o.TaintRule; r != nil && !r.None && (r.Driver == "" || r.Driver == d.ID.Driver) && (r.Pool == "" || r.Pool == d.ID.Pool) &&
					(r.Device == "" || r.Device == d.ID.Device) {
					want++
				}
			}
			if len(d.Taints) != want {
				t.Fatalf("device %s on node %s has taints %v, want %d", d.ID, n.Name, d.Taints, want)
			}
		}
	}
}

// whatPodsAskForIsTaken: nothing of what pods on a node ask for is free, those that are ending and those that Kueue does not
// know too.
func whatPodsAskForIsTaken(t failer, w *world) {
	s := bookOf(w.live()...).Snapshot()
	for _, n := range s.Nodes() {
		left := n.Allocatable.Clone()
		for _, o := range w.cold() {
			if o.Pod != nil && o.Pod.Node == n.Name {
				left.Add(n.Counted(o.Pod.Requests), -1)
			}
		}
		for name, v := range left {
			if n.Free[name] > v {
				t.Fatalf("%d of %s is free on node %s, whose pods leave %d:\n%s", n.Free[name], name, n.Name, v, account(n))
			}
		}
	}
}

// sharesTakeWhatTheyConsume of a device's capacities, each once.
func sharesTakeWhatTheyConsume(t failer, w *world) {
	for _, n := range bookOf(w.live()...).Snapshot().Nodes() {
		for i := range n.Devices {
			d := &n.Devices[i]
			want := Consumption{}
			for _, o := range w.cold() {
				if o.Claim == nil {
					continue
				}
				for _, s := range o.Claim.Shares {
					if s.Device == d.ID {
						want.Add(s.Consumed)
					}
				}
			}
			got := consumedOf(d)
			for name, q := range want {
				if have := got[name]; have.Cmp(q) < 0 {
					t.Fatalf("shares take %s of %s of device %s, of which its holders have %s", q.String(), name, d.ID, have.String())
				}
			}
		}
	}
}

// unlikeAccountsHaveUnlikeDigests: what changes the accounts changes their digest.
func unlikeAccountsHaveUnlikeDigests(t failer, w *world) {
	b := New()
	was, digest := known(b.Snapshot()), b.Snapshot().Digest()
	for _, o := range w.live() {
		b.Apply(o)
		s := b.Snapshot()
		is := known(s)
		if is != was && s.Digest() == digest {
			t.Fatalf("%s %s version %d changes accounts and not their digest: %s", o.Ref.Kind, o.Ref.UID, o.Ref.ResourceVersion, difference(is, was))
		}
		was, digest = is, s.Digest()
	}
}
