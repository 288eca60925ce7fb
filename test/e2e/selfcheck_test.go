package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// stands is longer than a difference has to be there to be said.
const stands = 13 * time.Second

var _ = Describe("The ledger, held against what the cluster says,", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var scraper string
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		scraper = c.token(ctx, "scraper", "plimsoll-metrics-reader")
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	figure := func(ctx context.Context, name, label string) string {
		GinkgoHelper()
		status, body := c.scrape(ctx, scraper)
		Expect(status).To(Equal(http.StatusOK))
		return series(body, name)["{"+label+"}"]
	}
	diverged := func(ctx context.Context, j job) *metav1.Condition {
		GinkgoHelper()
		return meta.FindStatusCondition(c.placement(ctx, j).Status.Conditions, v1alpha1.PlacementDiverged)
	}
	// told returns the events of an object that say something, each as often as it was written.
	told := func(ctx context.Context, namespace, kind, name, says string) (list []string) {
		GinkgoHelper()
		for _, e := range c.events(ctx, namespace, kind, name) {
			if strings.Contains(e, says) {
				list = append(list, e)
			}
		}
		return list
	}

	It("agrees as long as nobody meddles", func(ctx context.Context) {
		jobs := []job{
			{namespace: teamA, name: "gang", pods: 2, gpus: 8, product: "H100"},
			{namespace: teamB, name: "pairs", pods: 4, gpus: 2, product: "A100"},
			{namespace: teamB, name: "none", pods: 2},
		}
		for _, j := range jobs {
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			c.submit(ctx, j)
			c.bound(ctx, j)
		}
		Consistently(func(g Gomega) {
			_, body := c.scrape(ctx, scraper)
			g.Expect(series(body, "plimsoll_divergences_total")).To(BeEmpty())
			g.Expect(series(body, "plimsoll_ledger_differences")).To(HaveEach("0"))
			g.Expect(series(body, "plimsoll_ledger_flags")).To(HaveEach("0"))
		}).WithTimeout(stands).WithPolling(time.Second).Should(Succeed())
		for _, j := range jobs {
			Expect(diverged(ctx, j)).To(BeNil())
		}
	})

	It("says both figures where a pod's status says another, until it does not", func(ctx context.Context) {
		j := job{namespace: teamA, name: "meddled", gpus: 2, product: "A100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		pod := c.bound(ctx, j)[0]
		claim := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		note := func(change func(*corev1.Pod)) {
			GinkgoHelper()
			patch := client.MergeFrom(pod.DeepCopy())
			change(&pod)
			Expect(c.Status().Patch(ctx, &pod, patch)).To(Succeed())
		}
		note(func(p *corev1.Pod) {
			p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{
				ResourceClaimName: claim, Containers: []string{"main"}, Resources: corev1.ResourceList{"cpu": resource.MustParse("3")},
			}}
		})
		words := fmt.Sprintf("pod %s: by its devices claim %s takes nothing of node %s, by the pod's status cpu 3", pod.Name, claim, pod.Spec.NodeName)
		Eventually(func(g Gomega) {
			d := diverged(ctx, j)
			g.Expect(d).NotTo(BeNil())
			g.Expect(*d).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1alpha1.DivergedNotAsCounted), HaveField("Message", words)))
			g.Expect(told(ctx, teamA, "Placement", c.placement(ctx, j).Name, words)).To(ConsistOf("Diverged: " + words))
			g.Expect(figure(ctx, "plimsoll_ledger_differences", `kind="PodStatus"`)).To(Equal("1"))
			g.Expect(figure(ctx, "plimsoll_divergences_total", `kind="PodStatus"`)).To(Equal("1"))
		}).Should(Succeed(), func() string { return c.story(ctx, j) })

		note(func(p *corev1.Pod) { p.Status.NodeAllocatableResourceClaimStatuses = nil })
		Eventually(func(g Gomega) {
			g.Expect(*diverged(ctx, j)).To(HaveField("Status", metav1.ConditionFalse))
			g.Expect(figure(ctx, "plimsoll_ledger_differences", `kind="PodStatus"`)).To(Equal("0"))
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(told(ctx, teamA, "Placement", c.placement(ctx, j).Name, words)).To(HaveLen(1))
	})

	DescribeTable("keeps out what a slice lists that cannot be, says so once, and goes on",
		func(ctx context.Context, says string, change func(devices, other *resourcev1.ResourceSliceSpec)) {
			var slices [2]*resourcev1.ResourceSlice
			for i := range slices {
				slices[i] = &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("spare-", i)}, Spec: resourcev1.ResourceSliceSpec{
					Driver: "gpu.nvidia.com", NodeName: ptr.To("l4-0"), Pool: resourcev1.ResourcePool{Name: "spare", Generation: 1, ResourceSliceCount: 2},
					Devices: []resourcev1.Device{{Name: fmt.Sprint("spare-", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
						"uuid": {StringValue: ptr.To(fmt.Sprint("GPU-spare-", i))}, "type": {StringValue: ptr.To("gpu")}, "productName": {StringValue: ptr.To("NVIDIA L4")},
					}}},
				}}
			}
			change(&slices[0].Spec, &slices[1].Spec)
			for _, s := range slices {
				Expect(c.Create(ctx, s)).To(Succeed())
				DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, s))).To(Succeed()) })
			}
			Eventually(func() []string { return told(ctx, "default", "Node", "l4-0", says) }).Should(HaveLen(1))
			Expect(figure(ctx, "plimsoll_ledger_flags", `reason="Impossible"`)).To(Equal("1"))

			j := job{namespace: teamB, name: "beside", gpus: 4, product: "L4", change: onNode("l4-0")}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			c.submit(ctx, j)
			c.expectAsPromised(ctx, j, c.bound(ctx, j))
			Expect(told(ctx, "default", "Node", "l4-0", says)).To(HaveLen(1))
			c.remove(ctx, j)
			for _, s := range slices {
				Expect(c.Delete(ctx, s)).To(Succeed())
			}
			Eventually(func() string { return figure(ctx, "plimsoll_ledger_flags", `reason="Impossible"`) }).Should(Equal("0"))
		},
		Entry("a device that two slices list", "pool spare of gpu.nvidia.com is kept out: device spare-0 is listed twice", func(_, other *resourcev1.ResourceSliceSpec) {
			other.Devices[0].Name = "spare-0"
		}),
		Entry("a counter that no slice lists", "device spare-0 draws on counter set cards, which the pool does not have", func(devices, _ *resourcev1.ResourceSliceSpec) {
			devices.Devices[0].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "cards", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("1")}}}}
		}),
		Entry("a capacity below zero", "device gpu.nvidia.com/spare/spare-1 is kept out: its capacity memory is -1Gi", func(_, other *resourcev1.ResourceSliceSpec) {
			other.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("-1Gi")}}
		}),
		Entry("a version that no selector can read", "device gpu.nvidia.com/spare/spare-0 is kept out: its attribute driverVersion is the version", func(devices, _ *resourcev1.ResourceSliceSpec) {
			devices.Devices[0].Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: ptr.To("99999999999999999999.0.0")}
		}),
	)
})
