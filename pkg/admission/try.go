package admission

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// anyFlavor is the flavor index of a podset that asks for no devices.
const anyFlavor = -1

// trial is what came out for one podset with one option.
type trial struct {
	option   flavors.Option
	standing v1alpha1.FlavorStanding
	// fits are the nodes that were looked at.
	fits []*nodeFit
	// nodes is the promise where the standing is Fits, or coming is true.
	nodes []v1alpha1.PlacementNode
	// coming says that the promise counts on what is freeing or was lost within the grace.
	coming bool
	// returning says that the podset would fit if nothing but what was lost within the grace came back.
	returning bool
	// settled says, where the standing is Impossible, that no inventory was lost, is stale or has come just now; largest is
	// then how many devices one node has at most for a request.
	settled bool
	largest int64
	// until is when the answer may change by time alone; zero for never.
	until time.Time
}

// candidate is one node that can take some pods.
type candidate struct {
	fit   *nodeFit
	count int32
	// free is how many of the devices that the podset may have are free.
	free int
}

// try takes the standing of one option for one podset: Fits on the book as it is, else Busy, Blocked or Impossible on
// the more hopeful ones. The reasons are those of the book before the one on which it would fit.
func (d *Decider) try(ctx context.Context, s *ledger.Snapshot, r *Request, ps *PodSet, o flavors.Option) trial {
	t := trial{option: o, standing: v1alpha1.FlavorStanding{PodSet: ps.Name, Alternative: ps.Shape.AlternativeOf(o.Variant)}}
	if o.Flavor != anyFlavor {
		t.standing.Flavor = r.Policy.Flavors[o.Flavor].Name
	}
	if class, ok := missingClass(s, ps, o.Variant); ok {
		t.standing.Standing = v1alpha1.StandingBlocked
		t.standing.Reasons = []v1alpha1.StandingReason{{Reason: v1alpha1.ReasonDeviceClassNotFound, Message: class}}
		return t
	}
	if why := r.Policy.Uncuttable(ps.Shape, o); why != nil {
		t.standing.Standing, t.settled = v1alpha1.StandingImpossible, true
		t.standing.Reasons = []v1alpha1.StandingReason{{Reason: why.Reason, Message: cut(why.Message, maxReasonMessage)}}
		return t
	}
	q := d.question(s, r, ps, o)
	d.nodes(s, q)
	if why := r.Heard.Stale(r.Now, r.Policy); why != "" { // neither remembered nor looked up: what was tried before holds when all is heard again
		t.over(q.here.fits)
		t.stale(q.here.fits, why)
		return t
	}
	now := q.triedOn(s, r)
	if last := q.remembered(now); last != nil {
		again := *last
		again.option, again.standing.PodSet = o, ps.Name
		return again
	}
	t = d.tryOn(ctx, s, r, q, t)
	if ctx.Err() == nil {
		q.remember(now, t)
	}
	return t
}

// tryOn works a trial out on the nodes that a question sees.
func (d *Decider) tryOn(ctx context.Context, s *ledger.Snapshot, r *Request, q *question, t trial) trial {
	ps, nodes, changing := &q.podSet, q.here.fits, q.here.changing
	t.over(nodes)
	t.until = until(changing)
	on, reasons := d.place(ctx, r, ps, nodes, asIs)
	if on != nil {
		t.standing.Standing, t.nodes = v1alpha1.StandingFits, on
		return t
	}
	t.standing.Standing, t.standing.Reasons = v1alpha1.StandingBusy, reasons.list()
	if slices.ContainsFunc(changing, (*nodeFit).mayReturn) {
		on, _ = d.place(ctx, r, ps, nodes, returning)
		t.returning = on != nil || slices.ContainsFunc(changing, (*nodeFit).mayPublish)
	}
	if r.Coming {
		if on, _ = d.place(ctx, r, ps, nodes, onTheWay); on != nil {
			t.nodes, t.coming = on, true
			return t
		}
	}
	if on, reasons = d.place(ctx, r, ps, nodes, managedGone); on != nil || t.returning {
		return t
	}
	t.standing.Standing, t.standing.Reasons = v1alpha1.StandingBlocked, reasons.list()
	all := slices.Concat(nodes, d.gone(s, q))
	if on, reasons = d.place(ctx, r, ps, all, emptyHealthy); on != nil || slices.ContainsFunc(changing, (*nodeFit).unpublished) {
		return t
	}
	t.standing.Standing, t.standing.Reasons = v1alpha1.StandingImpossible, reasons.list()
	t.settled, t.largest = settled(nodes), largest(nodes)
	if !t.settled && r.Policy.Spec.OnInfeasible == v1alpha1.OnInfeasibleReject {
		t.until = settles(nodes, t.until)
	}
	return t
}

// over notes the nodes that a trial looks at.
func (t *trial) over(nodes []*nodeFit) {
	t.fits = nodes
	t.standing.Nodes = bounded(len(nodes))
	for _, n := range nodes {
		if n.plugin != "" && n.node.Allocatable[n.plugin] > 0 { // slices that it has beside are of the same cards
			t.standing.Devices += bounded(int(min(n.node.Allocatable[n.plugin], math.MaxInt32)))
			continue
		}
		t.standing.Devices += bounded(len(n.devices))
	}
}

// place spreads a podset's pods over nodes; nil, with the reasons, where not all have a place. Nodes are taken in the
// policy's order, each as far as it goes, which is exact for a single podset: how many pods a node takes does not
// depend on the others.
func (d *Decider) place(ctx context.Context, r *Request, ps *PodSet, nodes []*nodeFit, b book) ([]v1alpha1.PlacementNode, *reasons) {
	why := &reasons{}
	var fits []candidate
	var total int64
	for _, n := range nodes {
		t := d.most(ctx, n, b)
		if t.pods < ps.Count {
			why.add(&t.stop)
		}
		if t.pods > 0 {
			fits = append(fits, candidate{n, t.pods, t.free})
			total += int64(t.pods)
		}
	}
	if total < int64(ps.Count) {
		if ps.Count > 1 {
			why.short(total, int64(ps.Count))
		}
		why.empty(r.Policy, ps)
		return nil, why
	}
	queue := ordered{fits, r.Policy.Spec.Ordering == v1alpha1.OrderingSpread}
	heap.Init(&queue)
	left := ps.Count
	placed := []v1alpha1.PlacementNode{}
	given, barred := map[ledger.DeviceID]bool{}, false
	for left > 0 && queue.Len() > 0 {
		c := heap.Pop(&queue).(candidate)
		k := min(left, c.count)
		if fit := c.fit.barring(given); fit != c.fit {
			c.fit, k, barred = fit, min(left, d.most(ctx, fit, b).pods), true
		}
		if k == 0 {
			continue
		}
		shares, a := d.allocate(ctx, []part{{c.fit, k}}, b)
		if a != yes {
			continue
		}
		give(given, shares[0])
		placed = append(placed, promised(c.fit, shares[0]))
		left -= k
	}
	if left > 0 && barred { // which node is given which of them was not searched through
		why.add(&stop{reason: v1alpha1.ReasonUndecided, message: "the nodes share devices, and as they were dealt out not all pods have theirs"})
		return nil, why
	}
	if left > 0 { // fewer pods than the most that a node takes fit on it, so a search was cut short
		why.add(&stop{reason: v1alpha1.ReasonUndecided, message: "the search was cut short"})
		return nil, why
	}
	slices.SortFunc(placed, func(x, y v1alpha1.PlacementNode) int { return cmp.Compare(x.Name, y.Name) })
	return placed, why
}

// ordered is a heap of candidates, of which few are needed: Pack takes the node with the fewest free devices first, Spread the
// one with the most; ties, and nodes without devices, go by how many pods they hold and then by name.
type ordered struct {
	candidates []candidate
	spread     bool
}

// Len is the number of candidates.
func (o *ordered) Len() int { return len(o.candidates) }

// Less says which of two is taken first.
func (o *ordered) Less(i, j int) bool {
	x, y := &o.candidates[i], &o.candidates[j]
	switch {
	case x.free != y.free:
		return x.free < y.free != o.spread
	case x.count != y.count:
		return x.count < y.count != o.spread
	}
	return x.fit.node.Name < y.fit.node.Name
}

// Swap exchanges two.
func (o *ordered) Swap(i, j int) { o.candidates[i], o.candidates[j] = o.candidates[j], o.candidates[i] }

// Push is of no use: all candidates are there from the start.
func (o *ordered) Push(any) {}

// Pop removes the last.
func (o *ordered) Pop() any {
	last := o.candidates[len(o.candidates)-1]
	o.candidates = o.candidates[:len(o.candidates)-1]
	return last
}

// promised writes what a node gives to some pods of a podset, their shares one after another.
func promised(n *nodeFit, pods []share) v1alpha1.PlacementNode {
	out := v1alpha1.PlacementNode{Name: n.node.Name, Slots: bounded(len(pods))}
	for w := range n.wants {
		r := v1alpha1.PlacementRequest{Claim: v1alpha1.ExtendedResourcesClaim, Request: n.wants[w].Name}
		if c := n.wants[w].Claim; c < len(n.ps.Shape.Claims) {
			r.Claim = n.ps.Shape.Claims[c].Name
		}
		for _, sh := range pods {
			for _, dev := range sh[w] {
				r.Devices = append(r.Devices, dev.ID.String())
			}
		}
		out.Requests = append(out.Requests, r)
	}
	slices.SortFunc(out.Requests, func(x, y v1alpha1.PlacementRequest) int {
		return cmp.Or(cmp.Compare(x.Claim, y.Claim), cmp.Compare(x.Request, y.Request))
	})
	return out
}

func bounded(n int) int32 { return int32(min(n, 1<<30)) }
