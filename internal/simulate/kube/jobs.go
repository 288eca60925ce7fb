package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// jobs is the Job controller, and the one that deletes Jobs that have finished long enough ago.
type jobs struct {
	client client.Client
	clock  clock.PassiveClock
	state  map[types.NamespacedName]*jobState
}

// jobState is what is remembered of a Job.
type jobState struct {
	uid types.UID
	// counted are the ended pods that its status counts.
	counted map[types.UID]bool
	// next is the number of the next pod's name, by completion index; -1 for a Job without.
	next map[int]int
}

func (c *jobs) controller() Controller {
	ofPod := func(_ context.Context, was, is client.Object) []reconcile.Request {
		if is == nil {
			is = was
		}
		ref := metav1.GetControllerOfNoCopy(is)
		if ref == nil || ref.Kind != "Job" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: is.GetNamespace(), Name: ref.Name}}}
	}
	return Controller{"jobs", c, []Watch{{&batchv1.Job{}, itself}, {&corev1.Pod{}, ofPod}}}
}

// Reconcile looks at one Job.
func (c *jobs) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	j := &batchv1.Job{}
	if err := c.client.Get(ctx, req.NamespacedName, j); err != nil {
		delete(c.state, req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if j.DeletionTimestamp != nil || j.Spec.ManagedBy != nil && *j.Spec.ManagedBy != batchv1.JobControllerName {
		return reconcile.Result{}, nil
	}
	if at := finished(j); at != nil {
		return c.expire(ctx, j, *at)
	}
	var list corev1.PodList
	if err := c.client.List(ctx, &list, client.InNamespace(j.Namespace), client.MatchingFields{observe.PodByController: string(j.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(indexOf(&a), indexOf(&b)), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	s := &sync{jobs: c, Job: j, state: c.stateOf(j, list.Items), now: c.clock.Now(), done: parseIndexes(j.Status.CompletedIndexes)}
	before := j.Status.DeepCopy()
	s.count(list.Items)
	again, err := s.step(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !apiequality.Semantic.DeepEqual(before, &j.Status) {
		if err := c.client.Status().Update(ctx, j); err != nil {
			return reconcile.Result{}, fmt.Errorf("update job: %w", err)
		}
	}
	for i := range list.Items {
		if p := &list.Items[i]; s.state.counted[p.UID] {
			if err := untrack(ctx, c.client, p); err != nil {
				return reconcile.Result{}, err
			}
		}
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// untrack takes from a pod the mark that its Job is to count it. Only pods of a dump have it.
func untrack(ctx context.Context, c client.Client, p *corev1.Pod) error {
	if !slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
		return nil
	}
	p = p.DeepCopy()
	p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	if err := c.Update(ctx, p); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("untrack pod: %w", err)
	}
	return nil
}

// stateOf returns what is remembered of a Job. Of one that is seen for the first time the ended pods count as counted.
func (c *jobs) stateOf(j *batchv1.Job, pods []corev1.Pod) *jobState {
	key := client.ObjectKeyFromObject(j)
	s := c.state[key]
	if s == nil || s.uid != j.UID {
		s = &jobState{uid: j.UID, counted: map[types.UID]bool{}, next: map[int]int{}}
		c.state[key] = s
		for i := range pods {
			tracked := slices.Contains(pods[i].Finalizers, batchv1.JobTrackingFinalizer)
			s.counted[pods[i].UID] = terminal(&pods[i]) && !tracked
		}
	}
	return s
}

// expire deletes a Job once its time to live is over.
func (c *jobs) expire(ctx context.Context, j *batchv1.Job, at time.Time) (reconcile.Result, error) {
	if j.Spec.TTLSecondsAfterFinished == nil {
		return reconcile.Result{}, nil
	}
	now := c.clock.Now()
	if left := at.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now); left > 0 || !now.After(at) {
		return reconcile.Result{RequeueAfter: max(left, time.Nanosecond)}, nil // who watches sees its end before
	}
	if err := c.client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete job: %w", err)
	}
	return reconcile.Result{}, nil
}

// finished returns when a Job ended; nil for one that did not.
func finished(j *batchv1.Job) *time.Time {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}

// sync is one look at a Job that has not finished.
type sync struct {
	*batchv1.Job
	jobs  *jobs
	state *jobState
	now   time.Time
	// active are the pods that are neither ended nor ending; ending is how many are.
	active []*corev1.Pod
	ending int32
	// ends are the completion indexes of pods that are ending.
	ends map[int]bool
	// done are the completion indexes that have succeeded.
	done indexes
}

// count takes the pods into the status. It does not change them.
func (s *sync) count(pods []corev1.Pod) {
	st := &s.Status
	s.ends = map[int]bool{}
	var ready int32
	for i := range pods {
		p := &pods[i]
		switch {
		case terminal(p):
			if s.state.counted[p.UID] {
				continue
			}
			s.state.counted[p.UID] = true
			if p.Status.Phase == corev1.PodFailed {
				st.Failed++
				continue
			}
			st.Succeeded++
			if s.indexed() {
				s.done.add(indexOf(p))
			}
		case p.DeletionTimestamp != nil:
			s.ending++
			s.ends[indexOf(p)] = true
		default:
			s.active = append(s.active, p)
			if podReady(p) {
				ready++
			}
		}
	}
	if s.indexed() {
		st.Succeeded, st.CompletedIndexes = int32(s.done.len()), s.done.String()
	}
	st.Ready = &ready
}

func (s *sync) indexed() bool {
	return ptr.Deref(s.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func (s *sync) suspended() bool { return ptr.Deref(s.Spec.Suspend, false) }

// step does what is to be done next, and returns after how long to look again; 0 for not.
func (s *sync) step(ctx context.Context) (again time.Duration, err error) {
	st := &s.Status
	if st.StartTime == nil && !s.suspended() {
		st.StartTime = ptr.To(metav1.NewTime(s.now))
	}
	failure, again := s.failure()
	switch {
	case failure != "":
		err = s.drop(ctx, s.active)
	case s.suspended():
		if err = s.drop(ctx, s.active); err == nil && s.condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended") {
			st.StartTime = nil
		}
	default:
		err = s.manage(ctx)
	}
	st.Active, st.Terminating = int32(len(s.active)), ptr.To(s.ending)
	switch {
	case err != nil:
		return 0, err
	case failure != "":
		s.finish(batchv1.JobFailureTarget, batchv1.JobFailed, failure, "Job has failed")
	case s.complete():
		s.finish(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	case !s.suspended() && s.has(batchv1.JobSuspended) && s.condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed"):
		st.StartTime = ptr.To(metav1.NewTime(s.now))
	}
	return again, nil
}

// failure says why the Job has failed; empty while it has not, with how long it may still run.
func (s *sync) failure() (reason string, left time.Duration) {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == batchv1.JobFailureTarget && c.Status == corev1.ConditionTrue {
			return c.Reason, 0
		}
	}
	if s.Status.Failed > ptr.Deref(s.Spec.BackoffLimit, 6) {
		return batchv1.JobReasonBackoffLimitExceeded, 0
	}
	if s.Spec.ActiveDeadlineSeconds == nil || s.suspended() {
		return "", 0
	}
	left = s.Status.StartTime.Add(time.Duration(*s.Spec.ActiveDeadlineSeconds) * time.Second).Sub(s.now)
	if left <= 0 {
		return batchv1.JobReasonDeadlineExceeded, 0
	}
	return "", left
}

func (s *sync) complete() bool {
	if s.Spec.Completions == nil {
		return s.Status.Succeeded > 0 && len(s.active) == 0
	}
	return s.Status.Succeeded >= *s.Spec.Completions && len(s.active) == 0
}

// finish says how the Job ends, and that it has once no pod of its is left.
func (s *sync) finish(target, end batchv1.JobConditionType, reason, message string) {
	s.condition(target, corev1.ConditionTrue, reason, message)
	if s.ending > 0 {
		return
	}
	s.condition(end, corev1.ConditionTrue, reason, message)
	if end == batchv1.JobComplete {
		s.Status.CompletionTime = ptr.To(metav1.NewTime(s.now))
	}
}

func (s *sync) has(t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t })
}

// condition says whether it changed the condition's status.
func (s *sync) condition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) bool {
	now := metav1.NewTime(s.now)
	want := batchv1.JobCondition{Type: t, Status: status, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now}
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == t {
			if c.Status == status {
				return false
			}
			*c = want
			return true
		}
	}
	s.Status.Conditions = append(s.Status.Conditions, want)
	return true
}
