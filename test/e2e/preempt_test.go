package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// ranked gives a Job a priority and its pods a time that they take to end.
func ranked(priority string, graceSeconds int) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		b.Labels["kueue.x-k8s.io/priority-class"] = priority
		if graceSeconds > 0 {
			b.Spec.Template.Annotations = map[string]string{lab.GraceSecondsAnnotation: strconv.Itoa(graceSeconds)}
		}
	}
}

// letPreempt lets ClusterQueue team-a preempt lower priorities for H100s rather than go on to the next flavor, and gives it
// quota for four nodes of H100s, and no more.
func (c *cluster) letPreempt(ctx context.Context) {
	GinkgoHelper()
	for name, value := range map[string]int32{"low": 1, "high": 100} {
		Expect(c.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})).To(Succeed())
	}
	cq := &kueue.ClusterQueue{}
	Expect(c.Get(ctx, client.ObjectKey{Name: teamA}, cq)).To(Succeed())
	patch := client.MergeFrom(cq.DeepCopy())
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.MayStopSearch}
	for i := range cq.Spec.ResourceGroups[0].Flavors[0].Resources {
		if r := &cq.Spec.ResourceGroups[0].Flavors[0].Resources[i]; r.Name == "gpus" {
			r.NominalQuota, r.BorrowingLimit = resource.MustParse("32"), ptr.To(resource.MustParse("0"))
		}
	}
	Expect(c.Patch(ctx, cq, patch)).To(Succeed())
}

// evicted returns the names of those of some Jobs whose Workloads were evicted since a history began.
func (c *cluster) evicted(ctx context.Context, h *history, jobs []job) []string {
	GinkgoHelper()
	var names []string
	for _, j := range jobs {
		wl := c.workload(ctx, j)
		Eventually(func() bool { return h.has(wl) }).Should(BeTrue())
		if slices.ContainsFunc(h.of(wl.UID), func(v version) bool {
			return meta.IsStatusConditionTrue(v.object.(*kueue.Workload).Status.Conditions, kueue.WorkloadEvicted)
		}) {
			names = append(names, j.name)
		}
	}
	return names
}

// endAtOnce deletes a Job and its pods, whatever time they would take to end.
func (c *cluster) endAtOnce(ctx context.Context, j job) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(c.Delete(ctx, j.object(), client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
	Eventually(func(g Gomega) {
		pods := c.podsOf(ctx, j)
		for i := range pods {
			g.Expect(client.IgnoreNotFound(c.Delete(ctx, &pods[i], client.GracePeriodSeconds(0)))).To(Succeed())
		}
		g.Expect(pods).To(BeEmpty())
	}).Should(Succeed())
}

var _ = Describe("Preemption", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var h *history
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		c.letPreempt(ctx)
		c.cordonNode(ctx, "mixed-0")
	})
	BeforeEach(func() {
		DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) })
		h = c.history()
	})

	// four starts a Job of low priority on each node of H100s, and returns them with their pods by name.
	four := func(ctx context.Context, gpus int64, change func(*batchv1.Job)) ([]job, map[string]corev1.Pod) {
		GinkgoHelper()
		var jobs []job
		pods := map[string]corev1.Pod{}
		for i := range 4 {
			jobs = append(jobs, job{namespace: teamA, name: fmt.Sprintf("low-%d", i), gpus: gpus, product: "H100", change: change})
			c.started(ctx, jobs[i])
			DeferCleanup(func(ctx context.Context) { c.endAtOnce(ctx, jobs[i]) })
		}
		for _, j := range jobs {
			pods[j.name] = c.bound(ctx, j)[0]
		}
		return jobs, pods
	}
	// preempts waits until a Job has quota by the preemption of one of some others, and returns which.
	preempts := func(ctx context.Context, j job, victims []job) string {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, j)
			g.Expect(wl).NotTo(BeNil())
			g.Expect(wl.Status.Admission).NotTo(BeNil())
			g.Expect(c.promise(ctx, j)).NotTo(BeNil())
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		names := c.evicted(ctx, h, victims)
		Expect(names).To(HaveLen(1))
		return names[0]
	}

	It("for H100s whose pods take their time to end waits for those, is not moved, and gets them before anybody else", func(ctx context.Context) {
		c.withPolicy(ctx, falls(1))
		lows, pods := four(ctx, 8, ranked("low", 30))
		other := job{namespace: teamB, name: "other", gpus: 4, product: "H100"}
		c.started(ctx, other)
		c.expectStanding(ctx, other, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonDevicesInUse, "Fit")
		high := job{namespace: teamA, name: "high", gpus: 8, change: ranked("high", 0)}
		c.started(ctx, high)
		victim := pods[preempts(ctx, high, lows)]
		devices := c.devicesOf(ctx, &victim)

		By("keeping its place while the victim's pod ends")
		Eventually(func(g Gomega) {
			p := c.promise(ctx, high)
			g.Expect(p).NotTo(BeNil())
			_, promised := promisedOn(p)
			g.Expect(promised).To(Equal(map[string][]string{victim.Spec.NodeName: devices}))
			cond := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementReserved)
			g.Expect(cond).NotTo(BeNil())
			g.Expect(cond.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(cond.Reason).To(Equal(string(v1alpha1.ReasonDevicesFreeing)))
		}).Should(Succeed(), func() string { return c.story(ctx, high) })
		Expect(c.Get(ctx, client.ObjectKeyFromObject(&victim), &victim)).To(Succeed())
		Expect(victim.DeletionTimestamp).NotTo(BeNil())
		Consistently(func() []corev1.Pod { return c.podsOf(ctx, high) }).Should(BeEmpty())

		By("having it")
		got := c.expectGets(ctx, h, high, "h100", 8)
		Expect(c.devicesOf(ctx, &got[0])).To(Equal(devices))
		c.expectHoldsNothing(ctx, other)
		had, _ := c.reservations(ctx, h, other)
		Expect(had).To(BeEmpty())
		Expect(c.evicted(ctx, h, lows)).To(HaveLen(1))
		c.expectNothingDoubled(ctx, h)
	})

	It("for eight devices of one node is not asked of anybody where it would free two on each of four", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		most := job{namespace: teamA, name: "most", pods: 4, gpus: 6, product: "H100", change: ranked("high", 0)}
		c.started(ctx, most)
		c.bound(ctx, most)
		lows, _ := four(ctx, 2, ranked("low", 0))
		whole := job{namespace: teamA, name: "whole", gpus: 8, product: "H100", change: ranked("high", 0)}
		c.started(ctx, whole)
		c.expectRecord(ctx, whole, v1alpha1.ReasonDevicesInUse)
		c.expectHoldsNothing(ctx, whole)
		By("letting one that can have another flavor go there")
		either := job{namespace: teamA, name: "either", gpus: 8, change: ranked("high", 0)}
		c.started(ctx, either)
		c.expectGets(ctx, h, either, "a100", 8)
		Expect(c.evicted(ctx, h, lows)).To(BeEmpty())
		had, _ := c.reservations(ctx, h, whole)
		Expect(had).To(BeEmpty())
	})

	It("of a victim whose node died is waited for until a minute past the victim's grace, and then no more", func(ctx context.Context) {
		c.withPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) {
			s.Fallback.AfterSeconds, s.Freshness.LossGraceSeconds = ptr.To[int32](never), ptr.To[int32](never)
		})
		slow := ranked("low", never)
		lows, pods := four(ctx, 8, func(b *batchv1.Job) {
			slow(b)
			b.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		})
		high := job{namespace: teamA, name: "high", gpus: 8, change: ranked("high", 0)}
		c.started(ctx, high)
		victim := pods[preempts(ctx, high, lows)]
		lose := func(ctx context.Context, lost string) {
			GinkgoHelper()
			c.patchNode(ctx, victim.Spec.NodeName, `{"metadata":{"annotations":{"`+lab.LostAnnotation+`":`+lost+`}}}`)
		}
		lose(ctx, `"true"`)
		DeferCleanup(func(ctx context.Context) { lose(ctx, "null") })
		Eventually(func(g Gomega) {
			had, _ := c.reservations(ctx, h, high)
			g.Expect(had).To(Equal([]reservation{{"h100", 8}, {"a100", 8}}))
		}).WithTimeout(2*late).Should(Succeed(), func() string { return c.story(ctx, high) })
		c.expectAsPromised(ctx, high, c.bound(ctx, high))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(&victim), &victim)).To(Succeed())
		_, at := c.reservations(ctx, h, high)
		Expect(at[1]).To(BeTemporally(">=", victim.DeletionTimestamp.Add(time.Minute)))
		Expect(c.evicted(ctx, h, lows)).To(HaveLen(1), "no second victim for what the first could not give")
	})
})
