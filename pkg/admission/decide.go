package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Decider decides. It holds only caches, so that two Deciders give the same decisions. It is safe for concurrent use.
type Decider struct {
	Matcher *flavors.Matcher

	mu     sync.Mutex
	memory memory
}

// Decide says whether every pod of every podset of r can be placed, now and at once. Where Kueue assigned a flavor,
// only that one can be admitted, at the charge that was reserved; the standings of the options before it are recorded as
// well. A context that ends makes the decision Wait with reason Undecided.
func (d *Decider) Decide(ctx context.Context, s *ledger.Snapshot, r *Request) Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.decide(ctx, s, r)
}

func (d *Decider) decide(ctx context.Context, s *ledger.Snapshot, r *Request) Decision {
	dec := Decision{Verdict: v1alpha1.VerdictWait, LedgerVersion: s.Version}
	if r.Refusal != nil {
		dec.Reason, dec.Message = r.Refusal.Reason, r.Refusal.Message
		return dec
	}
	seats := make([][]trial, len(r.PodSets))
	for i := range r.PodSets {
		if seats[i] = d.podSet(ctx, s, r, &r.PodSets[i], &dec); len(seats[i]) == 0 {
			return dec
		}
	}
	coming := slices.ContainsFunc(seats, func(of []trial) bool { return of[0].coming })
	var placed []v1alpha1.PlacementPodSet
	a := no
	if !coming {
		placed, a = d.together(ctx, r, seats, asIs)
	}
	if a != yes && r.Coming {
		var later answer
		if placed, later = d.together(ctx, r, seats, onTheWay); later == yes {
			a, coming = yes, true
		}
	}
	switch a {
	case no:
		d.short(ctx, s, r, &dec)
		return dec
	case undecided:
		dec.Reason = v1alpha1.ReasonUndecided
		dec.Message = "each podset has a place alone; the search for places beside each other was cut short"
		return dec
	}
	if n := promiseBytes(placed); n > maxPromiseBytes {
		dec.Reason = v1alpha1.ReasonClaimUnsupported
		dec.Message = fmt.Sprintf("it has a place, but to write down every pod's devices takes %d KiB, and a Placement holds %d: use fewer pods", n>>10, maxPromiseBytes>>10)
		return dec
	}
	dec.PodSets, dec.Message = placed, admitMessage(placed)
	if coming {
		dec.Coming, dec.Reason = true, v1alpha1.ReasonDevicesFreeing
		dec.Message = cut("its place is kept until what is there has ended or come back: "+dec.Message, maxDecisionMessage)
		return dec
	}
	dec.Verdict = v1alpha1.VerdictAdmit
	return dec
}

// maxPromiseBytes bounds a promise as JSON: an object of the API server holds little more.
const maxPromiseBytes = 512 << 10

func promiseBytes(p []v1alpha1.PlacementPodSet) int {
	raw, err := json.Marshal(p)
	if err != nil { // it has only plain fields
		return 0
	}
	return len(raw)
}

// note keeps the earliest time at which the decision may change by itself.
func (dec *Decision) note(t time.Time) {
	if !t.IsZero() && (dec.Until.IsZero() || t.Before(dec.Until)) {
		dec.Until = t
	}
}

// podSet returns the ways in which one podset, alone, can be placed and admitted, in the order of preference; only the
// first where the Workload has no other podset. It is empty, and dec says why, where there is none.
func (d *Decider) podSet(ctx context.Context, s *ledger.Snapshot, r *Request, ps *PodSet, dec *Decision) []trial {
	if !r.Policy.Asks(ps.Shape) {
		t := d.plainPodSet(ctx, s, r, ps, dec)
		if t.standing.Standing != v1alpha1.StandingFits && !t.coming {
			dec.explain(t.standing)
			return nil
		}
		return []trial{t}
	}
	options := r.Policy.Options(ps.Shape)
	if message, ok := noClass(s, ps, options); ok {
		dec.Reason, dec.Message = v1alpha1.ReasonDeviceClassNotFound, message
		return nil
	}
	last := slices.IndexFunc(options, func(o flavors.Option) bool { return admissible(r, ps, o) })
	if last < 0 {
		dec.Reason, dec.Message = v1alpha1.ReasonQuotaMismatch, mismatch(r, ps)
		return nil
	}
	for i := last; i < len(options); i++ {
		if admissible(r, ps, options[i]) {
			last = i
		}
	}
	// best is the standing that says why not: of what Kueue assigned, or else the nearest to fitting.
	var best *v1alpha1.FlavorStanding
	var fit []trial
	for _, o := range options[:last+1] {
		may := admissible(r, ps, o)
		if len(fit) > 0 && !r.EveryFlavor && !may {
			continue
		}
		t := d.try(ctx, s, r, ps, o)
		dec.note(t.until)
		if len(fit) == 0 || r.EveryFlavor {
			dec.Standings = append(dec.Standings, t.standing)
		}
		if !may {
			continue
		}
		if t.standing.Standing == v1alpha1.StandingFits || t.coming {
			if fit = append(fit, t); len(r.PodSets) == 1 && !r.EveryFlavor && !t.coming {
				break
			}
		}
		if best == nil || rankOf(t.standing.Standing) < rankOf(best.Standing) {
			best = &t.standing
		}
	}
	if len(fit) == 0 {
		dec.explain(*best)
	}
	slices.SortStableFunc(fit, func(x, y trial) int { // what is there comes before what is on its way
		return map[bool]int{true: 1}[x.coming] - map[bool]int{true: 1}[y.coming]
	})
	return fit
}

// admissible says whether an option is one that Kueue reserved quota for; without a reservation every one is.
func admissible(r *Request, ps *PodSet, o flavors.Option) bool {
	a := ps.Assigned
	return a == nil || r.Policy.Flavors[o.Flavor].Name == a.Flavor && (a.Charge == nil || *a.Charge == o.Charge)
}

// mismatch says why no option is admissible.
func mismatch(r *Request, ps *PodSet) string {
	if r.Policy.Flavor(ps.Assigned.Flavor) < 0 {
		return fmt.Sprintf("Kueue assigned flavor %q, which is not one of DevicePolicy %s", ps.Assigned.Flavor, r.Policy.Name)
	}
	if ps.Assigned.Charge == nil {
		return fmt.Sprintf("podset %s cannot be served on flavor %q", ps.Name, ps.Assigned.Flavor)
	}
	return fmt.Sprintf("Kueue charged %d a pod for podset %s, which nothing that it may have on flavor %q costs", *ps.Assigned.Charge, ps.Name, ps.Assigned.Flavor)
}

// noClass says which DeviceClass is missing where every option misses one.
func noClass(s *ledger.Snapshot, ps *PodSet, options []flavors.Option) (string, bool) {
	message := ""
	for i := len(options) - 1; i >= 0; i-- {
		var missing bool
		if message, missing = missingClass(s, ps, options[i].Variant); !missing {
			return "", false
		}
	}
	return message, message != ""
}

// missingClass says which DeviceClass of a variant does not exist.
func missingClass(s *ledger.Snapshot, ps *PodSet, v flavors.Variant) (string, bool) {
	for _, c := range ps.Shape.Chosen(v) {
		if s.DeviceClass(c.Class) == nil {
			return fmt.Sprintf("DeviceClass %q of template %q does not exist: create it, the workload starts then", c.Class, ps.Shape.Claims[c.Claim].Template), true
		}
	}
	return "", false
}

// plainPodSet tries a podset without devices, which is decided where Kueue puts it.
func (d *Decider) plainPodSet(ctx context.Context, s *ledger.Snapshot, r *Request, ps *PodSet, dec *Decision) trial {
	t := d.try(ctx, s, r, ps, flavors.Option{Flavor: anyFlavor})
	if ps.Assigned != nil {
		t.standing.Flavor = ps.Assigned.Flavor
	}
	dec.Standings = append(dec.Standings, t.standing)
	dec.note(t.until)
	return t
}

func rankOf(s v1alpha1.Standing) int {
	for i, o := range []v1alpha1.Standing{
		v1alpha1.StandingFits, v1alpha1.StandingBusy, v1alpha1.StandingBlocked,
		v1alpha1.StandingProvisionable, v1alpha1.StandingImpossible,
	} {
		if s == o {
			return i
		}
	}
	return len(s)
}

// Claims returns what a promise to a podset takes of each node, for Snapshot.With.
func Claims(p v1alpha1.PlacementPodSet, ps *PodSet) []ledger.PodSetClaim {
	claims := make([]ledger.PodSetClaim, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		c := ledger.PodSetClaim{Node: n.Name, Slots: n.Slots, Requests: ps.Requests}
		for _, req := range n.Requests {
			references := ps.referencesTo(req.Claim)
			for _, id := range req.Devices {
				if dev, err := ledger.ParseDeviceID(id); err == nil {
					c.Devices, c.Referring = append(c.Devices, dev), append(c.Referring, references)
				}
			}
		}
		claims = append(claims, c)
	}
	return claims
}
