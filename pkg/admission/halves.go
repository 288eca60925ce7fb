package admission

import (
	"context"
	"slices"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// Halves adds to the standings of a decision what Kueue would do if each flavor alone were open.
func Halves(ctx context.Context, k Kueue, w *Waiter, dec *Decision) {
	p := w.Request.Policy
	dec.Standings = slices.Clone(dec.Standings)
	for i := range dec.Standings {
		s := &dec.Standings[i]
		ps := w.Request.podSet(s.PodSet)
		if ps == nil || p.Flavor(s.Flavor) < 0 || !p.Asks(ps.Shape) {
			continue
		}
		plan := flavors.Plan{AllowedFor: map[string][]string{}, Charge: map[string]int64{}, Overhead: w.Overhead}
		for j := range w.Request.PodSets {
			other := &w.Request.PodSets[j]
			if !p.Asks(other.Shape) {
				continue
			}
			options := p.Options(other.Shape)
			at := slices.IndexFunc(options, func(o flavors.Option) bool {
				if other != ps {
					return other.Assigned == nil || p.Flavors[o.Flavor].Name == other.Assigned.Flavor
				}
				return p.Flavors[o.Flavor].Name == s.Flavor && other.Shape.AlternativeOf(o.Variant) == s.Alternative
			})
			if at >= 0 {
				plan.AllowedFor[other.Name] = []string{p.Flavors[options[at].Flavor].Name}
				plan.Charge[other.Name] = options[at].Charge
			}
		}
		s.Quota = string(askKueue(ctx, k, w, plan, true).Mode)
	}
}

// askKueue asks about a Workload as a plan would write it.
func askKueue(ctx context.Context, k Kueue, w *Waiter, plan flavors.Plan, fitOnly bool) quota.Answer {
	wl := w.Workload.DeepCopy()
	if err := w.Request.Policy.Steer(wl, plan); err != nil {
		return quota.Answer{Mode: quota.NoFit, Final: true, Message: err.Error()}
	}
	return k.Ask(ctx, quota.Request{Workload: wl, ClusterQueue: w.ClusterQueue.Name, FitOnly: fitOnly})
}
