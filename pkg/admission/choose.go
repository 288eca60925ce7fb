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
	// Takes says whether a Workload's LocalQueue is not stopped, and its ClusterQueue is known and takes Workloads.
	Takes(w *kueue.Workload, clusterQueue string) bool
	// Priority returns that of a Workload that holds quota; false for others.
	Priority(uid types.UID) (int32, bool)
	// Known says whether a Workload of that name holds quota.
	Known(w *kueue.Workload) bool
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
	// Like is what Likeness returned, for ChooseAmong; empty to be like no other.
	Like string
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
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &chooser{Decider: d, snapshot: s, kueue: k, waiter: w, request: w.Request}
	out := c.choose(ctx)
	c.note(c.own, &out.Decision)
	return out
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
	// asks and looks count the questions to Kueue, and those to look for victims.
	asks, looks int
	// refused is the first decision that took candidates out: there is quota, and no room for all podsets at once.
	refused *Decision
	// again asks anew for the last answer; nil where it is one that can be taken.
	again func() quota.Answer
	// quotaSays is the first answer that refused quota.
	quotaSays *quota.Answer
	// own are the times of the waiter's own at which the choice may change.
	own ownTimes
}

// candidates are the options of one podset.
type candidates struct {
	podSet *PodSet
	// trials are those on flavors that the queue lists, foreign the others.
	trials, foreign []trial
	// out holds what is no candidate any more.
	out map[offerKey]bool
}

// offerKey is what Kueue tells options apart by: a flavor's index, and what it costs.
type offerKey struct {
	flavor int
	charge int64
}

func keyOf(o flavors.Option) offerKey { return offerKey{o.Flavor, o.Charge} }

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
	for i := range c.request.PodSets {
		ps := &c.request.PodSets[i]
		if !c.request.Policy.Asks(ps.Shape) {
			continue
		}
		cand := &candidates{podSet: ps, out: map[offerKey]bool{}}
		for _, o := range c.request.Policy.Options(ps.Shape) {
			t := c.Decider.try(ctx, c.snapshot, c.request, ps.least(), o)
			c.out.Decision.Standings = append(c.out.Decision.Standings, t.standing)
			c.out.Decision.note(t.until)
			if !c.waiter.lists(t.standing.Flavor) {
				cand.foreign = append(cand.foreign, t)
				continue
			}
			cand.trials = append(cand.trials, t)
		}
		c.podSets = append(c.podSets, cand)
	}
	halves(c.waiter, &c.out.Decision, func(plan flavors.Plan) quota.Answer {
		a, _ := c.Decider.asks(ctx, c.kueue, c.waiter, plan, true)
		return a
	})
}

// infeasible says whether some podset can never be placed, and makes that the decision. It is rejected where the policy says
// so, and only where no other flavor of the policy, which the queue may list one day, could serve it.
func (c *chooser) infeasible() bool {
	hopeful := func(t trial) bool { return t.standing.Standing != v1alpha1.StandingImpossible }
	for _, cand := range c.podSets {
		if len(cand.trials) == 0 || slices.ContainsFunc(cand.trials, hopeful) {
			continue
		}
		settled, largest := true, int64(0)
		for _, t := range cand.trials {
			settled, largest = settled && t.settled, max(largest, t.largest)
		}
		dec := &c.out.Decision
		dec.explain(cand.trials[0].standing)
		if largest > 0 {
			dec.Message = cut(fmt.Sprintf("%s; the most that one node has for it is %d", dec.Message, largest), maxDecisionMessage)
		}
		unsettled := func(t trial) bool { return hopeful(t) || !t.settled }
		if settled && !slices.ContainsFunc(cand.foreign, unsettled) && c.request.Policy.Spec.OnInfeasible == v1alpha1.OnInfeasibleReject {
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
	case cand.out[keyOf(t.option)]:
		return false
	case t.standing.Standing == v1alpha1.StandingFits:
	case t.standing.Standing != v1alpha1.StandingBusy:
		return false
	default:
		if c.waitedFor(t) {
			return false
		}
	}
	if until, ok := c.waiter.Closed[name]; ok && c.request.Now.Before(until) {
		c.own.closed = append(c.own.closed, name)
		return false
	}
	return true
}

// waitedFor says that a flavor was waited for long enough. What was lost within the grace is waited for regardless.
func (c *chooser) waitedFor(t trial) bool {
	since, ok := c.waiter.Since[t.standing.Flavor]
	return ok && !t.returning && !c.request.Now.Before(since.Add(c.patience()))
}

// patience is how long a flavor with quota and busy devices is waited for.
func (c *chooser) patience() time.Duration {
	return time.Duration(flavors.Seconds(c.request.Policy.Spec.Fallback.AfterSeconds, 60)) * time.Second
}

// pass asks Kueue about what is left of the candidates. done says that the choice is made; again that some were dropped.
func (c *chooser) pass(ctx context.Context) (again, done bool) {
	for _, st := range c.stages() {
		if c.asks >= maxAsks {
			break
		}
		answer, about := c.grow(ctx, st)
		if answer.Mode == quota.NoFit || answer.Mode == quota.Wait {
			if c.quotaSays == nil {
				c.quotaSays = &answer
			}
			if c.exhausted == nil && !answer.Refused && st.fits() {
				c.exhausted = &st
			}
			continue
		}
		dec := c.decide(ctx, &answer)
		if dec.Verdict == v1alpha1.VerdictAdmit && len(about) == len(c.podSets) {
			if c.again != nil { // what is taken must be this copy's own
				answer = c.again()
			}
			c.open(&answer, dec, about)
			return false, true
		}
		if answer.Mode != quota.Preempt {
			c.inverted(ctx, &answer, about)
		}
		if answer.Mode != quota.Preempt && !c.waitedForAll(about) {
			c.wait(about, dec)
			return false, true
		}
		if answer.Mode == quota.Preempt { // the message is of the book without those that would go
			dec.Message = cut("Kueue would preempt for it, in vain: even then "+dec.Message, maxDecisionMessage)
		}
		if c.refused == nil {
			c.refused = &dec
		}
		return c.drop(about), false
	}
	return false, false
}

// waitedForAll says that every flavor of an answer was waited for long enough: each fits alone, and not all together.
func (c *chooser) waitedForAll(about asked) bool {
	for _, t := range about {
		if !c.waitedFor(t) {
			return false
		}
	}
	return true
}

// decide holds an answer against the ledger: what its victims hold, and what is ending of those before, is this Workload's.
func (c *chooser) decide(ctx context.Context, a *quota.Answer) Decision {
	victims := map[types.UID]bool{}
	for _, v := range a.Victims {
		victims[v.UID] = !v.Offered // what is only offered to another is its own
	}
	return c.decideWithout(ctx, a, victims)
}

// decideWithout holds an answer against the ledger as if some Workloads were gone.
func (c *chooser) decideWithout(ctx context.Context, a *quota.Answer, gone map[types.UID]bool) Decision {
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
	s := c.Decider.memory.gone.from(c.snapshot, gone).WithoutEnding(c.waiter.Victims, c.request.Now)
	r.without = s != c.snapshot
	return c.Decider.decide(ctx, s, &r)
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
	for _, v := range a.Victims {
		if !v.Offered {
			c.out.Victims = append(c.out.Victims, v)
		}
	}
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
		if _, known := c.waiter.Since[t.standing.Flavor]; !known {
			if c.patience() > 0 {
				c.out.Decision.note(c.request.Now.Add(c.patience()))
			}
		} else if !c.waitedFor(t) {
			c.own.since = append(c.own.since, t.standing.Flavor)
		}
	}
}

// drop takes the flavors of an answer from the candidates: those that do not fit, or, where each fits alone and not all
// together, all of them. It says whether it took any.
func (c *chooser) drop(about asked) bool {
	dropped := false
	for _, all := range []bool{false, true} {
		for _, cand := range c.podSets {
			t, ok := about[cand.podSet.Name]
			if ok && (all || t.standing.Standing != v1alpha1.StandingFits) {
				cand.out[keyOf(t.option)], dropped = true, true
			}
		}
		if dropped {
			break
		}
	}
	return dropped
}

// closed ends a choice without an offer. Where quota is all that is missing, what fits stays open, for Kueue to take when
// quota comes. A queue that takes nothing is not short of quota: once it does, all that were open would go at once, however
// few devices there are.
func (c *chooser) closed() {
	dec := &c.out.Decision
	if c.quotaSays != nil {
		dec.Reason = v1alpha1.ReasonQuotaExhausted
		dec.Message = cut("Kueue has no quota for it: "+c.quotaSays.Message, maxDecisionMessage)
		if !c.kueue.Takes(c.waiter.Workload, c.waiter.ClusterQueue.Name) {
			dec.Reason, dec.Message = v1alpha1.ReasonQueueInactive, cut(c.quotaSays.Message, maxDecisionMessage)
		}
		if err := c.unwritable(); err != nil { // it is not quota that is missing
			dec.Reason, dec.Message = v1alpha1.ReasonClaimUnsupported, cut("no flavor can be opened to it: "+err.Error(), maxDecisionMessage)
		}
	}
	if c.exhausted != nil {
		st := stage{}
		for _, options := range c.exhausted.options {
			st.options = append(st.options, slices.DeleteFunc(slices.Clone(options), func(t trial) bool { return t.standing.Standing != v1alpha1.StandingFits }))
		}
		for n := len(c.request.Policy.Flavors); n > 0; n-- {
			if plan := c.plan(st, n); c.steerable(plan) {
				c.out.Plan = plan
				return
			}
		}
		return
	}
	if c.quotaSays != nil {
		return
	}
	if c.refused != nil {
		dec.Reason, dec.Message = c.refused.Reason, c.refused.Message
		return
	}
	for _, cand := range c.podSets {
		if best := cand.best(); best != nil {
			dec.explain(*best)
			return
		}
	}
	dec.Reason, dec.Message = v1alpha1.ReasonUndecided, "no flavor is open to it now: what fits is closed for it for a while, after a reservation that could not be kept"
	if c.asks >= maxAsks {
		dec.Message = "it has more alternatives than are looked at: the search was cut short"
	}
	if !slices.ContainsFunc(c.podSets, func(cand *candidates) bool { return len(cand.trials) > 0 }) {
		dec.Reason, dec.Message = v1alpha1.ReasonQuotaExhausted, fmt.Sprintf("ClusterQueue %s has quota for no flavor of DevicePolicy %s", c.waiter.ClusterQueue.Name, c.request.Policy.Name)
	}
}

// best returns the standing nearest to fitting; nil where one fits, so that it is not devices that are missing.
func (cand *candidates) best() *v1alpha1.FlavorStanding {
	var best *v1alpha1.FlavorStanding
	for i := range cand.trials {
		if t := &cand.trials[i].standing; best == nil || rankOf(t.Standing) < rankOf(best.Standing) {
			best = t
		}
	}
	if best == nil || best.Standing == v1alpha1.StandingFits {
		return nil
	}
	return best
}
