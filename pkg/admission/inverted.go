package admission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// inverted adds PriorityInverted to the standings of an answer that has quota and no room, where there would be room if
// those of lower priority were gone. Kueue does not preempt them: it sees no shortage. It stands beside the other reasons,
// and names nobody.
func (c *chooser) inverted(ctx context.Context, a *quota.Answer, about asked) {
	own, lower := ptr.Deref(c.waiter.Workload.Spec.Priority, 0), map[types.UID]bool{}
	for _, t := range about {
		for _, n := range t.fits {
			for _, holder := range n.holders() {
				if p, ok := c.kueue.Priority(holder); ok && p < own {
					lower[holder] = true
				}
			}
		}
	}
	if len(lower) == 0 || c.decideWithout(ctx, a, lower).Verdict != v1alpha1.VerdictAdmit {
		return
	}
	for i := range c.out.Decision.Standings {
		s := &c.out.Decision.Standings[i]
		t, ok := about[s.PodSet]
		if ok && t.standing.Flavor == s.Flavor && t.standing.Alternative == s.Alternative && len(s.Reasons) < maxReasons {
			s.Reasons = append(slices.Clone(s.Reasons), v1alpha1.StandingReason{Reason: v1alpha1.ReasonPriorityInverted,
				Message: "the devices would be there without work of lower priority; Kueue has quota for both, and preempts nobody"})
		}
	}
}

// holders returns the Workloads that hold the matching devices.
func (n *nodeFit) holders() []types.UID {
	if n.heldBy == nil {
		n.heldBy = []types.UID{}
		for _, dev := range n.matching() {
			for i := range dev.Holders {
				if w := dev.Holders[i].Workload; !slices.Contains(n.heldBy, w) {
					n.heldBy = append(n.heldBy, w)
				}
			}
		}
	}
	return n.heldBy
}

// Inverted says whether a decision found devices that it has quota for with work of lower priority.
func (dec *Decision) Inverted() bool {
	return slices.ContainsFunc(dec.Standings, func(s v1alpha1.FlavorStanding) bool {
		return slices.ContainsFunc(s.Reasons, func(r v1alpha1.StandingReason) bool { return r.Reason == v1alpha1.ReasonPriorityInverted })
	})
}
