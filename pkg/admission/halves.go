package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// Halves adds to the standings of a decision what Kueue would do if each flavor alone were open, without looking for victims:
// Wait then means that there may or may not be some. A flavor that the queue does not list is NoFit.
func Halves(ctx context.Context, k Kueue, w *Waiter, dec *Decision) {
	halves(w, dec, func(plan flavors.Plan) quota.Answer { return askKueue(ctx, k, w, plan, true) })
}

func halves(w *Waiter, dec *Decision, ask func(flavors.Plan) quota.Answer) {
	p := w.Request.Policy
	dec.Standings = slices.Clone(dec.Standings)
	for i := range dec.Standings {
		s := &dec.Standings[i]
		ps := w.Request.podSet(s.PodSet)
		if ps == nil || p.Flavor(s.Flavor) < 0 || !p.Asks(ps.Shape) {
			continue
		}
		if !w.lists(s.Flavor) { // Kueue strikes out the labels of such a flavor, and would answer for any of its own
			s.Quota = string(quota.NoFit)
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
				name := p.Flavors[o.Flavor].Name
				if other != ps {
					return w.lists(name) && (other.Assigned == nil || name == other.Assigned.Flavor)
				}
				return name == s.Flavor && other.Shape.AlternativeOf(o.Variant) == s.Alternative
			})
			if at >= 0 {
				plan.AllowedFor[other.Name] = []string{p.Flavors[options[at].Flavor].Name}
				plan.Charge[other.Name] = options[at].Charge
			}
		}
		s.Quota = string(ask(plan).Mode)
	}
}

// lists says whether the Waiter's queue lists a flavor of the policy, with quota for devices.
func (w *Waiter) lists(flavor string) bool {
	group := w.Request.Policy.Group(w.ClusterQueue)
	return group != nil && slices.ContainsFunc(group.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == flavor })
}

// askKueue asks about a Workload as a plan would write it.
func askKueue(ctx context.Context, k Kueue, w *Waiter, plan flavors.Plan, fitOnly bool) quota.Answer {
	wl := w.Workload.DeepCopy()
	if err := w.Request.Policy.Steer(wl, plan); err != nil {
		return quota.Answer{Mode: quota.NoFit, Final: true, Message: err.Error()}
	}
	a := k.Ask(ctx, quota.Request{Workload: wl, ClusterQueue: w.ClusterQueue.Name, FitOnly: fitOnly})
	a.Message = withoutClosed(a.Message, w.Request.Policy, flavors.AllowedOf(wl))
	return a
}

// withoutClosed takes out of Kueue's words that a flavor doesn't match the affinity which we wrote ourselves: that is no
// reason of the user's.
func withoutClosed(message string, p *flavors.Policy, allowed []string) string {
	for i := range p.Flavors {
		name := p.Flavors[i].Name
		if slices.Contains(allowed, name) {
			continue
		}
		words := fmt.Sprintf("flavor %s doesn't match node affinity", name)
		message = strings.ReplaceAll(strings.ReplaceAll(message, words+", ", ""), ", "+words, "")
	}
	return message
}
