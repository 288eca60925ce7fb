package round

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// An offer that Kueue has not taken is nudged once after nudgeAfter, and closed after closeAfter.
const (
	nudgeAfter = 10 * time.Second
	closeAfter = 20 * time.Second
)

// maxRest is how long at most an offer that Kueue has not taken is closed: Kueue may be away, or wait for pods to be ready.
const maxRest = time.Minute

// preempting begins the name of an offer that is not there before others were preempted.
const preempting = "preempt "

// maxVictims is how many victims a Placement remembers.
const maxVictims = 256

// offered is an offer that Kueue has not taken yet.
type offered struct {
	set    string
	since  time.Time
	nudged bool
}

// pass names what the last offers were made on: nothing is offered anew while that is the same and no time has come.
type pass struct {
	ledger, quota, inputs int64
	waiters               string
	until                 time.Time
}

// offer goes over those that wait, in order, on working copies of devices and quota: each that is offered something takes
// it at once, so that the next sees what is left.
func (r *round) offer(ctx context.Context) error {
	now := pass{ledger: r.snapshot.Version, quota: r.Quota.Version(), inputs: r.inputs, waiters: namesOf(r.waiters)}
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if now.ledger == last.ledger && now.quota == last.quota && now.inputs == last.inputs && now.waiters == last.waiters &&
		(last.until.IsZero() || r.now.Before(last.until)) {
		if !last.until.IsZero() {
			r.again(last.until)
		}
		return nil
	}
	r.forgetOffers()
	kueueNow, err := r.kueueNow()
	if err != nil {
		return fmt.Errorf("take quota snapshot: %w", err)
	}
	r.asIs = nil // from here on it is a working copy
	if r.Store.Offers == nil {
		r.Store.Offers = map[types.UID]placements.Offer{}
	}
	for _, w := range r.waiters { // each is offered it anew in its turn
		delete(r.Store.Offers, w.workload.UID)
	}
	t := &turns{round: r, devices: r.withoutLeft(), quota: kueueNow, heads: map[string]string{}, waiting: map[v1alpha1.Reason]int{}, failed: len(r.left) > 0}
	r.offeredFirst(kueueNow)
	var failed []error
	for i := range r.waiters {
		if err := t.next(ctx, &r.waiters[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("workload %s/%s: %w", r.waiters[i].workload.Namespace, r.waiters[i].workload.Name, err))
			t.failed = true
		} else if err != nil {
			t.failed = true
		}
	}
	t.measure()
	if !r.due.IsZero() && (t.until.IsZero() || r.due.Before(t.until)) {
		t.until = r.due
	}
	if !t.until.IsZero() {
		r.again(t.until)
	}
	if r.next > 0 { // a record that waits for its turn to be rewritten is one of the reasons to go over them again
		now.until = r.now.Add(r.next)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last = now; t.failed {
		r.last = pass{}
	}
	return errors.Join(failed...)
}

// offeredFirst has those go first whom something was offered that Kueue may be taking at this moment, as this round cannot
// see yet: given to who came since and stands before them, it would be held by both, and one would be evicted for nothing.
// Of a StrictFIFO queue it is the head that Kueue looks at, so there the order stays; and who was offered a preemption counts
// on nothing that is free, until Kueue has preempted for it: what a victim gave back is not the victim's to take again.
func (r *round) offeredFirst(k *quota.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	underWay := func(w waiting) int {
		o := r.offers[w.workload.UID]
		switch {
		case o == nil, k.StrictFIFO(w.managed.ClusterQueue.Name), strings.HasPrefix(o.set, preempting) && !preempted(k, &w):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(r.waiters, func(a, b waiting) int { return underWay(a) - underWay(b) })
}

// preempted says whether one of those whom Kueue was let preempt for a Workload holds no quota any more.
func preempted(k *quota.Snapshot, w *waiting) bool {
	return w.placement != nil && slices.ContainsFunc(w.placement.Status.Victims, func(uid string) bool { return !k.Holds(types.UID(uid)) })
}

func namesOf(waiters []waiting) string {
	var b strings.Builder
	for _, w := range waiters {
		fmt.Fprintf(&b, "%s %s %t", w.workload.UID, w.workload.ResourceVersion, w.rests)
		if w.placement != nil { // what is remembered may come back later than what was written after it
			s := &w.placement.Status
			fmt.Fprintf(&b, " %v %v %d", s.Waits, s.Closed, len(s.Victims))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// turns is one pass over the waiters.
type turns struct {
	*round
	devices *ledger.Snapshot
	quota   *quota.Snapshot
	// heads names the first waiter of each StrictFIFO ClusterQueue, behind which the others stand.
	heads  map[string]string
	until  time.Time
	failed bool
	// waiting and inverted count those that wait, by reason, and of them those that lower priority keeps waiting.
	waiting  map[v1alpha1.Reason]int
	inverted int
	// among are the choices of this pass so far.
	among admission.Choices
}

// next is one waiter's turn.
func (t *turns) next(ctx context.Context, w *waiting) error {
	wl, p := w.workload, w.managed.Policy
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("workload", client.ObjectKeyFromObject(wl)))
	queue := w.managed.ClusterQueue.Name
	if t.quota.StrictFIFO(queue) && t.quota.Takes(wl, queue) { // what a stopped LocalQueue holds back is not in the queue
		if head, ok := t.heads[queue]; ok {
			t.forgetOffer(wl)
			if w.rests {
				return nil
			}
			t.waiting[v1alpha1.ReasonBehindQueueHead]++
			return t.close(ctx, wl, p, admission.Decision{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonBehindQueueHead, LedgerVersion: t.devices.Version,
				Message: fmt.Sprintf("ClusterQueue %s is StrictFIFO, and its head waits", queue) + inNamespace(head, wl)})
		}
		t.heads[queue] = wl.Namespace + "/" + wl.Name
	}
	if w.rests {
		t.forgetOffer(wl)
		return nil
	}
	var unread error
	asks, err := t.asks(ctx, w, &unread)
	if err != nil {
		return err
	}
	choice := t.Decider.ChooseAmong(ctx, t.devices, t.quota, asks, &t.among)
	if unread != nil { // a choice without a flavor's labels is none
		t.among.Forget()
		return unread
	}
	t.Metrics.Decisions.WithLabelValues(string(choice.Decision.Verdict), string(choice.Decision.Reason)).Inc()
	t.waiting[choice.Decision.Reason]++
	if choice.Decision.Inverted() {
		t.inverted++
	}
	if u := choice.Decision.Until; !u.IsZero() && (t.until.IsZero() || u.Before(t.until)) {
		t.until = u
	}
	if choice.Offer != nil {
		t.take(asks.Request, wl, &choice)
	}
	return t.write(ctx, w, &choice)
}

// inNamespace names the head of a queue to whoever shares its namespace.
func inNamespace(head string, wl *kueue.Workload) string {
	if namespace, name, _ := strings.Cut(head, "/"); namespace == wl.Namespace {
		return ": " + name
	}
	return ""
}

// take takes an offer from the working copies.
func (t *turns) take(req *admission.Request, wl *kueue.Workload, c *admission.Choice) {
	offer := offerOf(wl, req, c.Decision.PodSets)
	t.devices = t.devices.With(offer.Holder, offer.Claims)
	t.Store.Offers[wl.UID] = offer
	t.quota.Take(*c.Offer)
	t.among.Forget()
}

// offerOf returns what podsets that were decided take.
func offerOf(wl *kueue.Workload, req *admission.Request, podSets []v1alpha1.PlacementPodSet) placements.Offer {
	offer := placements.Offer{Holder: ledger.Holder{Kind: ledger.HolderPlacement, Managed: true, Namespace: wl.Namespace, Name: wl.Name, Workload: wl.UID}}
	for _, p := range podSets {
		for i := range req.PodSets {
			if req.PodSets[i].Name == p.Name {
				offer.Claims = append(offer.Claims, admission.Claims(p, &req.PodSets[i])...)
			}
		}
	}
	return offer
}

// forgetTaken drops what was offered to those that wait, which are offered it anew, and to those that are not about to be
// promised anything any more.
func (r *round) forgetTaken(workloads []*kueue.Workload) {
	holds := map[types.UID]bool{}
	for _, wl := range workloads {
		holds[wl.UID] = reserved(wl) && !finished(wl) && ptr.Deref(wl.Spec.Active, true) && wl.DeletionTimestamp == nil &&
			!meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
	}
	for uid := range r.Store.Offers {
		if !holds[uid] && !r.waits(uid) {
			delete(r.Store.Offers, uid)
		}
	}
}

func (r *round) waits(uid types.UID) bool {
	return slices.ContainsFunc(r.waiters, func(w waiting) bool { return w.workload.UID == uid })
}

// write writes what came of a turn: first what must be remembered, then the allowed set.
func (t *turns) write(ctx context.Context, w *waiting, c *admission.Choice) error {
	wl, p := w.workload, w.managed.Policy
	if c.Decision.Verdict == v1alpha1.VerdictReject {
		if err := t.record(ctx, wl, p, c.Decision); err != nil {
			return err
		}
		return t.Writer.Reject(ctx, wl, c.Decision.Reason)
	}
	if c.Offer == nil {
		t.forgetOffer(wl)
	}
	change := t.remember(w, c)
	if c.Offer == nil || change != nil || w.placement != nil && w.placement.Status.Record != nil {
		if err := t.recordWith(ctx, wl, p, c.Decision, change); err != nil {
			return err
		}
	}
	if change != nil {
		faultpoint.Reach(log.FromContext(ctx), faultpoint.AfterRemember)
	}
	if !c.Open() {
		if t.closedAlready(w) {
			return nil
		}
		_, err := t.Writer.Steer(ctx, wl, p, flavors.Plan{})
		return err
	}
	if c.Offer != nil {
		if closed, err := t.patience(ctx, w, c); closed || err != nil {
			return err
		}
	}
	written, err := t.Writer.Steer(ctx, wl, p, c.Plan)
	if err != nil {
		return err
	}
	if written {
		if c.Offer != nil {
			t.Metrics.Offers.WithLabelValues("Made").Inc()
		}
		t.Events.Eventf(wl, nil, corev1.EventTypeNormal, "FlavorsOpened", "Open", "Kueue may try %s", strings.Join(open(c.Plan), ", "))
	}
	return nil
}

// open returns the flavors that a plan opens, sorted.
func open(plan flavors.Plan) []string {
	names := slices.Clone(plan.Allowed)
	for _, of := range plan.AllowedFor {
		names = append(names, of...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// remember returns what a choice adds to the status: a flavor that is waited for from now on, victims that may end for it;
// nil for nothing new. Of more victims than can be remembered the first are.
func (t *turns) remember(w *waiting, c *admission.Choice) func(*v1alpha1.PlacementStatus) {
	victims := c.Victims[:min(len(c.Victims), maxVictims)]
	add := func(s *v1alpha1.PlacementStatus) (news bool) {
		for _, f := range c.Waits {
			if !slices.ContainsFunc(s.Waits, func(x v1alpha1.FlavorWait) bool { return x.Flavor == f }) {
				s.Waits, news = append(s.Waits, v1alpha1.FlavorWait{Flavor: f, Since: metav1.NewTime(t.now)}), true
			}
		}
		for _, v := range victims {
			if !slices.Contains(s.Victims, string(v.UID)) {
				s.Victims, news = append(s.Victims, string(v.UID)), true
			}
		}
		return news
	}
	if len(c.Waits)+len(victims) == 0 {
		return nil
	}
	old := &v1alpha1.PlacementStatus{}
	if w.placement != nil {
		s := &w.placement.Status
		old.Waits, old.Victims = slices.Clip(s.Waits), slices.Clip(s.Victims) // add only appends
	}
	if !add(old) {
		return nil
	}
	p := w.managed.Policy
	return func(s *v1alpha1.PlacementStatus) {
		s.Waits = slices.DeleteFunc(s.Waits, func(x v1alpha1.FlavorWait) bool { return p.Flavor(x.Flavor) < 0 })
		add(s)
		if extra := len(s.Victims) - maxVictims; extra > 0 { // those of this choice are not the ones to go
			s.Victims = slices.DeleteFunc(s.Victims, func(uid string) bool {
				old := extra > 0 && !slices.ContainsFunc(victims, func(v quota.Victim) bool { return string(v.UID) == uid })
				if old {
					extra--
				}
				return old
			})
		}
	}
}

// patience looks at how long an offer is open. One that Kueue would take at once and has not is written anew, since Kueue
// passes over a change that comes while it looks at that very Workload; one that is not taken then either is closed for a
// backoff. Victims take their time to end: an offer that needs some is open for as long as a promise is waited for.
func (t *turns) patience(ctx context.Context, w *waiting, c *admission.Choice) (closed bool, err error) {
	wl, p := w.workload, w.managed.Policy
	o := t.offer(wl, c)
	limit, nudge := closeAfter, nudgeAfter
	if c.Offer.Mode == quota.Preempt {
		limit = p.ReleaseWait()
		nudge = limit
	}
	next := nudge
	if o.nudged {
		next = limit
	}
	age := t.now.Sub(o.since)
	switch {
	case age < next:
		if at := o.since.Add(next); t.until.IsZero() || at.Before(t.until) {
			t.until = at
		}
		return false, nil
	case next < limit:
		log.FromContext(ctx).V(2).Info("Nudged offer that Kueue has not taken", "flavors", o.set)
		if _, err := t.Writer.Steer(ctx, wl, p, flavors.Plan{}); err != nil { // the event of this write brings it back open
			return true, err
		}
		t.mu.Lock()
		o.nudged = true
		t.Metrics.Offers.WithLabelValues("Nudged").Inc()
		t.mu.Unlock()
		return true, nil
	}
	log.FromContext(ctx).Info("Closed offer that Kueue has not taken", "flavors", o.set)
	dec := c.Decision
	dec.Reason = v1alpha1.ReasonQuotaExhausted
	dec.Message = fmt.Sprintf("Kueue has not taken %s within %s, although it may: it is closed for a while", strings.Join(open(c.Plan), ", "), limit)
	err = t.recordWith(ctx, wl, p, dec, func(s *v1alpha1.PlacementStatus) {
		retry := &v1alpha1.PlacementRetry{Count: 1, Reason: dec.Reason, Message: dec.Message}
		if s.Retry != nil {
			retry.Count = s.Retry.Count + 1
		}
		s.Retry = retry
		eviction.Close(s, open(c.Plan), t.now, t.now.Add(min(eviction.Backoff(p.Spec.Retry, retry.Count), maxRest)))
	})
	if err != nil {
		return true, err
	}
	t.Metrics.Offers.WithLabelValues("Closed").Inc()
	t.forgetOffer(wl)
	_, err = t.Writer.Steer(ctx, wl, p, flavors.Plan{})
	return true, err
}

// offer returns what is remembered of an offer. Its time runs from when the Workload carries it.
func (t *turns) offer(wl *kueue.Workload, c *admission.Choice) *offered {
	set := strings.Join(open(c.Plan), ",")
	if c.Offer.Mode == quota.Preempt {
		set = preempting + set
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.offers[wl.UID]
	if o == nil || o.set != set {
		o = &offered{set: set, since: t.now}
		t.offers[wl.UID] = o
	}
	if !o.nudged && !slices.Equal(open(flavors.PlanOf(wl)), open(c.Plan)) {
		o.since = t.now
	}
	return o
}

// forgetOffer drops what is remembered of an offer that stands no more: the next one is a new one.
func (r *round) forgetOffer(wl *kueue.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.offers, wl.UID)
}

// forgetOffers drops the offers of those that do not wait any more.
func (r *round) forgetOffers() {
	waits := map[types.UID]bool{}
	for _, w := range r.waiters {
		waits[w.workload.UID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.offers {
		if !waits[uid] {
			delete(r.offers, uid)
		}
	}
	if r.offers == nil {
		r.offers = map[types.UID]*offered{}
	}
}

// kueueNow returns a copy of what Kueue knows in which nothing was taken, the same one for as long as that does not change.
func (r *round) kueueNow() (*quota.Snapshot, error) {
	if r.asIs != nil && r.asIs.Version == r.Quota.Version() {
		return r.asIs, nil
	}
	var err error
	r.asIs, err = r.Quota.Snapshot()
	return r.asIs, err
}

// halves adds to a decision on a Workload that holds quota what Kueue would say of each flavor: a shortage of devices and
// one of quota are two things. It is for the record alone.
func (r *round) halves(ctx context.Context, wl *kueue.Workload, m *policies.Managed, req *admission.Request, dec *admission.Decision) {
	snapshot, err := r.kueueNow()
	if err != nil {
		log.FromContext(ctx).V(2).Info("Left the quota out of a record", "why", err.Error())
		return
	}
	asks := waiterOf(req, wl, m, nil)
	if asks.Overhead, err = r.Policies.Overheads(ctx, wl); err != nil {
		log.FromContext(ctx).V(2).Info("Left the quota out of a record", "why", err.Error())
		return
	}
	admission.Halves(ctx, snapshot, asks, dec)
}
