// Package round goes over all managed Workloads whenever something changed that can help one: it opens flavors to those
// that wait for quota, decides those that hold it, writes what it promises and turns their checks Ready.
//
// It reads and writes; what fits is decided by package admission.
package round

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// Engine runs rounds, one at a time.
type Engine struct {
	Client client.Client
	Book   *ledger.Book
	// Quota knows what Kueue would do.
	Quota    *quota.Book
	Decider  *admission.Decider
	Policies *policies.Resolver
	Store    *placements.Store
	Writer   *steering.Writer
	Evictor  *eviction.Evictor
	Events   events.EventRecorder
	Metrics  *metrics.Metrics
	Clock    clock.PassiveClock
	// Synced says whether the ledger and the quota book have seen all that existed at the start.
	Synced func() bool
	// Heard says how long the watches that the ledger is fed by were silent; nil for watches that are always alive.
	Heard func() admission.Heard

	mu sync.Mutex
	// inputs counts changes of what decisions depend on beside the ledger: templates, queues, policies.
	inputs int64
	// memo keeps the last decision on each Workload, so that nothing is decided twice on the same input.
	memo map[types.UID]remembered
	// still holds the Workloads that hold quota for which nothing is to be done until they or their promise change.
	still map[types.UID]settled
	// asked keeps what choices for each Workload that waits were made on.
	asked map[types.UID]*gathered
	// written holds the keys of promises that were written and have not come back on the watch yet.
	written map[types.UID]*v1alpha1.PlacementKey
	// offers holds what Kueue has not taken yet; last is what the last offers were made on.
	offers map[types.UID]*offered
	// forgotAt is when slices that are gone were last forgotten.
	forgotAt time.Time
	last     pass
	// deaf says, by window, whether the last round found that a watch was silent for longer.
	deaf map[time.Duration]bool
}

// syncEvery is how often a round that came before the ledger was filled tries again.
const syncEvery = 50 * time.Millisecond

// failedAgain is when a round in which something failed is run again, if nothing happens before.
const failedAgain = time.Second

type remembered struct {
	ledger, inputs int64
	version        string
	request        *admission.Request
	decision       admission.Decision
}

// InputChanged says that a template, a queue or a policy changed.
func (e *Engine) InputChanged() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inputs++
}

// round is one pass over the Workloads.
type round struct {
	*Engine
	now      time.Time
	heard    admission.Heard
	snapshot *ledger.Snapshot
	inputs   int64
	queues   map[types.NamespacedName]*policies.Managed
	waiters  []waiting
	// asIs is what Kueue knows, once it was asked for.
	asIs *quota.Snapshot
	// promises are the Placements that promise something, by Workload, as they were when the round began.
	promises map[types.UID]*v1alpha1.Placement
	// spoken are, by Workload, who Kueue was let preempt for it.
	spoken map[types.UID][]types.UID
	// tried counts, by Workload, the decisions that were not written in this round because what they touch had changed.
	tried map[types.UID]int
	// left are those that hold quota, and are about to be promised what could not be written in this round.
	left []types.UID
	// overlaps are, by the Placement that loses, the promises of one device.
	overlaps map[types.UID]ledger.Overlap
	// due is when a record may be written that is not worth writing yet; zero for none.
	due time.Time
	// next is when the round wants to run again; zero for not by itself.
	next time.Duration
}

// Reconcile runs one round, whatever it was called for.
func (e *Engine) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !e.Synced() {
		return reconcile.Result{RequeueAfter: syncEvery}, nil
	}
	start := e.Clock.Now()
	r := &round{
		Engine: e, now: start, heard: e.listen(start), queues: map[types.NamespacedName]*policies.Managed{}, tried: map[types.UID]int{},
	}
	e.mu.Lock()
	r.inputs = e.inputs
	e.mu.Unlock()
	e.Store.Deciding.Lock()
	defer e.Store.Deciding.Unlock()
	r.look()
	workloads, err := r.gather(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.victims(ctx, workloads); err != nil {
		return reconcile.Result{}, err
	}
	managed := 0
	var failed []error
	for _, wl := range workloads {
		if wl.DeletionTimestamp != nil {
			continue
		}
		if r.isSettled(wl) && !r.overlapped(wl) {
			managed++
			continue
		}
		if !finished(wl) && r.carries(ctx, wl) {
			managed++
		}
		if err := r.workload(ctx, wl); err != nil {
			r.left = append(r.left, wl.UID)
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				failed = append(failed, fmt.Errorf("workload %s/%s: %w", wl.Namespace, wl.Name, err))
			}
		}
	}
	r.forgetTaken(workloads)
	if err := r.offer(ctx); err != nil {
		failed = append(failed, err)
	}
	r.forget(workloads)
	r.looked()
	e.Metrics.ManagedWorkloads.Set(float64(managed))
	e.Metrics.Rounds.Inc()
	e.Metrics.LedgerVersion.Set(float64(e.Book.Version()))
	e.Metrics.RoundSeconds.Observe(e.Clock.Since(start).Seconds())
	if err := errors.Join(failed...); err != nil {
		// Not returned: what is wrong with one Workload must not slow the rounds of all down.
		log.FromContext(ctx).Error(err, "Left Workloads to the next round")
		r.again(r.now.Add(failedAgain))
	}
	return reconcile.Result{RequeueAfter: r.next}, nil
}

// firstComeFirstServed puts those that hold quota first, in order of reservation, which were made at x and y; then by priority,
// creation and name.
func firstComeFirstServed(a, b *kueue.Workload, x, y int64) int {
	if (x == 0) != (y == 0) {
		return cmp.Compare(y, x)
	}
	return cmp.Or(
		cmp.Compare(x, y),
		cmp.Compare(ptr.Deref(b.Spec.Priority, 0), ptr.Deref(a.Spec.Priority, 0)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// reservedAt returns the second in which quota was reserved; 0 where none is.
func reservedAt(wl *kueue.Workload) int64 {
	if t := eviction.ReservedAt(wl); !t.IsZero() {
		return t.Unix()
	}
	return 0
}

func reserved(wl *kueue.Workload) bool {
	return meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
}

func finished(wl *kueue.Workload) bool {
	return meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
}

// forgetEvery is how often what is remembered of slices that are gone is dropped.
const forgetEvery = 10 * time.Minute

// forgetSlices drops what is remembered of slices that are gone.
func (r *round) forgetSlices() {
	if r.now.Before(r.forgotAt.Add(forgetEvery)) {
		return
	}
	r.forgotAt = r.now
	listed := map[types.UID]bool{}
	for _, n := range slices.Concat(r.snapshot.Nodes(), r.snapshot.Departed()) {
		for _, list := range [][]ledger.Device{n.Devices, n.Lost} {
			for i := range list {
				listed[list[i].Slice.UID] = true
			}
		}
	}
	r.Decider.Matcher.Forget(func(slice types.UID) bool { return listed[slice] })
}

// forget drops what is remembered of Workloads that are gone.
func (r *round) forget(workloads []*kueue.Workload) {
	r.forgetSlices()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.memo)+len(r.written)+len(r.asked)+len(r.still) <= 4*len(workloads)+64 {
		return
	}
	exists := map[types.UID]bool{}
	for _, wl := range workloads {
		exists[wl.UID] = true
	}
	for uid := range r.memo {
		if !exists[uid] {
			delete(r.memo, uid)
		}
	}
	for uid := range r.asked {
		if !exists[uid] {
			delete(r.asked, uid)
		}
	}
	for uid := range r.still {
		if !exists[uid] {
			delete(r.still, uid)
		}
	}
	for uid := range r.written {
		if !exists[uid] {
			delete(r.written, uid)
		}
	}
}

// again asks for another round at t.
func (r *round) again(t time.Time) {
	wait := max(t.Sub(r.now), 10*time.Millisecond)
	if r.next == 0 || wait < r.next {
		r.next = wait
	}
}

// queue finds the policy of a Workload's queue, once a round.
func (r *round) queue(ctx context.Context, wl *kueue.Workload) (*policies.Managed, error) {
	key := types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if m, ok := r.queues[key]; ok {
		return m, nil
	}
	m, err := r.Policies.ForQueue(ctx, key.Namespace, key.Name)
	if err != nil {
		return nil, err
	}
	r.queues[key] = m
	return m, nil
}

// workload does the next step for one Workload.
func (r *round) workload(ctx context.Context, wl *kueue.Workload) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("workload", client.ObjectKeyFromObject(wl)))
	if finished(wl) {
		return r.withdraw(ctx, wl, "Finished", "the workload has finished")
	}
	if steering.TakenOver(wl) || steering.Rejected(wl) {
		return r.Writer.Forget(ctx, wl)
	}
	if steering.Deactivated(wl) && !reserved(wl) {
		faultpoint.Reach(log.FromContext(ctx), faultpoint.BeforeReactivate)
		if theirs, err := r.theirs(ctx, wl); theirs || err != nil {
			return err
		}
	}
	m, err := r.queue(ctx, wl)
	if err != nil {
		return err
	}
	if m == nil {
		return r.leave(ctx, wl)
	}
	active := ptr.Deref(wl.Spec.Active, true)
	evicted := meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
	if active && reserved(wl) && !evicted {
		if done, err := r.adopt(ctx, wl, m); done || err != nil {
			return err
		}
		return r.holder(ctx, wl, m)
	}
	if err := r.withdraw(ctx, wl, "Evicted", "the workload holds no quota"); err != nil {
		return err
	}
	if c := steering.CheckState(wl, m.Checks[0]); c != nil && (len(c.PodSetUpdates) > 0 || c.State == kueue.CheckStateReady) {
		if _, err := r.Writer.Check(ctx, wl, m.Checks[0], steering.Answer{State: kueue.CheckStatePending, Message: ""}); err != nil {
			return err
		}
	}
	switch {
	case reserved(wl):
		return nil // Kueue is taking the quota back
	case steering.Deactivated(wl):
		return r.reactivate(ctx, wl, m)
	case !active:
		return nil // an admin's own
	}
	return r.waiter(ctx, wl, m)
}

// withdraw empties a promise that is not live any more.
func (r *round) withdraw(ctx context.Context, wl *kueue.Workload, reason, message string) error {
	p, err := r.Store.Get(ctx, wl)
	if err != nil || p == nil || p.Spec.Key == nil {
		return err
	}
	if err := r.Store.Withdraw(ctx, wl); err != nil {
		return err
	}
	return r.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), func(s *v1alpha1.PlacementStatus) {
		r.moveClocks(s)
		setReserved(s, p.Generation+1, false, reason, message)
	})
}

// moveClocks takes what a Workload spent holding quota for devices on their way out of its waits: that was not waiting for
// a flavor. It did so since the promise that is withdrawn now was recorded.
func (r *round) moveClocks(s *v1alpha1.PlacementStatus) {
	c, rec := meta.FindStatusCondition(s.Conditions, v1alpha1.PlacementReserved), s.Record
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason != string(v1alpha1.ReasonDevicesFreeing) || rec == nil || rec.Reason != v1alpha1.ReasonDevicesFreeing {
		return
	}
	for i := range s.Waits {
		s.Waits[i].Since = metav1.NewTime(s.Waits[i].Since.Add(max(0, r.now.Sub(rec.Time.Time))))
	}
}

// victims learns whom Kueue was let preempt for whom among those that wait, or that hold quota and no place yet.
func (r *round) victims(ctx context.Context, workloads []*kueue.Workload) error {
	r.spoken = map[types.UID][]types.UID{}
	waits := map[types.UID]bool{}
	for _, wl := range workloads {
		waits[wl.UID] = !finished(wl) && wl.DeletionTimestamp == nil
	}
	list := &v1alpha1.PlacementList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{observe.PlacementUse: observe.Victims}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list placements: %w", err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		owner := observe.ControllerOf(p)
		if !waits[owner] {
			continue
		}
		for _, uid := range p.Status.Victims {
			r.spoken[owner] = append(r.spoken[owner], types.UID(uid))
		}
	}
	return nil
}

// spokenFor returns whose ending devices belong to others than a Workload.
func (r *round) spokenFor(wl types.UID) map[types.UID]bool {
	out := map[types.UID]bool{}
	for other, victims := range r.spoken {
		for _, v := range victims {
			if other != wl {
				out[v] = true
			}
		}
	}
	for _, v := range r.spoken[wl] {
		delete(out, v)
	}
	return out
}
