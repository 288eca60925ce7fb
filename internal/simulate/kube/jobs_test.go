package kube

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func indexedMode(j *batchv1.Job) { j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion) }

func completions(n int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Completions = &n }
}

// stage is what a world shows at a time.
type stage struct {
	at     time.Duration
	edit   func(w *world)
	pods   []string
	status string // active ready succeeded failed, the completed indexes, and the conditions that are true
}

func statusOf(j *batchv1.Job) string {
	s := ""
	for _, n := range []int32{j.Status.Active, ptr.Deref(j.Status.Ready, 0), j.Status.Succeeded, j.Status.Failed} {
		s += fmt.Sprint(n)
	}
	if j.Status.CompletedIndexes != "" {
		s += " " + j.Status.CompletedIndexes
	}
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			s += " " + string(c.Type)
		}
	}
	return s
}

// tracked makes a pod one that a real Job controller made.
func tracked(j *batchv1.Job, node string, phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
		p.Finalizers = []string{batchv1.JobTrackingFinalizer}
		p.Spec.NodeName, p.Status.Phase = node, phase
	}
}

func TestJobs(t *testing.T) {
	suspend := func(v bool) func(*world) {
		return func(w *world) {
			j := w.job("job")
			w.change(j, func() { j.Spec.Suspend = &v })
		}
	}
	evict := func(name string) func(*world) {
		return func(w *world) { w.remove(newPod(name)) }
	}
	phase := func(name string, to corev1.PodPhase) func(*world) {
		return func(w *world) {
			p := newPod(name)
			w.load(p)
			p.Status.Phase = to
			w.put(p)
			w.settle()
		}
	}
	for name, c := range map[string]struct {
		job    *batchv1.Job
		stages []stage
	}{
		"a Job runs as many pods as it may, each for its share of the duration": {
			newJob("job", 2, completions(3), annotated(DurationAnnotation, "15m")), []stage{
				{at: 0, pods: []string{"job-0 Running a", "job-1 Running a"}, status: "2200"},
				{at: 7*time.Minute + 29*time.Second, pods: []string{"job-0 Running a", "job-1 Running a"}, status: "2200"},
				{at: 7*time.Minute + 30*time.Second, pods: []string{"job-0 Succeeded a", "job-1 Succeeded a", "job-2 Running a"}, status: "1120"},
				{at: 15 * time.Minute, pods: []string{"job-0 Succeeded a", "job-1 Succeeded a", "job-2 Succeeded a"}, status: "0030 SuccessCriteriaMet Complete"},
			},
		},
		"an Indexed Job says which indexes are done": {
			newJob("job", 2, completions(3), indexedMode, annotated(DurationAnnotation, "2m")), []stage{
				{at: 0, pods: []string{"job-0-0 Running a", "job-1-0 Running a"}, status: "2200"},
				{at: time.Minute, pods: []string{"job-0-0 Succeeded a", "job-1-0 Succeeded a", "job-2-0 Running a"}, status: "1120 0,1"},
				{at: 2 * time.Minute, pods: []string{"job-0-0 Succeeded a", "job-1-0 Succeeded a", "job-2-0 Succeeded a"}, status: "0030 0-2 SuccessCriteriaMet Complete"},
			},
		},
		"without a duration pods run for ever": {
			newJob("job", 1), []stage{{at: 1000 * time.Hour, pods: []string{"job-0 Running a"}, status: "1100"}},
		},
		"a suspended Job has no pods, and starts anew when it is resumed": {
			newJob("job", 1, annotated(DurationAnnotation, "1m"), func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }), []stage{
				{at: 0, pods: []string{}, status: "0000 Suspended"},
				{at: time.Second, edit: suspend(false), pods: []string{"job-0 Running a"}, status: "1100"},
				{at: 31 * time.Second, edit: suspend(true), pods: []string{}, status: "0000 Suspended"},
				{at: 41 * time.Second, edit: suspend(false), pods: []string{"job-1 Running a"}, status: "1100"},
				{at: 100 * time.Second, pods: []string{"job-1 Running a"}, status: "1100"},
				{at: 101 * time.Second, pods: []string{"job-1 Succeeded a"}, status: "0010 SuccessCriteriaMet Complete"},
			},
		},
		"pods that take time to end do not count as active": {
			newJob("job", 1, annotated(GraceAnnotation, "30s")), []stage{
				{at: 10 * time.Second, edit: suspend(true), pods: []string{"job-0 Running a ending 40s"}, status: "0000 Suspended"},
				{at: 39 * time.Second, pods: []string{"job-0 Running a ending 40s"}, status: "0000 Suspended"},
				{at: 40 * time.Second, pods: []string{}, status: "0000 Suspended"},
			},
		},
		"a pod that was deleted is replaced, and does not count as failed": {
			newJob("job", 1, indexedMode, annotated(DurationAnnotation, "1m")), []stage{
				{at: 30 * time.Second, edit: evict("job-0-0"), pods: []string{"job-0-1 Running a"}, status: "1100"},
				{at: 89 * time.Second, pods: []string{"job-0-1 Running a"}, status: "1100"},
				{at: 90 * time.Second, pods: []string{"job-0-1 Succeeded a"}, status: "0010 0 SuccessCriteriaMet Complete"},
			},
		},
		"a replacement does not wait for the end of what it replaces": {
			newJob("job", 1, annotated(GraceAnnotation, "30s")), []stage{
				{at: 0, edit: evict("job-0"), pods: []string{"job-0 Running a ending 30s", "job-1 Running a"}, status: "1100"},
				{at: 30 * time.Second, pods: []string{"job-1 Running a"}, status: "1100"},
			},
		},
		"a replacement waits where the Job says so": {
			newJob("job", 1, annotated(GraceAnnotation, "30s"), func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }), []stage{
				{at: 0, edit: evict("job-0"), pods: []string{"job-0 Running a ending 30s"}, status: "0000"},
				{at: 30 * time.Second, pods: []string{"job-1 Running a"}, status: "1100"},
			},
		},
		"a failed pod is replaced until the backoff limit": {
			newJob("job", 2, func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](1) }), []stage{
				{at: 0, edit: phase("job-0", corev1.PodFailed), pods: []string{"job-0 Failed a", "job-1 Running a", "job-2 Running a"}, status: "2201"},
				{at: 1, edit: phase("job-2", corev1.PodFailed), pods: []string{"job-0 Failed a", "job-2 Failed a"}, status: "0002 FailureTarget Failed"},
			},
		},
		"a failed Job is not over while a pod of its is ending": {
			newJob("job", 2, annotated(GraceAnnotation, "30s"), func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }), []stage{
				{at: 0, edit: phase("job-0", corev1.PodFailed), pods: []string{"job-0 Failed a", "job-1 Running a ending 30s"}, status: "0001 FailureTarget"},
				{at: 30 * time.Second, pods: []string{"job-0 Failed a"}, status: "0001 FailureTarget Failed"},
			},
		},
		"a Job that runs for longer than it may has failed": {
			newJob("job", 1, annotated(DurationAnnotation, "1h"), func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) }), []stage{
				{at: 59 * time.Second, pods: []string{"job-0 Running a"}, status: "1100"},
				{at: 60 * time.Second, pods: []string{}, status: "0000 FailureTarget Failed"},
			},
		},
		"a work queue is done once a pod has succeeded and none is left": {
			newJob("job", 2, annotated(DurationAnnotation, "1m"), func(j *batchv1.Job) { j.Spec.Completions = nil }), []stage{
				{at: 0, pods: []string{"job-0 Running a", "job-1 Running a"}, status: "2200"},
				{at: 30 * time.Second, edit: evict("job-1"), pods: []string{"job-0 Running a", "job-2 Running a"}, status: "2200"},
				{at: time.Minute, pods: []string{"job-0 Succeeded a", "job-2 Running a"}, status: "1110"},
				{at: 90 * time.Second, pods: []string{"job-0 Succeeded a", "job-2 Succeeded a"}, status: "0020 SuccessCriteriaMet Complete"},
			},
		},
		"a smaller parallelism deletes pods": {
			newJob("job", 3), []stage{
				{at: 1, edit: func(w *world) {
					j := w.job("job")
					w.change(j, func() { j.Spec.Parallelism = ptr.To[int32](1) })
				}, pods: []string{"job-0 Running a"}, status: "1100"},
			},
		},
		"what a Job of a dump has counted stays counted": {
			newJob("job", 1, completions(2), annotated(DurationAnnotation, "2m"), func(j *batchv1.Job) {
				j.Status = batchv1.JobStatus{Succeeded: 1, StartTime: &metav1.Time{Time: epoch.Add(-time.Minute)}}
			}), []stage{
				{at: 0, pods: []string{"job-0 Running a"}, status: "1110"},
				{at: time.Minute, pods: []string{"job-0 Succeeded a"}, status: "0020 SuccessCriteriaMet Complete"},
			},
		},
		"a pod of a dump is not kept by the mark by which Jobs count it": {
			newJob("job", 1, completions(2), annotated(DurationAnnotation, "2m"), func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }), []stage{
				{at: 0, edit: func(w *world) {
					w.put(newPod("dumped", tracked(w.job("job"), "a", corev1.PodRunning)), newPod("gated", tracked(w.job("job"), "", corev1.PodPending)))
					w.settle()
				}, pods: []string{}, status: "0000 Suspended"},
				{at: time.Minute, edit: func(w *world) {
					w.put(newPod("ended", tracked(w.job("job"), "a", corev1.PodSucceeded)))
					w.settle()
					w.remove(newPod("ended"))
				}, pods: []string{}, status: "0010 Suspended"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"), c.job)
			for _, s := range c.stages {
				w.until(s.at)
				if s.edit != nil {
					s.edit(w)
				}
				if diff := cmp.Diff(s.pods, w.pods()); diff != "" {
					t.Errorf("at %s pods: %s", s.at, diff)
				}
				if got := statusOf(w.job("job")); got != s.status {
					t.Errorf("at %s the status is %q, want %q", s.at, got, s.status)
				}
			}
		})
	}
}
