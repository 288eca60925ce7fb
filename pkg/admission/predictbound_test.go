package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// What a pod is bound with is in the prediction as kube-scheduler writes it.
func TestPredictionsTellWhatIsWritten(t *testing.T) {
	t.Run("statuses of claims that map the node's own, by name", func(t *testing.T) {
		w := alone("h100:2", mappingOf("cpu", "", "1", 0, 1), mappingOf("memory", "", "512Mi", 0, 1))
		p := w.predict(t, asks("cpu=1").claim("b", claiming(exactly("gpu", 1))).claim("a", claiming(exactly("gpu", 1))))
		want := []corev1.NodeAllocatableResourceClaimStatus{
			{ResourceClaimName: "claim-a", Containers: []string{"main"}, Resources: amounts("cpu=1", "memory=512Mi")},
			{ResourceClaimName: "claim-b", Containers: []string{"main"}, Resources: amounts("cpu=1", "memory=512Mi")},
		}
		if diff := cmp.Diff(want, p.Statuses); diff != "" || p.Mapped["cpu"] != 2000 {
			t.Errorf("%v %s", p.Mapped, diff)
		}
	})
	t.Run("the claim for extended resources", func(t *testing.T) {
		const foo = "example.com/foo"
		w := alone("h100:2").serves("c", foo, "h100", 1)
		p := w.predict(t, asks("cpu=1", foo+"=2"))
		want := &ExtendedClaim{
			Claim: &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "team", GenerateName: "pod-extended-resources-", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "pod", Controller: ptr.To(true)}},
				},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
					Name: "container-0-request-1", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2},
				}}}},
			},
			Mappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: foo, RequestName: "container-0-request-1"}},
		}
		if diff := cmp.Diff(want, p.Extended); diff != "" || len(p.Allocations[v1alpha1.ExtendedResourcesClaim].Devices.Results) != 2 {
			t.Errorf("%v %s", p.Allocations, diff)
		}
		if p := w.predict(t, asks("cpu=1")); !p.Fits || p.Extended != nil {
			t.Errorf("a pod without extended resources has a claim for them: %v", p.Extended)
		}
	})
}

func TestPredictionsTellHowFarTheyReach(t *testing.T) {
	for name, tc := range map[string]struct {
		world *world
		pod   *incoming
		want  Reach
	}{
		"too little of a node": {alone("h100:1"), asks("cpu=9999"), ""},
		"too few devices":      {alone("h100:1"), asks().claim("a", claiming(exactly("gpu", 2))), ""},
		"a claim that is not there": {alone("h100:1"), asks().claim("a", claiming(exactly("gpu", 1))).on(func(p *corev1.Pod) {
			p.Spec.ResourceClaims[0].ResourceClaimName = nil
			p.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("t")
		}), ReachQueue},
		"a claim that is being deleted":     {alone("h100:1"), asks().claim("a", claiming(exactly("gpu", 1))).with("a", func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{} }), ReachQueue},
		"a class that is not there":         {alone("h100:1"), asks().claim("a", claiming(ofClass("none"))), ReachPod},
		"a selector that fails":             {alone("h100:1"), asks().claim("a", claiming(exactly("gpu", 1, is("other", "x")))), ReachPod},
		"a selector that fails, too few":    {alone("h100:1"), asks().claim("a", claiming(exactly("gpu", 2, is("other", "x")))), ReachPod},
		"one claim by two names":            {alone("h100:2"), twice(), ReachPod},
		"a mapping of what is not consumed": {alone("h100:1", capacious(false, 0), mappingOf("memory", "memory", "1", 0)), asks().claim("a", claiming(exactly("gpu", 1))), ReachPod},
	} {
		t.Run(name, func(t *testing.T) {
			if p := tc.world.predict(t, tc.pod); p.Fits || p.Reach != tc.want {
				t.Errorf("reach %q: %s: %s", p.Reach, p.Reason, p.Message)
			}
		})
	}
}

func ofClass(name string) resourcev1.DeviceRequest {
	r := exactly("gpu", 1)
	r.Exactly.DeviceClassName = name
	return r
}

// twice is a pod that has one claim by two names.
func twice() *incoming {
	in := asks().claim("a", claiming(exactly("gpu", 1)))
	return in.claim("b", claiming(exactly("gpu", 1))).on(func(p *corev1.Pod) {
		p.Spec.ResourceClaims[1].ResourceClaimName = ptr.To("claim-a")
		in.claims["b"] = in.claims["a"]
	})
}

// An Outlook says of each node what Predict does.
func TestOutlookIsPredictOnEveryNode(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"n", "m", "o"} {
		w.node(name, "h100:2", nil)
	}
	w.held("m", false, false, 0)
	in := asks("cpu=1").claim("a", claiming(exactly("gpu", 2)))
	d, s := &Decider{Matcher: flavors.NewMatcher()}, w.book.Snapshot()
	incoming := &Incoming{Pod: in.pod, Claims: in.claims}
	o := d.Outlook(s, incoming)
	fits := 0
	for _, node := range []string{"n", "m", "o", "none", "n"} {
		p := o.On(t.Context(), node)
		if p.Fits {
			fits++
		}
		if diff := cmp.Diff(d.Predict(t.Context(), s, node, incoming), p); diff != "" {
			t.Errorf("node %s: %s", node, diff)
		}
	}
	if fits != 3 {
		t.Errorf("it fits %d times", fits)
	}
	if in.claims["a"].Status.Allocation != nil || in.claims["a"].UID != types.UID("claim-a") {
		t.Errorf("the claim was changed: %v", in.claims["a"])
	}
}
