package policies_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

const namespace = "team-a"

func newClient(objects ...client.Object) client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme, nodev1.AddToScheme, resourcev1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func localQueue() *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gpu"}}
	lq.Spec.ClusterQueue = "shared"
	return lq
}

// clusterQueue has checks, and gives quota for gpus on flavors h100 and a100.
func clusterQueue(checks ...string) *kueue.ClusterQueue {
	return offering(clusterQueueWithout(checks...), "h100", "a100")
}

func clusterQueueWithout(checks ...string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	if len(checks) > 0 {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
	}
	for _, c := range checks {
		cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks,
			kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(c)})
	}
	return cq
}

func offering(cq *kueue.ClusterQueue, names ...string) *kueue.ClusterQueue {
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"gpus"}}
	for _, name := range names {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	return cq
}

func check(name, controller string) *kueue.AdmissionCheck {
	c := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ControllerName = controller
	c.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "DevicePolicy", Name: "gpu"}
	return c
}

func resourceFlavor(name string) *kueue.ResourceFlavor {
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	rf.Spec.NodeLabels = map[string]string{"accelerator": name}
	return rf
}

func devicePolicy(change ...func(*v1alpha1.DevicePolicySpec)) *v1alpha1.DevicePolicy {
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	dp.Spec.QuotaResource = "gpus"
	for _, name := range []string{"h100", "a100"} {
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{Name: name, ChargePerDevice: 1, Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].model == "` + name + `"`}},
		}})
	}
	for _, c := range change {
		c(&dp.Spec)
	}
	return dp
}

// found is what of a Managed the tests compare.
type found struct {
	Checks     []string
	PolicyName string
	Resolved   bool
	Reasons    []string
	Steerable  bool
}

func TestAQueueIsManagedByThePolicyOfItsCheck(t *testing.T) {
	ours := check("plimsoll", v1alpha1.ControllerName)
	theirs := check("provision", "kueue.x-k8s.io/provisioning-request")
	h100, a100 := resourceFlavor("h100"), resourceFlavor("a100")
	spot := resourceFlavor("spot")
	spot.Spec.NodeLabels = map[string]string{"accelerator": "h100", "spot": "true"}
	nameless := ours.DeepCopy()
	nameless.Spec.Parameters = nil
	foreign := ours.DeepCopy()
	foreign.Spec.Parameters.Kind = "ProvisioningRequestConfig"
	limited := clusterQueue("plimsoll")
	limited.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{"h100"}
	checks := []string{"plimsoll"}

	cases := map[string]struct {
		objects []client.Object
		want    *found
	}{
		"a queue with our check": {
			objects: []client.Object{localQueue(), clusterQueue("provision", "plimsoll"), ours, theirs, devicePolicy(), h100, a100},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Steerable: true},
		},
		"a queue that does not exist":                {objects: []client.Object{clusterQueue("plimsoll"), ours, devicePolicy(), h100, a100}},
		"a cluster queue that does not exist":        {objects: []client.Object{localQueue(), ours, devicePolicy(), h100, a100}},
		"a cluster queue without checks":             {objects: []client.Object{localQueue(), clusterQueue(), ours, devicePolicy(), h100, a100}},
		"a cluster queue with another's check":       {objects: []client.Object{localQueue(), clusterQueue("provision"), ours, theirs, devicePolicy(), h100, a100}},
		"a cluster queue whose check does not exist": {objects: []client.Object{localQueue(), clusterQueue("plimsoll"), devicePolicy(), h100, a100}},
		"a policy that only records is never steered by": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), ours, h100, a100, devicePolicy(func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeShadow })},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true},
		},
		"a frozen policy is steered by": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), ours, h100, a100, devicePolicy(func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeFrozen })},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Steerable: true},
		},
		"a check without parameters": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), nameless, devicePolicy(), h100, a100},
			want:    &found{Checks: checks, Reasons: []string{"NoParameters"}},
		},
		"a check that names another kind": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), foreign, devicePolicy(), h100, a100},
			want:    &found{Checks: checks, Reasons: []string{"NoParameters"}},
		},
		"a policy that does not exist": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), ours, h100, a100},
			want:    &found{Checks: checks, PolicyName: "gpu", Reasons: []string{"PolicyNotFound"}},
		},
		"a flavor that does not exist": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), ours, devicePolicy(), h100},
			want:    &found{Checks: checks, PolicyName: "gpu", Reasons: []string{"ResourceFlavorNotFound"}},
		},
		"what is not supported yet keeps a policy from deciding, not from closing": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll"), ours, h100, a100, devicePolicy(func(s *v1alpha1.DevicePolicySpec) { s.Canary = &v1alpha1.PolicyCanary{PolicyName: "next"} })},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Reasons: []string{"NotSupported"}, Steerable: true},
		},
		"another order of flavors can be steered": {
			objects: []client.Object{localQueue(), offering(clusterQueue("plimsoll"), "a100", "h100"), ours, devicePolicy(), h100, a100},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Reasons: []string{"FlavorOrder"}, Steerable: true},
		},
		"two checks of ours cannot": {
			objects: []client.Object{localQueue(), clusterQueue("plimsoll", "another", "plimsoll"), ours, check("another", v1alpha1.ControllerName), devicePolicy(), h100, a100},
			want:    &found{Checks: []string{"another", "plimsoll"}, PolicyName: "gpu", Resolved: true, Reasons: []string{"SeveralChecks"}},
		},
		"a check limited to flavors cannot": {
			objects: []client.Object{localQueue(), limited, ours, devicePolicy(), h100, a100},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Reasons: []string{"OnFlavors"}},
		},
		"a queue without quota for the devices cannot": {
			objects: []client.Object{localQueue(), clusterQueueWithout("plimsoll"), ours, devicePolicy(), h100, a100},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Reasons: []string{"NoQuota"}},
		},
		"a queue with a flavor that looks like one of the policy's cannot": {
			objects: []client.Object{localQueue(), offering(clusterQueue("plimsoll"), "h100", "spot", "a100"), ours, devicePolicy(), h100, a100, spot},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Reasons: []string{"NotTellableApart"}},
		},
		"a queue with a flavor that is nothing like the policy's can, and with one that does not exist": {
			objects: []client.Object{localQueue(), offering(clusterQueue("plimsoll"), "h100", "cpu", "gone"), ours, devicePolicy(), h100, a100, resourceFlavor("cpu")},
			want:    &found{Checks: checks, PolicyName: "gpu", Resolved: true, Steerable: true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &policies.Resolver{Client: newClient(c.objects...)}
			m, err := r.ForQueue(context.Background(), namespace, "gpu")
			if err != nil {
				t.Fatal(err)
			}
			var got *found
			if m != nil {
				got = &found{Checks: m.Checks, PolicyName: m.PolicyName, Resolved: m.Policy != nil, Steerable: m.Steerable()}
				for _, p := range m.Problems {
					got.Reasons = append(got.Reasons, p.Reason)
				}
				if m.ClusterQueue.Name != "shared" {
					t.Errorf("cluster queue is %s", m.ClusterQueue.Name)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("managed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPolicyByNameNeedsNoQueue(t *testing.T) {
	h100, a100 := resourceFlavor("h100"), resourceFlavor("a100")
	for name, c := range map[string]struct {
		objects []client.Object
		want    bool
	}{
		"one whose queues have lost its check":     {[]client.Object{devicePolicy(), h100, a100}, true},
		"one that only records":                    {[]client.Object{devicePolicy(func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeShadow }), h100, a100}, true},
		"none where a flavor of it does not exist": {[]client.Object{devicePolicy(), h100}, false},
		"none where it does not exist":             {[]client.Object{h100, a100}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := (&policies.Resolver{Client: newClient(c.objects...)}).ByName(t.Context(), "gpu")
			if err != nil {
				t.Fatal(err)
			}
			if got := p != nil && p.Name == "gpu" && p.Flavor("a100") == 1; got != c.want {
				t.Errorf("found %v: %v, want %v", p, got, c.want)
			}
		})
	}
}

func TestNothingIsNotSteerable(t *testing.T) {
	if (*policies.Managed)(nil).Steerable() {
		t.Error("a queue that is not managed can be steered")
	}
}

func TestProblemsSayWhatToMend(t *testing.T) {
	nameless := check("plimsoll", v1alpha1.ControllerName)
	nameless.Spec.Parameters = nil
	spot := resourceFlavor("spot")
	spot.Spec.NodeLabels["accelerator"] = "h100"
	cases := map[string]struct {
		objects []client.Object
		want    flavors.Problem
	}{
		"no parameters": {
			objects: []client.Object{clusterQueue("plimsoll"), nameless},
			want:    flavors.Problem{Condition: "Ready", Reason: "NoParameters", Message: "AdmissionCheck plimsoll names no policy: set spec.parameters to apiGroup plimsoll.dev, kind DevicePolicy and the policy's name"},
		},
		"no policy": {
			objects: []client.Object{clusterQueue("plimsoll"), check("plimsoll", v1alpha1.ControllerName)},
			want:    flavors.Problem{Condition: "Ready", Reason: "PolicyNotFound", Message: `AdmissionCheck plimsoll names DevicePolicy "gpu", which does not exist: create it, or name another`},
		},
		"a look-alike": {
			objects: []client.Object{
				offering(clusterQueue("plimsoll"), "h100", "spot"), check("plimsoll", v1alpha1.ControllerName), devicePolicy(), resourceFlavor("h100"), resourceFlavor("a100"), spot,
			},
			want: flavors.Problem{Condition: "FlavorsResolved", Reason: "NotTellableApart", Message: "ClusterQueue shared: flavor spot, which the policy does not list, has the nodeLabels of h100: give it another value, or list it in the policy"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &policies.Resolver{Client: newClient(append(c.objects, localQueue())...)}
			m, err := r.ForQueue(context.Background(), namespace, "gpu")
			if err != nil || m == nil {
				t.Fatalf("%v, %v", m, err)
			}
			if diff := cmp.Diff([]flavors.Problem{c.want}, m.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryReadThatFailsIsAnError(t *testing.T) {
	objects := []client.Object{
		localQueue(), offering(clusterQueue("plimsoll"), "h100", "cpu"), check("plimsoll", v1alpha1.ControllerName), devicePolicy(),
		resourceFlavor("h100"), resourceFlavor("a100"), resourceFlavor("cpu"),
	}
	failed := errors.New("no answer")
	// ask fails at one read, counted from 1, and returns how many there were.
	ask := func(broken int) (reads int, err error) {
		c := interceptor.NewClient(newClient(objects...), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				reads++
				if reads == broken {
					return failed
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		_, err = (&policies.Resolver{Client: c}).ForQueue(context.Background(), namespace, "gpu")
		return reads, err
	}
	all, err := ask(0)
	if err != nil || all < len(objects) {
		t.Fatalf("%d reads, error %v: want each of %d objects read", all, err, len(objects))
	}
	for broken := 1; broken <= all; broken++ {
		if _, err := ask(broken); !errors.Is(err, failed) {
			t.Errorf("read %d failed, but the error is %v", broken, err)
		}
	}
}

func TestRequestOverheadIsTheRuntimeClassesPodFixed(t *testing.T) {
	fixed := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("160Mi")}
	kata := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: fixed}}
	runc := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "runc"}, Handler: "runc"}
	r := &policies.Resolver{Client: newClient(kata, runc)}
	wl := &kueue.Workload{}
	for _, name := range []*string{nil, ptr.To(""), ptr.To("runc"), ptr.To("gone"), ptr.To("kata")} {
		ps := kueue.PodSet{Name: kueue.PodSetReference("class-" + ptr.Deref(name, "none"))}
		ps.Template.Spec.RuntimeClassName = name
		wl.Spec.PodSets = append(wl.Spec.PodSets, ps)
	}
	got, err := r.Overheads(context.Background(), wl)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]corev1.ResourceList{"class-kata": fixed}, got); diff != "" {
		t.Errorf("overhead (-want +got):\n%s", diff)
	}
}

func TestShapeTellsWhatIsMissingFromWhatCannotBeRead(t *testing.T) {
	failed := errors.New("no answer")
	spec := &corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To("eight")}}}
	_, refusal, err := (&policies.Resolver{Client: newClient()}).Shape(context.Background(), namespace, spec)
	if err != nil || refusal == nil || refusal.Reason != v1alpha1.ReasonClaimTemplateNotFound {
		t.Errorf("missing: refusal %v, error %v", refusal, err)
	}
	c := interceptor.NewClient(newClient(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return failed
		},
	})
	if _, _, err := (&policies.Resolver{Client: c}).Shape(context.Background(), namespace, spec); !errors.Is(err, failed) {
		t.Errorf("unreadable: error %v", err)
	}
}
