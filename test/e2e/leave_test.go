package e2e

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// managedWorkloads returns what the manager's metric says: how many Workloads carry anything of ours; -1 while nobody
// listens there yet.
func (c *cluster) managedWorkloads(ctx context.Context, token string) int {
	GinkgoHelper()
	address, err := url.Parse(c.MetricsURL())
	Expect(err).NotTo(HaveOccurred())
	probe, err := net.DialTimeout("tcp", address.Host, time.Second)
	if err != nil {
		return -1
	}
	Expect(probe.Close()).To(Succeed())
	_, body := c.scrape(ctx, token)
	n, err := strconv.Atoi(series(body, "plimsoll_managed_workloads")[""])
	Expect(err).NotTo(HaveOccurred())
	return n
}

// expectStarted waits until a Job that waited has started without us. Its pods may still wait for kube-scheduler.
func (c *cluster) expectStarted(ctx context.Context, j job) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(ptr.Deref(wl.Spec.Active, true)).To(BeTrue())
		g.Expect(meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)).To(BeTrue())
		pods := c.podsOf(ctx, j)
		g.Expect(pods).To(HaveLen(int(max(j.pods, 1))))
		for i := range pods {
			g.Expect(pods[i].DeletionTimestamp).To(BeNil())
			untouched(g, &pods[i])
		}
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	Expect(c.promise(ctx, j)).To(BeNil())
}

// expectLeft waits until a Workload that waited without quota is what its user wrote, and has started.
func (c *cluster) expectLeft(ctx context.Context, j job) {
	GinkgoHelper()
	c.expectStarted(ctx, j)
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		for _, name := range []string{v1alpha1.AllowedFlavorsAnnotation, v1alpha1.ChargeAnnotation, v1alpha1.UserAffinityAnnotation, v1alpha1.SteeringAnnotation} {
			g.Expect(wl.Annotations).NotTo(HaveKey(name))
		}
		spec := wl.Spec.PodSets[0].Template.Spec
		g.Expect(spec.Affinity).To(BeNil())
		g.Expect(spec.Overhead).To(BeEmpty())
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
}

// evictByNonce deactivates a Job's Workload as the manager does when it evicts, while no manager runs.
func (c *cluster) evictByNonce(ctx context.Context, j job) {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	patch := client.MergeFrom(wl.DeepCopy())
	wl.Spec.Active = ptr.To(false)
	wl.Annotations[v1alpha1.SteeringAnnotation] = "0123456789abcdef"
	Expect(c.Patch(ctx, wl, patch, client.FieldOwner(v1alpha1.FieldOwner))).To(Succeed())
	Eventually(func() bool {
		return meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)
	}).WithTimeout(late).Should(BeFalse())
}

// gated returns the names of all pods that carry our gate.
func (c *cluster) gated(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(c.List(ctx, list)).To(Succeed())
	var names []string
	for i := range list.Items {
		if observe.Gated(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// leaves describes a queue that leave takes out of our hands, before or after kill has ended the manager, and that back
// gives back.
func leaves(name string, leave func(ctx context.Context, c *cluster, kill func()), back func(ctx context.Context, c *cluster)) {
	Describe("A queue "+name, Ordered, func() {
		var c *cluster
		var scraper string
		placed := job{namespace: teamA, name: "placed", pods: 4, gpus: 8, product: "H100"}
		pair := job{namespace: teamA, name: "pair", pods: 2, gpus: 2, product: "A100", change: onNode("a100-0")}
		plain := job{namespace: teamA, name: "plain"}
		gated := job{namespace: teamA, name: "gated", pods: 2, gpus: 1, product: "L4", change: withOwnGate}
		evicted := job{namespace: teamA, name: "evicted", gpus: 4, product: "H100", change: onNode("mixed-0")}
		busy := job{namespace: teamA, name: "busy", gpus: 8, product: "H100"}
		nine := job{namespace: teamA, name: "nine", gpus: 9, product: "H100"}
		before := map[string]stand{}

		BeforeAll(func(ctx context.Context) {
			c = startCluster(ctx)
			scraper = c.token(ctx, "scraper", "plimsoll-metrics-reader")
			for _, j := range []job{placed, pair, evicted, plain} {
				c.submit(ctx, j)
				c.bound(ctx, j)
			}
			c.submit(ctx, gated)
			c.waitsForOwnGate(ctx, gated)
			c.submit(ctx, busy)
			c.expectRecord(ctx, busy, v1alpha1.ReasonDevicesInUse)
			c.submit(ctx, nine)
			c.expectRecord(ctx, nine, v1alpha1.ReasonNotEnoughDevices)
			Eventually(func() int { return c.managedWorkloads(ctx, scraper) }).Should(Equal(7))
			for _, j := range []job{placed, pair, plain, gated} {
				before[j.name] = c.standOf(ctx, j)
			}
		})

		It("lets those that wait go Kueue's way, though the manager was away", func(ctx context.Context) {
			leave(ctx, c, func() {
				Expect(c.KillManager(ctx)).To(Succeed())
				c.evictByNonce(ctx, evicted)
			})
			Expect(c.StartManager(ctx)).To(Succeed())
			for _, j := range []job{evicted, nine} {
				c.expectLeft(ctx, j)
			}
			c.expectStarted(ctx, busy) // it may have had its quota, and what is written stays as long as that
			c.bound(ctx, evicted)
			c.expectUnmoved(ctx, before, placed, pair, plain, gated)
		})

		It("serves what was placed to its end", func(ctx context.Context) {
			By("releasing the pods that were not released yet")
			for _, p := range c.podsOf(ctx, gated) {
				Expect(observe.Gated(&p)).To(BeTrue())
			}
			c.liftOwnGate(ctx, gated)
			c.expectServed(ctx, gated)
			By("giving a pod's successor its slot, in the same manager and in the next")
			for i := range 2 {
				next := c.replaced(ctx, pair)
				Expect(next.Labels).To(HaveKey(v1alpha1.ManagedLabel))
				c.expectServed(ctx, pair)
				Expect(c.replaced(ctx, plain).Labels).To(HaveKey(v1alpha1.ManagedLabel))
				if i == 0 {
					Expect(c.KillManager(ctx)).To(Succeed())
					Expect(c.StartManager(ctx)).To(Succeed())
				}
			}
			Expect(c.standOf(ctx, pair).admitted).To(Equal(before[pair.name].admitted))
			Expect(c.gated(ctx)).To(BeEmpty())
			Eventually(func() int { return c.managedWorkloads(ctx, scraper) }).Should(BeNumerically(">=", 4))
		})

		It("starts what comes new without us", func(ctx context.Context) {
			j := job{namespace: teamA, name: "new", gpus: 2, product: "A100", change: func(b *batchv1.Job) {
				b.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "mixed-0"}
			}}
			c.submit(ctx, j)
			c.expectLeft(ctx, j)
			c.bound(ctx, j)
			c.remove(ctx, j)
		})

		It("has nothing of ours left when the last is through", func(ctx context.Context) {
			c.finish(ctx, placed)
			Eventually(func() *v1alpha1.PlacementKey { return c.placement(ctx, placed).Spec.Key }).Should(BeNil())
			c.bound(ctx, busy)
			c.finish(ctx, pair)
			c.finish(ctx, gated)
			c.remove(ctx, busy)
			Eventually(func() int { return c.managedWorkloads(ctx, scraper) }).Should(Equal(1), "plain has no charge, but a promise")
			c.remove(ctx, plain)
			Eventually(func() int { return c.managedWorkloads(ctx, scraper) }).Should(BeZero())
			Expect(c.gated(ctx)).To(BeEmpty())
		})

		It("can be handed over again", func(ctx context.Context) {
			left := []job{nine, evicted}
			for _, j := range left {
				before[j.name] = c.standOf(ctx, j)
			}
			back(ctx, c)
			for _, j := range left {
				c.expectAdopted(ctx, j)
				Expect(c.standOf(ctx, j)).To(Equal(before[j.name]))
			}
			j := job{namespace: teamA, name: "again", pods: 3, gpus: 8, product: "H100"}
			c.submit(ctx, j)
			c.expectServed(ctx, j)
			for _, j := range []job{nine, evicted, j} {
				c.remove(ctx, j)
			}
			c.expectFree(ctx)
			Eventually(func() int { return c.managedWorkloads(ctx, scraper) }).Should(BeZero())
		})
	})
}

var _ = Describe("Leaving", func() {
	leaves("that loses its check",
		func(ctx context.Context, c *cluster, kill func()) {
			kill()
			c.setChecks(ctx, teamA)
		},
		func(ctx context.Context, c *cluster) { c.setChecks(ctx, teamA, check) })
	mode := func(ctx context.Context, c *cluster, mode v1alpha1.Mode) {
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = mode })
	}
	leaves("whose policy is put to Shadow",
		func(ctx context.Context, c *cluster, kill func()) {
			mode(ctx, c, v1alpha1.ModeShadow) // its webhook is asked
			kill()
		},
		func(ctx context.Context, c *cluster) { mode(ctx, c, v1alpha1.ModeEnforce) })
})
