package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mapping makes every device of a slice take so many cpus of its node.
func mapping(cpu string) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
				"cpu": {AllocationMultiplier: ptr.To(resource.MustParse(cpu))},
			}
		}
	}
}

// by makes the class serve an extended resource.
func by(name string) *resourcev1.DeviceClass {
	c := newClass()
	c.Spec.ExtendedResourceName = &name
	return c
}

// sharing is a claim that a user made, and what uses it.
func sharing(spec resourcev1.ResourceClaimSpec) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}, Spec: spec}
}

// referred has the container refer to the shared claim, once for each name that the pod has for it.
func referred(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, n := range names {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: n, ResourceClaimName: ptr.To("shared")})
			p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: n})
		}
	}
}

func waits(t *testing.T, w *world, pod, says string) {
	t.Helper()
	p := newPod(pod)
	w.load(p)
	c := condition(p, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable || !strings.Contains(c.Message, says) {
		t.Errorf("pod %s says %v, not %q", pod, c, says)
	}
	if p.Spec.NodeName != "" || len(p.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		t.Errorf("pod %s is bound to %q with %v", pod, p.Spec.NodeName, p.Status.NodeAllocatableResourceClaimStatuses)
	}
}

// A node of 8 cpus has two cards of 3 each.
func TestWhatDevicesMapCounts(t *testing.T) {
	cards := []client.Object{newNode("a"), newSlice("a", 2, mapping("3")), newClass(), newTemplate("one", 1)}
	with := func(pods ...client.Object) []client.Object {
		return append(append([]client.Object{}, cards...), pods...)
	}
	for name, c := range map[string]struct {
		objects []client.Object
		pods    []string
	}{
		"for the pod itself":                 {with(newPod("p", claims1("one"), asks("cpu", "5")), newPod("q", claims1("one"), asks("cpu", "6"))), []string{"p Running a", "q Pending"}},
		"for those that come later":          {with(newPod("p", claims1("one")), newPod("q", asks("cpu", "5"))), []string{"p Running a", "q Pending"}},
		"no more than it is":                 {with(newPod("p", claims1("one")), newPod("q", asks("cpu", "4"))), []string{"p Running a", "q Running a"}},
		"for each claim":                     {with(newPod("p", claims1("one")), newPod("q", claims1("one")), newPod("r")), []string{"p Running a", "q Running a", "r Pending"}},
		"for no pod that uses another's":     {with(sharing(claimSpec(1)), newPod("p", referred("s")), newPod("q", referred("s"))), []string{"p Running a", "q Pending"}},
		"against a claim nobody refers to":   {with(sharing(claimSpec(1)), newPod("p", shared)), []string{"p Pending"}},
		"against extended resources":         {append(with(newPod("p", asks("example.com/gpu", "1"))), by("example.com/gpu")), []string{"p Pending"}},
		"not where another node maps less":   {with(newNode("b"), newSlice("b", 1), newPod("p", claims1("one"), asks("cpu", "6"))), []string{"p Running b"}},
		"not for a claim that is given back": {with(newPod("p", claims1("one"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), newPod("q", asks("cpu", "8"))), []string{"p Succeeded", "q Running a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.objects...)
			if diff := cmp.Diff(c.pods, w.pods()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABoundPodTellsWhatItsClaimsMap(t *testing.T) {
	w := newWorld(t, newNode("a"), newSlice("a", 2, mapping("500m")), newClass(), newTemplate("two", 2), newPod("p", claims1("two")))
	p := newPod("p")
	w.load(p)
	want := []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "p-gpu", Containers: []string{"c"}, Resources: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
	if diff := cmp.Diff(want, p.Status.NodeAllocatableResourceClaimStatuses); diff != "" {
		t.Error(diff)
	}
	if got := w.scheduler.book.Snapshot().Node("a"); got.Free["cpu"] != 6000 || len(got.MappedClaims) != 1 || got.MappedClaims[0].Name != "p-gpu" {
		t.Errorf("its node has %v free, for claims %v", got.Free, got.MappedClaims)
	}
	w.remove(newPod("p"))
	if got := w.scheduler.book.Snapshot().Node("a"); got.Free["cpu"] != 8000 || len(got.MappedClaims) != 0 {
		t.Errorf("once it is gone its node has %v free, for claims %v", got.Free, got.MappedClaims)
	}
}

// What kube-scheduler never binds shows in the pod.
func TestPodsThatAreNeverBoundSayWhy(t *testing.T) {
	unlike := func(s *resourcev1.ResourceSlice) { // a slice of the same pool that counts otherwise
		s.Name, s.Spec.Devices, s.Spec.Pool.ResourceSliceCount = "other", []resourcev1.Device{{Name: "more"}}, 2
	}
	failing := newTemplate("failing", 1, `device.attributes["gpu.example.com"].none == "x"`)
	for name, c := range map[string]struct {
		objects []client.Object
		says    string
	}{
		"one claim by two names": {[]client.Object{newSlice("a", 2), sharing(claimSpec(1)), newPod("p", referred("x", "y"))}, "by another name as well"},
		"a claim that maps and that no container refers to": {
			[]client.Object{newSlice("a", 1, mapping("1")), sharing(claimSpec(1)), newPod("p", shared)}, "no container refers to it",
		},
		"a class that is not there": {
			[]client.Object{newSlice("a", 1), sharing(resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "none", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}},
			}}}), newPod("p", referred("x"))}, "DeviceClass none",
		},
		"a selector that fails on a device, also for later nodes": {
			[]client.Object{newSlice("a", 1), newNode("b"), newSlice("b", 1, func(s *resourcev1.ResourceSlice) {
				s.Spec.Devices[0].Attributes["none"] = resourcev1.DeviceAttribute{StringValue: ptr.To("x")}
			}), failing, newPod("p", claims1("failing"))}, "kube-scheduler gives up such a pod on all nodes",
		},
		"what is chance": {[]client.Object{newSlice("a", 1), newSlice("a", 1, unlike), newTemplate("one", 1), newPod("p", claims1("one"))}, "is chance"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append([]client.Object{newNode("a"), newClass()}, c.objects...)...)
			waits(t, w, "p", c.says)
		})
	}
}

// A pod whose claims are not there is not looked at, and says nothing.
func TestAPodWithoutItsClaimsSaysNothing(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Pod){
		"of a template": claims1("none"), "of a user": referred("x"), "pinned to a node that is not there": func(p *corev1.Pod) { referred("x")(p); pinned("none")(p) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"), newClass(), newPod("p", edit))
			p := newPod("p")
			w.load(p)
			if c := condition(p, corev1.PodScheduled); c != nil || p.Spec.NodeName != "" {
				t.Errorf("it says %v", c)
			}
		})
	}
}

// The claim for extended resources tells which request serves which container.
func TestExtendedResourcesOfSeveralContainers(t *testing.T) {
	w := newWorld(t, newNode("a"), newSlice("a", 3), by("example.com/gpu"), newPod("p", asks("example.com/gpu", "1"), func(p *corev1.Pod) {
		init, other := *p.Spec.Containers[0].DeepCopy(), *p.Spec.Containers[0].DeepCopy()
		init.Name, other.Name = "init", "other"
		init.Resources.Requests["example.com/gpu"] = resource.MustParse("3")
		p.Spec.InitContainers, p.Spec.Containers = []corev1.Container{init}, append(p.Spec.Containers, other)
	}))
	if diff := cmp.Diff([]string{"p-extended-resources a/gpu-0 a/gpu-1 a/gpu-2 for p"}, w.held()); diff != "" {
		t.Error(diff)
	}
	p := newPod("p")
	w.load(p)
	var got []string
	for _, m := range p.Status.ExtendedResourceClaimStatus.RequestMappings {
		got = append(got, m.ContainerName+" "+m.RequestName)
	}
	want := []string{
		"c container-1-request-1", "other container-2-request-1",
		"init container-1-request-1", "init container-2-request-1", "init container-0-request-1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
