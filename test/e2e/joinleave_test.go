package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// setChecks gives a ClusterQueue these admission checks and no others.
func (c *cluster) setChecks(ctx context.Context, name string, checks ...kueue.AdmissionCheckReference) {
	GinkgoHelper()
	cq := &kueue.ClusterQueue{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, cq)).To(Succeed())
	patch := client.MergeFrom(cq.DeepCopy())
	cq.Spec.AdmissionChecksStrategy = nil
	if len(checks) > 0 {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for _, check := range checks {
			cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, kueue.AdmissionCheckStrategyRule{Name: check})
		}
	}
	Expect(c.Patch(ctx, cq, patch)).To(Succeed())
}

// stand is how a running Job stands: what changes when it is stopped, if only for a moment.
type stand struct {
	workload types.UID
	admitted string
	pods     map[types.UID]string
}

// standOf returns how a Job stands, its terminal pods left out.
func (c *cluster) standOf(ctx context.Context, j job) stand {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	Expect(wl).NotTo(BeNil())
	out := stand{workload: wl.UID, pods: map[types.UID]string{}}
	if a := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); a != nil {
		out.admitted = string(a.Status) + " " + a.LastTransitionTime.String()
	}
	for _, p := range c.podsOf(ctx, j) {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out.pods[p.UID] = p.Spec.NodeName
		}
	}
	return out
}

// expectAdopted waits until our check says Ready of a Job that runs, without a label for its pods.
func (c *cluster) expectAdopted(ctx context.Context, j job) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(wl.Status.AdmissionChecks).To(ConsistOf(And(
			HaveField("Name", BeEquivalentTo(check)), HaveField("State", kueue.CheckStateReady), HaveField("PodSetUpdates", BeEmpty()))))
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
}

// expectUnmoved expects of running Jobs, for a while, that they stand as they did, and that none was ever evicted.
func (c *cluster) expectUnmoved(ctx context.Context, before map[string]stand, jobs ...job) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		for _, j := range jobs {
			g.Expect(c.standOf(ctx, j)).To(Equal(before[j.name]), j.name)
		}
	}).Should(Succeed())
	for _, j := range jobs {
		wl := c.workload(ctx, j)
		Expect(meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)).To(BeNil())
		Expect(c.events(ctx, j.namespace, "Workload", wl.Name)).NotTo(ContainElement(ContainSubstring("Evicted")))
		Expect(c.events(ctx, j.namespace, "Job", j.name)).NotTo(ContainElement(HavePrefix("Stopped")))
	}
}

// untouched expects of a pod that it has nothing of ours.
func untouched(g Gomega, p *corev1.Pod) {
	g.Expect(p.Labels).NotTo(HaveKey(v1alpha1.ManagedLabel))
	g.Expect(p.Annotations).NotTo(HaveKey(v1alpha1.ClaimTemplatesAnnotation))
	g.Expect(observe.Gated(p)).To(BeFalse())
}

// replaced ends a pod by force and returns the one that its Job makes in its stead, once that is bound.
func (c *cluster) replaced(ctx context.Context, j job) *corev1.Pod {
	GinkgoHelper()
	before := map[types.UID]bool{}
	for _, p := range c.podsOf(ctx, j) {
		before[p.UID] = true
	}
	old := c.podsOf(ctx, j)[0]
	Expect(c.Delete(ctx, &old, client.GracePeriodSeconds(0))).To(Succeed())
	return c.nextPod(ctx, j, before)
}

// nextPod waits for a pod of a Job that is not among those before, and for its node.
func (c *cluster) nextPod(ctx context.Context, j job, before map[types.UID]bool) *corev1.Pod {
	GinkgoHelper()
	var next *corev1.Pod
	Eventually(func(g Gomega) {
		next = nil
		for _, p := range c.podsOf(ctx, j) {
			if !before[p.UID] {
				next = p.DeepCopy()
			}
		}
		g.Expect(next).NotTo(BeNil())
		g.Expect(next.Spec.NodeName).NotTo(BeEmpty())
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	return next
}

// expectRecord waits until the record of a Job says that it waits for a reason, and expects that it has no pods.
func (c *cluster) expectRecord(ctx context.Context, j job, reason v1alpha1.Reason) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		p := c.placement(ctx, j)
		g.Expect(p).NotTo(BeNil())
		g.Expect(p.Status.Record).NotTo(BeNil())
		g.Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictWait))
		g.Expect(p.Status.Record.Reason).To(Equal(reason))
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
	Expect(c.podsOf(ctx, j)).To(BeEmpty())
}

// otherCheck is of a controller that is not ours; the specs play it.
const otherCheck = "other"

// addOtherCheck makes an active AdmissionCheck of another controller.
func (c *cluster) addOtherCheck(ctx context.Context) {
	GinkgoHelper()
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: otherCheck}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/other"}}
	Expect(c.Create(ctx, ac)).To(Succeed())
	patch := client.MergeFrom(ac.DeepCopy())
	meta.SetStatusCondition(&ac.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", Message: "here"})
	Expect(c.Status().Patch(ctx, ac, patch)).To(Succeed())
}

// setOther sets the other controller's check on a Job's Workload that holds quota.
func (c *cluster) setOther(ctx context.Context, j job, state kueue.CheckState) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeTrue())
		done := false
		for i := range wl.Status.AdmissionChecks {
			if s := &wl.Status.AdmissionChecks[i]; s.Name == otherCheck {
				s.State, s.Message, done = state, "so be it", true
			}
		}
		g.Expect(done).To(BeTrue())
		g.Expect(c.Status().Update(ctx, wl)).To(Succeed())
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
}

var _ = Describe("A check that joins a queue in use", Ordered, func() {
	var c *cluster
	gang := job{namespace: teamA, name: "gang", pods: 2, gpus: 8, product: "H100"}
	four := job{namespace: teamA, name: "four", gpus: 4, product: "H100", change: onNode("mixed-0")}
	series := job{namespace: teamA, name: "series", change: func(b *batchv1.Job) { b.Spec.Completions = ptr.To[int32](2) }}
	plain := job{namespace: teamA, name: "plain", pods: 2}
	running := []job{gang, four, series, plain}
	before := map[string]stand{}

	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		c.setChecks(ctx, teamA)
		for _, j := range running {
			c.submit(ctx, j)
			c.bound(ctx, j)
			before[j.name] = c.standOf(ctx, j)
		}
	})

	It("stops nothing that runs there, whenever the manager is killed", func(ctx context.Context) {
		By("joining while no manager runs")
		Expect(c.KillManager(ctx)).To(Succeed())
		c.setChecks(ctx, teamA, check)
		for _, j := range running {
			Eventually(func(g Gomega) {
				g.Expect(c.workload(ctx, j).Status.AdmissionChecks).To(ConsistOf(HaveField("State", kueue.CheckStatePending)))
			}).Should(Succeed())
		}
		c.expectUnmoved(ctx, before, running...)
		Expect(c.StartManager(ctx)).To(Succeed())
		for _, j := range running {
			c.expectAdopted(ctx, j)
		}
		c.expectUnmoved(ctx, before, running...)
		By("starting again")
		Expect(c.KillManager(ctx)).To(Succeed())
		Expect(c.StartManager(ctx)).To(Succeed())
		c.expectUnmoved(ctx, before, running...)
		for _, j := range running {
			c.expectAdopted(ctx, j)
			Expect(c.placement(ctx, j)).To(BeNil(), "nothing is promised to it")
			Expect(c.workload(ctx, j).Annotations).NotTo(HaveKey(v1alpha1.ChargeAnnotation))
			status, out := c.explainAs(ctx, c.Admin(), "job/"+j.name, "-n", teamA)
			Expect(status).To(BeZero(), out)
			GinkgoWriter.Println(out)
		}
	})

	It("counts the devices of what runs there, and places the next around it", func(ctx context.Context) {
		Expect(held(c.book(ctx))).To(HaveLen(20))
		next := job{namespace: teamA, name: "next", pods: 2, gpus: 8, product: "H100"}
		c.submit(ctx, next)
		for _, p := range c.expectServed(ctx, next) {
			Expect(p.Labels).To(HaveKey(v1alpha1.ManagedLabel))
		}
		more := job{namespace: teamA, name: "more", gpus: 8, product: "H100"}
		c.submit(ctx, more)
		c.expectRecord(ctx, more, v1alpha1.ReasonDevicesInUse)
		c.remove(ctx, more)
		c.remove(ctx, next)
		c.expectUnmoved(ctx, before, running...)
	})

	It("lets later pods of what runs there run as the first did", func(ctx context.Context) {
		seen := map[types.UID]bool{}
		for _, p := range c.podsOf(ctx, series) {
			seen[p.UID] = true
			c.end(ctx, &p)
		}
		pods := []*corev1.Pod{c.nextPod(ctx, series, seen), c.replaced(ctx, gang), c.replaced(ctx, plain)}
		for _, p := range pods {
			untouched(Default, p)
		}
		Expect(c.devicesOf(ctx, pods[1])).To(HaveLen(8))
		Expect(held(c.book(ctx))).To(HaveLen(20))
		for _, j := range running {
			Expect(c.standOf(ctx, j).admitted).To(Equal(before[j.name].admitted), j.name)
			c.expectAdopted(ctx, j)
		}
	})

	It("manages what ran there like any other once it is queued again", func(ctx context.Context) {
		for _, j := range []job{four, plain} {
			old := c.standOf(ctx, j).pods
			c.activate(ctx, j, false)
			Eventually(func() []corev1.Pod { return c.podsOf(ctx, j) }).WithTimeout(late).Should(BeEmpty())
			c.activate(ctx, j, true)
			for _, p := range c.bound(ctx, j) {
				Expect(old).NotTo(HaveKey(p.UID))
				Expect(p.Labels).To(HaveKey(v1alpha1.ManagedLabel))
			}
			Expect(c.promise(ctx, j)).NotTo(BeNil())
		}
		c.expectServed(ctx, four)
		Expect(c.workload(ctx, four).Annotations).To(HaveKeyWithValue(v1alpha1.ChargeAnnotation, `{"main":"4"}`))
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(4))
		c.expectAdopted(ctx, gang)
	})

	It("manages it too where Kueue queues it again and gives it quota at once", func(ctx context.Context) {
		c.addOtherCheck(ctx)
		c.setChecks(ctx, teamB, otherCheck)
		j := job{namespace: teamB, name: "retried", gpus: 2, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		c.setOther(ctx, j, kueue.CheckStateReady)
		old := c.bound(ctx, j)[0].UID
		c.setChecks(ctx, teamB, otherCheck, check)
		Eventually(func() []kueue.AdmissionCheckState { return c.workload(ctx, j).Status.AdmissionChecks }).
			Should(ConsistOf(HaveField("State", kueue.CheckStateReady), HaveField("State", kueue.CheckStateReady)))
		c.setOther(ctx, j, kueue.CheckStateRetry)
		Eventually(func() *metav1.Condition {
			return meta.FindStatusCondition(c.workload(ctx, j).Status.Conditions, kueue.WorkloadEvicted)
		}).ShouldNot(BeNil())
		Eventually(func(g Gomega) { // uncharged it gives the quota back once more, when the other controller has agreed
			c.setOther(ctx, j, kueue.CheckStateReady)
			wl := c.workload(ctx, j)
			g.Expect(wl.Annotations).To(HaveKeyWithValue(v1alpha1.ChargeAnnotation, `{"main":"2"}`))
			g.Expect(meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)).To(BeTrue())
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(c.expectServed(ctx, j)[0].UID).NotTo(Equal(old))
	})

	It("decides what only holds quota there as if it were new", func(ctx context.Context) {
		c.setChecks(ctx, teamB, otherCheck)
		j := job{namespace: teamB, name: "reserved", gpus: 2, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, j)
			g.Expect(wl).NotTo(BeNil())
			g.Expect(meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeTrue())
		}).Should(Succeed())
		c.setChecks(ctx, teamB, otherCheck, check)
		Eventually(func() []kueue.AdmissionCheckState { return c.workload(ctx, j).Status.AdmissionChecks }).Should(HaveLen(2))
		c.setOther(ctx, j, kueue.CheckStateReady) // uncharged, it is evicted now, and Kueue asks both again
		Eventually(func(g Gomega) {
			g.Expect(c.workload(ctx, j).Annotations).To(HaveKeyWithValue(v1alpha1.ChargeAnnotation, `{"main":"2"}`))
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		c.setOther(ctx, j, kueue.CheckStateReady)
		c.expectServed(ctx, j)
		Eventually(func() int64 { return c.usage(ctx, teamB) }).Should(BeEquivalentTo(2))
	})
})
