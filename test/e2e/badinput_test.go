package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// policyOf returns a DevicePolicy with one flavor; change, if set, spoils it.
func policyOf(name string, change func(*v1alpha1.DevicePolicySpec)) *v1alpha1.DevicePolicy {
	p := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DevicePolicySpec{
		QuotaResource: "gpus",
		Flavors: []v1alpha1.PolicyFlavor{{Name: "h100", Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: `device.driver == "gpu.nvidia.com"`}}}}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

var _ = Describe("Bad input", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })

	DescribeTable("in a DevicePolicy is refused where it is applied", func(ctx context.Context, change func(*v1alpha1.DevicePolicySpec), says ...string) {
		err := c.Create(ctx, policyOf("bad", change))
		Expect(err).To(HaveOccurred())
		for _, s := range says {
			Expect(err.Error()).To(ContainSubstring(s))
		}
	},
		Entry("device CEL that does not compile", func(s *v1alpha1.DevicePolicySpec) {
			s.Flavors[0].Selectors[0].CEL.Expression = "device.nonsense =="
		}, "spec.flavors[0].selectors[0].cel.expression"),
		Entry("a constraint that is not a truth value", func(s *v1alpha1.DevicePolicySpec) {
			s.Constraints = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `"text"`}}}
		}, "spec.constraints[0].cel.expression"),
		Entry("no flavor", func(s *v1alpha1.DevicePolicySpec) { s.Flavors = nil }, "spec.flavors"),
		Entry("a quotaResource that means something else", func(s *v1alpha1.DevicePolicySpec) { s.QuotaResource = "cpu" }, "must be a name of its own"),
		Entry("onDemand without a domain", func(s *v1alpha1.DevicePolicySpec) { s.Flavors[0].OnDemand = true }, "must carry a domain"),
		Entry("a charge of no size", func(s *v1alpha1.DevicePolicySpec) { s.Flavors[0].ChargePerDevice = -1 }, "chargePerDevice"),
		Entry("a mode that does not exist", func(s *v1alpha1.DevicePolicySpec) { s.Mode = "Maybe" }, "spec.mode"),
		Entry("a window below a minute and a half", func(s *v1alpha1.DevicePolicySpec) { s.Freshness.WindowSeconds = ptr.To[int32](10) }, "windowSeconds"),
		Entry("memory shorter than the grace", func(s *v1alpha1.DevicePolicySpec) {
			s.Freshness.LossGraceSeconds, s.Freshness.InventoryMemorySeconds = ptr.To[int32](100), ptr.To[int32](50)
		}, "inventoryMemorySeconds must be at least lossGraceSeconds"),
		Entry("a longest backoff below the first", func(s *v1alpha1.DevicePolicySpec) {
			s.Retry.InitialSeconds, s.Retry.MaxSeconds = ptr.To[int32](100), ptr.To[int32](50)
		}, "maxSeconds must be at least initialSeconds"),
		Entry("a canary of more than all", func(s *v1alpha1.DevicePolicySpec) {
			s.Canary = &v1alpha1.PolicyCanary{PolicyName: "other", Percent: 101}
		}, "percent"),
	)

	It("the smallest policy gets the documented defaults", func(ctx context.Context) {
		p := policyOf("smallest", nil)
		Expect(c.Create(ctx, p)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, p)).To(Succeed()) })
		s := p.Spec
		Expect(s.Mode).To(Equal(v1alpha1.ModeEnforce))
		Expect(s.Ordering).To(Equal(v1alpha1.OrderingPack))
		Expect(s.OnInfeasible).To(Equal(v1alpha1.OnInfeasibleWait))
		Expect(s.Flavors[0].ChargePerDevice).To(BeEquivalentTo(1))
		Expect([]int32{*s.Fallback.AfterSeconds, *s.Freshness.WindowSeconds, *s.Freshness.LossGraceSeconds, *s.Freshness.InventoryMemorySeconds,
			*s.Retry.InitialSeconds, *s.Retry.MaxSeconds, *s.Retry.Limit, *s.Release.WaitSeconds, *s.Release.BindSeconds, *s.HeadOfLine.HoldAfterSeconds}).
			To(Equal([]int32{60, 180, 60, 3600, 5, 300, 10, 600, 900, 900}))
		Expect(s.Canary).To(BeNil())
	})

	It("a flavor that is no ResourceFlavor is a condition, mended when it comes", func(ctx context.Context) {
		p := policyOf("unresolved", func(s *v1alpha1.DevicePolicySpec) { s.Flavors[0].Name = "b200" })
		Expect(c.Create(ctx, p)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, p)).To(Succeed()) })
		condition := func(t string) func() *metav1.Condition {
			return func() *metav1.Condition {
				GinkgoHelper()
				Expect(c.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				return meta.FindStatusCondition(p.Status.Conditions, t)
			}
		}
		Eventually(condition(v1alpha1.PolicyFlavorsResolved)).Should(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("create ResourceFlavor b200")))))
		Eventually(condition(v1alpha1.PolicyReady)).Should(HaveValue(HaveField("Status", metav1.ConditionFalse)))
		rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "b200"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": "b200"}}}
		Expect(c.Create(ctx, rf)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, rf)).To(Succeed()) })
		Eventually(condition(v1alpha1.PolicyReady)).Should(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	It("a policy that an AdmissionCheck names and nobody made is said on the check", func(ctx context.Context) {
		ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "dangling"}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: v1alpha1.ControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "DevicePolicy", Name: "nobody-made"},
		}}
		Expect(c.Create(ctx, ac)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, ac))).To(Succeed()) })
		active := func() *metav1.Condition {
			GinkgoHelper()
			Expect(c.Get(ctx, client.ObjectKeyFromObject(ac), ac)).To(Succeed())
			return meta.FindStatusCondition(ac.Status.Conditions, kueue.AdmissionCheckActive)
		}
		Eventually(active).Should(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring(`DevicePolicy "nobody-made" does not exist`)))))
		p := policyOf("nobody-made", nil)
		Expect(c.Create(ctx, p)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, p)).To(Succeed()) })
		Eventually(active).Should(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	// waits expects a Job to wait for a reason whose message says all of these, without quota, on Placement and events.
	waits := func(ctx context.Context, j job, reason v1alpha1.Reason, says ...string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			p := c.placement(ctx, j)
			g.Expect(p).NotTo(BeNil())
			g.Expect(p.Status.Record).NotTo(BeNil())
			g.Expect(p.Status.Record.Reason).To(Equal(reason))
			for _, s := range says {
				g.Expect(p.Status.Record.Message).To(ContainSubstring(s))
			}
			g.Expect(c.events(ctx, j.namespace, "Job", j.name)).To(ContainElement(HavePrefix(string(reason) + ": ")))
			g.Expect(meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeFalse())
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
	}

	It("a claim template that does not exist is waited for, and the Job starts once it does", func(ctx context.Context) {
		j := job{namespace: teamA, name: "early", gpus: 1}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(c.Create(ctx, j.object())).To(Succeed())
		waits(ctx, j, v1alpha1.ReasonClaimTemplateNotFound, `"early" does not exist`)
		Expect(c.Create(ctx, j.template())).To(Succeed())
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	DescribeTable("a claim feature that is not supported yet is named, and holds no quota", func(ctx context.Context, name string, change func(*resourcev1.DeviceClaim), says string) {
		j := job{namespace: teamB, name: name, gpus: 1}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		t := j.template()
		change(&t.Spec.Spec.Devices)
		Expect(c.Create(ctx, t)).To(Succeed())
		Expect(c.Create(ctx, j.object())).To(Succeed())
		waits(ctx, j, v1alpha1.ReasonClaimUnsupported, says)
	},
		Entry("firstAvailable", "first-available", func(d *resourcev1.DeviceClaim) {
			d.Requests[0].Exactly = nil
			d.Requests[0].FirstAvailable = []resourcev1.DeviceSubRequest{{Name: "a", DeviceClassName: "gpu.nvidia.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}
		}, "firstAvailable"),
		Entry("mode All", "mode-all", func(d *resourcev1.DeviceClaim) {
			d.Requests[0].Exactly.AllocationMode, d.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
		}, "allocationMode"),
		Entry("constraints", "constraints", func(d *resourcev1.DeviceClaim) {
			d.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: ptr.To(resourcev1.FullyQualifiedName("gpu.nvidia.com/productName"))}}
		}, "spec.devices.constraints"),
		Entry("several requests", "several", func(d *resourcev1.DeviceClaim) {
			more := *d.Requests[0].DeepCopy()
			more.Name = "more"
			d.Requests = append(d.Requests, more)
		}, "spec.devices.requests"),
	)

	It("a DeviceClass that does not exist is waited for, and the Job starts once it does", func(ctx context.Context) {
		j := job{namespace: teamB, name: "classless", gpus: 1}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		t := j.template()
		t.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName = "later.example.com"
		Expect(c.Create(ctx, t)).To(Succeed())
		Expect(c.Create(ctx, j.object())).To(Succeed())
		waits(ctx, j, v1alpha1.ReasonDeviceClassNotFound, `"later.example.com"`)
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "later.example.com"}, Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.nvidia.com"`}}}}}
		Expect(c.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, class)).To(Succeed()) })
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("a Placement may not be written by an older leader", func(ctx context.Context) {
		manager := clientFor(c.Manager())
		j := job{namespace: teamA, name: "epochs", gpus: 1}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		c.bound(ctx, j)
		p := c.placement(ctx, j)
		p.Spec.Epoch = ptr.To(*p.Spec.Epoch + 1)
		Expect(manager.Update(ctx, p)).To(Succeed())
		p.Spec.Epoch = ptr.To(*p.Spec.Epoch - 1)
		Expect(manager.Update(ctx, p)).To(MatchError(ContainSubstring("epoch may not go down")))
	})
})
