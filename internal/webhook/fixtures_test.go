package webhook

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

const namespace = "team-a"

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kueue.AddToScheme, v1alpha1.AddToScheme, corev1.AddToScheme, resourcev1.AddToScheme, nodev1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// webhooks answers requests with the given objects in the cluster.
type webhooks struct {
	t        testing.TB
	handlers map[string]*admission.Webhook
}

func serve(t testing.TB, opts Options, objects ...client.Object) *webhooks {
	t.Helper()
	scheme := newScheme()
	if opts.Client == nil {
		opts.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	handlers, err := newHandlers(scheme, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &webhooks{t: t, handlers: handlers}
}

// ask sends a request and returns the answer; obj and old are anything that marshals, or raw JSON.
func (w *webhooks) ask(path string, op admissionv1.Operation, user string, obj, old any) admission.Response {
	w.t.Helper()
	req := request(w.t, op, obj, old)
	req.UserInfo.Username = user
	return w.handlers[path].Handle(context.Background(), req)
}

func request(t testing.TB, op admissionv1.Operation, obj, old any) admission.Request {
	t.Helper()
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "request", Namespace: namespace, Name: "job-train", Operation: op}}
	req.Object.Raw, req.OldObject.Raw = raw(t, obj), raw(t, old)
	return req
}

func raw(t testing.TB, obj any) []byte {
	t.Helper()
	switch o := obj.(type) {
	case nil:
		return nil
	case []byte:
		return o
	case string:
		return []byte(o)
	}
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// applied returns an object as the API server has it after an answer; changed says whether the answer had a patch.
func applied[T any](t testing.TB, response admission.Response, obj any) (result T, changed bool) {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("it was refused: %v", response.Result)
	}
	b := raw(t, obj)
	if len(response.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = patch.Apply(b); err != nil {
			t.Fatalf("the patch does not apply: %v\n%s", err, response.Patch)
		}
	}
	if err := json.Unmarshal(b, &result); err != nil {
		t.Fatal(err)
	}
	return result, len(response.Patch) > 0
}

// cycle is a source of bytes that is not random.
type cycle struct{ next byte }

func (c *cycle) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = c.next
		c.next++
	}
	return len(p), nil
}

var _ io.Reader = &cycle{}

func selectors(expressions ...string) []resourcev1.DeviceSelector {
	var out []resourcev1.DeviceSelector
	for _, e := range expressions {
		out = append(out, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return out
}

// devicePolicy names two flavors, h100 and a100.
func devicePolicy(change ...func(*v1alpha1.DevicePolicy)) *v1alpha1.DevicePolicy {
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	dp.Spec.QuotaResource = "gpus"
	dp.Spec.Flavors = []v1alpha1.PolicyFlavor{
		{Name: "h100", Selectors: selectors(`device.attributes["gpu.example.com"].model == "h100"`), ChargePerDevice: 1},
		{Name: "a100", Selectors: selectors(`device.attributes["gpu.example.com"].model == "a100"`), ChargePerDevice: 1},
	}
	for _, c := range change {
		c(dp)
	}
	return dp
}

func check(name, controller, policy string) *kueue.AdmissionCheck {
	c := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ControllerName = controller
	c.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "DevicePolicy", Name: policy}
	return c
}

func clusterQueue(name, check string, flavors ...string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", "memory", "gpus"}}
	for _, f := range flavors {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f)})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{
		{Name: "provision"}, {Name: kueue.AdmissionCheckReference(check)},
	}}
	return cq
}

func localQueue(name, clusterQueue string) *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(clusterQueue)
	return lq
}

func resourceFlavor(name string) *kueue.ResourceFlavor {
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	rf.Spec.NodeLabels = map[string]string{"accelerator": name}
	return rf
}

func claimTemplate(name string, count int64) *resourcev1.ResourceClaimTemplate {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}}
	return t
}

// cluster is one in which LocalQueue gpu of the namespace is managed by policy gpu; change may replace an object by
// one of the same kind and name.
func cluster(replacements ...client.Object) []client.Object {
	kata := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata"}
	kata.Overhead = &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("160Mi")}}
	objects := []client.Object{
		localQueue("gpu", "shared"), clusterQueue("shared", "plimsoll", "h100", "a100"),
		check("provision", "kueue.x-k8s.io/provisioning-request", "p"), check("plimsoll", v1alpha1.ControllerName, "gpu"),
		devicePolicy(), resourceFlavor("h100"), resourceFlavor("a100"), claimTemplate("eight", 8), kata,
	}
	for _, r := range replacements {
		placed := false
		for i, o := range objects {
			if o.GetName() == r.GetName() && o.GetNamespace() == r.GetNamespace() && sameKind(o, r) {
				objects[i], placed = r, true
			}
		}
		if !placed {
			objects = append(objects, r)
		}
	}
	return objects
}

func sameKind(a, b client.Object) bool {
	scheme := newScheme()
	x, _, errX := scheme.ObjectKinds(a)
	y, _, errY := scheme.ObjectKinds(b)
	return errX == nil && errY == nil && x[0] == y[0]
}

func podSet(name string, change ...func(*corev1.PodSpec)) kueue.PodSet {
	ps := kueue.PodSet{Name: kueue.PodSetReference(name), Count: 2}
	ps.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "train:1"}}
	ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To("eight")}}
	for _, c := range change {
		c(&ps.Template.Spec)
	}
	return ps
}

func workload(podSets ...kueue.PodSet) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job-train", Annotations: map[string]string{"example.com/own": "kept"}}}
	wl.APIVersion, wl.Kind = kueue.GroupVersion.String(), "Workload"
	wl.Spec.QueueName = "gpu"
	wl.Spec.PodSets = podSets
	return wl
}

// inZone is a user's own required node affinity.
func inZone(zones ...string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		selector := &corev1.NodeSelector{}
		for _, zone := range zones {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
			}})
		}
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
	}
}
