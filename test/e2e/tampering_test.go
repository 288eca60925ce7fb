package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// ofPod makes a pod the controller of an object, with our label.
func ofPod(p *corev1.Pod, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: map[string]string{v1alpha1.OwnedLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}}
}

// mimic is a claim that the claim controller takes for a pod's own.
func mimic(p *corev1.Pod, marked bool, devices string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: ofPod(p, p.Name+"-mimic"), Spec: allGPUs()}
	c.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: "gpu"}
	if marked {
		c.Annotations[v1alpha1.DevicesAnnotation] = devices
	} else {
		c.Labels = nil
	}
	return c
}

var _ = Describe("Tampering with templates and claims that no admission policy stops", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var mallory client.Client
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		mallory = c.member(ctx, "mallory", teamA, "edit", "kueue-batch-user-role")
		for _, name := range []string{"plimsoll-templates", "plimsoll-claims", "plimsoll-claim-users", "plimsoll-pod-template"} {
			Expect(c.Delete(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}
		// until the API server has noticed
		probe := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "probe", Labels: map[string]string{v1alpha1.OwnedLabel: "true"}}, Spec: allGPUs()}
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: probe.ObjectMeta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: allGPUs()}}
		for _, o := range []client.Object{probe, template} {
			Eventually(func() error { return mallory.Create(ctx, o) }).Should(Succeed())
			Eventually(func() error { return mallory.Delete(ctx, o) }).Should(Succeed())
		}
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	// expectCaught waits until the manager has told a pod of what it found, and has taken the Job back.
	expectCaught := func(ctx context.Context, j job, pod *corev1.Pod, told string) {
		GinkgoHelper()
		Eventually(func() []string { return c.events(ctx, pod.Namespace, "Pod", pod.Name) }).WithTimeout(late).
			Should(ContainElement(And(HavePrefix("ClaimTampered: "+told), ContainSubstring("pod "+pod.Name+" was promised: someone else "))),
				func() string { return c.story(ctx, j) })
		Eventually(func() []corev1.Pod { return c.podsOf(ctx, j) }).ShouldNot(ContainElement(HaveField("UID", pod.UID)))
		wl := c.workload(ctx, j)
		Expect(c.events(ctx, wl.Namespace, "Workload", wl.Name)).To(ContainElement(HavePrefix("ClaimTampered: ")))
		Expect(c.placement(ctx, j).Status.Retry).To(HaveField("Reason", v1alpha1.ReasonClaimTampered))
	}

	DescribeTable("before the manager has written anything is found out, and the Job runs once it stops",
		func(ctx context.Context, told string, tamper func(ctx context.Context, as client.Client, p *corev1.Pod)) {
			j := job{namespace: teamA, name: "early", gpus: 2, change: onNode("h100-0")}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			c.submit(ctx, j)
			c.bound(ctx, j)
			c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeFrozen })
			thaw := func(ctx context.Context) {
				c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeEnforce })
			}
			DeferCleanup(thaw)
			c.admitByAnOldCheck(ctx, j) // a gated pod, and no devices for it yet
			Expect(c.StartManager(ctx)).To(Succeed())
			var pods []corev1.Pod
			Eventually(func() []corev1.Pod { pods = c.podsOf(ctx, j); return pods }).WithTimeout(late).Should(HaveLen(1))
			pod := &pods[0]

			tamper(ctx, mallory, pod)
			Eventually(func(g Gomega) {
				claims := &resourcev1.ResourceClaimList{}
				g.Expect(c.List(ctx, claims, client.InNamespace(teamA))).To(Succeed())
				g.Expect(claims.Items).To(ContainElement(WithTransform(func(r resourcev1.ResourceClaim) any { return observe.ControllerOf(&r) }, Equal(pod.UID))))
			}).Should(Succeed())
			Consistently(func() bool { return observe.Gated(&c.podsOf(ctx, j)[0]) }).Should(BeTrue())
			thaw(ctx)
			expectCaught(ctx, j, pod, told)
			c.expectAsPromised(ctx, j, c.bound(ctx, j))
			c.expectOnlyGranted(ctx)
		},
		Entry("a template under the name that the pod waits for", "ResourceClaimTemplate early-plimsoll-", func(ctx context.Context, as client.Client, p *corev1.Pod) {
			Expect(as.Create(ctx, &resourcev1.ResourceClaimTemplate{ObjectMeta: ofPod(p, *p.Spec.ResourceClaims[0].ResourceClaimTemplateName),
				Spec: resourcev1.ResourceClaimTemplateSpec{Spec: allGPUs()}})).To(Succeed())
		}),
		Entry("a claim that mimics the pod's", "ResourceClaim early-", func(ctx context.Context, as client.Client, p *corev1.Pod) {
			Expect(as.Create(ctx, mimic(p, false, ""))).To(Succeed())
		}),
		Entry("a claim that mimics the pod's with our marks", "ResourceClaim early-", func(ctx context.Context, as client.Client, p *corev1.Pod) {
			Expect(as.Create(ctx, mimic(p, true, "gpu.nvidia.com/h100-0/gpu-0,gpu.nvidia.com/h100-0/gpu-1"))).To(Succeed())
		}),
	)

	DescribeTable("after the manager has cut them is found out, and the Job runs once it stops",
		func(ctx context.Context, told string, tamper func(ctx context.Context, as client.Client, p *corev1.Pod, claim *resourcev1.ResourceClaim)) {
			j := job{namespace: teamA, name: "late", gpus: 2, change: withOwnGate}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			c.submit(ctx, j)
			pod := c.waitsForOwnGate(ctx, j)[0]
			claim := &resourcev1.ResourceClaim{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: teamA, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}, claim)).To(Succeed())
			tamper(ctx, mallory, &pod, claim)
			if told != "" {
				expectCaught(ctx, j, &pod, told)
			}
			got := c.liftOwnGate(ctx, j)
			c.expectAsPromised(ctx, j, got)
			if told == "" {
				Expect(got[0].UID).To(Equal(pod.UID))
			} else {
				Expect(got[0].UID).NotTo(Equal(pod.UID))
			}
			c.expectOnlyGranted(ctx)
		},
		Entry("another template under the same name", "ResourceClaim", func(ctx context.Context, as client.Client, p *corev1.Pod, claim *resourcev1.ResourceClaim) {
			t := &resourcev1.ResourceClaimTemplate{ObjectMeta: ofPod(p, *p.Spec.ResourceClaims[0].ResourceClaimTemplateName),
				Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: claim.Labels, Annotations: claim.Annotations}, Spec: allGPUs()}}
			Expect(as.Delete(ctx, t.DeepCopy())).To(Succeed())
			Expect(as.Create(ctx, t)).To(Succeed())
			Expect(as.Delete(ctx, claim)).To(Succeed())
		}),
		Entry("another claim", "ResourceClaim late-", func(ctx context.Context, as client.Client, p *corev1.Pod, claim *resourcev1.ResourceClaim) {
			Expect(as.Create(ctx, mimic(p, true, claim.Annotations[v1alpha1.DevicesAnnotation]))).To(Succeed())
			Expect(as.Delete(ctx, claim)).To(Succeed())
		}),
		Entry("other devices in the claim's annotation", "ResourceClaim late-", func(ctx context.Context, as client.Client, _ *corev1.Pod, claim *resourcev1.ResourceClaim) {
			Expect(mergePatch(ctx, as, claim, `{"metadata":{"annotations":{"plimsoll.dev/devices":"gpu.nvidia.com/a100-0/gpu-0"}}}`)).To(Succeed())
		}),
		Entry("the claim without our label", "ResourceClaim late-", func(ctx context.Context, as client.Client, _ *corev1.Pod, claim *resourcev1.ResourceClaim) {
			Expect(mergePatch(ctx, as, claim, `{"metadata":{"labels":null}}`)).To(Succeed())
		}),
		Entry("no claim at all", "ResourceClaim late-", func(ctx context.Context, as client.Client, _ *corev1.Pod, claim *resourcev1.ResourceClaim) {
			Expect(as.Delete(ctx, claim)).To(Succeed())
		}),
	)

	It("after the gate went is said as a divergence", func(ctx context.Context) {
		j := job{namespace: teamA, name: "gone", gpus: 2, product: "A100", change: onNode("a100-0")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(c.StopComponent(ctx, lab.Scheduler)).To(Succeed())
		c.submit(ctx, j)
		var pod corev1.Pod
		Eventually(func(g Gomega) {
			pods := c.podsOf(ctx, j)
			g.Expect(pods).To(HaveLen(1))
			pod = pods[0]
			g.Expect(observe.Gated(&pod)).To(BeFalse())
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(mallory.Create(ctx, mimic(&pod, false, ""))).To(Succeed())
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}}
		Expect(mallory.Delete(ctx, claim)).To(Succeed())
		Eventually(func() string { return *c.podsOf(ctx, j)[0].Status.ResourceClaimStatuses[0].ResourceClaimName }).Should(Equal(pod.Name + "-mimic"))
		Expect(c.StartComponent(ctx, lab.Scheduler)).To(Succeed())
		c.bound(ctx, j)
		Expect(c.devicesOf(ctx, &c.podsOf(ctx, j)[0])).To(HaveLen(8))
		Eventually(func(g Gomega) {
			g.Expect(c.events(ctx, teamA, "Pod", pod.Name)).To(ContainElement(And(HavePrefix("Diverged: pod "+pod.Name+" got gpu.nvidia.com/a100-0/"), ContainSubstring("someone else wrote it"))))
			g.Expect(meta.IsStatusConditionTrue(c.placement(ctx, j).Status.Conditions, v1alpha1.PlacementDiverged)).To(BeTrue())
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
	})
})
