package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manage makes the pods that are missing, and deletes those that are too many.
func (s *sync) manage(ctx context.Context) error {
	want := s.wanted()
	if s.indexed() {
		if err := s.drop(ctx, s.surplus()); err != nil {
			return err
		}
	}
	if have := len(s.active); have > want {
		return s.drop(ctx, slices.Clone(s.active[want:]))
	}
	missing := want - len(s.active)
	if ptr.Deref(s.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed {
		missing -= int(s.ending)
	}
	if !s.indexed() {
		for range missing {
			if err := s.create(ctx, -1); err != nil {
				return err
			}
		}
		return nil
	}
	for _, index := range s.open(missing) {
		if err := s.create(ctx, index); err != nil {
			return err
		}
	}
	return nil
}

// wanted is how many pods are to be active.
func (s *sync) wanted() int {
	parallelism := int(ptr.Deref(s.Spec.Parallelism, 1))
	switch {
	case s.Spec.Completions != nil:
		return max(min(int(*s.Spec.Completions-s.Status.Succeeded), parallelism), 0)
	case s.Status.Succeeded > 0:
		return min(len(s.active), parallelism)
	}
	return parallelism
}

// surplus returns the active pods whose completion index is no one's, done or another pod's.
func (s *sync) surplus() []*corev1.Pod {
	var out []*corev1.Pod
	taken := map[int]bool{}
	for _, p := range s.active {
		i := indexOf(p)
		if i < 0 || i >= int(ptr.Deref(s.Spec.Completions, 0)) || taken[i] || s.done[i] {
			out = append(out, p)
		}
		taken[i] = true
	}
	return out
}

// open returns the first n completion indexes that need a pod.
func (s *sync) open(n int) []int {
	taken := map[int]bool{}
	for _, p := range s.active {
		taken[indexOf(p)] = true
	}
	waits := ptr.Deref(s.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed
	var out []int
	for i := 0; i < int(ptr.Deref(s.Spec.Completions, 0)) && len(out) < n; i++ {
		if !taken[i] && !s.done[i] && !(waits && s.ends[i]) {
			out = append(out, i)
		}
	}
	return out
}

// drop deletes active pods. One that takes time to end counts as ending from now on.
func (s *sync) drop(ctx context.Context, pods []*corev1.Pod) error {
	for _, p := range slices.Clone(pods) {
		if err := s.jobs.client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
		if podReady(p) {
			*s.Status.Ready--
		}
		if err := s.jobs.client.Get(ctx, client.ObjectKeyFromObject(p), &corev1.Pod{}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get pod: %w", err)
		} else if err == nil {
			s.ending++
			s.ends[indexOf(p)] = true
		}
		s.active = slices.DeleteFunc(s.active, func(a *corev1.Pod) bool { return a == p })
	}
	return nil
}

// maxPodName leaves a name short enough to be a hostname.
const maxPodName = 57

// create makes a pod, for a completion index or, if that is negative, for none.
func (s *sync) create(ctx context.Context, index int) error {
	p := s.template(index)
	base := s.Name
	if index >= 0 {
		base += "-" + strconv.Itoa(index)
	}
	for {
		suffix := "-" + strconv.Itoa(s.state.next[index])
		s.state.next[index]++
		pod := p.DeepCopy()
		pod.Name = base[:min(len(base), maxPodName-len(suffix))] + suffix
		err := s.jobs.client.Create(ctx, pod)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		s.active = append(s.active, pod)
		return nil
	}
}

// template returns a pod of the Job without a name.
func (s *sync) template(index int) *corev1.Pod {
	t := s.Spec.Template.DeepCopy()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Labels: clone(t.Labels), Annotations: clone(t.Annotations), Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: t.Spec,
	}
	for _, l := range []string{"controller-uid", batchv1.ControllerUidLabel} {
		p.Labels[l] = string(s.UID)
	}
	for _, l := range []string{"job-name", batchv1.JobNameLabel} {
		p.Labels[l] = s.Name
	}
	if grace, ok := s.Annotations[GraceAnnotation]; ok {
		if _, own := p.Annotations[GraceAnnotation]; !own {
			p.Annotations[GraceAnnotation] = grace
		}
	}
	if index >= 0 {
		p.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(index)
		p.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(index)
		p.Spec.Hostname = fmt.Sprintf("%s-%d", s.Name, index)
	}
	return p
}

func clone(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// indexOf returns a pod's completion index; -1 without one.
func indexOf(p *corev1.Pod) int {
	if i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation]); err == nil {
		return i
	}
	return -1
}
