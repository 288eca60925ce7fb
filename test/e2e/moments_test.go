package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// secondPolicy is a copy of the sample cluster's policy, with an AdmissionCheck of the same name.
const secondPolicy = "second"

// addSecondPolicy makes secondPolicy and its check, and waits until that is active.
func (c *cluster) addSecondPolicy(ctx context.Context) {
	GinkgoHelper()
	dp := &v1alpha1.DevicePolicy{}
	Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, dp)).To(Succeed())
	Expect(c.Create(ctx, &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: secondPolicy}, Spec: dp.Spec})).To(Succeed())
	ac := &kueue.AdmissionCheck{}
	Expect(c.Get(ctx, client.ObjectKey{Name: check}, ac)).To(Succeed())
	second := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: secondPolicy}, Spec: *ac.Spec.DeepCopy()}
	second.Spec.Parameters.Name = secondPolicy
	Expect(c.Create(ctx, second)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(second), second)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(second.Status.Conditions, kueue.AdmissionCheckActive)).To(BeTrue())
	}).Should(Succeed())
}

var _ = Describe("A check that leaves its queue", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func(ctx context.Context) {
		c.setChecks(ctx, teamA, check)
		DeferCleanup(func(ctx context.Context) {
			c.restartManager(ctx)
			c.expectFree(ctx)
		})
	})

	It("after a promise and before the answer keeps no devices for pods that never ask for them", func(ctx context.Context) {
		j := job{namespace: teamA, name: "unanswered", pods: 2, gpus: 4, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		before := c.reached(faultpoint.AfterPlacement)
		c.restartManager(ctx, faultpointEnv+faultpoint.AfterPlacement)
		c.submit(ctx, j)
		c.dies(ctx, faultpoint.AfterPlacement, before)
		Expect(c.promise(ctx, j)).NotTo(BeNil())
		c.setChecks(ctx, teamA)
		pods := c.bound(ctx, j)
		for i := range pods {
			untouched(Default, &pods[i])
		}
		stood := c.standOf(ctx, j)
		Expect(c.StartManager(ctx)).To(Succeed())
		Eventually(func() *v1alpha1.PlacementKey { return c.placement(ctx, j).Spec.Key }).Should(BeNil())
		c.expectUnmoved(ctx, map[string]stand{j.name: stood}, j)
		Expect(held(c.book(ctx))).To(HaveLen(8))
	})

	It("while pods wait behind the gate without a promise lets them start without one", func(ctx context.Context) {
		j := job{namespace: teamA, name: "stranded", pods: 2, gpus: 4, product: "H100"}
		DeferCleanup(func(ctx context.Context) {
			c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeEnforce })
			c.remove(ctx, j)
		})
		c.submit(ctx, j)
		c.bound(ctx, j)
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeFrozen })
		c.admitByAnOldCheck(ctx, j)
		Expect(c.StartManager(ctx)).To(Succeed())
		Eventually(func(g Gomega) {
			pods := c.podsOf(ctx, j)
			g.Expect(pods).To(HaveLen(2))
			for i := range pods {
				g.Expect(observe.Gated(&pods[i])).To(BeTrue())
			}
			g.Expect(c.promise(ctx, j)).To(BeNil())
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		c.setChecks(ctx, teamA)
		c.expectLeft(ctx, j)
		c.bound(ctx, j)
	})

	It("and whose policy is deleted before all is released lets the rest start without a promise", func(ctx context.Context) {
		j := job{namespace: teamA, name: "orphaned", pods: 2, gpus: 2, product: "H100", change: withOwnGate}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		c.waitsForOwnGate(ctx, j)
		c.setChecks(ctx, teamA)
		dp := &v1alpha1.DevicePolicy{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, dp)).To(Succeed())
		Expect(c.Delete(ctx, dp)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(c.Create(ctx, &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: dp.Name}, Spec: dp.Spec})).To(Succeed())
		})
		pods := c.liftOwnGate(ctx, j)
		for i := range pods {
			untouched(Default, &pods[i])
		}
		c.expectLeft(ctx, j)
	})

	It("for another of ours hands over what runs, and decides by its own policy what waits", func(ctx context.Context) {
		c.addSecondPolicy(ctx)
		runs := job{namespace: teamA, name: "runs", pods: 4, gpus: 8, product: "H100"}
		gates := job{namespace: teamA, name: "gates", pods: 2, gpus: 1, product: "L4", change: withOwnGate}
		waits := job{namespace: teamA, name: "waits", gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) {
			for _, j := range []job{runs, gates, waits} {
				c.remove(ctx, j)
			}
		})
		c.submit(ctx, runs)
		c.bound(ctx, runs)
		c.submit(ctx, gates)
		c.waitsForOwnGate(ctx, gates)
		c.submit(ctx, waits)
		c.expectRecord(ctx, waits, v1alpha1.ReasonDevicesInUse)
		before := map[string]stand{}
		for _, j := range []job{runs, gates} {
			before[j.name] = c.standOf(ctx, j)
		}

		c.setChecks(ctx, teamA, secondPolicy)
		for _, j := range []job{runs, gates} {
			Eventually(func(g Gomega) {
				g.Expect(c.workload(ctx, j).Status.AdmissionChecks).To(ConsistOf(And(
					HaveField("Name", BeEquivalentTo(secondPolicy)), HaveField("State", kueue.CheckStateReady), HaveField("PodSetUpdates", HaveLen(1)))))
			}).Should(Succeed())
			Expect(c.promise(ctx, j).Spec.Policy).To(Equal("gpu"))
		}
		c.expectUnmoved(ctx, before, runs, gates)
		c.liftOwnGate(ctx, gates)
		c.expectServed(ctx, gates)
		Expect(c.replaced(ctx, runs).Labels).To(HaveKey(v1alpha1.ManagedLabel))
		c.expectServed(ctx, runs)
		Expect(c.podsOf(ctx, waits)).To(BeEmpty())

		c.remove(ctx, runs)
		c.expectServed(ctx, waits)
		Expect(c.promise(ctx, waits).Spec.Policy).To(Equal(secondPolicy))
	})

	It("leaves a Job that asks for the gate itself behind it, and does not evict it for that", func(ctx context.Context) {
		c.setChecks(ctx, teamA)
		j := job{namespace: teamA, name: "copied"}
		b := j.object()
		b.Spec.Template.Labels = map[string]string{v1alpha1.ManagedLabel: "true"} // as a manifest copied from a pod would
		Expect(c.Create(ctx, b)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		var pods []corev1.Pod
		Eventually(func() []corev1.Pod { pods = c.podsOf(ctx, j); return pods }).Should(HaveLen(1))
		Expect(observe.Gated(&pods[0])).To(BeTrue())
		c.expectUnmoved(ctx, map[string]stand{j.name: c.standOf(ctx, j)}, j)
	})
})
