package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// What Kubernetes 1.37 has otherwise than 1.36, on its own API server and kube-scheduler: `make next-release`. The types here are
// those of 1.36, so what they lack is written and read as JSON.

// onNext describes what is so where labs run the next release, and nothing where they do not.
func onNext(text string, body func()) bool {
	return release() == lab.Next && Describe("Kubernetes 1.37 "+text, Ordered, ContinueOnFailure, body)
}

// serverVersion is what the API server says that it is.
func (c *cluster) serverVersion() string {
	GinkgoHelper()
	d, err := discovery.NewDiscoveryClientForConfig(c.Admin())
	Expect(err).NotTo(HaveOccurred())
	v, err := d.ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	return v.GitVersion
}

// mapped137 is what the devices of a node with four map, as nodeAllocatableResources: gpu-3 nothing. By default a claim is given 8
// of the cores of gpu-1.
var mapped137 = map[string]string{
	"gpu-0": `{"cpu": {"mapping": {"deviceMultiplier": "40"}}, "memory": {"overhead": {"perPod": "2Gi", "perContainer": "1Gi"}}}`,
	"gpu-1": `{"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}}}`,
	"gpu-2": `{"cpu": {"mapping": {"deviceMultiplier": "8"}, "overhead": {"perPod": "500m"}}}`,
}

// mapDevices has the devices of a node map some of its own resources until the specs of the container have run.
func (c *cluster) mapDevices(ctx context.Context, node string) {
	GinkgoHelper()
	was := &resourcev1.ResourceSlice{}
	Expect(c.Get(ctx, client.ObjectKey{Name: node + "-" + gpuDriver + "-0"}, was)).To(Succeed())
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := func(ctx context.Context, operations ...operation) {
		GinkgoHelper()
		text, err := json.Marshal(operations)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Patch(ctx, was.DeepCopy(), client.RawPatch(types.JSONPatchType, text))).To(Succeed())
	}
	var operations []operation
	for i := range was.Spec.Devices {
		d, at := &was.Spec.Devices[i], fmt.Sprintf("/spec/devices/%d/", i)
		if d.Name == "gpu-1" {
			operations = append(operations, operation{"add", at + "allowMultipleAllocations", true},
				operation{"add", at + "capacity/cores", json.RawMessage(`{"value": "64", "requestPolicy": {"default": "8", "validRange": {"min": "1"}}}`)})
		}
		if mapped := mapped137[d.Name]; mapped != "" {
			operations = append(operations, operation{"add", at + "nodeAllocatableResources", json.RawMessage(mapped)})
		}
	}
	// The API server takes such a slice only for a node whose kubelet says that it knows what to do with it.
	declare := func(ctx context.Context, features string) {
		GinkgoHelper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		Expect(c.Status().Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(`{"status": {"declaredFeatures": `+features+`}}`)))).To(Succeed())
	}
	declare(ctx, `["DRANodeAllocatableResources"]`)
	DeferCleanup(func(ctx context.Context) { declare(ctx, "null") })
	patch(ctx, operations...)
	DeferCleanup(func(ctx context.Context) { patch(ctx, operation{"replace", "/spec/devices", was.Spec.Devices}) })
}

// claimStatus137 is an entry of status.nodeAllocatableResourceClaimStatuses of a pod as 1.37 writes it.
type claimStatus137 struct {
	ResourceClaimName string            `json:"resourceClaimName"`
	Containers        []string          `json:"containers"`
	Mapping           []amount137       `json:"mapping"`
	Overhead          []overhead137     `json:"overhead"`
	Resources         map[string]string `json:"resources"` // 1.36 alone writes it
}

type amount137 struct {
	Name     string `json:"name"`
	Quantity string `json:"quantity"`
}

type overhead137 struct {
	Name         string `json:"name"`
	PerPod       string `json:"perPod"`
	PerContainer string `json:"perContainer"`
}

// statuses137 returns what a pod's status says that its claims take of its node.
func (c *cluster) statuses137(ctx context.Context, p *corev1.Pod) []claimStatus137 {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Pod")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(p), u)).To(Succeed())
	list, _, err := unstructured.NestedSlice(u.Object, "status", "nodeAllocatableResourceClaimStatuses")
	Expect(err).NotTo(HaveOccurred())
	text, err := json.Marshal(list)
	Expect(err).NotTo(HaveOccurred())
	var out []claimStatus137
	Expect(json.Unmarshal(text, &out)).To(Succeed())
	return out
}

// containersOn has a second container refer to a Job's claim, and the Job run on a node and ask for so much of a resource.
func containersOn(node string, name corev1.ResourceName, asks string) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		onNode(node)(b)
		spec := &b.Spec.Template.Spec
		spec.Containers[0].Resources.Requests[name] = resource.MustParse(asks)
		spec.Containers = append(spec.Containers, corev1.Container{Name: "side", Image: "training", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}})
	}
}

// expectStands waits until a Job waits for a flavor named other for a reason, which says something, among others.
func (c *cluster) expectStands(ctx context.Context, j job, reason v1alpha1.Reason, says string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(c.standing(ctx, j, "other").Reasons).To(ContainElement(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(says)))))
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
}

// requestsOn returns what a ledger says that the pods of a Workload take of a node.
func requestsOn(e *ledger.Export, node string, workload types.UID) ledger.Amounts {
	sum := ledger.Amounts{}
	for _, l := range e.Entries {
		if use, ok := l.Line.(*ledger.UseLine); ok && use.Node == node && use.Workload == workload {
			sum.Add(use.Requests, 1)
		}
	}
	return sum
}

// resourcesOf returns what a ledger says of a node's own resources.
func resourcesOf(e *ledger.Export, node string) map[string]ledger.ResourceTotal {
	for _, l := range e.Entries {
		if n, ok := l.Line.(*ledger.NodeLine); ok && n.Node == node {
			return n.Resources
		}
	}
	return nil
}

// apart is a claim of so many of a node's GPUs, or of one by its name.
func (c *cluster) apart(ctx context.Context, count int64, node, device string) resourcev1.DeviceClaim {
	GinkgoHelper()
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: gpuDriver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	if device != "" {
		s := &resourcev1.ResourceSlice{}
		Expect(c.Get(ctx, client.ObjectKey{Name: node + "-" + gpuDriver + "-0"}, s)).To(Succeed())
		at := slices.IndexFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == device })
		Expect(at).To(BeNumerically(">=", 0), device)
		exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes[%q].uuid == %q`, gpuDriver, *s.Spec.Devices[at].Attributes["uuid"].StringValue)}}}
	}
	return resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}
}

// stranger is a pod that nobody manages, with one claim of its own, on a node. Containers is how many of it refer to the claim.
type stranger struct {
	name, node  string
	cpu, memory string
	containers  int
	devices     resourcev1.DeviceClaim
	wholeCPU    string // what the pod as a whole asks for; empty for nothing
}

// objects returns the pod and its claim.
func (s stranger) objects() (*corev1.Pod, *resourcev1.ResourceClaim) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: s.name}, Spec: resourcev1.ResourceClaimSpec{Devices: s.devices}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: s.name}, Spec: corev1.PodSpec{
		NodeSelector:   map[string]string{corev1.LabelHostname: s.node},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(s.name)}},
		Containers: []corev1.Container{{Name: "main", Image: "training", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse(s.cpu), "memory": resource.MustParse(s.memory)}}}},
		TerminationGracePeriodSeconds: ptr.To[int64](0),
	}}
	for i := range s.containers {
		if i > 0 {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("side-", i), Image: "training"})
		}
		pod.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	if s.wholeCPU != "" {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(s.wholeCPU)}}
	}
	return pod, claim
}

// fate runs a stranger, which ends with the spec, and returns its pod once kube-scheduler has bound it or refused to, and why it
// did.
func (c *cluster) fate(ctx context.Context, s stranger) (pod *corev1.Pod, refused string) {
	GinkgoHelper()
	pod, claim := s.objects()
	Expect(c.Create(ctx, claim)).To(Succeed())
	Expect(c.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { c.giveBack(ctx, pod) })
	return pod, c.settled(ctx, pod)
}

// settled waits until kube-scheduler has bound a pod or refused to, and returns why it did; empty for one that is bound.
func (c *cluster) settled(ctx context.Context, pod *corev1.Pod) (refused string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		refused = ""
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason != corev1.PodReasonSchedulingGated {
				refused = condition.Reason + ": " + condition.Message
			}
		}
		g.Expect(pod.Spec.NodeName + refused).NotTo(BeEmpty())
	}).Should(Succeed())
	return refused
}

var _ = onNext("devices that map to their node's own resources", func() {
	const node = "l4-0" // 94 cpus and 367Gi
	var c *cluster
	var scraper string
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		scraper = c.token(ctx, "scraper", "plimsoll-metrics-reader")
		c.mapDevices(ctx, node)
		Expect(c.serverVersion()).To(Equal("v1.37.2"))
		Eventually(func(g Gomega) {
			e := c.ledger(ctx, c.toManager()...)
			rules := map[string]ledger.MappingRules{}
			for _, l := range e.Entries {
				if d, ok := l.Line.(*ledger.DeviceLine); ok && d.Node == node && d.Mappings != nil {
					g.Expect(d.Mappings.Problem+d.Unusable).To(BeEmpty(), d.Device)
					rules[d.Device] = d.Mappings.Rules
				}
			}
			g.Expect(rules).To(Equal(map[string]ledger.MappingRules{"gpu-0": ledger.Rules137, "gpu-1": ledger.Rules137, "gpu-2": ledger.Rules137}))
		}).Should(Succeed())
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("are placed, bound, and counted as kube-scheduler counts them, before and after the manager's restart", func(ctx context.Context) {
		j := job{namespace: teamA, name: "mapped", gpus: 4, product: "L4", change: containersOn(node, "cpu", "29")}
		c.started(ctx, j)
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		Expect(pods[0].Spec.NodeName).To(Equal(node))
		Expect(c.statuses137(ctx, &pods[0])).To(Equal([]claimStatus137{{
			ResourceClaimName: *pods[0].Status.ResourceClaimStatuses[0].ResourceClaimName, Containers: []string{"main", "side"},
			Mapping:  []amount137{{"cpu", "64"}},
			Overhead: []overhead137{{"cpu", "500m", ""}, {"memory", "2Gi", "1Gi"}},
		}}))

		uid := c.workload(ctx, j).UID
		counted := ledger.Amounts{"cpu": 29_000 + 64_500, "memory": 5 << 30, "pods": 1}
		digest := c.verified(ctx)
		for _, from := range [][]string{c.toManager(), {"--cold"}} {
			e := c.ledger(ctx, from...)
			Expect(e.Header.Digest).To(Equal(digest))
			Expect(requestsOn(e, node, uid)).To(Equal(counted), "%v", from)
			Expect(resourcesOf(e, node)).To(And(
				HaveKeyWithValue("cpu", ledger.ResourceTotal{Allocatable: 94_000, Free: 500, Managed: 93_500, Mapped: 64_500}),
				HaveKeyWithValue("memory", ledger.ResourceTotal{Allocatable: 367 << 30, Free: 362 << 30, Managed: 5 << 30, Mapped: 4 << 30})))
		}
		Consistently(func(g Gomega) {
			status, body := c.scrape(ctx, scraper)
			g.Expect(status).To(Equal(http.StatusOK))
			g.Expect(series(body, "plimsoll_divergences_total")).To(BeEmpty())
			g.Expect(series(body, "plimsoll_ledger_differences")).To(HaveEach("0"))
		}).WithTimeout(stands).WithPolling(time.Second).Should(Succeed())
		Expect(meta.FindStatusCondition(c.placement(ctx, j).Status.Conditions, v1alpha1.PlacementDiverged)).To(BeNil())

		Expect(c.KillManager(ctx)).To(Succeed())
		Expect(c.ledger(ctx).Header.Digest).To(Equal(digest), "computed from the API server")
		Expect(c.StartManager(ctx)).To(Succeed())
		Expect(c.verified(ctx)).To(Equal(digest))
		Expect(requestsOn(c.ledger(ctx, c.toManager()...), node, uid)).To(Equal(counted))
	})

	It("are waited for where their cpus alone are not there, which kube-scheduler would refuse", func(ctx context.Context) {
		j := job{namespace: teamA, name: "beyond", gpus: 4, product: "L4", change: containersOn(node, "cpu", "30")}
		c.started(ctx, j)
		c.expectStands(ctx, j, v1alpha1.ReasonNodeResources, "cpu")
		c.expectHoldsNothing(ctx, j)
		c.remove(ctx, j)

		four := c.apart(ctx, 4, "", "")
		_, refused := c.fate(ctx, stranger{name: "beyond", node: node, cpu: "30", memory: "1Gi", containers: 2, devices: four})
		Expect(refused).To(And(HavePrefix(corev1.PodReasonUnschedulable), ContainSubstring("Insufficient cpu")))
		pod, refused := c.fate(ctx, stranger{name: "within", node: node, cpu: "29", memory: "1Gi", containers: 2, devices: four})
		Expect(refused).To(BeEmpty())
		Expect(pod.Spec.NodeName).To(Equal(node))
	})

	It("take for each container that refers to them, in the accounts as in kube-scheduler's", func(ctx context.Context) {
		// one container: 364Gi + 2Gi + 1Gi are all of it; two: 1Gi too much
		one := job{namespace: teamA, name: "one", gpus: 4, product: "L4", change: func(b *batchv1.Job) {
			containersOn(node, "memory", "364Gi")(b)
			b.Spec.Template.Spec.Containers[1].Resources.Claims = nil
		}}
		two := job{namespace: teamA, name: "two", gpus: 4, product: "L4", change: containersOn(node, "memory", "364Gi")}
		c.started(ctx, two)
		c.expectStands(ctx, two, v1alpha1.ReasonNodeResources, "memory")
		c.remove(ctx, two)
		c.started(ctx, one)
		c.expectAsPromised(ctx, one, c.bound(ctx, one))
		c.verified(ctx)
		c.remove(ctx, one)
		_, refused := c.fate(ctx, stranger{name: "two", node: node, cpu: "1", memory: "364Gi", containers: 2, devices: c.apart(ctx, 4, "", "")})
		Expect(refused).To(ContainSubstring("Insufficient memory"))
	})
})

// rule137 is a DeviceTaintRule of v1.
func rule137(name string, selector map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"taint": map[string]any{"key": "example.com/broken", "effect": "NoSchedule"}}}}
	u.SetAPIVersion("resource.k8s.io/v1")
	u.SetKind("DeviceTaintRule")
	u.SetName(name)
	if selector != nil {
		u.Object["spec"].(map[string]any)["deviceSelector"] = selector
	}
	return u
}

var _ = onNext("DeviceTaintRules of v1", func() {
	const node = "l4-1"
	var c *cluster
	four := job{namespace: teamA, name: "four", gpus: 4, product: "L4", change: onNode(node)}
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })
	create := func(ctx context.Context, u *unstructured.Unstructured) {
		GinkgoHelper()
		Expect(c.Create(ctx, u)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, u))).To(Succeed()) })
	}

	It("keep a device out, and lend it again once they are gone", func(ctx context.Context) {
		rule := rule137("one", map[string]any{"driver": gpuDriver, "pool": node, "device": "gpu-2"})
		create(ctx, rule)
		c.started(ctx, four)
		c.expectRecord(ctx, four, v1alpha1.ReasonDevicesUnhealthy)
		Expect(c.placement(ctx, four).Status.Record.Message).To(ContainSubstring("example.com/broken"))
		c.expectHoldsNothing(ctx, four)
		c.verified(ctx)
		pod, refused := c.fate(ctx, stranger{name: "tainted", node: node, cpu: "1", memory: "1Gi", containers: 1, devices: c.apart(ctx, 1, node, "gpu-2")})
		Expect(refused).NotTo(BeEmpty(), "kube-scheduler gives it to nobody either")
		c.giveBack(ctx, pod)
		Expect(c.Delete(ctx, rule)).To(Succeed())
		c.expectAsPromised(ctx, four, c.bound(ctx, four))
	})

	It("taint no device without a selector, all with an empty one", func(ctx context.Context) {
		create(ctx, rule137("none", nil))
		c.started(ctx, four)
		c.expectAsPromised(ctx, four, c.bound(ctx, four))
		c.remove(ctx, four)
		create(ctx, rule137("all", map[string]any{}))
		again := four
		again.name = "again"
		c.started(ctx, again)
		c.expectRecord(ctx, again, v1alpha1.ReasonDevicesUnhealthy)
		c.expectHoldsNothing(ctx, again)
		c.verified(ctx)
	})
})

// grouped137 is a pool of two devices that draw on one counter set, of which one is of a group.
func grouped137(node string) []*unstructured.Unstructured {
	pool := func(name, fields string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": %q}, "spec": {"driver": %q, "nodeName": %q,
			"pool": {"name": "grouped", "generation": 1, "resourceSliceCount": 2}, %s}}`, name, gpuDriver, node, fields)
		Expect(u.UnmarshalJSON([]byte(text))).To(Succeed())
		return u
	}
	device := func(name, groups string) string {
		return fmt.Sprintf(`{"name": %q, "attributes": {"uuid": {"string": "GPU-%s"}, "type": {"string": "gpu"}, "productName": {"string": "NVIDIA L4"}},
			"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "1"}}%s}]}`, name, name, groups)
	}
	return []*unstructured.Unstructured{
		pool("grouped-counters", `"sharedCounters": [{"name": "card", "counters": {"slices": {"value": "2"}}}]`),
		pool("grouped-devices", `"devices": [`+device("part-0", `, "compatibilityGroups": ["mig"]`)+`, `+device("part-1", "")+`]`),
	}
}

var _ = onNext("devices of compatibilityGroups", func() {
	const node, says = "l4-0", "pool grouped of gpu.nvidia.com is kept out: device part-0 has compatibilityGroups in counter set card"
	It("are kept out with their pool, as by kube-scheduler, and no others are", func(ctx context.Context) {
		c := startCluster(ctx)
		for _, s := range grouped137(node) {
			Expect(c.Create(ctx, s)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, s))).To(Succeed()) })
		}
		Eventually(func() string { return strings.Join(c.events(ctx, "default", "Node", node), "\n") }).Should(ContainSubstring(says))
		c.verified(ctx)
		five := job{namespace: teamA, name: "five", gpus: 5, product: "L4", change: onNode(node)}
		c.started(ctx, five)
		c.expectStands(ctx, five, v1alpha1.ReasonNotEnoughDevices, "node l4-0 has 4 such devices")
		c.remove(ctx, five)
		beside := job{namespace: teamA, name: "beside", gpus: 4, product: "L4", change: onNode(node)}
		c.started(ctx, beside)
		c.expectAsPromised(ctx, beside, c.bound(ctx, beside))
		for _, part := range []string{"part-0", "part-1"} {
			devices := c.apart(ctx, 1, "", "")
			devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf(`device.attributes[%q].uuid == "GPU-%s"`, gpuDriver, part)}}}
			_, refused := c.fate(ctx, stranger{name: part, node: node, cpu: "1", memory: "1Gi", containers: 1, devices: devices})
			Expect(refused).NotTo(BeEmpty(), part)
		}
	})
})
