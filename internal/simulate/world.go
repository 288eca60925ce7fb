package simulate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/controller/jobs/job"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/kube"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
	"github.com/plimsoll-dev/plimsoll/internal/webhook"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// cluster is the cluster: everything that runs in it, joined by the store and the loop.
type cluster struct {
	loop
	client    client.Client
	kueue     *kueues
	parts     *parts.Parts
	scheduler *kube.Scheduler
	recorder  *recorder
	jobs      *controller
	round     *controller
	random    *stream
	sight     *sight
	// scheduled is the store's version at the last pass over pods.
	scheduled int64
}

// stream is an endless sequence of bytes that look random and are always the same: names and nonces come from it.
type stream struct {
	n    uint64
	rest []byte
}

func (s *stream) Read(p []byte) (int, error) {
	for i := range p {
		if len(s.rest) == 0 {
			sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("plimsoll"), s.n))
			s.n, s.rest = s.n+1, sum[:]
		}
		p[i], s.rest = s.rest[0], s.rest[1:]
	}
	return len(p), nil
}

var _ io.Reader = &stream{}

// longAgo is longer than any window or grace of a policy.
const longAgo = 2 * time.Hour

// sight is the clock by which things are seen. What is there from the start was seen long before: nothing of it has come,
// or was lost, just now.
type sight struct {
	clock.PassiveClock
	before bool
}

func (s *sight) Now() time.Time {
	if s.before {
		return s.PassiveClock.Now().Add(-longAgo)
	}
	return s.PassiveClock.Now()
}

// indexes lets Kueue declare what it looks objects up by.
type indexes struct{ *store.Store }

// IndexField declares a field.
func (i indexes) IndexField(_ context.Context, kind client.Object, field string, f client.IndexerFunc) error {
	i.Index(kind, field, f)
	return nil
}

// newCluster makes an empty cluster.
func newCluster(ctx context.Context, scheme *runtime.Scheme, start time.Time, c *config.Configuration, warn func(string)) (*cluster, error) {
	fake := testingclock.NewFakeClock(start)
	s := store.New(scheme, fake.Now)
	w := &cluster{loop: loop{clock: fake, store: s, warn: warn}, client: s.Client()}
	if err := indexer.Setup(ctx, indexes{s}); err != nil {
		return nil, err
	}
	if err := job.SetupIndexes(ctx, indexes{s}); err != nil {
		return nil, err
	}
	for _, i := range observe.Indexes() {
		s.Index(i.Object, i.Field, i.Of)
	}
	kube.Setup(s, fake)
	w.kueue = &kueues{client: w.client, clock: fake, config: c, warn: warn, schedule: kueueSchedule, stale: true}
	w.recorder = newRecorder(w.client, fake.Now)
	w.random = &stream{}
	var err error
	w.parts, err = parts.New(parts.Environment{
		Client: managers{w.client}, Live: w.client, Events: silent{}, Metrics: prometheus.NewRegistry(), Clock: fake,
		Epoch: func(context.Context) (int64, error) { return 0, nil }, Kueue: c, Nonce: w.random,
		Changed: func() { w.round.queue[parts.All] = true },
	})
	if err != nil {
		return nil, err
	}
	w.sight = &sight{PassiveClock: fake}
	w.parts.Observer.Clock = w.sight
	w.hooks(w.random)
	w.timeConditions()
	if err := w.controllers(ctx); err != nil {
		return nil, err
	}
	w.seen = w.see
	return w, nil
}

// see gives an event to whoever keeps a picture of the cluster.
func (w *cluster) see(e store.Event) {
	o, gone := e.New, false
	if o == nil {
		o, gone = e.Old, true
	}
	w.parts.Observer.Apply(o, gone)
	w.parts.Quotas.Apply(o, gone)
	w.scheduler.Observe(o, gone)
	w.kueue.see(e)
	w.recorder.see(e)
}

// hooks are what the API server's own admission and the webhooks do to what is written.
func (w *cluster) hooks(random io.Reader) {
	m := webhook.NewMutators(webhook.Options{Client: w.client, Rand: random})
	w.store.Hook(&kueue.Workload{}, func(ctx context.Context, op store.Op, subresource string, old, now client.Object) error {
		if subresource != "" || op == store.Delete || ctx.Value(byManager{}) != nil {
			return nil
		}
		before, _ := old.(*kueue.Workload)
		m.Workload(ctx, now.(*kueue.Workload), before)
		return nil
	})
	w.store.Hook(&corev1.Pod{}, func(_ context.Context, op store.Op, subresource string, _, now client.Object) error {
		if op != store.Create || subresource != "" {
			return nil
		}
		return m.Pod(now.(*corev1.Pod))
	})
	w.store.Hook(&batchv1.Job{}, func(ctx context.Context, op store.Op, subresource string, _, now client.Object) error {
		if op != store.Create || subresource != "" {
			return nil
		}
		return jobframework.ApplyDefaultForSuspend(ctx, (*job.Job)(now.(*batchv1.Job)), w.client, w.kueue.config.ManageJobsWithoutQueueName, nil)
	})
}

// byManager marks the context of what the manager writes, which its own webhooks let through.
type byManager struct{}

// managers is the client of the manager's parts: it marks what they write to objects.
type managers struct{ client.Client }

// Create marks the write, and makes it.
func (m managers) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.Client.Create(context.WithValue(ctx, byManager{}, true), o, opts...)
}

// Update marks the write, and makes it.
func (m managers) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return m.Client.Update(context.WithValue(ctx, byManager{}, true), o, opts...)
}

// Patch marks the write, and makes it.
func (m managers) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return m.Client.Patch(context.WithValue(ctx, byManager{}, true), o, p, opts...)
}

// controllers adds everything that reconciles, in the order in which it is served.
func (w *cluster) controllers(ctx context.Context) error {
	jobs, err := job.NewReconciler(ctx, w.client, indexes{w.store}, mute{}, jobframework.WithClock(w.clock),
		jobframework.WithManageJobsWithoutQueueName(w.kueue.config.ManageJobsWithoutQueueName))
	if err != nil {
		return err
	}
	w.scheduler = kube.NewScheduler(w.client, w.clock, &admission.Decider{Matcher: flavors.NewMatcher()})
	for _, c := range kube.Controllers(w.client, w.clock) {
		plain := parts.Controller{Name: c.Name, Reconciler: c.Reconciler}
		added := w.add(plain)
		for _, watch := range c.Watches {
			added.watch(watch.Kind, nil, watch.Requests)
		}
	}
	var own []parts.Controller
	for _, c := range w.parts.Controllers() {
		c.Reconciler = heard(c.Name, c.Reconciler, w.warn)
		if c.Name == parts.Round {
			w.round = w.add(c)
			continue
		}
		own = append(own, c)
	}
	for _, c := range own {
		w.add(c)
	}
	w.jobs = w.add(parts.Controller{Name: "kueue-job", Reconciler: jobs, Watches: w.jobWatches()})
	w.add(parts.Controller{Name: "kueue-workload", Reconciler: w.kueue, Watches: w.workloadWatches()})
	w.add(parts.Controller{Name: "kueue-queues", Reconciler: reconcile.Func(w.kueue.queueStatus), Watches: w.queueWatches()})
	for _, c := range w.others() {
		w.add(c)
	}
	return nil
}

// heard has a reconciler of Plimsoll's say as a warning what it would log as an error.
func heard(name string, r reconcile.Reconciler, warn func(string)) reconcile.Reconciler {
	log := logr.New(errorSink{func(message string, err error) { warn(fmt.Sprintf("%s: %s: %v", name, message, err)) }})
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return r.Reconcile(logr.NewContext(ctx, log), req)
	})
}

// errorSink is a logger that hears errors only.
type errorSink struct{ say func(string, error) }

// Init does nothing.
func (errorSink) Init(logr.RuntimeInfo) {}

// Enabled is false: Info is not heard.
func (errorSink) Enabled(int) bool { return false }

// Info does nothing.
func (errorSink) Info(int, string, ...any) {}

// Error says what went wrong.
func (s errorSink) Error(err error, message string, _ ...any) { s.say(message, err) }

// WithValues returns the same logger.
func (s errorSink) WithValues(...any) logr.LogSink { return s }

// WithName returns the same logger.
func (s errorSink) WithName(string) logr.LogSink { return s }

// settle runs everything until nothing more happens at this instant: the controllers, a round, Kueue's cycles, over and
// over, and in the end whoever has to look whether something happened.
func (w *cluster) settle(ctx context.Context) error {
	for range maxPasses {
		busy, err := w.quiet(ctx)
		if err != nil {
			return err
		}
		if len(w.round.queue) > 0 {
			busy = true
			if _, err := w.drainOnce(ctx, w.round); err != nil {
				return err
			}
			if _, err := w.quiet(ctx); err != nil {
				return err
			}
		}
		if err := w.kueue.refresh(ctx); err != nil {
			return err
		}
		for _, r := range slices.Clone(w.kueue.roots) {
			busy = w.kueue.cycle(ctx, r, w.store.Version()) || busy
			w.deliver(ctx)
		}
		if !busy && len(w.round.queue) == 0 && !w.wakePolls(w.round) {
			return w.recorder.settled(ctx)
		}
	}
	return w.circle(w.round)
}

// quiet serves every controller but the round, and binds pods, until nobody has anything to do.
func (w *cluster) quiet(ctx context.Context) (busy bool, err error) {
	for range maxPasses {
		w.deliver(ctx)
		did := false
		for _, c := range w.loop.controllers {
			if c == w.round {
				continue
			}
			any, err := w.drain(ctx, c)
			if err != nil {
				return busy, err
			}
			did = did || any
		}
		if v := w.store.Version(); v != w.scheduled {
			w.scheduled = v
			bound, err := w.scheduler.Schedule(ctx)
			if err != nil {
				return busy, err
			}
			w.deliver(ctx)
			did = did || bound
		}
		if !did {
			return busy, nil
		}
		busy = true
	}
	return busy, w.circle(w.round)
}

// drainOnce serves what a controller is asked for now, and not what comes of it.
func (w *cluster) drainOnce(ctx context.Context, c *controller) (bool, error) {
	batch := slices.Collect(func(yield func(reconcile.Request) bool) {
		for r := range c.queue {
			if !yield(r) {
				return
			}
		}
	})
	slices.SortFunc(batch, byName)
	clear(c.queue)
	for _, r := range batch {
		w.serve(ctx, c, r)
		w.deliver(ctx)
	}
	return len(batch) > 0, ctx.Err()
}
