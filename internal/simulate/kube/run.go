package kube

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The annotations that say how long things take.
const (
	// DurationAnnotation is on a Job: how long it runs when nothing interrupts it.
	DurationAnnotation = "simulate.plimsoll.dev/duration"
	// GraceAnnotation is on a Job or Pod: how long a pod that was bound takes to end once it is deleted. Default 0.
	GraceAnnotation = "simulate.plimsoll.dev/grace"
)

// durationOf returns the Go duration of an annotation; ok is false without one that parses.
func durationOf(obj client.Object, annotation string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(obj.GetAnnotations()[annotation])
	return d, err == nil && d >= 0
}

// grace is how long a pod takes to end once it is deleted at now: 0 for one that is not bound or has ended already.
func grace(p *corev1.Pod) time.Duration {
	if p.Spec.NodeName == "" || terminal(p) {
		return 0
	}
	d, _ := durationOf(p, GraceAnnotation)
	return d
}

// each is how long one pod of a Job runs; ok is false for one that runs for ever.
func each(j *batchv1.Job) (d time.Duration, ok bool) {
	d, ok = durationOf(j, DurationAnnotation)
	parallelism := int64(max(ptr.Deref(j.Spec.Parallelism, 1), 1))
	completions := int64(ptr.Deref(j.Spec.Completions, int32(parallelism)))
	waves := max((completions+parallelism-1)/parallelism, 1)
	return d / time.Duration(waves), ok
}

func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// start makes a bound pod run and be ready.
func start(p *corev1.Pod, now time.Time) {
	p.Status.Phase = corev1.PodRunning
	p.Status.StartTime = ptr.To(metav1.NewTime(now))
	for _, t := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		setCondition(p, now, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
	}
}

// setCondition writes a condition, whose transition was now, and says whether it changed anything.
func setCondition(p *corev1.Pod, now time.Time, want corev1.PodCondition) bool {
	want.LastTransitionTime = metav1.NewTime(now)
	c := condition(p, want.Type)
	if c == nil {
		p.Status.Conditions = append(p.Status.Conditions, want)
		return true
	}
	if c.Status == want.Status {
		want.LastTransitionTime = c.LastTransitionTime
	}
	changed := c.Status != want.Status || c.Reason != want.Reason || c.Message != want.Message
	*c = want
	return changed
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func podReady(p *corev1.Pod) bool {
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// nodeReady says whether a kubelet is at work on a node. A node that does not say is Ready.
func nodeReady(n *corev1.Node) bool {
	c := nodeCondition(n, corev1.NodeReady)
	return c == nil || c.Status == corev1.ConditionTrue
}

func nodeCondition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
