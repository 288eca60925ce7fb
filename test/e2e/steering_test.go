package e2e

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// The gaps between the writes of one eviction.
var gaps = []string{faultpoint.AfterNote, faultpoint.AfterDeactivate, faultpoint.BeforeReactivate, faultpoint.AfterReactivate}

// diesInGap has Kueue reserve quota for a Job that nothing was charged for, since no webhook was there, and starts a manager
// that evicts it for that and dies in a gap.
func (c *cluster) diesInGap(ctx context.Context, j job, gap string) {
	GinkgoHelper()
	if _, runs := c.ManagerPID(); runs {
		Expect(c.StopManager(ctx)).To(Succeed())
	}
	c.submit(ctx, j)
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(wl.Status.Admission).NotTo(BeNil())
	}).Should(Succeed())
	before := c.reached(gap)
	Expect(c.LaunchManager(ctx, faultpointEnv+gap)).To(Succeed())
	c.dies(ctx, gap, before)

	wl := c.workload(ctx, j)
	switch gap {
	case faultpoint.AfterNote:
		Expect(ptr.Deref(wl.Spec.Active, true)).To(BeTrue())
		Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.SteeringAnnotation))
	case faultpoint.AfterDeactivate:
		Expect(steering.Deactivated(wl)).To(BeTrue())
	case faultpoint.BeforeReactivate:
		Expect(steering.Deactivated(wl)).To(BeTrue())
		Expect(reservedNow(wl)).To(BeFalse())
	case faultpoint.AfterReactivate:
		Expect(ptr.Deref(wl.Spec.Active, true)).To(BeTrue())
		Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.SteeringAnnotation))
		Expect(flavors.AllowedOf(wl)).To(BeEmpty())
		Expect(reservedNow(wl)).To(BeFalse())
	}
	Expect(c.placement(ctx, j).Status.Retry).To(HaveValue(And(
		HaveField("Count", BeEquivalentTo(1)), HaveField("Reason", v1alpha1.ReasonQuotaMismatch))))
}

func reservedNow(wl *kueue.Workload) bool {
	return meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
}

// expectUnscathed waits until a Job is served on a flavor as if nothing had happened.
func (c *cluster) expectUnscathed(ctx context.Context, j job, flavor string) {
	GinkgoHelper()
	c.expectServed(ctx, j)
	wl := c.workload(ctx, j)
	Expect(ptr.Deref(wl.Spec.Active, true)).To(BeTrue())
	Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.SteeringAnnotation))
	Expect(wl.Status.Admission.PodSetAssignments[0].Flavors["gpus"]).To(BeEquivalentTo(flavor))
}

// expectTheirs expects of a Workload that somebody else deactivated that it stays as it is, and that our nonce goes from it.
func (c *cluster) expectTheirs(ctx context.Context, j job) {
	GinkgoHelper()
	generation := c.workload(ctx, j).Generation
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.SteeringAnnotation))
		g.Expect(reservedNow(wl)).To(BeFalse())
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
	Consistently(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(ptr.Deref(wl.Spec.Active, true)).To(BeFalse())
		g.Expect(wl.Generation).To(Equal(generation), "nobody wrote to its spec")
	}).Should(Succeed())
	Expect(c.podsOf(ctx, j)).To(BeEmpty())
}

// applyInactive says active: false by server-side apply, which makes its owner of the field whoever else is.
func (c *cluster) applyInactive(ctx context.Context, j job) {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	body, err := json.Marshal(map[string]any{
		"apiVersion": kueue.GroupVersion.String(), "kind": "Workload",
		"metadata": map[string]any{"namespace": wl.Namespace, "name": wl.Name}, "spec": map[string]any{"active": false},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Patch(ctx, wl, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("gitops"))).To(Succeed())
}

var _ = Describe("A manager that dies while it steers", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var j job
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() {
		j = job{namespace: teamA, name: "steered", pods: 2, gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) {
			c.remove(ctx, j)
			c.restartManager(ctx)
			c.expectFree(ctx)
		})
	})

	for _, gap := range gaps {
		It("evicts once and brings back, dead "+gap, func(ctx context.Context) {
			h := c.history()
			c.diesInGap(ctx, j, gap)
			Expect(c.StartManager(ctx)).To(Succeed())
			c.expectUnscathed(ctx, j, "h100")
			most := int32(0)
			each(h, func(p *v1alpha1.Placement, _ bool, _ time.Time) {
				most = max(most, ptr.Deref(p.Status.Retry, v1alpha1.PlacementRetry{}).Count)
			})
			Expect(most).To(BeEquivalentTo(1), "one eviction is counted once")
			c.finish(ctx, j)
			c.expectNothingDoubled(ctx, h)
		})
	}

	DescribeTable("leaves to an admin what the admin deactivated",
		func(ctx context.Context, gap string, admin func(context.Context)) {
			c.diesInGap(ctx, j, gap)
			admin(ctx)
			Expect(c.StartManager(ctx)).To(Succeed())
			c.expectTheirs(ctx, j)
			c.activate(ctx, j, true)
			c.expectUnscathed(ctx, j, "h100")
			c.finish(ctx, j)
		},
		Entry("before we did", faultpoint.AfterNote, func(ctx context.Context) { c.activate(ctx, j, false) }),
		Entry("after us, having activated it", faultpoint.AfterDeactivate, func(ctx context.Context) {
			c.activate(ctx, j, true)
			c.activate(ctx, j, false)
		}),
		Entry("after us, having activated it once the quota was gone", faultpoint.BeforeReactivate, func(ctx context.Context) {
			c.activate(ctx, j, true)
			c.activate(ctx, j, false)
		}),
		Entry("by server-side apply of what it was already", faultpoint.AfterDeactivate, func(ctx context.Context) { c.applyInactive(ctx, j) }),
		Entry("once we had brought it back", faultpoint.AfterReactivate, func(ctx context.Context) { c.activate(ctx, j, false) }),
	)

	It("brings back what an admin changed otherwise meanwhile", func(ctx context.Context) {
		c.diesInGap(ctx, j, faultpoint.BeforeReactivate)
		wl := c.workload(ctx, j)
		patch := client.MergeFrom(wl.DeepCopy())
		wl.Spec.Priority = ptr.To[int32](7)
		Expect(c.Patch(ctx, wl, patch)).To(Succeed())
		Expect(c.StartManager(ctx)).To(Succeed())
		c.expectUnscathed(ctx, j, "h100")
		c.finish(ctx, j)
	})

	It("goes on waiting for a flavor from when it began to", func(ctx context.Context) {
		const patience = 20
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Fallback.AfterSeconds = ptr.To[int32](patience) })
		DeferCleanup(func(ctx context.Context) {
			c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Fallback.AfterSeconds = ptr.To[int32](60) })
		})
		all := job{namespace: teamA, name: "all", pods: 4, gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, all) })
		c.restartManager(ctx, faultpointEnv+faultpoint.AfterRemember)
		h := c.history()
		c.submit(ctx, all)
		c.bound(ctx, all)
		before := c.reached(faultpoint.AfterRemember)
		j.pods, j.product = 1, ""
		c.submit(ctx, j)
		c.dies(ctx, faultpoint.AfterRemember, before)
		waits := c.placement(ctx, j).Status.Waits
		Expect(waits).To(ConsistOf(HaveField("Flavor", "h100")))
		Expect(flavors.AllowedOf(c.workload(ctx, j))).To(BeEmpty())

		Expect(c.StartManager(ctx)).To(Succeed())
		c.expectUnscathed(ctx, j, "a100")
		each(h, func(p *v1alpha1.Placement, _ bool, _ time.Time) {
			for _, w := range p.Status.Waits {
				Expect(w.Since.Equal(&waits[0].Since)).To(BeTrue(), "the clock did not start anew")
			}
		})
		reserved := meta.FindStatusCondition(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)
		Expect(reserved.LastTransitionTime.Sub(waits[0].Since.Time)).To(BeNumerically(">=", patience*time.Second))
		c.finish(ctx, j)
		c.expectNothingDoubled(ctx, h)
	})

	Describe("for one that Kueue preempts another for", Ordered, func() {
		var low job
		BeforeAll(func(ctx context.Context) {
			Expect(c.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})).To(Succeed())
		})
		BeforeEach(func(ctx context.Context) {
			c.setQuota(ctx, teamA, "h100", "16", kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority})
			low = job{namespace: teamA, name: "low", pods: 2, gpus: 8, product: "H100", change: func(b *batchv1.Job) {
				b.Spec.Template.Annotations = map[string]string{lab.GraceSecondsAnnotation: "20"}
				b.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
				b.Spec.Template.Spec.NodeSelector = map[string]string{"topology.kubernetes.io/zone": "zone-a"}
			}}
			// the other two nodes are taken away: what is free is not enough
			for _, n := range []string{"h100-2", "h100-3"} {
				c.takeNode(ctx, cordoned, n)
			}
			DeferCleanup(func(ctx context.Context) {
				c.remove(ctx, low)
				for _, n := range []string{"h100-2", "h100-3"} {
					c.bringNode(ctx, cordoned, n)
				}
				c.setQuota(ctx, teamA, "h100", "40", kueue.ClusterQueuePreemption{})
			})
			j.change = func(b *batchv1.Job) { b.Labels["kueue.x-k8s.io/priority-class"] = "high" }
		})

		DescribeTable("takes the devices that end for it, and no others do",
			func(ctx context.Context, point string, atThePoint func(context.Context)) {
				c.restartManager(ctx, faultpointEnv+point)
				before := c.reached(point)
				h := c.history()
				c.submit(ctx, low)
				c.bound(ctx, low)
				victim := c.workload(ctx, low)
				c.submit(ctx, j)
				c.dies(ctx, point, before)
				Expect(c.placement(ctx, j).Status.Victims).To(ConsistOf(string(victim.UID)))
				atThePoint(ctx)

				Expect(c.StartManager(ctx)).To(Succeed())
				c.expectUnscathed(ctx, j, "h100")
				Eventually(func(g Gomega) {
					g.Expect(c.placement(ctx, j).Status.Victims).To(BeEmpty(), "forgotten once it runs")
				}).Should(Succeed())
				Expect(c.podsOf(ctx, low)).To(BeEmpty())
				c.finish(ctx, j)
				c.expectServed(ctx, low)
				c.finish(ctx, low)
				c.expectNothingDoubled(ctx, h)
			},
			Entry("dead before the victim was asked to go", faultpoint.AfterRemember, func(ctx context.Context) {
				Expect(flavors.AllowedOf(c.workload(ctx, j))).To(BeEmpty())
				Consistently(func(g Gomega) {
					g.Expect(c.liveOf(ctx, low)).To(HaveLen(2))
					g.Expect(reservedNow(c.workload(ctx, j))).To(BeFalse())
				}).Should(Succeed())
			}),
			Entry("dead after it had been promised what the victim's pods still hold", faultpoint.AfterComing, func(ctx context.Context) {
				Expect(c.promise(ctx, j)).NotTo(BeNil())
				Expect(steering.CheckState(c.workload(ctx, j), check).State).To(Equal(kueue.CheckStatePending))
				Expect(c.podsOf(ctx, j)).To(BeEmpty())
				for _, p := range c.podsOf(ctx, low) {
					Expect(p.DeletionTimestamp).NotTo(BeNil())
					Expect(observe.Gated(&p)).To(BeFalse())
				}
			}),
		)
	})
})

// setQuota gives a ClusterQueue another nominal quota for the devices of a flavor, and another preemption.
func (c *cluster) setQuota(ctx context.Context, name, flavor, gpus string, preemption kueue.ClusterQueuePreemption) {
	GinkgoHelper()
	cq := &kueue.ClusterQueue{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, cq)).To(Succeed())
	patch := client.MergeFrom(cq.DeepCopy())
	cq.Spec.Preemption = &preemption
	for _, group := range cq.Spec.ResourceGroups {
		for i := range group.Flavors {
			for k := range group.Flavors[i].Resources {
				if r := &group.Flavors[i].Resources[k]; string(group.Flavors[i].Name) == flavor && r.Name == corev1.ResourceName("gpus") {
					r.NominalQuota = resource.MustParse(gpus)
				}
			}
		}
	}
	Expect(c.Patch(ctx, cq, patch)).To(Succeed())
}
