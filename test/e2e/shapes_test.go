package e2e

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// shaped submits a Job of pods whose one claim, named claim, has the given spec; its template is owned by nobody, and
// goes with the spec.
func (c *cluster) shaped(ctx context.Context, j job, spec resourcev1.DeviceClaim) {
	GinkgoHelper()
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name}}
	t.Spec.Spec.Devices = spec
	Expect(c.Create(ctx, t)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, t))).To(Succeed()) })
	DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
	c.submit(ctx, job{namespace: j.namespace, name: j.name, pods: j.pods, change: func(b *batchv1.Job) {
		pod := &b.Spec.Template.Spec
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "claim", ResourceClaimTemplateName: ptr.To(j.name)}}
		pod.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "claim"}}
	}})
}

// sub is an alternative of so many devices of a product.
func sub(name, product string, count int64) resourcev1.DeviceSubRequest {
	return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: "gpu.nvidia.com", Count: count, Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.attributes["gpu.nvidia.com"].productName.contains(%q)`, product)}}}}
}

// askingPlainly makes a Job of the queue plain ask for so many devices a pod as an extended resource.
func askingPlainly(devices string) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		b.Labels["kueue.x-k8s.io/queue-name"] = "plain"
		b.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(devices)}
	}
}

// extendedOf returns the devices that the scheduler's own claim for a pod holds.
func (c *cluster) extendedOf(ctx context.Context, p *corev1.Pod) []string {
	GinkgoHelper()
	Expect(p.Status.ExtendedResourceClaimStatus).NotTo(BeNil())
	claim := &resourcev1.ResourceClaim{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Status.ExtendedResourceClaimStatus.ResourceClaimName}, claim)).To(Succeed())
	Expect(claim.Status.Allocation).NotTo(BeNil())
	var out []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		out = append(out, r.Pool+"/"+r.Device)
	}
	return out
}

var _ = Describe("The shape of a workload", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		Expect(c.Lab.Apply(ctx, "testdata/plain")).To(Succeed())
		for _, name := range []string{"l4-0", "l4-1"} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(c.Client.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"plimsoll.dev/flavor-served":"true"}}}`)))).To(Succeed())
		}
		Eventually(func(g Gomega) {
			cq := &kueue.ClusterQueue{}
			g.Expect(c.Get(ctx, client.ObjectKey{Name: "plain"}, cq)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)).To(BeTrue(), "%v", cq.Status.Conditions)
		}).Should(Succeed())
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("may be one H100 or two A100s: the first that is there is taken, and charged for what it is", func(ctx context.Context) {
		either := resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{sub("h100", "H100", 1), sub("a100", "A100", 2)}}}}
		j := job{namespace: teamA, name: "either"}
		c.shaped(ctx, j, either)
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		p := c.placement(ctx, j)
		Expect(p.Spec.PodSets[0].Flavor).To(Equal("h100"))
		Expect(p.Spec.PodSets[0].Charge).To(BeEquivalentTo(1))
		Expect(p.Spec.PodSets[0].Nodes[0].Requests[0].Request).To(Equal("gpu/h100"))

		cordoned := []string{"h100-0", "h100-1", "h100-2", "h100-3", "mixed-0"}
		for _, name := range cordoned {
			c.cordon(ctx, name, true)
			DeferCleanup(func(ctx context.Context) { c.cordon(ctx, name, false) })
		}
		k := job{namespace: teamA, name: "other"}
		c.shaped(ctx, k, either)
		pods = c.bound(ctx, k)
		c.expectAsPromised(ctx, k, pods)
		p = c.placement(ctx, k)
		Expect(p.Spec.PodSets[0].Flavor).To(Equal("a100"))
		Expect(p.Spec.PodSets[0].Charge).To(BeEquivalentTo(2))
		Expect(c.devicesOf(ctx, &pods[0])).To(HaveLen(2))
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(3))
	})

	It("may be two requests in one NUMA node: claims of three and two share a node's zones out", func(ctx context.Context) {
		numa := resourcev1.FullyQualifiedName("resource.kubernetes.io/numaNode")
		request := func(name string, count int64) resourcev1.DeviceRequest {
			s := sub(name, "H100", count)
			return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: s.DeviceClassName, Count: count, Selectors: s.Selectors}}
		}
		j := job{namespace: teamA, name: "numa", pods: 2}
		c.shaped(ctx, j, resourcev1.DeviceClaim{
			Requests:    []resourcev1.DeviceRequest{request("a", 2), request("b", 1)},
			Constraints: []resourcev1.DeviceConstraint{{MatchAttribute: &numa}},
		})
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		s := c.book(ctx)
		for i := range pods {
			zones := map[int64]bool{}
			for _, d := range s.Node(pods[i].Spec.NodeName).Devices {
				if slices.Contains(c.devicesOf(ctx, &pods[i]), d.ID.String()) {
					zones[*d.Spec.Attributes["resource.kubernetes.io/numaNode"].IntValue] = true
				}
			}
			Expect(zones).To(HaveLen(1))
		}
	})

	It("may be a plain extended resource: on a device plugin's node, counted by Kueue alone", func(ctx context.Context) {
		j := job{namespace: teamA, name: "plugin", change: askingPlainly("6")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		Expect(pods[0].Spec.NodeName).To(Equal("plugin-0"))
		wl := c.workload(ctx, j)
		Expect(wl.Spec.PodSets[0].Template.Spec.Overhead).To(BeEmpty())
		Expect(wl.Status.Admission.PodSetAssignments[0].ResourceUsage["nvidia.com/gpu"]).To(Equal(resource.MustParse("6")))
		Expect(c.placement(ctx, j).Spec.PodSets[0].Flavor).To(Equal("plugin"))

		k := job{namespace: teamA, name: "full", change: askingPlainly("8")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, k) })
		c.submit(ctx, k)
		Eventually(func(g Gomega) {
			p := c.placement(ctx, k)
			g.Expect(p).NotTo(BeNil())
			g.Expect(p.Status.Record).NotTo(BeNil())
			g.Expect(p.Status.Record.Standings).To(ContainElement(And(HaveField("Flavor", "plugin"), HaveField("Standing", v1alpha1.StandingBusy),
				HaveField("Reasons", ContainElement(HaveField("Message", "node plugin-0: 6 of 8 nvidia.com/gpu are in use, a pod asks for 8"))))))
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, k) })
		Expect(c.podsOf(ctx, k)).To(BeEmpty())
		c.remove(ctx, j)
		Expect(c.bound(ctx, k)[0].Spec.NodeName).To(Equal("plugin-0"))
	})

	It("may be a plain extended resource that a DeviceClass serves, pods side by side and never too many", func(ctx context.Context) {
		full := job{namespace: teamA, name: "full-plugin", change: askingPlainly("8")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, full) })
		c.submit(ctx, full)
		c.bound(ctx, full)
		j := job{namespace: teamA, name: "served", pods: 4, change: askingPlainly("2")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		Expect(c.placement(ctx, j).Spec.PodSets[0].Flavor).To(Equal("served"))
		seen := map[string]bool{}
		for i := range pods {
			Expect(pods[i].Spec.NodeName).To(HavePrefix("l4-"))
			devices := c.extendedOf(ctx, &pods[i])
			Expect(devices).To(HaveLen(2))
			for _, d := range devices {
				Expect(seen[d]).To(BeFalse(), d)
				seen[d] = true
			}
		}
		s := c.book(ctx)
		for _, name := range []string{"l4-0", "l4-1"} {
			Expect(s.Node(name).Free["nvidia.com/gpu"]).To(BeZero())
			for _, d := range s.Node(name).Devices {
				Expect(d.Holders).To(HaveLen(1), "%s is held once, by the claim that took the promise over", d.ID)
			}
		}
	})
})

// cordon sets whether a node is cordoned.
func (c *cluster) cordon(ctx context.Context, name string, cordoned bool) {
	GinkgoHelper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(c.Client.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned))))).To(Succeed())
}
