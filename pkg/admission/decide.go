package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Decider decides. It holds only caches, so that two Deciders give the same decisions. It is safe for concurrent use.
type Decider struct {
	Matcher *flavors.Matcher
}

// Decide says whether every pod of every podset of r can be placed, now and at once. Where Kueue assigned a flavor,
// only that one can be admitted; the standings of the flavors before it are recorded as well. A context that ends
// makes the decision Wait with reason Undecided.
func (d *Decider) Decide(ctx context.Context, s *ledger.Snapshot, r *Request) Decision {
	dec := Decision{Verdict: v1alpha1.VerdictWait, LedgerVersion: s.Version}
	if r.Refusal != nil {
		dec.Reason, dec.Message = r.Refusal.Reason, r.Refusal.Message
		return dec
	}
	placed := make([]v1alpha1.PlacementPodSet, 0, len(r.PodSets))
	working := s
	for i := range r.PodSets {
		ps := &r.PodSets[i]
		p, ok := d.podSet(ctx, working, r, ps, &dec)
		if !ok {
			if i > 0 && dec.Reason != "" {
				dec.Message = fmt.Sprintf("podset %s beside those before it: %s", ps.Name, dec.Message)
			}
			return dec
		}
		placed = append(placed, p)
		if i+1 < len(r.PodSets) {
			working = working.With(ledger.Holder{Kind: ledger.HolderPlacement, Managed: true}, Claims(p, ps.Requests))
		}
	}
	dec.PodSets = placed
	if dec.Coming {
		dec.Reason, dec.Message = v1alpha1.ReasonDevicesFreeing, "its place is kept for it until what is there has ended: "+admitMessage(placed)
		return dec
	}
	dec.Verdict, dec.Message = v1alpha1.VerdictAdmit, admitMessage(placed)
	return dec
}

// note keeps the earliest time at which the decision may change by itself.
func (dec *Decision) note(t time.Time) {
	if !t.IsZero() && (dec.Until.IsZero() || t.Before(dec.Until)) {
		dec.Until = t
	}
}

// podSet places one podset, or says in dec why not.
func (d *Decider) podSet(ctx context.Context, s *ledger.Snapshot, r *Request, ps *PodSet, dec *Decision) (v1alpha1.PlacementPodSet, bool) {
	out := v1alpha1.PlacementPodSet{Name: ps.Name}
	for _, c := range ps.Shape.Claims {
		if s.DeviceClass(c.Class) == nil {
			dec.Reason = v1alpha1.ReasonDeviceClassNotFound
			dec.Message = fmt.Sprintf("DeviceClass %q of template %q does not exist: create it, the workload starts then", c.Class, c.Template)
			return out, false
		}
	}
	last := len(r.Policy.Flavors) - 1
	only := -1
	if ps.Assigned != nil {
		only = r.Policy.Flavor(ps.Assigned.Flavor)
		if only >= 0 {
			last = only
		} else if len(ps.Shape.Claims) > 0 {
			dec.Reason = v1alpha1.ReasonQuotaMismatch
			dec.Message = fmt.Sprintf("Kueue assigned flavor %q, which is not one of DevicePolicy %s", ps.Assigned.Flavor, r.Policy.Name)
			return out, false
		}
	}
	if len(ps.Shape.Claims) == 0 {
		return d.plainPodSet(ctx, s, r, ps, dec)
	}
	// best is the standing that says why not: of the assigned flavor, or else the nearest to fitting.
	var best v1alpha1.FlavorStanding
	found := false
	for f := 0; f <= last; f++ {
		t := d.try(ctx, s, r, ps, f)
		dec.Standings = append(dec.Standings, t.standing)
		dec.note(t.until)
		if (t.standing.Standing == v1alpha1.StandingFits || t.coming) && !found && (only < 0 || f == only) {
			dec.Coming = dec.Coming || t.coming
			out.Flavor, out.Charge, out.Nodes = r.Policy.Flavors[f].Name, r.Policy.Charge(ps.Shape, f), t.nodes
			if found = true; !r.EveryFlavor {
				return out, true
			}
		}
		if f == only || only < 0 && (f == 0 || rankOf(t.standing.Standing) < rankOf(best.Standing)) {
			best = t.standing
		}
	}
	if !found {
		dec.explain(best)
	}
	return out, found
}

// plainPodSet places a podset without devices, which is decided where Kueue puts it.
func (d *Decider) plainPodSet(ctx context.Context, s *ledger.Snapshot, r *Request, ps *PodSet, dec *Decision) (v1alpha1.PlacementPodSet, bool) {
	out := v1alpha1.PlacementPodSet{Name: ps.Name}
	t := d.try(ctx, s, r, ps, anyFlavor)
	if ps.Assigned != nil {
		out.Flavor = ps.Assigned.Flavor
	}
	t.standing.Flavor = out.Flavor
	dec.Standings = append(dec.Standings, t.standing)
	dec.note(t.until)
	if t.standing.Standing != v1alpha1.StandingFits && !t.coming {
		dec.explain(t.standing)
		return out, false
	}
	dec.Coming = dec.Coming || t.coming
	out.Nodes = t.nodes
	return out, true
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

// Claims returns what a promise takes of each node, for Snapshot.With.
func Claims(p v1alpha1.PlacementPodSet, requests ledger.Amounts) []ledger.PodSetClaim {
	claims := make([]ledger.PodSetClaim, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		c := ledger.PodSetClaim{Node: n.Name, Slots: n.Slots, Requests: requests}
		for _, req := range n.Requests {
			for _, id := range req.Devices {
				if dev, err := ledger.ParseDeviceID(id); err == nil {
					c.Devices = append(c.Devices, dev)
				}
			}
		}
		claims = append(claims, c)
	}
	return claims
}
