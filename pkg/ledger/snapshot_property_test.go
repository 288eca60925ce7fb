package ledger

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// returnedUndoesWith: whatever a holder takes of a cluster and gives back, the accounts are those of before, on other nodes
// too; what it takes meanwhile is what it asks for and what its devices map to.
func returnedUndoesWith(t failer, w *world) {
	s := bookOf(w.live()...).Snapshot()
	before := accounts(s)
	var taken []PodSetClaim
	for range 1 + w.upTo("claims", 2) {
		c := PodSetClaim{Node: w.nodeName(), Slots: int32(1 + w.upTo("slots", 2)), Requests: Amounts{"cpu": int64(1000 * w.upTo("cpu", 5)), "pods": 1}}
		for range w.upTo("devices", 3) {
			c.Devices = append(c.Devices, w.anyDevice())
		}
		taken = append(taken, c)
	}
	with := s.With(Holder{Kind: HolderPlacement, UID: "new", Workload: "new", Managed: true}, taken)
	held := accounts(with)
	for _, c := range taken {
		takes(t, s, with, c)
	}
	back := accounts(with.Returned("new", taken))
	if d := difference(withoutUses(back), withoutUses(before)); d != "" {
		t.Fatalf("what %v took and gave back left %s", taken, d)
	}
	if d := difference(accounts(s), before) + difference(accounts(with), held); d != "" {
		t.Fatalf("a snapshot changed: %s", d)
	}
}

// takes holds a promise against what it leaves: nobody has its devices free any more, on whatever node, and its node has as
// much less as all promises there take.
func takes(t failer, s, with *Snapshot, c PodSetClaim) {
	t.Helper()
	n := s.Node(c.Node)
	if n == nil {
		return
	}
	for _, id := range c.Devices {
		if n.Device(id) == nil {
			continue
		}
		for _, other := range with.Nodes() {
			if d := other.Device(id); d != nil && (d.Free() || !heldBy(d, HolderPlacement, "new")) {
				t.Fatalf("device %s of node %s is promised on node %s and held by %v", id, other.Name, c.Node, d.Holders)
			}
		}
		least := c.Requests.Clone()
		for name, m := range n.Device(id).Spec.NodeAllocatableResourceMappings {
			if m.CapacityKey == nil {
				least.Add(AmountsOf(corev1.ResourceList{name: *m.AllocationMultiplier}), 1)
			}
		}
		for name, v := range least {
			if left := with.Node(c.Node).Free[name]; left > n.Free[name]-v {
				t.Fatalf("%d of %s is left of %d on node %s, though device %s and a pod take %d", left, name, n.Free[name], c.Node, id, v)
			}
		}
	}
}

// withoutUses leaves out what is taken by whom.
func withoutUses(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " use ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// withoutLeavesNothingOfTheirs: without a Workload nothing is held or used by it, and just what it used is free instead; what
// is ending alone is a part of that.
func withoutLeavesNothingOfTheirs(t failer, w *world) {
	s := bookOf(w.live()...).Snapshot()
	before := accounts(s)
	who := types.UID([]string{"w0", "w1", "w2"}[w.upTo("workload", 2)])
	gone := map[types.UID]bool{who: true}
	without, ending := s.Without(gone), s.WithoutEnding(gone, noon)
	for i, n := range without.Nodes() {
		free, managed := s.Nodes()[i].Free.Clone(), s.Nodes()[i].Managed.Clone()
		for _, u := range s.Nodes()[i].Uses {
			if u.Workload == who {
				free.Add(u.Requests, u.Times)
				managed.Add(u.Requests, -u.Times)
			}
		}
		if got, want := amounts(n.Free)+amounts(n.Managed), amounts(free)+amounts(managed); got != want {
			t.Fatalf("node %s without %s has %s free and managed, want %s", n.Name, who, got, want)
		}
		theirs := func(u *Use) bool { return u.Workload == who }
		held := func(h *Holder) bool { return h.Workload == who }
		if n.has(theirs, held) {
			t.Fatalf("node %s without %s still has something of it:\n%s", n.Name, who, account(n))
		}
		e := ending.Nodes()[i]
		if e.has(func(u *Use) bool { return theirs(u) && u.Ending(noon) }, func(h *Holder) bool { return held(h) && h.Ending(noon) }) {
			t.Fatalf("node %s without what is ending of %s still has some of it:\n%s", n.Name, who, account(e))
		}
		for name, v := range e.Free {
			if v < s.Nodes()[i].Free[name] || v > n.Free[name] {
				t.Fatalf("node %s has %d of %s free, without what is ending of %s %d, without all of it %d", n.Name, s.Nodes()[i].Free[name], name, who, v, n.Free[name])
			}
		}
		if one := s.NodeWithout(n.Name, who); amounts(one.Free) != amounts(n.Free) {
			t.Fatalf("node %s alone without %s has %s free, among all %s", n.Name, who, amounts(one.Free), amounts(n.Free))
		}
	}
	if d := difference(accounts(s), before); d != "" {
		t.Fatalf("a snapshot changed: %s", d)
	}
}
