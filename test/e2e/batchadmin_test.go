package e2e

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

var _ = Describe("A batch administrator of a namespace", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var boss client.Client
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		boss = c.member(ctx, "boss", teamA, "edit", "kueue-batch-admin-role")
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("neither opens a Workload nor makes it cheaper", func(ctx context.Context) {
		j := job{namespace: teamA, name: "nine", gpus: 9}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		Eventually(func() *v1alpha1.Placement { return c.placement(ctx, j) }).ShouldNot(BeNil())
		before := c.workload(ctx, j)
		Expect(before.Spec.PodSets[0].Template.Spec.Overhead).To(HaveKeyWithValue(corev1.ResourceName("gpus"), resource.MustParse("9")))
		for _, change := range []func(*kueue.Workload){
			func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Affinity = nil },
			func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Overhead = nil },
			func(wl *kueue.Workload) { wl.Annotations = nil },
			func(wl *kueue.Workload) {
				wl.Annotations[v1alpha1.AllowedFlavorsAnnotation], wl.Annotations[v1alpha1.ChargeAnnotation] = "h100,a100,other", `{"main":"1"}`
				wl.Spec.PodSets[0].Template.Spec.Affinity, wl.Spec.PodSets[0].Template.Spec.Overhead = nil, nil
			},
		} {
			wl := c.workload(ctx, j)
			change(wl)
			Expect(boss.Update(ctx, wl)).To(Succeed())
			after := c.workload(ctx, j)
			Expect(after.Spec.PodSets).To(Equal(before.Spec.PodSets))
			Expect(after.Annotations).To(Equal(before.Annotations))
		}
		Consistently(func() int64 { return c.usage(ctx, teamA) }).Should(BeZero())
	})

	It("finds even without the webhook that what was charged is what the claims cost", func(ctx context.Context) {
		hooks := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "plimsoll"}, hooks)).To(Succeed())
		without := hooks.DeepCopy()
		without.Webhooks = slices.DeleteFunc(without.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == "workloads.plimsoll.dev" })
		Expect(without.Webhooks).To(HaveLen(1))
		Expect(c.Update(ctx, without)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			hooks.ResourceVersion = without.ResourceVersion
			Expect(c.Update(ctx, hooks)).To(Succeed())
		})
		j := job{namespace: teamA, name: "cheap", gpus: 8}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		holder := job{namespace: teamA, name: "holder", gpus: 8, pods: 4, product: "H100"}
		c.submit(ctx, holder)
		c.bound(ctx, holder)
		first := job{namespace: teamB, name: "first", gpus: 8, pods: 2, product: "A100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, first) })
		c.submit(ctx, first)
		c.bound(ctx, first)
		c.submit(ctx, j)
		// closed while the devices are in use; then one patch with a charge of his own, and quota
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, j)
			g.Expect(wl).NotTo(BeNil())
			g.Expect(c.placement(ctx, j)).NotTo(BeNil(), "the manager has decided it")
			g.Expect(wl.Annotations).To(HaveKeyWithValue(v1alpha1.AllowedFlavorsAnnotation, ""))
			wl.Annotations[v1alpha1.AllowedFlavorsAnnotation], wl.Annotations[v1alpha1.ChargeAnnotation] = "h100,a100,other", `{"main":"1"}`
			wl.Spec.PodSets[0].Template.Spec.Affinity = nil
			wl.Spec.PodSets[0].Template.Spec.Overhead = corev1.ResourceList{"gpus": resource.MustParse("1")}
			g.Expect(boss.Update(ctx, wl)).To(Succeed())
		}).Should(Succeed())
		wl := c.workload(ctx, j)
		Eventually(func() []string { return c.events(ctx, teamA, "Workload", wl.Name) }).WithTimeout(late).
			Should(ContainElement(HavePrefix("QuotaMismatch: ")), func() string { return c.story(ctx, j) })
		c.remove(ctx, holder)
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(8))
		c.expectOnlyGranted(ctx)
	})

	It("gets no device by a Workload of his own that asks for less than its Job", func(ctx context.Context) {
		j := job{namespace: teamA, name: "built", gpus: 8, change: func(b *batchv1.Job) {
			b.Labels["kueue.x-k8s.io/prebuilt-workload-name"] = "prebuilt"
			b.Spec.Template.Spec.Containers[0].Resources.Claims = nil // Kueue compares containers, and no claims of pods
		}}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(boss.Create(ctx, j.template())).To(Succeed())
		defaulted := j.object()
		Expect(boss.Create(ctx, defaulted)).To(Succeed())
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "prebuilt"}}
		wl.Spec.QueueName = queue
		wl.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1}}
		defaulted.Spec.Template.Spec.DeepCopyInto(&wl.Spec.PodSets[0].Template.Spec)
		wl.Spec.PodSets[0].Template.Spec.ResourceClaims = nil
		Expect(boss.Create(ctx, wl)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, wl))).To(Succeed()) })
		var pods []corev1.Pod
		Eventually(func() []corev1.Pod { pods = c.podsOf(ctx, j); return pods }).Should(HaveLen(1), func() string { return c.story(ctx, j) })
		Eventually(func() []string { return c.events(ctx, teamA, "Pod", pods[0].Name) }).
			Should(ContainElement("PodChanged: pod " + pods[0].Name + ": it has 1 claims, its podset has 0"))
		c.expectOnlyGranted(ctx)
	})
})
