package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

var _ = Describe("A training Job", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("goes from its LocalQueue to its devices and gives all of them back", func(ctx context.Context) {
		j := job{namespace: teamA, name: "life", gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)

		wl := c.workload(ctx, j)
		Expect(wl.Status.Admission.PodSetAssignments).To(HaveLen(1))
		a := wl.Status.Admission.PodSetAssignments[0]
		Expect(a.Flavors).To(HaveKeyWithValue(corev1.ResourceName("gpus"), kueue.ResourceFlavorReference("h100")))
		Expect(a.ResourceUsage["gpus"]).To(Equal(resource.MustParse("8")))
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(8))

		p := c.placement(ctx, j)
		Expect(p.Spec.Key.WorkloadUID).To(Equal(wl.UID))
		Expect(p.Spec.PodSets[0].Charge).To(BeEquivalentTo(8))
		Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictAdmit))
		Eventually(func(g Gomega) {
			p := c.placement(ctx, j)
			for _, t := range []string{v1alpha1.PlacementReserved, v1alpha1.PlacementReleased, v1alpha1.PlacementBound} {
				g.Expect(meta.IsStatusConditionTrue(p.Status.Conditions, t)).To(BeTrue(), t)
			}
			g.Expect(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementDiverged)).To(BeNil())
		}).Should(Succeed())
		pod := pods[0]
		Expect(pod.Labels).To(HaveKey(v1alpha1.ManagedLabel))
		Expect(observe.Gated(&pod)).To(BeFalse())
		Expect(pod.Spec.NodeSelector).To(HaveKeyWithValue(corev1.LabelHostname, pod.Spec.NodeName))

		for _, name := range []string{"workload/" + wl.Name, "job/life", "pod/" + pod.Name} {
			status, out := c.explainAs(ctx, c.Admin(), name, "-n", teamA)
			Expect(status).To(BeZero(), out)
			Expect(out).To(And(ContainSubstring("h100"), ContainSubstring(pod.Spec.NodeName)))
		}

		c.end(ctx, &pod)
		c.finished(ctx, j)
		Eventually(func(g Gomega) {
			p := c.placement(ctx, j)
			g.Expect(p.Spec.Key).To(BeNil(), "a finished Workload promises nothing")
			g.Expect(p.Status.Record).NotTo(BeNil(), "the record stays")
		}).Should(Succeed())
	})

	It("of four pods with eight GPUs each gets exactly the nodes and devices that its Placement names", func(ctx context.Context) {
		j := job{namespace: teamA, name: "gang", pods: 4, gpus: 8, product: "H100"}
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		slots, devices := promisedOn(c.placement(ctx, j))
		Expect(slots).To(HaveLen(4))
		for node := range slots {
			Expect(devices[node]).To(HaveLen(8))
		}
		c.remove(ctx, j)
	})

	It("of four pods with two GPUs each on one node gives each its own, whatever the order of their release", func(ctx context.Context) {
		// another gate on each pod, taken off in reverse order, sets the order
		j := job{namespace: teamA, name: "pairs", pods: 4, gpus: 2, product: "A100", change: func(b *batchv1.Job) {
			b.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/order"}}
			b.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a100-0"}
		}}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		Eventually(func(g Gomega) {
			pods := c.podsOf(ctx, j)
			g.Expect(pods).To(HaveLen(4))
			for i := range pods {
				g.Expect(pods[i].Status.ResourceClaimStatuses).To(HaveLen(1))
			}
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		for _, i := range []int{3, 1, 0, 2} {
			pod := c.podsOf(ctx, j)[i]
			Expect(observe.Gated(&pod)).To(BeTrue(), "ours goes last")
			patch := client.MergeFrom(pod.DeepCopy())
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlacementGate}}
			Expect(c.Patch(ctx, &pod, patch)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(c.Get(ctx, client.ObjectKeyFromObject(&pod), &pod)).To(Succeed())
				g.Expect(pod.Spec.NodeName).NotTo(BeEmpty())
			}).Should(Succeed())
		}
		pods := c.podsOf(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		slots, _ := promisedOn(c.placement(ctx, j))
		Expect(slots).To(Equal(map[string]int32{"a100-0": 4}))
	})

	It("cannot be allocated a device of another flavor on a node that has both", func(ctx context.Context) {
		j := job{namespace: teamA, name: "mixed", gpus: 4, change: func(b *batchv1.Job) {
			b.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "mixed-0"}
		}}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		slices := &resourcev1.ResourceSliceList{}
		Expect(c.List(ctx, slices)).To(Succeed())
		products := map[string]string{}
		for _, s := range slices.Items {
			for _, d := range s.Spec.Devices {
				products[s.Spec.Driver+"/"+s.Spec.Pool.Name+"/"+d.Name] = *d.Attributes["productName"].StringValue
			}
		}
		for _, id := range c.devicesOf(ctx, &pods[0]) {
			Expect(products[id]).To(ContainSubstring("H100"), id)
		}
		// the claim itself, not only where it landed, excludes every other device of the node
		claim := &resourcev1.ResourceClaim{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: teamA, Name: *pods[0].Status.ResourceClaimStatuses[0].ResourceClaimName}, claim)).To(Succeed())
		Expect(matching(claim, slices, "mixed-0")).To(Equal(c.devicesOf(ctx, &pods[0])))
	})

	It("that is deleted while it runs frees its devices", func(ctx context.Context) {
		j := job{namespace: teamB, name: "deleted", gpus: 4, product: "A100"}
		c.submit(ctx, j)
		c.bound(ctx, j)
		Expect(held(c.book(ctx))).To(HaveLen(4))
		c.remove(ctx, j)
	})

	It("whose devices are in use holds no quota and says why, and starts when they are free", func(ctx context.Context) {
		first := job{namespace: teamA, name: "first", pods: 4, gpus: 8, product: "H100"}
		c.submit(ctx, first)
		c.bound(ctx, first)
		second := job{namespace: teamA, name: "second", gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, second) })
		c.submit(ctx, second)
		Eventually(func(g Gomega) {
			p := c.placement(ctx, second)
			g.Expect(p).NotTo(BeNil())
			g.Expect(p.Status.Record).NotTo(BeNil())
			g.Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictWait))
			g.Expect(p.Status.Record.Reason).To(Equal(v1alpha1.ReasonDevicesInUse))
			g.Expect(meta.IsStatusConditionTrue(c.workload(ctx, second).Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeFalse())
		}).Should(Succeed(), func() string { return c.story(ctx, second) })
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(32)) // Kueue says it a little later
		Consistently(func(g Gomega) {
			g.Expect(c.podsOf(ctx, second)).To(BeEmpty())
			g.Expect(c.usage(ctx, teamA)).To(BeEquivalentTo(32))
		}).Should(Succeed())
		c.remove(ctx, first)
		c.expectAsPromised(ctx, second, c.bound(ctx, second))
	})
})
