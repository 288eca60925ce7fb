package simulate

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unsafe" // also for go:linkname

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/routine"
	"sigs.k8s.io/kueue/pkg/util/wait"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// kueueSchedule is one scheduling cycle. A method's receiver is its first parameter.
//
//go:linkname kueueSchedule sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func kueueSchedule(s *scheduler.Scheduler, ctx context.Context) wait.SpeedSignal //nolint:revive // the receiver comes first

//go:linkname kueueSetWrapper sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).setAdmissionRoutineWrapper
func kueueSetWrapper(s *scheduler.Scheduler, w routine.Wrapper)

// here runs what Kueue would run beside its scheduling cycle within it.
type here struct{}

// Run runs f.
func (here) Run(f func()) { f() }

// kueues is Kueue in this process: one scheduler for each root cohort, since between those its order is random. All are
// made anew when a queue, cohort, flavor or check changes, as if Kueue had been started again: it keeps nothing that it
// does not read from the API server.
type kueues struct {
	client client.Client
	clock  *testingclock.FakeClock
	config *config.Configuration
	warn   func(string)
	// schedule runs one cycle; kueueSchedule.
	schedule func(*scheduler.Scheduler, context.Context) wait.SpeedSignal

	stale bool
	roots []*root
	// byQueue finds the root of a ClusterQueue, and rootless serves Workloads that belong to none.
	byQueue  map[string]*root
	rootless *root
	// broken are the store's versions at which schedulers panicked, by root.
	broken map[string]int64
}

// root is Kueue for one root cohort, or for one ClusterQueue without a cohort.
type root struct {
	name      string
	world     *world
	queues    *qcache.Manager
	requeuer  interface{ ProcessRequeues(context.Context) int }
	cache     *schdcache.Cache
	scheduler *scheduler.Scheduler
	workloads *core.WorkloadReconciler
	// stuck is the store's version and the number of heads at which a cycle did nothing: another would do nothing either.
	stuck idle
}

type idle struct {
	version int64
	heads   int
}

// structural says whether an event changes what a scheduler is made of.
func structural(e store.Event) bool {
	changed := func(part func(client.Object) any) bool {
		return e.Old == nil || e.New == nil || !apiequality.Semantic.DeepEqual(part(e.Old), part(e.New))
	}
	o := e.New
	if o == nil {
		o = e.Old
	}
	switch o.(type) {
	case *kueue.ClusterQueue:
		return changed(func(o client.Object) any { return o.(*kueue.ClusterQueue).Spec })
	case *kueue.LocalQueue:
		return changed(func(o client.Object) any { return o.(*kueue.LocalQueue).Spec })
	case *kueue.Cohort:
		return changed(func(o client.Object) any { return o.(*kueue.Cohort).Spec })
	case *kueue.ResourceFlavor:
		return changed(func(o client.Object) any { return o.(*kueue.ResourceFlavor).Spec })
	case *kueue.AdmissionCheck:
		return changed(func(o client.Object) any {
			ac := o.(*kueue.AdmissionCheck)
			return []any{ac.Spec, meta.IsStatusConditionTrue(ac.Status.Conditions, kueue.AdmissionCheckActive)}
		})
	case *corev1.Namespace:
		return changed(func(o client.Object) any { return o.GetLabels() })
	case *corev1.LimitRange:
		return changed(func(o client.Object) any { return o.(*corev1.LimitRange).Spec })
	case *nodev1.RuntimeClass:
		return changed(func(o client.Object) any { return o.(*nodev1.RuntimeClass).Overhead })
	}
	return false
}

// see is told of every event.
func (k *kueues) see(e store.Event) {
	if structural(e) {
		k.stale = true
		return
	}
	if k.stale {
		return // whoever is made anew reads everything
	}
	old, _ := e.Old.(*kueue.Workload)
	now, _ := e.New.(*kueue.Workload)
	if old == nil && now == nil {
		return
	}
	for _, r := range k.of(old, now) {
		switch {
		case old == nil:
			r.workloads.Create(event.TypedCreateEvent[*kueue.Workload]{Object: now.DeepCopy()})
		case now == nil:
			r.workloads.Delete(event.TypedDeleteEvent[*kueue.Workload]{Object: old.DeepCopy()})
		default:
			r.workloads.Update(event.TypedUpdateEvent[*kueue.Workload]{ObjectOld: old.DeepCopy(), ObjectNew: now.DeepCopy()})
		}
	}
}

// of returns the roots that a Workload concerns: of the queue that it waits in, and of the one that it holds quota of.
func (k *kueues) of(versions ...*kueue.Workload) []*root {
	var out []*root
	add := func(queue string) {
		if r := k.byQueue[queue]; r != nil && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, wl := range versions {
		if wl == nil {
			continue
		}
		if wl.Status.Admission != nil {
			add(string(wl.Status.Admission.ClusterQueue))
		}
		lq := &kueue.LocalQueue{}
		if k.client.Get(context.Background(), client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}, lq) == nil {
			add(string(lq.Spec.ClusterQueue))
		}
	}
	if len(out) == 0 {
		out = append(out, k.rootless)
	}
	return out
}

// Reconcile is Kueue's own of a Workload.
func (k *kueues) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if err := k.refresh(ctx); err != nil {
		return reconcile.Result{}, err
	}
	wl := &kueue.Workload{}
	if err := k.client.Get(ctx, r.NamespacedName, wl); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
		for _, root := range append(slices.Clone(k.roots), k.rootless) { // it is gone from all
			if _, err := root.workloads.Reconcile(ctx, r); err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{}, nil
	}
	return k.of(wl)[0].workloads.Reconcile(ctx, r)
}

// refresh makes the schedulers anew where something that they are made of has changed.
func (k *kueues) refresh(ctx context.Context) error {
	if !k.stale && k.rootless != nil {
		return nil
	}
	k.stale = false
	world, err := k.read(ctx)
	if err != nil {
		return err
	}
	k.roots, k.byQueue = nil, map[string]*root{}
	for _, name := range slices.Sorted(maps.Keys(world.roots)) {
		r, err := k.build(ctx, world, name)
		if err != nil {
			return err
		}
		k.roots = append(k.roots, r)
		for i := range world.roots[name] {
			k.byQueue[world.roots[name][i].Name] = r
		}
	}
	k.rootless, err = k.build(ctx, world, "")
	return err
}

// world is what Kueue is made of.
type world struct {
	flavors kueue.ResourceFlavorList
	checks  kueue.AdmissionCheckList
	cohorts kueue.CohortList
	queues  kueue.ClusterQueueList
	local   kueue.LocalQueueList
	// parents are the cohorts' parents, and roots the ClusterQueues by their root cohort or, without one, by "/" and name.
	parents map[string]string
	roots   map[string][]*kueue.ClusterQueue
}

func (k *kueues) read(ctx context.Context) (*world, error) {
	w := &world{parents: map[string]string{}, roots: map[string][]*kueue.ClusterQueue{}}
	for _, list := range []client.ObjectList{&w.flavors, &w.checks, &w.cohorts, &w.queues, &w.local} {
		if err := k.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range w.cohorts.Items {
		w.parents[w.cohorts.Items[i].Name] = string(w.cohorts.Items[i].Spec.ParentName)
	}
	for i := range w.queues.Items {
		q := &w.queues.Items[i]
		name := w.rootOf(string(q.Spec.CohortName))
		if name == "" {
			name = alone(q.Name)
		}
		w.roots[name] = append(w.roots[name], q)
	}
	return w, nil
}

// alone names the root of a ClusterQueue without a cohort; no cohort is named so.
func alone(queue string) string { return "/" + queue }

// rootOf returns the topmost cohort above one; of a circle, the first by name.
func (w *world) rootOf(cohort string) string {
	been := map[string]bool{}
	for w.parents[cohort] != "" {
		if been[cohort] {
			return slices.Min(slices.Collect(maps.Keys(been)))
		}
		been[cohort] = true
		cohort = w.parents[cohort]
	}
	return cohort
}

// build makes Kueue for one root; for "" one that has no queue.
func (k *kueues) build(ctx context.Context, w *world, name string) (*root, error) {
	fair := k.config.FairSharing
	if len(name) > 0 && name[0] == '/' {
		fair = nil // Kueue 0.17.0 panics otherwise (kueue#10891); without a cohort both ways are one
	}
	options, infos := []schdcache.Option{schdcache.WithFairSharing(fair != nil)}, []qcache.Option{qcache.WithClock(k.clock)}
	if r := k.config.Resources; r != nil {
		options = append(options, schdcache.WithExcludedResourcePrefixes(r.ExcludeResourcePrefixes), schdcache.WithResourceTransformations(r.Transformations))
		infos = append(infos, qcache.WithExcludedResourcePrefixes(r.ExcludeResourcePrefixes), qcache.WithResourceTransformations(r.Transformations))
	}
	expected := expectations.New()
	out := &root{name: name, world: w, cache: schdcache.New(k.client, options...)}
	out.queues, out.requeuer = qcache.NewManagerForUnitTestsWithRequeuer(k.client, out.cache, append(infos, qcache.WithPreemptionExpectations(expected))...)
	out.scheduler = scheduler.New(out.queues, out.cache, k.client, mute{},
		scheduler.WithFairSharing(fair), scheduler.WithClock(nil, k.clock), scheduler.WithPreemptionExpectations(expected))
	kueueSetWrapper(out.scheduler, here{})
	out.workloads = core.NewWorkloadReconciler(k.client, out.queues, out.cache, mute{}, core.WithPreemptionExpectations(expected))
	setClock(out.workloads, k.clock)
	return out, out.fill(ctx, w)
}

// fill gives a new Kueue everything that exists, each kind after those that it refers to.
func (r *root) fill(ctx context.Context, w *world) error {
	log := logr.Discard()
	for i := range w.flavors.Items {
		r.cache.AddOrUpdateResourceFlavor(log, w.flavors.Items[i].DeepCopy())
	}
	for i := range w.checks.Items {
		r.cache.AddOrUpdateAdmissionCheck(log, w.checks.Items[i].DeepCopy())
	}
	for i := range w.cohorts.Items {
		c := w.cohorts.Items[i].DeepCopy()
		if w.rootOf(c.Name) != r.name {
			continue
		}
		if err := r.cache.AddOrUpdateCohort(c); err != nil {
			return fmt.Errorf("cohort %s: %w", c.Name, err)
		}
		r.queues.AddOrUpdateCohort(ctx, c)
	}
	mine := map[string]bool{}
	for _, q := range w.roots[r.name] {
		mine[q.Name] = true
		if err := r.cache.AddClusterQueue(ctx, q.DeepCopy()); err != nil {
			return fmt.Errorf("ClusterQueue %s: %w", q.Name, err)
		}
		if err := r.queues.AddClusterQueue(ctx, q.DeepCopy()); err != nil {
			return fmt.Errorf("ClusterQueue %s: %w", q.Name, err)
		}
	}
	for i := range w.local.Items {
		q := w.local.Items[i].DeepCopy()
		if !mine[string(q.Spec.ClusterQueue)] && !(r.name == "" && w.orphan(q)) {
			continue
		}
		if err := r.queues.AddLocalQueue(ctx, q); err != nil {
			return fmt.Errorf("LocalQueue %s/%s: %w", q.Namespace, q.Name, err)
		}
	}
	return nil
}

// orphan says whether a LocalQueue leads nowhere.
func (w *world) orphan(q *kueue.LocalQueue) bool {
	return !slices.ContainsFunc(w.queues.Items, func(cq kueue.ClusterQueue) bool { return cq.Name == string(q.Spec.ClusterQueue) })
}

// cycle runs one scheduling cycle of a root, if one can do anything. It returns whether it ran.
func (k *kueues) cycle(ctx context.Context, r *root, version int64) (ran bool) {
	if at, broken := k.broken[r.name]; broken && at == version {
		return false
	}
	r.requeuer.ProcessRequeues(ctx)
	heads := 0
	for _, list := range r.queues.Dump() {
		heads += len(list)
	}
	now := idle{version: version, heads: heads}
	if heads == 0 || now == r.stuck || !r.active() {
		return false
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			if k.broken == nil {
				k.broken = map[string]int64{}
			}
			if _, again := k.broken[r.name]; again {
				k.broken[r.name], k.stale = version, true
				return
			}
			k.broken[r.name], k.stale = version, true
			k.warn(fmt.Sprintf("Kueue's scheduler panicked on %s, as it would in the cluster: %v", r.name, panicked))
		}
	}()
	r.stuck = now
	k.schedule(r.scheduler, ctx)
	r.requeuer.ProcessRequeues(ctx)
	return true
}

// active says whether any queue with Workloads is one that Kueue takes heads from: else it would wait for one for ever.
func (r *root) active() bool {
	for queue, list := range r.queues.Dump() {
		if len(list) > 0 && r.cache.ClusterQueueActive(queue) {
			return true
		}
	}
	return false
}

// setClock gives Kueue's reconciler another clock. It has no option for that.
func setClock(r *core.WorkloadReconciler, c clock.Clock) { *clockField(r) = c }

func clockField(r *core.WorkloadReconciler) *clock.Clock {
	return (*clock.Clock)(unsafe.Pointer(reflect.ValueOf(r).Elem().FieldByName("clock").UnsafeAddr()))
}
