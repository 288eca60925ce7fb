package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// plainPod is a pod without devices that no queue knows of.
func plainPod(name string, labels map[string]string, gates ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}
	for _, g := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
	}
	return p
}

var _ = Describe("While no manager serves the webhooks", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() {
		DeferCleanup(func(ctx context.Context) {
			c.restartManager(ctx)
			c.expectFree(ctx)
		})
	})

	It("a managed pod is not created, gated or not, and pods of others start", func(ctx context.Context) {
		managed := map[string]string{v1alpha1.ManagedLabel: "true"}
		By("with a manager, a managed pod is created gated")
		asked := plainPod("asked", managed)
		Expect(c.Create(ctx, asked)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, asked)).To(Succeed()) })
		Expect(asked.Spec.SchedulingGates).To(ConsistOf(corev1.PodSchedulingGate{Name: v1alpha1.PlacementGate}))

		Expect(c.StopManager(ctx)).To(Succeed())
		By("without one, it is not created")
		for name, pod := range map[string]*corev1.Pod{
			"without the gate":                plainPod("ungated", managed),
			"with the gate":                   plainPod("gated", managed, v1alpha1.PlacementGate),
			"with another value of the label": plainPod("valued", map[string]string{v1alpha1.ManagedLabel: "false"}),
		} {
			err := c.Create(ctx, pod)
			Expect(apierrors.IsInternalError(err)).To(BeTrue(), "%s: %v", name, err)
			Expect(err).To(MatchError(ContainSubstring(`failed calling webhook "pods.plimsoll.dev"`)), name)
			Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(pod), pod))).To(BeTrue(), name)
		}
		By("nor can the label be put on a pod that exists ungated")
		late := plainPod("late", nil)
		Expect(c.Create(ctx, late)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, late)).To(Succeed()) })
		patch := client.MergeFrom(late.DeepCopy())
		late.Labels = managed
		Expect(apierrors.IsForbidden(c.Patch(ctx, late, patch))).To(BeTrue())

		By("a Deployment that nobody manages runs")
		labels := map[string]string{"app": "web"}
		web := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: plainPod("", nil).Spec},
			},
		}
		Expect(c.Create(ctx, web)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, web)).To(Succeed()) })
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
			g.Expect(web.Status.AvailableReplicas).To(BeEquivalentTo(3))
		}).Should(Succeed())
		_, runs := c.ManagerPID()
		Expect(runs).To(BeFalse())
	})

	It("a Job that was admitted before gets its pods when the manager is back, in their places", func(ctx context.Context) {
		j := job{namespace: teamA, name: "before", pods: 2, gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		h := c.history()
		c.submit(ctx, j)
		pods := c.expectServed(ctx, j)
		promised := c.promise(ctx, j)
		lost, stays := pods[0], pods[1]
		devices := c.devicesOf(ctx, &lost)

		Expect(c.StopManager(ctx)).To(Succeed())
		Expect(c.Delete(ctx, &lost)).To(Succeed())
		Eventually(func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(&lost), &corev1.Pod{})) }).Should(BeTrue())
		// the Job controller has tried, and been refused
		Eventually(func() []string { return c.events(ctx, j.namespace, "Job", j.name) }).Should(
			ContainElement(And(ContainSubstring("FailedCreate"), ContainSubstring("pods.plimsoll.dev"))))
		uids := func() []types.UID {
			var out []types.UID
			for _, p := range c.podsOf(ctx, j) {
				out = append(out, p.UID)
			}
			return out
		}
		Consistently(uids).Should(ConsistOf(stays.UID))

		Expect(c.StartManager(ctx)).To(Succeed())
		pods = c.expectServed(ctx, j)
		Expect(c.promise(ctx, j).Spec).To(Equal(promised.Spec))
		for i := range pods {
			if pods[i].UID != stays.UID {
				Expect(c.devicesOf(ctx, &pods[i])).To(Equal(devices), "a pod that comes later has its predecessor's place")
			}
		}
		Expect(uids()).To(ContainElement(stays.UID))
		c.finish(ctx, j)
		c.expectNothingDoubled(ctx, h)
	})

	It("a Job that is submitted is mended before it is decided, and runs on exactly its devices", func(ctx context.Context) {
		// one that Kueue reserves quota for meanwhile, and one that it does not
		reserved := job{namespace: teamA, name: "reserved", pods: 2, gpus: 4, product: "A100"}
		waiting := job{namespace: teamB, name: "waiting", pods: 2, gpus: 2, product: "H100"}
		for _, j := range []job{reserved, waiting} {
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		}
		DeferCleanup(func(ctx context.Context) { c.hold(ctx, waiting.namespace, false) })
		c.hold(ctx, waiting.namespace, true)
		Expect(c.StopManager(ctx)).To(Succeed())
		h := c.history()
		c.submit(ctx, reserved)
		c.submit(ctx, waiting)
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, reserved)
			g.Expect(wl).NotTo(BeNil())
			g.Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.AllowedFlavorsAnnotation))
			g.Expect(wl.Status.Admission).NotTo(BeNil(), "Kueue reserved quota without having been told what it costs")
			g.Expect(wl.Status.Admission.PodSetAssignments[0].Flavors).To(HaveKeyWithValue(corev1.ResourceCPU, kueue.ResourceFlavorReference("h100")))
			g.Expect(c.workload(ctx, waiting)).NotTo(BeNil())
		}).Should(Succeed())
		Expect(c.workload(ctx, waiting).Annotations).NotTo(HaveKey(v1alpha1.AllowedFlavorsAnnotation))
		Consistently(func(g Gomega) {
			for _, j := range []job{reserved, waiting} {
				g.Expect(meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadAdmitted)).To(BeFalse())
				g.Expect(c.podsOf(ctx, j)).To(BeEmpty())
			}
		}).Should(Succeed())

		Expect(c.StartManager(ctx)).To(Succeed())
		By("closed while its queue takes nothing")
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, waiting)
			g.Expect(wl.Annotations).To(HaveKeyWithValue(v1alpha1.AllowedFlavorsAnnotation, ""))
			g.Expect(wl.Spec.PodSets[0].Template.Spec.Affinity).NotTo(BeNil())
		}).Should(Succeed(), func() string { return c.story(ctx, waiting) })
		c.hold(ctx, waiting.namespace, false)

		By("opened and charged once it takes it")
		c.expectServed(ctx, waiting)
		Expect(flavors.AllowedOf(c.workload(ctx, waiting))).To(Equal([]string{"h100"}))
		Expect(flavors.ChargeOf(c.workload(ctx, waiting))).To(Equal(map[string]int64{"main": 2}))
		Expect(c.workload(ctx, waiting).Spec.PodSets[0].Template.Spec.Overhead).To(HaveKey(corev1.ResourceName("gpus")))
		c.expectServed(ctx, reserved)
		for flavor, j := range map[kueue.ResourceFlavorReference]*kueue.Workload{"h100": c.workload(ctx, waiting), "a100": c.workload(ctx, reserved)} {
			Expect(j.Status.Admission.PodSetAssignments[0].Flavors).To(HaveKeyWithValue(corev1.ResourceName("gpus"), flavor), j.Name)
		}
		c.finish(ctx, waiting)
		c.finish(ctx, reserved)
		c.expectNothingDoubled(ctx, h)
	})
})
