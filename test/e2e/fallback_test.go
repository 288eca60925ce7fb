package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// never is a fallback time that no spec lives to see: who falls back all the same did not wait for it.
const never = 3600

// falls sets how long a flavor with quota and busy devices is waited for.
func falls(after int32) func(*v1alpha1.DevicePolicySpec) {
	return func(s *v1alpha1.DevicePolicySpec) { s.Fallback.AfterSeconds = ptr.To(after) }
}

// gangOf is a Job that holds whole H100 nodes.
func gangOf(name string, nodes int32) job {
	return job{namespace: teamA, name: name, pods: nodes, gpus: 8, product: "H100"}
}

var _ = Describe("Fallback", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var h *history
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() {
		DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) })
		h = c.history()
	})
	anyModel := job{namespace: teamA, name: "any", gpus: 8}

	It("is not needed while the preferred flavor is free", func(ctx context.Context) {
		c.started(ctx, anyModel)
		c.expectGets(ctx, h, anyModel, "h100", 8)
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingFits, "", "Fit")
	})

	DescribeTable("takes the next flavor at once, and charges it, where there is quota for the preferred one and its devices cannot be had: they are",
		func(ctx context.Context, take func(c *cluster, ctx context.Context), reason v1alpha1.Reason) {
			c.withPolicy(ctx, falls(never))
			take(c, ctx)
			c.started(ctx, anyModel)
			c.expectGets(ctx, h, anyModel, "a100", 8)
			Expect(c.usageOf(ctx, teamA, "h100")).To(BeZero())
			By("saying that it was devices, which, and not quota")
			c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBlocked, reason, "Fit")
			c.expectStanding(ctx, anyModel, "a100", v1alpha1.StandingFits, "", "Borrow")
			status, out := c.explainAs(ctx, c.Admin(), "job/any", "-n", teamA)
			Expect(status).To(BeZero(), out)
			Expect(out).To(And(ContainSubstring("main: h100 is Blocked"), ContainSubstring(string(reason))))
		},
		Entry("tainted", func(c *cluster, ctx context.Context) { c.taintDevices(ctx, "H100") }, v1alpha1.ReasonDevicesUnhealthy),
		Entry("tainted by rules", func(c *cluster, ctx context.Context) { c.taintByRules(ctx, "H100") }, v1alpha1.ReasonDevicesUnhealthy),
		Entry("on cordoned nodes", func(c *cluster, ctx context.Context) { c.cordonNodes(ctx, "h100") }, v1alpha1.ReasonNodeUnavailable),
	)

	It("takes the next flavor once the slices of the preferred one are gone for longer than the grace", func(ctx context.Context) {
		const grace = 6
		c.withPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) {
			s.Fallback.AfterSeconds, s.Freshness.LossGraceSeconds = ptr.To[int32](never), ptr.To[int32](grace)
		})
		gone := time.Now()
		c.withdrawSlices(ctx, "H100")
		c.started(ctx, anyModel)
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonPoolRebuilding, "Fit")
		c.expectGets(ctx, h, anyModel, "a100", 8)
		_, at := c.reservations(ctx, h, anyModel)
		Expect(at[0].Add(time.Second)).To(BeTemporally(">", gone.Add(grace*time.Second)), "a time stamp has whole seconds")
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonPoolRebuilding, "Fit")
	})

	It("is moved by no driver that restarts within the grace, though that takes longer than a busy flavor is waited for", func(ctx context.Context) {
		c.withPolicy(ctx, falls(1))
		running := job{namespace: teamA, name: "running", gpus: 8}
		c.started(ctx, running)
		before := c.expectGets(ctx, h, running, "h100", 8)
		promised := c.promise(ctx, running)
		republish := c.withdrawSlices(ctx, "H100")
		c.started(ctx, anyModel)
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonPoolRebuilding, "Fit")
		c.expectHoldsNothing(ctx, anyModel)
		republish(ctx)
		c.expectGets(ctx, h, anyModel, "h100", 8)
		c.expectNeverEvicted(ctx, running, promised)
		after := c.podsOf(ctx, running)
		Expect(after).To(HaveLen(1))
		Expect(after[0].UID).To(Equal(before[0].UID))
	})

	It("waits without quota for a busy flavor that it has quota for, and then takes the next", func(ctx context.Context) {
		const after = 5
		c.withPolicy(ctx, falls(after))
		busy := gangOf("busy", 4)
		c.started(ctx, busy)
		c.bound(ctx, busy)
		c.started(ctx, anyModel)
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonDevicesInUse, "Fit")
		c.expectGets(ctx, h, anyModel, "a100", 8)
		_, at := c.reservations(ctx, h, anyModel)
		since := c.waitedSince(ctx, h, anyModel, "h100")
		Expect(since).NotTo(BeZero())
		Expect(at[0]).To(BeTemporally(">=", since.Add(after*time.Second)))
		Expect(c.placement(ctx, anyModel).Status.Waits).To(BeEmpty(), "the clock starts anew on admission")
	})

	It("does not come to it where a preferred device frees before", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		busy, last := gangOf("busy", 3), gangOf("last", 1)
		c.started(ctx, busy, last)
		c.bound(ctx, busy)
		c.bound(ctx, last)
		c.started(ctx, anyModel)
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonDevicesInUse, "Fit")
		c.expectHoldsNothing(ctx, anyModel)
		c.finish(ctx, last)
		c.expectGets(ctx, h, anyModel, "h100", 8)
	})

	It("comes back to a flavor that was waited for long enough as soon as that is free, where there was no other", func(ctx context.Context) {
		c.withPolicy(ctx, falls(1))
		c.cordonNodes(ctx, "a100")
		busy, last := gangOf("busy", 3), gangOf("last", 1)
		c.started(ctx, busy, last)
		c.bound(ctx, busy)
		c.bound(ctx, last)
		c.started(ctx, anyModel)
		c.expectStanding(ctx, anyModel, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonDevicesInUse, "Fit")
		c.expectHoldsNothing(ctx, anyModel) // for longer than it is waited for
		c.expectRecord(ctx, anyModel, v1alpha1.ReasonDevicesInUse)
		c.finish(ctx, last)
		c.expectGets(ctx, h, anyModel, "h100", 8)
	})

	It("follows Kueue to the next flavor at once where the quota for the preferred one is used up", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		full := job{namespace: teamB, name: "full", gpus: 4, product: "H100"}
		next := job{namespace: teamB, name: "next", gpus: 4}
		c.started(ctx, full)
		c.bound(ctx, full)
		c.started(ctx, next)
		c.expectGets(ctx, h, next, "a100", 4)
		c.expectStanding(ctx, next, "h100", v1alpha1.StandingFits, "", "Wait")
		c.expectStanding(ctx, next, "a100", v1alpha1.StandingFits, "", "Fit")
	})

	It("of a gang with too few free nodes makes no pod and holds no quota, lets a small Job pass, and starts all when the last node frees", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		one := gangOf("one", 1)
		c.started(ctx, one)
		c.bound(ctx, one)
		gang := gangOf("gang", 4)
		c.started(ctx, gang)
		c.expectStanding(ctx, gang, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonDevicesInUse, "Fit")
		small := job{namespace: teamA, name: "small", gpus: 1, runSeconds: 1}
		c.started(ctx, small)
		c.finished(ctx, small)
		c.expectHoldsNothing(ctx, gang)
		c.finish(ctx, one)
		c.expectGets(ctx, h, gang, "h100", 32)
		_, at := c.reservations(ctx, h, gang)
		had := &batchv1.Job{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(one.object()), had)).To(Succeed())
		Expect(at[0]).To(BeTemporally(">=", had.Status.CompletionTime.Time))
	})

	It("offers one freed node to one of eight that wait for it: seven never hold quota", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		busy, last := gangOf("busy", 3), gangOf("last", 1)
		c.started(ctx, busy, last)
		c.bound(ctx, busy)
		c.bound(ctx, last)
		var eight []job
		for i := range 8 {
			eight = append(eight, gangOf(fmt.Sprintf("waiter-%d", i), 1))
			c.started(ctx, eight[i])
		}
		for _, j := range eight {
			c.expectRecord(ctx, j, v1alpha1.ReasonDevicesInUse)
		}
		c.finish(ctx, last) // and with it quota for two
		c.bound(ctx, eight[0])
		c.expectHoldsNothing(ctx, eight[1:]...)
		for _, j := range eight[1:] {
			had, _ := c.reservations(ctx, h, j)
			Expect(had).To(BeEmpty(), j.name)
		}
		c.expectGets(ctx, h, eight[0], "h100", 8)
	})

	It("keeps the charge of a Job whose container is edited while it waits", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		busy := gangOf("busy", 4)
		edited := job{namespace: teamA, name: "edited", gpus: 8, product: "H100"}
		c.started(ctx, busy)
		c.bound(ctx, busy)
		c.started(ctx, edited)
		c.expectRecord(ctx, edited, v1alpha1.ReasonDevicesInUse)
		Expect(c.Client.Patch(ctx, edited.object(), jsonPatch(map[string]any{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "2"}))).To(Succeed())
		Eventually(func(g Gomega) {
			spec := c.workload(ctx, edited).Spec.PodSets[0].Template.Spec
			g.Expect(spec.Containers[0].Resources.Requests.Cpu().Value()).To(BeEquivalentTo(2))
			g.Expect(spec.Overhead).To(HaveKeyWithValue(corev1.ResourceName("gpus"), resource.MustParse("8")))
		}).Should(Succeed(), func() string { return c.story(ctx, edited) })
		c.expectHoldsNothing(ctx, edited)
		c.finish(ctx, busy)
		c.expectGets(ctx, h, edited, "h100", 8)
	})

	It("keeps both overheads of a Job whose RuntimeClass has one", func(ctx context.Context) {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "sandboxed",
			Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}
		Expect(c.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, class)).To(Succeed()) })
		j := job{namespace: teamA, name: "sandboxed", gpus: 2, change: func(b *batchv1.Job) { b.Spec.Template.Spec.RuntimeClassName = ptr.To("sandboxed") }}
		c.started(ctx, j)
		pods := c.expectGets(ctx, h, j, "h100", 2)
		a := c.workload(ctx, j).Status.Admission.PodSetAssignments[0]
		Expect(a.ResourceUsage.Cpu().Value()).To(BeEquivalentTo(4), "the container's and the RuntimeClass's")
		Expect(pods[0].Spec.Overhead).To(Equal(class.Overhead.PodFixed), "the charge is no pod's")
	})

	nine := job{namespace: teamA, name: "nine", gpus: 9}
	It("has nothing for nine devices on one node: the Job waits, says so and says how many there are", func(ctx context.Context) {
		c.started(ctx, nine)
		c.expectWaits(ctx, nine, v1alpha1.ReasonNotEnoughDevices, "the most that one node has for it is 8")
		c.expectHoldsNothing(ctx, nine)
	})

	rejecting := func(s *v1alpha1.DevicePolicySpec) {
		s.OnInfeasible = v1alpha1.OnInfeasibleReject
		s.Freshness.WindowSeconds, s.Freshness.LossGraceSeconds = ptr.To[int32](90), ptr.To[int32](2)
	}
	It("rejects nine devices on one node for good where the policy says so, once the inventory is known for long enough", func(ctx context.Context) {
		c.withPolicy(ctx, rejecting)
		c.started(ctx, nine)
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, nine)
			g.Expect(wl).NotTo(BeNil())
			g.Expect(wl.Spec.Active).To(Equal(ptr.To(false)))
			g.Expect(wl.Annotations).To(HaveKeyWithValue(v1alpha1.RejectedAnnotation, string(v1alpha1.ReasonNotEnoughDevices)))
			g.Expect(wl.Annotations).NotTo(HaveKey(v1alpha1.SteeringAnnotation), "nothing brings it back")
		}).WithTimeout(2*late).Should(Succeed(), func() string { return c.story(ctx, nine) })
		p := c.placement(ctx, nine)
		Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictReject))
		status, out := c.explainAs(ctx, c.Admin(), "job/nine", "-n", teamA)
		Expect(status).To(BeZero(), out)
		Expect(out).To(And(ContainSubstring("Rejected"), ContainSubstring("the most that one node has for it is 8")))
		status, out = c.explainAs(ctx, c.Admin(), "job/nine", "-n", teamA, "-o", "json")
		Expect(status).To(BeZero(), out)
		var e report.Entry
		Expect(json.Unmarshal([]byte(out), &e)).To(Succeed(), out)
		Expect(e.Outcome).To(Equal(report.OutcomeRejected))
		Consistently(func(g Gomega) {
			g.Expect(c.workload(ctx, nine).Spec.Active).To(Equal(ptr.To(false)))
			c.holdsNothing(ctx, g, nine)
		}).Should(Succeed())
	})

	It("ends nobody for good while a driver is upgraded and all devices of a flavor are gone", func(ctx context.Context) {
		c.withPolicy(ctx, rejecting)
		running := gangOf("running", 1)
		c.started(ctx, running)
		c.bound(ctx, running)
		promised := c.promise(ctx, running)
		republish := c.withdrawSlices(ctx, "H100")
		waits, large := gangOf("waits", 1), job{namespace: teamA, name: "large", gpus: 9, product: "H100"}
		c.started(ctx, waits, large)
		c.expectStanding(ctx, waits, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonPoolRebuilding, "Fit")
		Consistently(func(g Gomega) {
			for _, j := range []job{running, waits, large} {
				g.Expect(ptr.Deref(c.workload(ctx, j).Spec.Active, true)).To(BeTrue(), j.name)
			}
		}).WithTimeout(2 * while).Should(Succeed())
		republish(ctx)
		c.expectGets(ctx, h, waits, "h100", 8)
		c.expectNeverEvicted(ctx, running, promised)
	})
})
