package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// stage is one set of options to ask Kueue about: of each podset those of one charge.
type stage struct {
	options [][]trial
}

// fits says whether every podset has an option that fits.
func (st stage) fits() bool {
	for _, options := range st.options {
		if !slices.ContainsFunc(options, func(t trial) bool { return t.standing.Standing == v1alpha1.StandingFits }) {
			return false
		}
	}
	return true
}

// maxStages bounds the combinations of charges over podsets.
const maxStages = 64

// stages returns the sets to ask about, in order: of each podset the options of one charge, the first podset's counting
// most. None where some podset has no candidate.
func (c *chooser) stages() []stage {
	out := []stage{{}}
	for _, cand := range c.podSets {
		var byCharge [][]trial
		for _, t := range cand.trials {
			if !c.candidate(cand, t) {
				continue
			}
			at := slices.IndexFunc(byCharge, func(group []trial) bool { return group[0].option.Charge == t.option.Charge })
			if at < 0 {
				byCharge = append(byCharge, []trial{t})
				continue
			}
			if !slices.ContainsFunc(byCharge[at], func(o trial) bool { return o.option.Flavor == t.option.Flavor }) {
				byCharge[at] = append(byCharge[at], t)
			}
		}
		var longer []stage
		for _, st := range out {
			for _, group := range byCharge {
				longer = append(longer, stage{append(slices.Clone(st.options), group)})
			}
		}
		out = longer[:min(len(longer), maxStages)]
	}
	return out
}

// asked holds, by podset, the option that Kueue's answer is about.
type asked map[string]trial

// grow asks Kueue with growing prefixes of a stage until it answers Fit, or the set is whole.
func (c *chooser) grow(ctx context.Context, st stage) (quota.Answer, asked) {
	longest := 1
	for _, options := range st.options {
		longest = max(longest, len(options))
	}
	var answer quota.Answer
	for n := 1; n <= longest; n++ {
		if n > 1 && !c.steerable(c.plan(st, n)) {
			break // the set is as large as it can be written
		}
		answer = c.ask(ctx, st, n)
		if n == 1 && answer.Mode == quota.Preempt {
			c.told(c.about(&answer, st), answer.Mode)
		}
		if answer.Mode == quota.Fit {
			break
		}
	}
	return answer, c.about(&answer, st)
}

// about returns the options that an answer is about.
func (c *chooser) about(answer *quota.Answer, st stage) asked {
	about := asked{}
	for i, cand := range c.podSets {
		flavor := c.flavorOf(answer, cand.podSet.Name)
		for _, t := range st.options[i] {
			if t.standing.Flavor == flavor {
				about[cand.podSet.Name] = t
			}
		}
	}
	return about
}

// told corrects, in the standings, what Kueue says of a flavor that it was asked about alone, with a look for victims.
func (c *chooser) told(about asked, m quota.Mode) {
	for i := range c.out.Decision.Standings {
		s := &c.out.Decision.Standings[i]
		if t, ok := about[s.PodSet]; ok && t.standing.Flavor == s.Flavor && t.standing.Alternative == s.Alternative && s.Quota == string(quota.Wait) {
			s.Quota = string(m)
		}
	}
}

// flavorOf returns the flavor that an answer gives to a podset's devices.
func (c *chooser) flavorOf(a *quota.Answer, podSet string) string {
	for i := range a.PodSets {
		if a.PodSets[i].Name == podSet {
			return a.PodSets[i].Flavors[corev1.ResourceName(c.request.Policy.Spec.QuotaResource)]
		}
	}
	return ""
}

// One choice asks Kueue at most maxAsks times, and has it look for victims at most maxLooks times: a Workload with many
// podsets and alternatives must not hold up all others.
const (
	maxAsks  = 256
	maxLooks = 32
)

// ask asks Kueue with the first n options of each podset, cheaply where that is enough.
func (c *chooser) ask(ctx context.Context, st stage, n int) quota.Answer {
	plan := c.plan(st, n)
	a, again := c.Decider.asks(ctx, c.kueue, c.waiter, plan, true)
	c.again = again
	if c.asks++; !a.Final && c.looks < maxLooks {
		c.looks++
		a, c.again = c.Decider.asks(ctx, c.kueue, c.waiter, plan, false)
	}
	return a
}

// steerable says whether a plan can be written into the Workload: one with many affinity terms of its own takes few flavors.
func (c *chooser) steerable(plan flavors.Plan) bool {
	return c.request.Policy.Steer(c.waiter.Workload.DeepCopy(), plan) == nil
}

// unwritable says why not even one flavor can be opened: the Workload has too many affinity terms of its own. Nil where one can.
func (c *chooser) unwritable() error {
	return c.request.Policy.Steer(c.waiter.Workload.DeepCopy(), flavors.Plan{Allowed: []string{c.request.Policy.Flavors[0].Name}})
}

// plan opens the first n options of each podset.
func (c *chooser) plan(st stage, n int) flavors.Plan {
	plan := flavors.Plan{AllowedFor: map[string][]string{}, Charge: map[string]int64{}, Overhead: c.waiter.Overhead}
	for i, cand := range c.podSets {
		for _, t := range st.options[i][:min(n, len(st.options[i]))] {
			plan.AllowedFor[cand.podSet.Name] = append(plan.AllowedFor[cand.podSet.Name], t.standing.Flavor)
			plan.Charge[cand.podSet.Name] = t.option.Charge
		}
	}
	return plan
}
