package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAdmit(t *testing.T) {
	quantities := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	limitRange := func(name string, item corev1.LimitRangeItem) client.Object {
		item.Type = corev1.LimitTypeContainer
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	}
	limited := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: quantities("cpu", "2")}
	}
	for name, c := range map[string]struct {
		objects          []client.Object
		pod              *corev1.Pod
		requests, limits corev1.ResourceList
		priority         *int32
		overhead         corev1.ResourceList
	}{
		"what is limited is asked for":          {pod: newPod("p", limited), requests: quantities("cpu", "2"), limits: quantities("cpu", "2")},
		"what is asked for already is not more": {pod: newPod("p"), requests: quantities("cpu", "1")},
		"a LimitRange gives what is missing": {
			objects:  []client.Object{limitRange("l", corev1.LimitRangeItem{Default: quantities("memory", "2Gi"), DefaultRequest: quantities("cpu", "3", "memory", "1Gi")})},
			pod:      newPod("p"),
			requests: quantities("cpu", "1", "memory", "1Gi"), limits: quantities("memory", "2Gi"),
		},
		"its maximum is its default": {
			objects: []client.Object{limitRange("l", corev1.LimitRangeItem{Max: quantities("memory", "2Gi")})},
			pod:     newPod("p"), requests: quantities("cpu", "1", "memory", "2Gi"), limits: quantities("memory", "2Gi"),
		},
		"of several the first counts": {
			objects: []client.Object{
				limitRange("b", corev1.LimitRangeItem{DefaultRequest: quantities("memory", "2Gi")}), limitRange("a", corev1.LimitRangeItem{DefaultRequest: quantities("memory", "1Gi")}),
			},
			pod: newPod("p"), requests: quantities("cpu", "1", "memory", "1Gi"),
		},
		"a PriorityClass gives the priority": {
			objects:  []client.Object{&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10}},
			pod:      newPod("p", func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }),
			requests: quantities("cpu", "1"), priority: ptr.To[int32](10),
		},
		"a RuntimeClass gives the overhead": {
			objects:  []client.Object{&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Handler: "vm", Overhead: &nodev1.Overhead{PodFixed: quantities("cpu", "250m")}}},
			pod:      newPod("p", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("vm") }),
			requests: quantities("cpu", "1"), overhead: quantities("cpu", "250m"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.objects...)
			c.pod.Status.Phase = ""
			if err := w.Create(context.Background(), c.pod); err != nil {
				t.Fatal(err)
			}
			got := c.pod.Spec.Containers[0].Resources
			for what, pair := range map[string][2]corev1.ResourceList{
				"requests": {c.requests, got.Requests}, "limits": {c.limits, got.Limits}, "overhead": {c.overhead, c.pod.Spec.Overhead},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
			if diff := cmp.Diff(c.priority, c.pod.Spec.Priority); diff != "" {
				t.Errorf("priority: %s", diff)
			}
			if len(c.pod.Spec.Tolerations) != 2 || *c.pod.Spec.Tolerations[0].TolerationSeconds != 300 || c.pod.Status.Phase != corev1.PodPending {
				t.Errorf("tolerations %v, phase %s", c.pod.Spec.Tolerations, c.pod.Status.Phase)
			}
		})
	}
}

func TestHowAPodEnds(t *testing.T) {
	graceOf := func(grace string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, GraceAnnotation, grace) }
	}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		ends    time.Duration // since its deletion; 0 for at once
		seconds int64
	}{
		"at once":                              {pod: newPod("p")},
		"after its grace":                      {pod: newPod("p", graceOf("30s")), ends: 30 * time.Second, seconds: 30},
		"exactly then":                         {pod: newPod("p", graceOf("1500ms")), ends: 1500 * time.Millisecond, seconds: 2},
		"at once where it was never bound":     {pod: newPod("p", graceOf("30s"), gated)},
		"at once where it has ended by itself": {pod: newPod("p", graceOf("30s"), onNode("a"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"), c.pod)
			w.until(500 * time.Millisecond)
			w.remove(newPod("p"))
			if c.ends == 0 {
				if len(w.pods()) != 0 {
					t.Errorf("it is still there: %v", w.pods())
				}
				return
			}
			p := newPod("p")
			w.load(p)
			if got := p.DeletionTimestamp.Sub(epoch); got != c.ends+500*time.Millisecond || *p.DeletionGracePeriodSeconds != c.seconds {
				t.Errorf("it is to end at %s after %d s", got, *p.DeletionGracePeriodSeconds)
			}
			w.remove(newPod("p")) // once more changes nothing
			w.goes(c.ends + 500*time.Millisecond)
		})
	}
}

func TestAJobGoesWithWhatItOwns(t *testing.T) {
	j := newJob("job", 2, annotated(DurationAnnotation, "1m"))
	j.Spec.TTLSecondsAfterFinished = ptr.To[int32](30)
	w := newWorld(t, newNode("a"), j)
	w.until(90*time.Second - 1)
	if diff := cmp.Diff([]string{"job-0 Succeeded a", "job-1 Succeeded a"}, w.pods()); diff != "" {
		t.Error(diff)
	}
	w.until(90 * time.Second)
	if diff := cmp.Diff([]string{}, w.pods()); diff != "" {
		t.Error(diff)
	}
}
