package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// Kueue says what Kueue would do with a Workload; *quota.Snapshot does.
type Kueue interface {
	Ask(ctx context.Context, r quota.Request) quota.Answer
}

// Waiter is a Workload that holds no quota, with what is remembered of its wait.
type Waiter struct {
	Request  *Request
	Workload *kueue.Workload
	// ClusterQueue is where its LocalQueue leads.
	ClusterQueue *kueue.ClusterQueue
	// Overhead is what RuntimeClasses fix, by podset.
	Overhead map[string]corev1.ResourceList
	// Lookup returns a ResourceFlavor, or nil.
	Lookup func(name string) *kueue.ResourceFlavor
	// Since holds the flavors that were waited for, with since when.
	Since map[string]time.Time
	// Closed holds the flavors that are not tried before a time.
	Closed map[string]time.Time
	// Victims are who Kueue was let preempt for it: what of theirs is ending is its own.
	Victims map[types.UID]bool
}

// Choice is what a Waiter may have now.
type Choice struct {
	// Plan is the allowed set with its charge; its sets are empty where nothing is open.
	Plan flavors.Plan
	// Decision is the reason, with the standings; its PodSets are what an offer counts on.
	Decision Decision
	// Offer is what Kueue is expected to answer to the open set: Fit, Borrow or Preempt. Nil where nothing is open, or what
	// is open waits for quota.
	Offer *quota.Answer
	// Waits are the flavors that are waited for although the next may be free: their clocks run.
	Waits []string
	// Victims are who Kueue would preempt for the offer.
	Victims []quota.Victim
}

// Open says whether any flavor is open.
func (c *Choice) Open() bool {
	return len(c.Plan.Allowed) > 0 || len(c.Plan.AllowedFor) > 0
}

// Choose says which flavors a Waiter may have now, on what the ledger holds and Kueue would do. Candidates are the flavors
// of its queue on which every podset with devices fits or is Busy, in the user's and the policy's order; Kueue is asked with
// growing prefixes of them, those of one charge at a time; its answer is held against the ledger for all podsets at once. See
// DESIGN "Choose".
func (d *Decider) Choose(ctx context.Context, s *ledger.Snapshot, k Kueue, w *Waiter) Choice {
	c := &chooser{Decider: d, snapshot: s, kueue: k, waiter: w, request: w.Request}
	return c.choose(ctx)
}

// chooser is one Choose.
type chooser struct {
	*Decider
	snapshot *ledger.Snapshot
	kueue    Kueue
	waiter   *Waiter
	request  *Request
	// podSets are those with devices.
	podSets []*candidates
	out     Choice
	// exhausted is the first stage that found no quota and on which every podset fits, with Kueue's answer.
	exhausted *stage
	// quotaSays is the first answer that refused quota.
	quotaSays *quota.Answer
}

// candidates are the options of one podset.
type candidates struct {
	podSet *PodSet
	trials []trial
	// out holds the flavors that are no candidates any more, by index.
	out map[int]bool
}

// stage is one set of options to ask Kueue about: of each podset those of one charge.
type stage struct {
	options [][]trial
}

func (c *chooser) choose(ctx context.Context) Choice {
	dec := &c.out.Decision
	dec.Verdict, dec.LedgerVersion = v1alpha1.VerdictWait, c.snapshot.Version
	if r := c.request.Refusal; r != nil {
		dec.Reason, dec.Message = r.Reason, r.Message
		return c.out
	}
	c.try(ctx)
	if c.infeasible() {
		return c.out
	}
	for range maxRounds {
		again, done := c.pass(ctx)
		if done {
			return c.out
		}
		if !again {
			break
		}
	}
	c.closed()
	return c.out
}

// maxRounds bounds how often candidates are dropped and Kueue is asked about the rest.
const maxRounds = 64

// try takes the standings of every option of every podset with devices.
func (c *chooser) try(ctx context.Context) {
	group := c.request.Policy.Group(c.waiter.ClusterQueue)
	for i := range c.request.PodSets {
		ps := &c.request.PodSets[i]
		if !c.request.Policy.Asks(ps.Shape) {
			continue
		}
		cand := &candidates{podSet: ps, out: map[int]bool{}}
		for _, o := range c.request.Policy.Options(ps.Shape) {
			t := c.Decider.try(ctx, c.snapshot, c.request, ps, o)
			c.out.Decision.Standings = append(c.out.Decision.Standings, t.standing)
			c.out.Decision.note(t.until)
			name := c.request.Policy.Flavors[o.Flavor].Name
			inQueue := group != nil && slices.ContainsFunc(group.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == name })
			if !inQueue {
				cand.out[o.Flavor] = true
			}
			cand.trials = append(cand.trials, t)
		}
		c.podSets = append(c.podSets, cand)
	}
	Halves(ctx, c.kueue, c.waiter, &c.out.Decision)
}

// infeasible says whether some podset can never be placed, and makes that the decision.
func (c *chooser) infeasible() bool {
	for _, cand := range c.podSets {
		settled, largest := true, int64(0)
		for _, t := range cand.trials {
			if t.standing.Standing != v1alpha1.StandingImpossible {
				settled = false
				break
			}
			settled = settled && t.settled
			largest = max(largest, t.largest)
		}
		if slices.ContainsFunc(cand.trials, func(t trial) bool { return t.standing.Standing != v1alpha1.StandingImpossible }) || len(cand.trials) == 0 {
			continue
		}
		dec := &c.out.Decision
		dec.explain(cand.trials[0].standing)
		if largest > 0 {
			dec.Message = cut(fmt.Sprintf("%s; the most that one node has for it is %d", dec.Message, largest), maxDecisionMessage)
		}
		if settled && c.request.Policy.Spec.OnInfeasible == v1alpha1.OnInfeasibleReject {
			dec.Verdict = v1alpha1.VerdictReject
		}
		return true
	}
	return false
}

// candidate says whether an option is one: hopeful, not closed for this Workload, and not waited for long enough.
func (c *chooser) candidate(cand *candidates, t trial) bool {
	name := t.standing.Flavor
	switch {
	case cand.out[t.option.Flavor]:
		return false
	case t.standing.Standing == v1alpha1.StandingFits:
	case t.standing.Standing != v1alpha1.StandingBusy:
		return false
	default:
		if since, ok := c.waiter.Since[name]; ok && !t.returning && !c.request.Now.Before(since.Add(c.patience())) {
			return false
		}
	}
	if until, ok := c.waiter.Closed[name]; ok && c.request.Now.Before(until) {
		c.out.Decision.note(until)
		return false
	}
	return true
}

// patience is how long a flavor with quota and busy devices is waited for.
func (c *chooser) patience() time.Duration {
	return time.Duration(flavors.Seconds(c.request.Policy.Spec.Fallback.AfterSeconds, 60)) * time.Second
}

// pass asks Kueue about what is left of the candidates. done says that the choice is made; again that some were dropped.
func (c *chooser) pass(ctx context.Context) (again, done bool) {
	for _, st := range c.stages() {
		answer, asked := c.grow(ctx, st)
		switch answer.Mode {
		case quota.Fit, quota.Borrow:
			dec := c.decide(ctx, &answer)
			if dec.Verdict == v1alpha1.VerdictAdmit {
				c.open(&answer, dec, asked)
				return false, true
			}
			c.wait(asked, dec)
			return false, true
		case quota.Preempt:
			if dec := c.decide(ctx, &answer); dec.Verdict == v1alpha1.VerdictAdmit {
				c.out.Victims = answer.Victims
				c.open(&answer, dec, asked)
				return false, true
			}
			c.drop(asked)
			return true, false
		}
		if c.quotaSays == nil {
			c.quotaSays = &answer
		}
		if c.exhausted == nil && st.fits() {
			c.exhausted = &st
		}
	}
	return false, false
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
		if answer = c.ask(ctx, st, n); answer.Mode == quota.Fit {
			break
		}
	}
	about := asked{}
	for i, cand := range c.podSets {
		flavor := c.flavorOf(&answer, cand.podSet.Name)
		for _, t := range st.options[i] {
			if t.standing.Flavor == flavor {
				about[cand.podSet.Name] = t
			}
		}
	}
	return answer, about
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

// ask asks Kueue with the first n options of each podset, cheaply where that is enough.
func (c *chooser) ask(ctx context.Context, st stage, n int) quota.Answer {
	plan := c.plan(st, n)
	a := c.fitOnly(ctx, plan)
	if !a.Final {
		a = askKueue(ctx, c.kueue, c.waiter, plan, false)
	}
	return a
}

func (c *chooser) fitOnly(ctx context.Context, plan flavors.Plan) quota.Answer {
	return askKueue(ctx, c.kueue, c.waiter, plan, true)
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

// decide holds an answer against the ledger: what its victims hold, and what is ending of those before, is this Workload's.
func (c *chooser) decide(ctx context.Context, a *quota.Answer) Decision {
	r := *c.request
	r.PodSets = slices.Clone(r.PodSets)
	for i := range r.PodSets {
		ps := &r.PodSets[i]
		at := slices.IndexFunc(a.PodSets, func(p quota.PodSetAnswer) bool { return p.Name == ps.Name })
		if at < 0 {
			continue
		}
		resource := corev1.ResourceName(r.Policy.Spec.QuotaResource)
		if !r.Policy.Asks(ps.Shape) {
			resource = corev1.ResourceCPU
		}
		ps.Count = min(ps.Count, a.PodSets[at].Count)
		ps.Assigned = AssignedOf(a.PodSets[at].Flavors, resource, c.waiter.Lookup)
		for _, cand := range c.podSets {
			if cand.podSet.Name == ps.Name {
				ps.Assigned.Charge = c.chargeOf(cand, ps.Assigned.Flavor)
			}
		}
	}
	victims := map[types.UID]bool{}
	for _, v := range a.Victims {
		victims[v.UID] = true
	}
	return c.Decider.Decide(ctx, c.snapshot.Without(victims).WithoutEnding(c.waiter.Victims), &r)
}

// chargeOf returns what a pod costs by the first candidate of a flavor.
func (c *chooser) chargeOf(cand *candidates, flavor string) *int64 {
	for _, t := range cand.trials {
		if t.standing.Flavor == flavor && c.candidate(cand, t) {
			return &t.option.Charge
		}
	}
	return nil
}

// open makes an answer the offer: exactly its flavors.
func (c *chooser) open(a *quota.Answer, dec Decision, about asked) {
	plan := flavors.Plan{AllowedFor: map[string][]string{}, Charge: map[string]int64{}, Overhead: c.waiter.Overhead}
	var names []string
	for _, cand := range c.podSets {
		t := about[cand.podSet.Name]
		plan.AllowedFor[cand.podSet.Name] = []string{t.standing.Flavor}
		plan.Charge[cand.podSet.Name] = t.option.Charge
		if !slices.Contains(names, t.standing.Flavor) {
			names = append(names, t.standing.Flavor)
		}
	}
	c.out.Plan, c.out.Offer = plan, a
	c.out.Decision.PodSets = dec.PodSets
	how := map[quota.Mode]string{quota.Fit: "has quota for it", quota.Borrow: "can borrow quota for it", quota.Preempt: "can preempt for it"}[a.Mode]
	c.out.Decision.Message = cut(fmt.Sprintf("Kueue may give it %s: it fits, and ClusterQueue %s %s", strings.Join(names, ", "), c.waiter.ClusterQueue.Name, how), maxDecisionMessage)
}

// wait leaves the Workload closed for a flavor with quota whose devices are not free.
func (c *chooser) wait(about asked, dec Decision) {
	c.out.Decision.note(dec.Until)
	c.out.Decision.Reason, c.out.Decision.Message = dec.Reason, dec.Message
	for _, cand := range c.podSets {
		t, ok := about[cand.podSet.Name]
		if !ok || t.returning || slices.Contains(c.out.Waits, t.standing.Flavor) {
			continue
		}
		c.out.Waits = append(c.out.Waits, t.standing.Flavor)
		since, known := c.waiter.Since[t.standing.Flavor]
		if !known {
			since = c.request.Now
		}
		c.out.Decision.note(since.Add(c.patience()))
	}
}

// drop takes the flavors of an answer from the candidates: nobody is preempted for what could not be placed.
func (c *chooser) drop(about asked) {
	dropped := false
	for _, cand := range c.podSets {
		if t, ok := about[cand.podSet.Name]; ok && t.standing.Standing != v1alpha1.StandingFits {
			cand.out[t.option.Flavor], dropped = true, true
		}
	}
	for _, cand := range c.podSets {
		if t, ok := about[cand.podSet.Name]; ok && !dropped { // each fits alone, not all together
			cand.out[t.option.Flavor] = true
		}
	}
}

// closed ends a choice without an offer. Where quota is all that is missing, what fits stays open, for Kueue to take when
// quota comes.
func (c *chooser) closed() {
	dec := &c.out.Decision
	if c.quotaSays != nil {
		dec.Reason = v1alpha1.ReasonQuotaExhausted
		dec.Message = cut("Kueue has no quota for it: "+c.quotaSays.Message, maxDecisionMessage)
	}
	if c.exhausted != nil {
		st := stage{}
		for _, options := range c.exhausted.options {
			st.options = append(st.options, slices.DeleteFunc(slices.Clone(options), func(t trial) bool { return t.standing.Standing != v1alpha1.StandingFits }))
		}
		c.out.Plan = c.plan(st, len(c.request.Policy.Flavors))
		return
	}
	if c.quotaSays != nil {
		return
	}
	for _, cand := range c.podSets {
		var best *v1alpha1.FlavorStanding
		for i := range cand.trials {
			t := &cand.trials[i].standing
			if t.Standing != v1alpha1.StandingFits && (best == nil || rankOf(t.Standing) < rankOf(best.Standing)) {
				best = t
			}
		}
		if best != nil {
			dec.explain(*best)
			return
		}
	}
	if dec.Reason == "" {
		dec.Reason, dec.Message = v1alpha1.ReasonUndecided, "no flavor is open to it now"
	}
}
