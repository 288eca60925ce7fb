package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/features"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// afterLast is for how long a run goes on after the last object was applied and the last Job has finished, if something is
// still to happen by itself, such as a retry: what is tried for ever would never end.
const afterLast = 24 * time.Hour

// farApart is how far the streams of names begin from each other of inputs with another number of objects of a dump.
const farApart = 1 << 32

// Options say how a run goes.
type Options struct {
	// Until ends the run at this time; nil when nothing changes any more.
	Until *time.Duration
	// Progress is told of the time reached, and of how many Jobs and Workloads have finished of all; nil for nobody.
	Progress func(at time.Duration, finished, all int)
	// Warn is told what a person should know of the run, a sentence each; nil for nobody.
	Warn func(string)
}

// change is an object that is applied or deleted at a time.
type change struct {
	at     time.Duration
	object client.Object
	gone   bool
	source string
}

// Run simulates a cluster. It uses feature gates of Kueue that are global to the process, so only one runs at a time. The
// error is why the run could not go on.
func Run(ctx context.Context, in *input.Input, o Options) (*simulate.Result, error) {
	r, cleanup, err := prepare(ctx, in, o)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	return r.play(ctx, in)
}

// prepare makes the cluster of a run, in which nothing is yet. cleanup ends it.
func prepare(ctx context.Context, in *input.Input, o Options) (r *run, cleanup func(), err error) {
	cleanup, err = setGates(in.Kueue)
	if err != nil {
		return nil, nil, err
	}
	ctrl.SetLogger(logr.Discard()) // what somebody has set before stays
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	c := in.Kueue
	if c == nil {
		c = &config.Configuration{FairSharing: &config.FairSharing{PreemptionStrategies: []config.PreemptionStrategy{
			config.LessThanOrEqualToFinalShare, config.LessThanInitialShare,
		}}}
	}
	w, err := newCluster(ctx, parts.Scheme(), in.Start, c, o.Warn)
	if err != nil {
		cleanup()
		return nil, nil, fmt.Errorf("make cluster: %w", err)
	}
	r = &run{cluster: w, options: o, changes: timeline(in), told: in.Start, given: map[client.ObjectKey]*batchv1.Job{}}
	for i := range r.changes {
		if !plain(r.changes[i].object) {
			w.random.n += farApart // no name that is made here is one that a dump has, even if a simulation made that
		}
	}
	return r, cleanup, nil
}

// play runs to the end.
func (r *run) play(ctx context.Context, in *input.Input) (*simulate.Result, error) {
	ctx = ctrl.LoggerInto(ctx, logr.Discard())
	if err := r.all(ctx); err != nil {
		return nil, fmt.Errorf("at %s: %w", r.clock.Since(in.Start), err)
	}
	return r.result(ctx, in)
}

// setGates sets the feature gates that Kueue is configured with, and has it write status as merge patches: the store applies
// those without a schema. restore sets them back to what they were.
func setGates(c *config.Configuration) (restore func(), err error) {
	gates := map[string]bool{}
	if c != nil {
		maps.Copy(gates, c.FeatureGates)
	}
	gates[string(features.WorkloadRequestUseMergePatch)] = true
	before := map[string]bool{}
	for gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if _, set := gates[string(gate)]; set {
			before[string(gate)] = utilfeature.DefaultMutableFeatureGate.Enabled(gate)
		}
	}
	restore = func() { _ = utilfeature.DefaultMutableFeatureGate.SetFromMap(before) } // they were so before
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		restore()
		return nil, fmt.Errorf("set feature gates of Kueue: %w", err)
	}
	return restore, nil
}

// timeline returns everything that the input does, in order: at one time what is deleted first, then objects as the input
// has sorted them. A dump's own Workloads and Pods come before Jobs: Kueue stops a Job that runs without its Workload.
func timeline(in *input.Input) []change {
	var out []change
	for i := range in.Objects {
		o := &in.Objects[i]
		out = append(out, change{at: o.At, object: o.Object, source: o.Source})
		if o.DeleteAt != nil {
			out = append(out, change{at: *o.DeleteAt, object: o.Object, source: o.Source, gone: true})
		}
	}
	slices.SortStableFunc(out, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank(), b.rank()))
	})
	return out
}

// rank orders what happens at one time.
func (c *change) rank() int {
	if c.gone {
		return 0
	}
	switch c.object.(type) {
	case *batchv1.Job:
		return 3
	case *kueue.Workload, *corev1.Pod:
		if !plain(c.object) {
			return 2
		}
		return 3
	}
	return 1
}

// run is one simulation on its way.
type run struct {
	*cluster
	options Options
	changes []change
	// told is when the input did something last.
	told time.Time
	// loaded counts the Workloads of a dump.
	loaded int
	// given are the Jobs as the input has given them last.
	given map[client.ObjectKey]*batchv1.Job
}

// all runs until nothing more is to happen.
func (r *run) all(ctx context.Context) error {
	start := r.clock.Now()
	end := func() error {
		if until := r.options.Until; until != nil {
			r.clock.SetTime(start.Add(*until)) // what waits does so until then
		}
		return nil
	}
	for {
		at := r.clock.Since(start)
		r.sight.before = at == 0
		err := r.apply(ctx, at)
		r.sight.before = false
		if err != nil {
			return err
		}
		if at == 0 {
			if err := r.restore(ctx); err != nil {
				return err
			}
		}
		r.fire()
		if err := r.settle(ctx); err != nil {
			return err
		}
		r.progress(start)
		next, ok := r.next()
		if len(r.changes) > 0 {
			if at := start.Add(r.changes[0].at); !ok || at.Before(next) {
				next, ok = at, true
			}
		}
		switch until := r.options.Until; {
		case !ok, len(r.changes) == 0 && next.Sub(r.last()) > afterLast, until != nil && next.Sub(start) > *until:
			return end()
		}
		r.clock.SetTime(next)
	}
}

// last returns when the input did something last, or something finished.
func (r *run) last() time.Time {
	if r.recorder.finishedAt.After(r.told) {
		return r.recorder.finishedAt
	}
	return r.told
}

func (r *run) progress(start time.Time) {
	if r.options.Progress != nil {
		r.options.Progress(r.clock.Since(start), r.recorder.finished, len(r.recorder.tracks))
	}
}

// apply does what the input does at this time. A Job is given to Kueue before the next one comes, so that their Workloads
// are made in the order of submission.
func (r *run) apply(ctx context.Context, now time.Duration) error {
	for len(r.changes) > 0 && r.changes[0].at <= now {
		c := r.changes[0]
		r.changes = r.changes[1:]
		r.told = r.clock.Now()
		if c.gone {
			if err := r.remove(ctx, c); err != nil {
				return err
			}
			continue
		}
		o := c.object.DeepCopyObject().(client.Object)
		if err := r.put(ctx, o, c.source); err != nil {
			return fmt.Errorf("%s: %w", c.source, err)
		}
		r.deliver(ctx)
		if job, ok := o.(*batchv1.Job); ok {
			r.submit(ctx, job)
		}
	}
	return nil
}

// submit gives a Job to Kueue.
func (r *run) submit(ctx context.Context, job *batchv1.Job) {
	key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)}
	delete(r.jobs.queue, key)
	r.serve(ctx, r.jobs, key)
	r.deliver(ctx)
}

// put applies an object. What comes again is replaced, but for the status where somebody here keeps it.
func (r *run) put(ctx context.Context, o client.Object, source string) error {
	stored := o.DeepCopyObject().(client.Object)
	err := r.client.Get(ctx, client.ObjectKeyFromObject(o), stored)
	if job, ok := o.(*batchv1.Job); ok {
		before := r.given[client.ObjectKeyFromObject(o)]
		r.given[client.ObjectKeyFromObject(o)] = job.DeepCopy()
		if err == nil {
			r.edit(stored.(*batchv1.Job), before, job, source)
		}
	}
	switch {
	case client.IgnoreNotFound(err) != nil:
		return err
	case err != nil && plain(o):
		return r.client.Create(ctx, o)
	case err != nil:
		r.taken(o)
		return r.store.Put(o)
	case statusOfInput(o):
		return r.store.Put(o)
	}
	o.SetResourceVersion("")
	return r.client.Update(ctx, o)
}

// edit brings into a Job that is given again what a user cannot change: whether it is suspended is Kueue's to say, and while
// it runs the server takes no other template, and Kueue no other queue.
func (r *run) edit(stored, before, job *batchv1.Job, source string) {
	job.Spec.Suspend = stored.Spec.Suspend
	if before == nil || ptr.Deref(stored.Spec.Suspend, false) {
		return
	}
	kept := func(field string, same bool) {
		if !same {
			r.options.Warn(fmt.Sprintf("%s: Job %s/%s: %s cannot change while the Job runs, and is left as it is", source, job.Namespace, job.Name, field))
		}
	}
	const label = controllerconstants.QueueLabel
	queue, queued := stored.Labels[label]
	kept("metadata.labels["+label+"]", queue == job.Labels[label])
	if delete(job.Labels, label); queued {
		metav1.SetMetaDataLabel(&job.ObjectMeta, label, queue)
	}
	kept("spec.template", apiequality.Semantic.DeepEqual(before.Spec.Template, job.Spec.Template))
	job.Spec.Template = *stored.Spec.Template.DeepCopy()
}

// plain says whether an object was written by hand, and is created as by a user; one of a dump carries who it is.
func plain(o client.Object) bool { return o.GetUID() == "" && !statusOfInput(o) }

// statusOfInput says whether an object's status is the input's to say: nobody here writes it.
func statusOfInput(o client.Object) bool {
	switch o.(type) {
	case *corev1.Node, *resourcev1.ResourceClaim:
		return true
	}
	return false
}

// remove deletes what the input says, if it is still there.
func (r *run) remove(ctx context.Context, c change) error {
	o := c.object.DeepCopyObject().(client.Object)
	o.SetUID("")
	o.SetResourceVersion("")
	if _, ok := o.(*corev1.Namespace); ok {
		if err := r.empty(ctx, o.GetName()); err != nil {
			return fmt.Errorf("%s: %w", c.source, err)
		}
	}
	if err := r.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s: %w", c.source, err)
	}
	r.deliver(ctx)
	return nil
}

// empty deletes all that is in a namespace, as its controller does before the namespace is gone. What belongs to something
// goes with it.
func (r *run) empty(ctx context.Context, namespace string) error {
	for _, list := range []client.ObjectList{
		&batchv1.JobList{}, &kueue.WorkloadList{}, &corev1.PodList{}, &resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{},
		&kueue.LocalQueueList{}, &corev1.LimitRangeList{}, &corev1.PersistentVolumeClaimList{},
	} {
		if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			err := r.client.Delete(ctx, o.(client.Object), client.PropagationPolicy(metav1.DeletePropagationBackground))
			return client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("delete %T: %w", list, err)
		}
	}
	return nil
}
