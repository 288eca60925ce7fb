package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Bounds of the search for places beside each other: how many combinations of options are tried, and how many mixes of
// pods on one node, and how many ways of leaving pods to the nodes that are left, are looked at for all of them.
const (
	maxCombinations = 64
	maxMixes        = 2000
	maxStates       = 20000
)

// together places all podsets beside each other in a book, each with one of its options; the first podset's preference
// counts most.
func (d *Decider) together(ctx context.Context, r *Request, seats [][]trial, b book) ([]v1alpha1.PlacementPodSet, answer) {
	if len(seats) == 1 {
		return []v1alpha1.PlacementPodSet{placedPodSet(r, &r.PodSets[0], &seats[0][0], seats[0][0].nodes)}, yes
	}
	choice := make([]int, len(seats))
	result, mixes, states := no, 0, 0
	for range maxCombinations {
		chosen := make([]*trial, len(seats))
		for i := range seats {
			chosen[i] = &seats[i][choice[i]]
		}
		t := &table{decider: d, request: r, book: b, chosen: chosen, known: map[string]answer{}, mixes: &mixes, states: &states}
		nodes, a := t.seat(ctx)
		if a == yes {
			out := make([]v1alpha1.PlacementPodSet, len(seats))
			for i := range seats {
				out[i] = placedPodSet(r, &r.PodSets[i], chosen[i], nodes[i])
			}
			if !givenTwice(out) && !drawnOnTwice(chosen, out) {
				return out, yes
			}
		}
		if a == undecided || a == yes {
			result = undecided
		}
		i := len(seats) - 1
		for ; i >= 0; i-- {
			if choice[i]++; choice[i] < len(seats[i]) {
				break
			}
			choice[i] = 0
		}
		if i < 0 {
			return nil, result
		}
	}
	return nil, undecided
}

func placedPodSet(r *Request, ps *PodSet, t *trial, nodes []v1alpha1.PlacementNode) v1alpha1.PlacementPodSet {
	out := v1alpha1.PlacementPodSet{Name: ps.Name, Flavor: t.standing.Flavor, Nodes: slices.Clone(nodes)}
	for i := range nodes { // a trial may be remembered, a promise is its owner's
		nodes[i].DeepCopyInto(&out.Nodes[i])
	}
	if t.option.Flavor != anyFlavor {
		out.Charge = t.option.Charge
	}
	return out
}

// short says why the podsets have no place beside each other though each has one alone: it is told of the first that has
// none beside those before it.
func (d *Decider) short(ctx context.Context, s *ledger.Snapshot, r *Request, dec *Decision) {
	working := s
	for i := range r.PodSets {
		ps := &r.PodSets[i]
		var beside Decision
		fit := d.podSet(ctx, working, r, ps, &beside)
		if len(fit) == 0 {
			dec.Standings = slices.DeleteFunc(dec.Standings, func(s v1alpha1.FlavorStanding) bool { return s.PodSet == ps.Name })
			dec.Standings = append(dec.Standings, beside.Standings...)
			dec.Reason, dec.Message = beside.Reason, fmt.Sprintf("podset %s beside those before it: %s", ps.Name, beside.Message)
			return
		}
		working = working.With(ledger.Holder{Kind: ledger.HolderPlacement, Managed: true}, Claims(v1alpha1.PlacementPodSet{Nodes: fit[0].nodes}, ps))
	}
	dec.Reason, dec.Message = v1alpha1.ReasonGangShort, "each podset has a place alone, they have none beside each other"
}

// table is a search for places for several podsets, each with one option.
type table struct {
	decider *Decider
	request *Request
	book    book
	chosen  []*trial
	// nodes are those that a podset may use, by name; fits and most say, by podset, what each gives it alone.
	nodes []string
	fits  []map[string]*nodeFit
	most  []map[string]int32
	known map[string]answer
	// mixes and states count those that were looked at, for all combinations of options.
	mixes, states *int
	// exhausted says that maxMixes was reached, unsure that a search on a node reached its own bound.
	exhausted, unsure bool
}

// seat returns the nodes of each podset. It tries the podsets one after another, each as if it were alone on what the
// others left, in their order and in the reverse; where that fails it searches all mixes of pods on the nodes that
// several podsets can use.
func (t *table) seat(ctx context.Context) ([][]v1alpha1.PlacementNode, answer) {
	t.look(ctx)
	order := make([]int, len(t.chosen))
	for i := range order {
		order[i] = i
	}
	for range 2 {
		if seated, ok := t.greedy(ctx, order); ok {
			return t.write(ctx, seated)
		}
		slices.Reverse(order)
	}
	seated, ok := t.search(ctx)
	if ok {
		return t.write(ctx, seated)
	}
	if t.exhausted || t.unsure {
		return nil, undecided
	}
	return nil, no
}

// look takes stock of what each node gives to each podset alone.
func (t *table) look(ctx context.Context) {
	seen := map[string]bool{}
	for _, c := range t.chosen {
		fits, most := map[string]*nodeFit{}, map[string]int32{}
		for _, n := range c.fits {
			k := t.decider.most(ctx, n, t.book).pods
			if k == 0 {
				continue
			}
			fits[n.node.Name], most[n.node.Name] = n, k
			if !seen[n.node.Name] {
				seen[n.node.Name] = true
				t.nodes = append(t.nodes, n.node.Name)
			}
		}
		t.fits, t.most = append(t.fits, fits), append(t.most, most)
	}
	slices.Sort(t.nodes)
}

// mix is how many pods of each podset are on a node.
type mix []int32

func (m mix) parts(t *table, node string) []part {
	var parts []part
	for i, k := range m {
		if k > 0 {
			parts = append(parts, part{t.fits[i][node], k})
		}
	}
	return parts
}

// fitsOn says whether a node takes a mix of pods.
func (t *table) fitsOn(ctx context.Context, node string, m mix) bool {
	parts := m.parts(t, node)
	if len(parts) == 0 {
		return true
	}
	room := parts[0].fit.room(t.book).Clone()
	for _, p := range parts {
		least := p.fit.least(t.book)
		if k, _ := room.Times(least, int64(p.k)); k < int64(p.k) {
			return false
		}
		room.Add(least, -int64(p.k))
	}
	if len(parts) == 1 {
		return true // no more than the most that it takes
	}
	key := fmt.Sprint(node, m)
	a, ok := t.known[key]
	if !ok {
		if *t.mixes++; *t.mixes > maxMixes {
			t.exhausted = true
			return false
		}
		_, a = t.decider.allocate(ctx, parts, t.book)
		t.known[key] = a
	}
	t.unsure = t.unsure || a == undecided
	return a == yes
}

// greedy seats the podsets one after another, each on the nodes in the policy's order.
func (t *table) greedy(ctx context.Context, order []int) (map[string]mix, bool) {
	seated := map[string]mix{}
	for _, i := range order {
		left := t.request.PodSets[i].Count
		var fits []candidate
		for _, node := range t.nodes {
			if k := t.most[i][node]; k > 0 {
				fits = append(fits, candidate{fit: t.fits[i][node], count: k})
			}
		}
		orderBeside(t.request.Policy.Spec.Ordering, fits, seated, t)
		for _, c := range fits {
			node := c.fit.node.Name
			m := slices.Clone(seated[node])
			if m == nil {
				m = make(mix, len(t.chosen))
			}
			for m[i] = min(left, c.count); m[i] > 0 && !t.fitsOn(ctx, node, m); m[i]-- {
			}
			seated[node] = m
			left -= m[i]
		}
		if left > 0 {
			return nil, false
		}
	}
	return seated, true
}

// orderBeside is order on what the podsets that are seated already have left of each node.
func orderBeside(o v1alpha1.Ordering, fits []candidate, seated map[string]mix, t *table) {
	left := map[string]int{}
	for _, c := range fits {
		name := c.fit.node.Name
		left[name] = c.fit.free(t.book)
		for i, k := range seated[name] {
			if k > 0 {
				for _, w := range t.fits[i][name].wants {
					left[name] -= int(w.Count) * int(k)
				}
			}
		}
	}
	sign := 1
	if o == v1alpha1.OrderingSpread {
		sign = -1
	}
	slices.SortFunc(fits, func(x, y candidate) int {
		return cmp.Or(sign*cmp.Compare(left[x.fit.node.Name], left[y.fit.node.Name]), sign*cmp.Compare(x.count, y.count), cmp.Compare(x.fit.node.Name, y.fit.node.Name))
	})
}

// search tries all mixes of pods on the nodes that several podsets can use. What only one can use it gets whole.
func (t *table) search(ctx context.Context) (map[string]mix, bool) {
	seated := map[string]mix{}
	left := make(mix, len(t.chosen))
	for i := range left {
		left[i] = t.request.PodSets[i].Count
	}
	var shared []string
	for _, node := range t.nodes {
		users, user := 0, 0
		for i := range t.chosen {
			if t.most[i][node] > 0 {
				users, user = users+1, i
			}
		}
		if users > 1 {
			shared = append(shared, node)
			continue
		}
		m := make(mix, len(t.chosen))
		m[user] = min(left[user], t.most[user][node])
		left[user] -= m[user]
		seated[node] = m
	}
	failed, room := map[string]bool{}, t.from(shared)
	var next func(at int, left mix) bool
	next = func(at int, left mix) bool {
		if !slices.ContainsFunc(left, func(k int32) bool { return k > 0 }) {
			return true
		}
		key := fmt.Sprint(at, left)
		if at == len(shared) || t.exhausted || failed[key] || left.exceeds(room[at]) {
			return false
		}
		if *t.states++; *t.states > maxStates {
			t.exhausted = true
			return false
		}
		node := shared[at]
		e := each{table: t, node: node, left: left, mix: make(mix, len(left)), try: func(m mix) bool {
			rest := make(mix, len(left))
			for i := range left {
				rest[i] = left[i] - m[i]
			}
			if next(at+1, rest) {
				seated[node] = slices.Clone(m)
				return true
			}
			return false
		}}
		ok := e.from(ctx, 0)
		failed[key] = !ok
		return ok
	}
	if !next(0, left) {
		return nil, false
	}
	return seated, true
}

// from returns what each podset could have, alone, on the nodes from each one on.
func (t *table) from(nodes []string) []mix {
	room := make([]mix, len(nodes)+1)
	room[len(nodes)] = make(mix, len(t.chosen))
	for at := len(nodes) - 1; at >= 0; at-- {
		room[at] = slices.Clone(room[at+1])
		for i := range t.chosen {
			room[at][i] = min(room[at][i]+t.most[i][nodes[at]], t.request.PodSets[i].Count)
		}
	}
	return room
}

// exceeds says that some podset has more pods than room.
func (m mix) exceeds(room mix) bool {
	for i := range m {
		if m[i] > room[i] {
			return true
		}
	}
	return false
}

// each calls try for the mixes that a node takes, until one succeeds.
type each struct {
	*table
	node string
	left mix
	mix  mix
	try  func(mix) bool
}

// from goes through what the podsets from i on may have beside those before them. The last podset has as many pods as the
// others leave room for: fewer would never help.
func (e *each) from(ctx context.Context, i int) bool {
	if i == len(e.mix) {
		return e.try(e.mix)
	}
	for k := min(e.left[i], e.most[i][e.node]); k >= 0; k-- {
		e.mix[i] = k
		if !e.fitsOn(ctx, e.node, e.mix) {
			if e.exhausted {
				break
			}
			continue
		}
		if e.from(ctx, i+1) {
			return true
		}
		if i+1 == len(e.mix) {
			break
		}
	}
	e.mix[i] = 0
	return false
}

// write turns mixes into the nodes of each podset, with their devices.
func (t *table) write(ctx context.Context, seated map[string]mix) ([][]v1alpha1.PlacementNode, answer) {
	out := make([][]v1alpha1.PlacementNode, len(t.chosen))
	for _, node := range t.nodes {
		parts := seated[node].parts(t, node)
		if len(parts) == 0 {
			continue
		}
		shares, a := t.decider.allocate(ctx, parts, t.book)
		if a != yes {
			return nil, undecided
		}
		at := 0
		for i, k := range seated[node] {
			if k > 0 {
				out[i] = append(out[i], promised(parts[at].fit, shares[at]))
				at++
			}
		}
	}
	return out, yes
}
