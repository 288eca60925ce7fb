package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func asks(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount) }
}

func pinned(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

func gated(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}} }

func claims1(template string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { claiming(&p.Spec, template) }
}

func onNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

func TestSchedule(t *testing.T) {
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	extendedClass := newClass()
	extendedClass.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	for name, c := range map[string]struct {
		objects []client.Object
		pods    []string
		claims  []string
	}{
		"the first node by name that has room": {
			objects: []client.Object{newNode("b"), newNode("a"), newPod("p"), newPod("q", asks("cpu", "8"))},
			pods:    []string{"p Running a", "q Running b"},
		},
		"a pod that has a gate waits": {
			objects: []client.Object{newNode("a"), newPod("p", gated)}, pods: []string{"p Pending"},
		},
		"a pinned pod goes to its node or nowhere": {
			objects: []client.Object{newNode("a"), newNode("b"), newPod("p", pinned("b")), newPod("q", pinned("c"))},
			pods:    []string{"p Running b", "q Pending"},
		},
		"taints, cordons and readiness keep pods away": {
			objects: []client.Object{newNode("a", tainted), newNode("b", cordoned), newNode("c", conditionReady(corev1.ConditionFalse)), newPod("p")},
			pods:    []string{"p Pending"},
		},
		"what is tolerated does not": {
			objects: []client.Object{newNode("a", tainted), newPod("p", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
			})},
			pods: []string{"p Running a"},
		},
		"a node without a hostname label takes pods": {
			objects: []client.Object{newNode("a", func(n *corev1.Node) { n.Labels = nil }), newPod("p")}, pods: []string{"p Running a"},
		},
		"the higher priority goes first": {
			objects: []client.Object{
				newNode("a"), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10},
				newPod("p", asks("cpu", "8")), newPod("q", asks("cpu", "8"), func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](10) }),
			},
			pods: []string{"p Pending", "q Running a"},
		},
		"then the older": {
			objects: []client.Object{newNode("a"), newPod("q", asks("cpu", "8"), func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
			}), newPod("p", asks("cpu", "8"))},
			pods: []string{"p Pending", "q Running a"},
		},
		"another scheduler's pods are not touched": {
			objects: []client.Object{newNode("a"), newPod("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })}, pods: []string{"p Pending"},
		},
		"what runs there already counts": {
			objects: []client.Object{newNode("a"), newPod("p", onNode("a"), asks("cpu", "8")), newPod("q")}, pods: []string{"p Running a", "q Pending"},
		},
		"claims are given what is free, in order": {
			objects: []client.Object{newNode("a"), newSlice("a", 3), newClass(), newTemplate("two", 2), newPod("p", claims1("two")), newPod("q", claims1("two"))},
			pods:    []string{"p Running a", "q Pending"},
			claims:  []string{"p-gpu a/gpu-0 a/gpu-1 for p", "q-gpu"},
		},
		"an exact claim is given exactly its devices": {
			objects: []client.Object{
				newNode("a"), newSlice("a", 4), newClass(), newTemplate("exact", 2, `device.attributes["gpu.example.com"].uuid in ["a-1", "a-3"]`),
				newPod("p", claims1("exact"), pinned("a")),
			},
			pods: []string{"p Running a"}, claims: []string{"p-gpu a/gpu-1 a/gpu-3 for p"},
		},
		"a pod whose template does not exist waits": {
			objects: []client.Object{newNode("a"), newClass(), newPod("p", claims1("none"))}, pods: []string{"p Pending"}, claims: []string{},
		},
		"a claim of the pod's own making is shared": {
			objects: []client.Object{
				newNode("a"), newNode("b"), newSlice("b", 1), newClass(),
				&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}, Spec: claimSpec(1)},
				newPod("p", shared), newPod("q", shared),
			},
			pods: []string{"p Running b", "q Running b"}, claims: []string{"shared b/gpu-0 for p for q"},
		},
		"a DeviceClass serves an extended resource where no plugin lists it": {
			objects: []client.Object{newNode("a"), newSlice("a", 3), extendedClass, newPod("p", asks("example.com/gpu", "2")), newPod("q", asks("example.com/gpu", "2"))},
			pods:    []string{"p Running a", "q Pending"}, claims: []string{"p-extended-resources a/gpu-0 a/gpu-1 for p"},
		},
		"a plugin's devices are the node's own": {
			objects: []client.Object{newNode("a", func(n *corev1.Node) { n.Status.Allocatable["example.com/gpu"] = resource.MustParse("2") }),
				newPod("p", asks("example.com/gpu", "2")), newPod("q", asks("example.com/gpu", "2"))},
			pods: []string{"p Running a", "q Pending"}, claims: []string{},
		},
		"an extended resource that nothing serves fits nowhere": {
			objects: []client.Object{newNode("a"), newPod("p", asks("example.com/gpu", "1"))}, pods: []string{"p Pending"},
		},
		"sixteen devices short of one are found out at once": {
			objects: []client.Object{newNode("a"), newSlice("a", 16), newClass(), newTemplate("some", 6), newPod("p", func(p *corev1.Pod) {
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{
					{Name: "x", ResourceClaimTemplateName: ptr.To("some")}, {Name: "y", ResourceClaimTemplateName: ptr.To("some")}, {Name: "z", ResourceClaimTemplateName: ptr.To("some")},
				}
			})},
			pods: []string{"p Pending"}, claims: []string{"p-x", "p-y", "p-z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.objects...)
			if diff := cmp.Diff(c.pods, w.pods()); diff != "" {
				t.Errorf("pods: %s", diff)
			}
			if diff := cmp.Diff(c.claims, w.held()); c.claims != nil && diff != "" {
				t.Errorf("claims: %s", diff)
			}
		})
	}
}

func shared(p *corev1.Pod) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("shared")}}
}

func TestABoundPodIsAsASchedulerAndAKubeletLeaveIt(t *testing.T) {
	class := newClass()
	class.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	w := newWorld(t, newNode("a"), newSlice("a", 3), class, newTemplate("one", 1), newPod("p", claims1("one"), asks("example.com/gpu", "2")))
	p := newPod("p")
	w.load(p)
	for _, ct := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady} {
		if c := condition(p, ct); c == nil || c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Equal(&metav1.Time{Time: epoch}) {
			t.Errorf("condition %s is %v", ct, c)
		}
	}
	if p.Status.StartTime == nil || !p.Status.StartTime.Time.Equal(epoch) {
		t.Errorf("it started at %v", p.Status.StartTime)
	}
	want := &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "p-extended-resources",
		RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "container-0-request-1"}},
	}
	if diff := cmp.Diff(want, p.Status.ExtendedResourceClaimStatus); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("p-gpu")}}, p.Status.ResourceClaimStatuses); diff != "" {
		t.Error(diff)
	}

	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-gpu"}}
	w.load(claim)
	if diff := cmp.Diff([]metav1.OwnerReference{ownedBy(p)}, claim.OwnerReferences); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "v", resourcev1.PodResourceClaimAnnotation: "gpu"}, claim.Annotations); diff != "" {
		t.Error(diff)
	}
	if claim.Labels["l"] != "v" || claim.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchFields[0].Values[0] != "a" {
		t.Errorf("labels %v, allocation for %v", claim.Labels, claim.Status.Allocation.NodeSelector)
	}
	special := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-extended-resources"}}
	w.load(special)
	if special.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || special.Spec.Devices.Requests[0].Exactly.Count != 2 {
		t.Errorf("the claim for extended resources is %v", special)
	}
}

func TestAPodThatFitsNowhereIsTriedAgain(t *testing.T) {
	w := newWorld(t, newNode("a"), newPod("p", asks("cpu", "8")), newPod("q"))
	q := newPod("q")
	w.load(q)
	c := condition(q, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		t.Fatalf("the pod says %v", c)
	}
	before := w.store.Version()
	if changed, err := w.scheduler.Schedule(context.Background()); changed || err != nil || w.store.Version() != before {
		t.Errorf("a second look changed something: %v, %v", changed, err)
	}
	w.remove(newPod("p"))
	if diff := cmp.Diff([]string{"q Running a"}, w.pods()); diff != "" {
		t.Error(diff)
	}
}

func TestAGateThatIsTakenOffLetsAPodGo(t *testing.T) {
	w := newWorld(t, newNode("a"), newNode("b"), newSlice("b", 1), newClass(), newPod("p", gated, claims1("one")))
	if diff := cmp.Diff([]string{}, w.held()); diff != "" {
		t.Error(diff)
	}
	w.put(newTemplate("one", 1))
	w.settle()
	if diff := cmp.Diff([]string{"p-gpu"}, w.held()); diff != "" {
		t.Errorf("a gated pod's claims: %s", diff)
	}
	p := newPod("p")
	w.change(p, func() {
		p.Spec.SchedulingGates = nil
		pinned("b")(p)
	})
	if diff := cmp.Diff([]string{"p-gpu b/gpu-0 for p"}, w.held()); diff != "" {
		t.Error(diff)
	}
}

func TestDevicesOfAPodThatEnds(t *testing.T) {
	claimingJob := newJob("job", 1, annotated(DurationAnnotation, "1m"), annotated(GraceAnnotation, "10s"), func(j *batchv1.Job) {
		claiming(&j.Spec.Template.Spec, "one")
	})
	w := newWorld(t, newNode("a"), newSlice("a", 1), newClass(), newTemplate("one", 1), claimingJob)
	w.until(30 * time.Second)
	w.remove(newPod("job-0"))
	if diff := cmp.Diff([]string{"job-0-gpu a/gpu-0 for job-0", "job-1-gpu"}, w.held()); diff != "" {
		t.Errorf("while it is ending: %s", diff)
	}
	w.until(40 * time.Second)
	if diff := cmp.Diff([]string{"job-1-gpu a/gpu-0 for job-1"}, w.held()); diff != "" {
		t.Errorf("once it is gone: %s", diff)
	}
	if diff := cmp.Diff([]time.Duration{100 * time.Second}, w.due()); diff != "" {
		t.Errorf("due: %s", diff)
	}
	w.until(100 * time.Second)
	if diff := cmp.Diff([]string{}, w.held()); diff != "" {
		t.Errorf("once one has succeeded: %s", diff)
	}
}

func TestAPodThatWasReleasedHoldsNothing(t *testing.T) {
	w := newWorld(t, newNode("a"), newPod("p", asks("cpu", "6"), pinned("b")), newPod("q", asks("cpu", "6")))
	if diff := cmp.Diff([]string{"p Pending", "q Running a"}, w.pods()); diff != "" {
		t.Error(diff)
	}
}
