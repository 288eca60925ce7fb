package e2e

import (
	"context"
	"os"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// faultpointEnv names the point at which a manager that was built with the tag faultpoints kills itself.
const faultpointEnv = "PLIMSOLL_FAULTPOINT="

// restartManager stops the manager, if it runs, and starts it with these environment variables.
func (c *cluster) restartManager(ctx context.Context, env ...string) {
	GinkgoHelper()
	if _, runs := c.ManagerPID(); runs {
		Expect(c.StopManager(ctx)).To(Succeed())
	}
	Expect(c.StartManager(ctx, env...)).To(Succeed())
}

// reached returns how often the managers so far have said that they reached a fault point.
func (c *cluster) reached(point string) int {
	GinkgoHelper()
	log, err := os.ReadFile(c.ManagerLog())
	Expect(err).NotTo(HaveOccurred())
	n := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Reached fault point") && strings.Contains(line, `"`+point+`"`) {
			n++
		}
	}
	return n
}

// dies waits until the manager has killed itself at a fault point; before is how often that had been reached.
func (c *cluster) dies(ctx context.Context, point string, before int) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, late)
	defer cancel()
	exit, err := c.WaitManagerExit(ctx)
	Expect(err).NotTo(HaveOccurred(), "the manager still runs")
	Expect(exit.Signal).To(Equal(syscall.SIGKILL))
	Expect(c.reached(point)).To(Equal(before + 1))
}

// hold keeps Kueue from reserving quota for a LocalQueue's Workloads, or lets it again.
func (c *cluster) hold(ctx context.Context, namespace string, held bool) {
	GinkgoHelper()
	lq := &kueue.LocalQueue{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: queue}, lq)).To(Succeed())
	patch := client.MergeFrom(lq.DeepCopy())
	lq.Spec.StopPolicy = ptr.To(kueue.None)
	if held {
		lq.Spec.StopPolicy = ptr.To(kueue.Hold)
	}
	Expect(c.Patch(ctx, lq, patch)).To(Succeed())
}

// submitTogether submits Jobs of one namespace so that all are there, closed and charged by the webhook, before Kueue
// reserves quota for any.
func (c *cluster) submitTogether(ctx context.Context, jobs ...job) {
	GinkgoHelper()
	c.hold(ctx, jobs[0].namespace, true)
	for _, j := range jobs {
		c.submit(ctx, j)
	}
	for _, j := range jobs {
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, j)
			g.Expect(wl).NotTo(BeNil())
			g.Expect(wl.Annotations).To(And(HaveKey(v1alpha1.AllowedFlavorsAnnotation), HaveKey(v1alpha1.ChargeAnnotation)))
		}).Should(Succeed())
	}
	c.hold(ctx, jobs[0].namespace, false)
}

// promise returns a Job's Placement where that is live, else nil.
func (c *cluster) promise(ctx context.Context, j job) *v1alpha1.Placement {
	GinkgoHelper()
	p := c.placement(ctx, j)
	if p == nil || p.Spec.Key == nil {
		return nil
	}
	key, err := admission.KeyOf(c.workload(ctx, j))
	Expect(err).NotTo(HaveOccurred())
	if key == nil || !ledger.SameKey(p.Spec.Key, key) {
		return nil
	}
	return p
}

// ownedTemplates returns the templates that the manager made in a namespace, by the pod that owns each.
func (c *cluster) ownedTemplates(ctx context.Context, namespace string) map[string][]string {
	GinkgoHelper()
	list := &resourcev1.ResourceClaimTemplateList{}
	Expect(c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.OwnedLabel: "true"})).To(Succeed())
	out := map[string][]string{}
	for i := range list.Items {
		uid := string(observe.ControllerOf(&list.Items[i]))
		out[uid] = append(out[uid], list.Items[i].Name)
	}
	return out
}

// expectServed waits until a Job's pods are bound and expects that each has exactly the devices that were promised to it,
// by one template of its own, and that the quota in use is what the Job costs.
func (c *cluster) expectServed(ctx context.Context, j job) []corev1.Pod {
	GinkgoHelper()
	pods := c.bound(ctx, j)
	c.expectAsPromised(ctx, j, pods)
	templates := c.ownedTemplates(ctx, j.namespace)
	slots := map[string]string{}
	for i := range pods {
		p := &pods[i]
		Expect(templates[string(p.UID)]).To(HaveLen(1), p.Name)
		Expect(p.Status.ResourceClaimStatuses).To(HaveLen(1))
		claim := &resourcev1.ResourceClaim{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: *p.Status.ResourceClaimStatuses[0].ResourceClaimName}, claim)).To(Succeed())
		Expect(c.devicesOf(ctx, p)).To(ConsistOf(strings.Split(claim.Annotations[v1alpha1.DevicesAnnotation], ",")), p.Name)
		slot := claim.Annotations[v1alpha1.SlotAnnotation]
		Expect(slots).NotTo(HaveKey(slot), "a slot has one pod")
		slots[slot] = p.Name
	}
	// no template was made for a pod that does not exist
	all := &corev1.PodList{}
	Expect(c.List(ctx, all, client.InNamespace(j.namespace))).To(Succeed())
	for i := range all.Items {
		delete(templates, string(all.Items[i].UID))
	}
	Expect(templates).To(BeEmpty())

	wl := c.workload(ctx, j)
	Expect(wl.Status.Admission.PodSetAssignments).To(HaveLen(1))
	used := wl.Status.Admission.PodSetAssignments[0].ResourceUsage["gpus"]
	Expect(used.Value()).To(Equal(int64(max(j.pods, 1)) * j.gpus))
	c.expectQuotaAddsUp(ctx)
	return pods
}

// expectQuotaAddsUp waits until each queue's quota in use is what its Workloads hold.
func (c *cluster) expectQuotaAddsUp(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &kueue.WorkloadList{}
		g.Expect(c.List(ctx, list)).To(Succeed())
		want := map[string]int64{teamA: 0, teamB: 0}
		for i := range list.Items {
			wl := &list.Items[i]
			if !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) || meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
				continue
			}
			for _, a := range wl.Status.Admission.PodSetAssignments {
				used := a.ResourceUsage["gpus"]
				want[string(wl.Status.Admission.ClusterQueue)] += used.Value()
			}
		}
		for name, sum := range want {
			g.Expect(c.usage(ctx, name)).To(Equal(sum), name)
		}
	}).Should(Succeed())
}

// activate sets a Job's Workload active, or inactive, as an administrator does.
func (c *cluster) activate(ctx context.Context, j job, active bool) {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	patch := client.MergeFrom(wl.DeepCopy())
	wl.Spec.Active = &active
	Expect(c.Patch(ctx, wl, patch)).To(Succeed())
}

// finish ends a Job's pods and waits until the Job is complete.
func (c *cluster) finish(ctx context.Context, j job) {
	GinkgoHelper()
	for _, p := range c.podsOf(ctx, j) {
		c.end(ctx, &p)
	}
	c.finished(ctx, j)
}

var _ = Describe("A manager that is killed", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() {
		DeferCleanup(func(ctx context.Context) {
			c.restartManager(ctx)
			c.expectFree(ctx)
		})
	})

	DescribeTable("loses no promise and doubles none",
		func(ctx context.Context, point string, atThePoint func(ctx context.Context, j job)) {
			// the four nodes with eight H100s are the gang's or, one of them, the rival's
			gang := job{namespace: teamA, name: "gang", pods: 4, gpus: 8, product: "H100"}
			rival := job{namespace: teamA, name: "rival", gpus: 8, product: "H100"}
			DeferCleanup(func(ctx context.Context) {
				c.remove(ctx, gang)
				c.remove(ctx, rival)
			})
			before := c.reached(point)
			c.restartManager(ctx, faultpointEnv+point)
			h := c.history()
			c.submitTogether(ctx, gang, rival)
			c.dies(ctx, point, before)

			first, second := gang, rival
			if c.promise(ctx, gang) == nil {
				first, second = rival, gang
			}
			promised := c.promise(ctx, first)
			Expect(promised).NotTo(BeNil(), "a promise was written before the point")
			Expect(c.promise(ctx, second)).To(BeNil(), "the devices are promised once")
			atThePoint(ctx, first)
			for _, j := range []job{gang, rival} {
				Consistently(func(g Gomega) {
					for _, p := range c.podsOf(ctx, j) {
						g.Expect(observe.Gated(&p)).To(BeTrue(), p.Name)
					}
				}).Should(Succeed())
			}

			Expect(c.StartManager(ctx)).To(Succeed())
			c.expectServed(ctx, first)
			served := c.promise(ctx, first)
			Expect(served.UID).To(Equal(promised.UID))
			Expect(served.Spec.Key).To(Equal(promised.Spec.Key))
			Expect(served.Spec.PodSets).To(Equal(promised.Spec.PodSets))
			Expect(c.podsOf(ctx, second)).To(BeEmpty())

			c.finish(ctx, first)
			c.expectServed(ctx, second)
			c.finish(ctx, second)
			c.expectNothingDoubled(ctx, h)
		},
		Entry("after the Placement and before Ready", faultpoint.AfterPlacement, func(ctx context.Context, j job) {
			Expect(steering.CheckState(c.workload(ctx, j), check).State).To(Equal(kueue.CheckStatePending))
			Expect(c.podsOf(ctx, j)).To(BeEmpty())
		}),
		Entry("after Ready and before a pod is released", faultpoint.AfterReady, func(ctx context.Context, j job) {
			Expect(steering.CheckState(c.workload(ctx, j), check).State).To(Equal(kueue.CheckStateReady))
			Expect(c.ownedTemplates(ctx, j.namespace)).To(BeEmpty())
		}),
		Entry("after a template and before its pod is released", faultpoint.AfterTemplate, func(ctx context.Context, j job) {
			Expect(c.podsOf(ctx, j)).NotTo(BeEmpty())
			Expect(c.ownedTemplates(ctx, j.namespace)).NotTo(BeEmpty())
		}),
	)

	Describe("between the two patches of an eviction", Ordered, func() {
		// evicted expects what the first patch left, with no manager about.
		evicted := func(ctx context.Context, j job) {
			GinkgoHelper()
			wl := c.workload(ctx, j)
			Expect(steering.Deactivated(wl)).To(BeTrue(), c.story(ctx, j))
			Eventually(func(g Gomega) {
				g.Expect(meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeFalse())
			}).Should(Succeed())
			Consistently(func() bool { return steering.Deactivated(c.workload(ctx, j)) }).Should(BeTrue(), "nobody else brings it back")
		}
		// back waits until the second patch has come.
		back := func(ctx context.Context, j job) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				wl := c.workload(ctx, j)
				g.Expect(ptr.Deref(wl.Spec.Active, true)).To(BeTrue())
				g.Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.SteeringAnnotation))
			}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		}

		It("brings the Workload back by its nonce, charged this time, and leaves alone what an admin deactivated", func(ctx context.Context) {
			admins := job{namespace: teamB, name: "admins", gpus: 2, product: "A100"}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, admins) })
			c.submit(ctx, admins)
			c.bound(ctx, admins)
			c.activate(ctx, admins, false)
			Eventually(func() []corev1.Pod { return c.podsOf(ctx, admins) }).Should(BeEmpty())
			inactive := c.workload(ctx, admins)

			// without the webhook Kueue reserves quota for nothing
			Expect(c.StopManager(ctx)).To(Succeed())
			j := job{namespace: teamA, name: "uncharged", pods: 2, gpus: 8, product: "H100"}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			h := c.history()
			c.submit(ctx, j)
			Eventually(func(g Gomega) {
				wl := c.workload(ctx, j)
				g.Expect(wl).NotTo(BeNil())
				g.Expect(wl.Status.Admission).NotTo(BeNil())
				g.Expect(wl.Status.Admission.PodSetAssignments[0].ResourceUsage["gpus"]).To(BeZero())
			}).Should(Succeed())
			before := c.reached(faultpoint.AfterDeactivate)
			Expect(c.LaunchManager(ctx, faultpointEnv+faultpoint.AfterDeactivate)).To(Succeed())
			c.dies(ctx, faultpoint.AfterDeactivate, before)
			evicted(ctx, j)
			retry := c.placement(ctx, j).Status.Retry
			Expect(retry).NotTo(BeNil())
			Expect(retry.Count).To(BeEquivalentTo(1))
			Expect(retry.Reason).To(Equal(v1alpha1.ReasonQuotaMismatch))

			Expect(c.StartManager(ctx)).To(Succeed())
			back(ctx, j)
			c.expectServed(ctx, j)
			c.finish(ctx, j)

			now := c.workload(ctx, admins)
			Expect(now.UID).To(Equal(inactive.UID))
			Expect(now.Generation).To(Equal(inactive.Generation), "nobody wrote to its spec")
			Expect(*now.Spec.Active).To(BeFalse())
			c.activate(ctx, admins, true)
			c.expectServed(ctx, admins)
			c.finish(ctx, admins)
			c.expectNothingDoubled(ctx, h)
		})

		// Another gate keeps the pods until one of them has been changed so that its place does not fit it any more.
		const order = "example.com/order"
		ordered := func(name string) job {
			return job{namespace: teamA, name: name, pods: 2, gpus: 8, product: "H100", change: func(b *batchv1.Job) {
				b.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: order}}
			}}
		}
		// diesEvicting submits such a Job and changes a pod. It returns the Job's pods.
		diesEvicting := func(ctx context.Context, j job) []corev1.Pod {
			GinkgoHelper()
			before := c.reached(faultpoint.AfterDeactivate)
			c.restartManager(ctx, faultpointEnv+faultpoint.AfterDeactivate)
			c.submit(ctx, j)
			Eventually(func(g Gomega) {
				pods := c.podsOf(ctx, j)
				g.Expect(pods).To(HaveLen(2))
				for i := range pods {
					g.Expect(pods[i].Status.ResourceClaimStatuses).To(HaveLen(1))
				}
			}).Should(Succeed(), func() string { return c.story(ctx, j) })
			first := c.podsOf(ctx, j)
			patch := client.MergeFrom(first[0].DeepCopy())
			first[0].Spec.NodeSelector[corev1.LabelHostname] = "l4-0" // the flavor's labels are there
			Expect(c.Patch(ctx, &first[0], patch)).To(Succeed())
			c.dies(ctx, faultpoint.AfterDeactivate, before)
			evicted(ctx, j)
			return first
		}
		// ungated waits until the Job has pods other than those, and takes the other gate off them.
		ungated := func(ctx context.Context, j job, first []corev1.Pod) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				pods := c.podsOf(ctx, j)
				g.Expect(pods).To(HaveLen(2))
				for i := range pods {
					g.Expect(pods[i].DeletionTimestamp).To(BeNil())
					g.Expect([]any{first[0].UID, first[1].UID}).NotTo(ContainElement(pods[i].UID), "pods of the first attempt are gone")
				}
			}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
			for _, p := range c.podsOf(ctx, j) {
				patch := client.MergeFrom(p.DeepCopy())
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlacementGate}}
				Expect(c.Patch(ctx, &p, patch)).To(Succeed())
			}
		}

		It("takes the pods' devices back and serves the Job anew", func(ctx context.Context) {
			j := ordered("moved")
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			h := c.history()
			first := diesEvicting(ctx, j)

			Expect(c.StartManager(ctx)).To(Succeed())
			back(ctx, j)
			ungated(ctx, j, first)
			c.expectServed(ctx, j)
			c.finish(ctx, j)
			c.expectNothingDoubled(ctx, h)
		})

		It("leaves to an admin what the admin has taken over meanwhile", func(ctx context.Context) {
			j := ordered("taken")
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			first := diesEvicting(ctx, j)

			By("the admin brings it back before the manager does")
			c.activate(ctx, j, true)
			Expect(c.StartManager(ctx)).To(Succeed())
			ungated(ctx, j, first)
			c.expectServed(ctx, j)
			back(ctx, j)

			By("the admin deactivates it, and nobody brings it back")
			c.activate(ctx, j, false)
			c.expectFree(ctx)
			Consistently(func() bool { return *c.workload(ctx, j).Spec.Active }).Should(BeFalse())
		})
	})
})
