package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func celSelector(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

// expectWaits waits until a Job waits without quota for a reason that its record, its events and explain all give, in
// words that contain says.
func (c *cluster) expectWaits(ctx context.Context, j job, reason v1alpha1.Reason, says string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		p := c.placement(ctx, j)
		g.Expect(p).NotTo(BeNil())
		g.Expect(p.Spec.Key).To(BeNil())
		g.Expect(p.Status.Record).NotTo(BeNil())
		g.Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictWait))
		g.Expect(p.Status.Record.Reason).To(Equal(reason))
		g.Expect(p.Status.Record.Message).To(ContainSubstring(says))
		for kind, name := range map[string]string{"Job": j.name, "Workload": p.Name} {
			g.Expect(c.events(ctx, j.namespace, kind, name)).To(ContainElement(And(HavePrefix(string(reason)+": "), ContainSubstring(says))), kind)
		}
		status, out := c.explainAs(ctx, c.Admin(), "job/"+j.name, "-n", j.namespace, "-o", "json")
		g.Expect(status).To(BeZero(), out)
		g.Expect(out).To(ContainSubstring(string(reason)))
		status, out = c.explainAs(ctx, c.Admin(), "job/"+j.name, "-n", j.namespace)
		g.Expect(status).To(BeZero(), out)
		g.Expect(out).To(And(ContainSubstring("Waiting"), ContainSubstring(string(reason)), ContainSubstring("What to do")))
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
	Expect(meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeFalse())
	Expect(c.usage(ctx, teamA)).To(BeZero())
	Expect(c.podsOf(ctx, j)).To(BeEmpty())
}

// laterQueue is a ClusterQueue and a LocalQueue of team-a, both of the name later, with one flavor and one check.
func laterQueue(flavor string) []client.Object {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "later"}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "later"}}}
	quotas := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor)}
	covered := []corev1.ResourceName{"cpu", "memory", "gpus"}
	for _, r := range covered {
		quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: r, NominalQuota: resource.MustParse("64Gi")})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: covered, Flavors: []kueue.FlavorQuotas{quotas}}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "later"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "later"}}
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "later"}}
	ac.Spec.ControllerName = v1alpha1.ControllerName
	ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "DevicePolicy", Name: "later"}
	return []client.Object{ac, cq, lq}
}

func laterPolicy(flavor, expression string) *v1alpha1.DevicePolicy {
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "later"}}
	dp.Spec.QuotaResource = "gpus"
	dp.Spec.Flavors = []v1alpha1.PolicyFlavor{{Name: flavor, Selectors: celSelector(expression)}}
	return dp
}

const isH100 = `device.attributes["gpu.nvidia.com"].productName.contains("H100")`

var _ = Describe("Bad input", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	make := func(ctx context.Context, objects ...client.Object) {
		GinkgoHelper()
		for _, o := range objects {
			Eventually(func() error { // of the spec before Kueue keeps what is deleted until nothing uses it
				err := c.Create(ctx, o)
				if err != nil && !apierrors.IsAlreadyExists(err) {
					return StopTrying("it is refused").Wrap(err)
				}
				return err
			}).Should(Succeed(), o.GetName())
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(c.Delete(ctx, o))).To(Succeed()) })
		}
	}
	// expectCondition waits until a condition has a status and a message that contains says.
	expectCondition := func(ctx context.Context, o client.Object, of func() []metav1.Condition, name string, status metav1.ConditionStatus, says string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			cond := meta.FindStatusCondition(of(), name)
			g.Expect(cond).NotTo(BeNil())
			g.Expect(cond.Status).To(Equal(status), cond.Message)
			g.Expect(cond.Message).To(ContainSubstring(says))
		}).Should(Succeed())
	}
	inLater := func(b *batchv1.Job) { b.Labels["kueue.x-k8s.io/queue-name"] = "later" }

	DescribeTable("an expression over devices that cannot work is refused where it is written, by its field",
		func(ctx context.Context, says string, change func(*v1alpha1.DevicePolicy)) {
			dp := laterPolicy("h100", isH100)
			change(dp)
			err := c.Create(ctx, dp, client.DryRunAll)
			Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(says)), MatchError(ContainSubstring("write CEL over device.driver"))))
			// and so is a policy that is there
			have := &v1alpha1.DevicePolicy{}
			Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, have)).To(Succeed())
			have.Spec.Flavors[0].Selectors, have.Spec.Constraints = dp.Spec.Flavors[0].Selectors, dp.Spec.Constraints
			Expect(c.Update(ctx, have)).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(says))))
		},
		Entry("a selector that does not parse", "spec.flavors[0].selectors[0].cel.expression: Invalid value", func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.Flavors[0].Selectors = celSelector(`device.driver ==`)
		}),
		Entry("a selector of an unknown field", "spec.flavors[0].selectors[1].cel.expression: Invalid value", func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.Flavors[0].Selectors = append(celSelector(isH100), celSelector(`device.name == "gpu-0"`)...)
		}),
		Entry("a selector that yields text", "spec.flavors[0].selectors[0].cel.expression: Invalid value", func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.Flavors[0].Selectors = celSelector(`device.driver`)
		}),
		Entry("a constraint that does not parse", "spec.constraints[0].cel.expression: Invalid value", func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.Constraints = celSelector(`device.attributes[`)
		}),
		Entry("a selector without an expression", "spec.flavors[0].selectors[0].cel: Required value", func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.Flavors[0].Selectors = []resourcev1.DeviceSelector{{}}
		}),
	)

	It("a flavor that is no ResourceFlavor is said on the policy and on the check, and mended when it comes", func(ctx context.Context) {
		dp := laterPolicy("notyet", isH100)
		make(ctx, laterQueue("notyet")...)
		make(ctx, dp)
		expectCondition(ctx, dp, func() []metav1.Condition { return dp.Status.Conditions }, v1alpha1.PolicyFlavorsResolved, metav1.ConditionFalse, "notyet")
		expectCondition(ctx, dp, func() []metav1.Condition { return dp.Status.Conditions }, v1alpha1.PolicyReady, metav1.ConditionFalse, "notyet")
		ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "later"}}
		expectCondition(ctx, ac, func() []metav1.Condition { return ac.Status.Conditions }, kueue.AdmissionCheckActive, metav1.ConditionFalse, "DevicePolicy later is not Ready: ")
		j := job{namespace: teamA, name: "flavor", gpus: 1, change: inLater}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		Consistently(func() []corev1.Pod { return c.podsOf(ctx, j) }).Should(BeEmpty())

		make(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "notyet"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"plimsoll.dev/flavor-h100": "true"}}})
		for _, name := range []string{v1alpha1.PolicyFlavorsResolved, v1alpha1.PolicyReady} {
			expectCondition(ctx, dp, func() []metav1.Condition { return dp.Status.Conditions }, name, metav1.ConditionTrue, "")
		}
		expectCondition(ctx, ac, func() []metav1.Condition { return ac.Status.Conditions }, kueue.AdmissionCheckActive, metav1.ConditionTrue, "")
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("a policy that nobody made is said on the check, keeps the queue inactive, and counts when it is made", func(ctx context.Context) {
		objects := laterQueue("h100")
		make(ctx, objects...)
		ac, cq := objects[0].(*kueue.AdmissionCheck), objects[1].(*kueue.ClusterQueue)
		expectCondition(ctx, ac, func() []metav1.Condition { return ac.Status.Conditions }, kueue.AdmissionCheckActive, metav1.ConditionFalse, `DevicePolicy "later" does not exist: create it`)
		expectCondition(ctx, cq, func() []metav1.Condition { return cq.Status.Conditions }, kueue.ClusterQueueActive, metav1.ConditionFalse, "references inactive AdmissionCheck(s): later")
		j := job{namespace: teamA, name: "policy", gpus: 1, change: inLater}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		Eventually(func(g Gomega) {
			status, out := c.explainAs(ctx, c.Admin(), "job/policy", "-n", teamA)
			g.Expect(status).To(BeZero(), out)
			g.Expect(out).To(ContainSubstring("QueueInactive"))
		}).Should(Succeed())
		Expect(c.podsOf(ctx, j)).To(BeEmpty())

		make(ctx, laterPolicy("h100", isH100))
		expectCondition(ctx, ac, func() []metav1.Condition { return ac.Status.Conditions }, kueue.AdmissionCheckActive, metav1.ConditionTrue, "")
		expectCondition(ctx, cq, func() []metav1.Condition { return cq.Status.Conditions }, kueue.ClusterQueueActive, metav1.ConditionTrue, "")
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("a check that names no policy at all says what to write", func(ctx context.Context) {
		ac := laterQueue("h100")[0].(*kueue.AdmissionCheck)
		ac.Spec.Parameters = nil
		make(ctx, ac)
		expectCondition(ctx, ac, func() []metav1.Condition { return ac.Status.Conditions }, kueue.AdmissionCheckActive, metav1.ConditionFalse, "spec.parameters names no DevicePolicy: set apiGroup plimsoll.dev")
	})

	It("a claim template that does not exist is what the Job waits for, and it starts when it comes", func(ctx context.Context) {
		j := job{namespace: teamA, name: "untemplated", pods: 2, gpus: 2}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(c.Create(ctx, j.object())).To(Succeed())
		c.expectWaits(ctx, j, v1alpha1.ReasonClaimTemplateNotFound, `ResourceClaimTemplate "untemplated" does not exist: create it`)
		Expect(c.Create(ctx, j.template())).To(Succeed())
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(4))
	})

	It("a DeviceClass that does not exist is what the Job waits for, and it starts when it comes", func(ctx context.Context) {
		j := job{namespace: teamA, name: "unclassed", gpus: 2}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		t := j.template()
		t.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName = "later"
		Expect(c.Create(ctx, t)).To(Succeed())
		Expect(c.Create(ctx, j.object())).To(Succeed())
		c.expectWaits(ctx, j, v1alpha1.ReasonDeviceClassNotFound, `"later"`)
		make(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: resourcev1.DeviceClassSpec{Selectors: celSelector(isH100)}})
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	exactly := func(d *resourcev1.DeviceClaim) *resourcev1.ExactDeviceRequest { return d.Requests[0].Exactly }
	DescribeTable("what a claim may not ask for yet is named by its field, and holds no quota",
		func(ctx context.Context, says string, change func(*resourcev1.DeviceClaim)) {
			j := job{namespace: teamA, name: "unsupported", gpus: 2}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			t := j.template()
			change(&t.Spec.Spec.Devices)
			Expect(c.Create(ctx, t)).To(Succeed())
			Expect(c.Create(ctx, j.object())).To(Succeed())
			c.expectWaits(ctx, j, v1alpha1.ReasonClaimUnsupported, says)
		},
		Entry("allocationMode All", `spec.devices.requests["gpu"].exactly.allocationMode All is not supported yet`, func(d *resourcev1.DeviceClaim) {
			exactly(d).AllocationMode, exactly(d).Count = resourcev1.DeviceAllocationModeAll, 0
		}),
		Entry("capacity", `spec.devices.requests["gpu"].exactly.capacity is not supported yet`, func(d *resourcev1.DeviceClaim) {
			exactly(d).Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}}
		}),
		Entry("more devices than a claim may hold", `spec.devices.requests["gpu"].exactly.count is 33`, func(d *resourcev1.DeviceClaim) { exactly(d).Count = 33 }),
	)

	It("adminAccess is named by its field, and holds no quota", func(ctx context.Context) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamA}}
		Expect(mergePatch(ctx, c.Client, ns, `{"metadata":{"labels":{"`+resourcev1.DRAAdminNamespaceLabelKey+`":"true"}}}`)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(mergePatch(ctx, c.Client, ns, `{"metadata":{"labels":{"`+resourcev1.DRAAdminNamespaceLabelKey+`":null}}}`)).To(Succeed())
		})
		j := job{namespace: teamA, name: "admin", gpus: 2}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		t := j.template()
		exactly(&t.Spec.Spec.Devices).AdminAccess = ptr.To(true)
		Expect(c.Create(ctx, t)).To(Succeed())
		Expect(c.Create(ctx, j.object())).To(Succeed())
		c.expectWaits(ctx, j, v1alpha1.ReasonClaimUnsupported, `spec.devices.requests["gpu"].exactly.adminAccess is not supported yet`)
	})

	DescribeTable("what a pod may not ask for yet is named by its field, and holds no quota",
		func(ctx context.Context, says string, change func(*batchv1.Job)) {
			j := job{namespace: teamA, name: "unsupported", gpus: 2, change: change}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			c.submit(ctx, j)
			c.expectWaits(ctx, j, v1alpha1.ReasonClaimUnsupported, says)
		},
		Entry("a claim by name", `spec.resourceClaims["gpu"].resourceClaimName is not supported yet`, func(b *batchv1.Job) {
			b.Spec.Template.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To("shared")}
		}),
		Entry("required anti-affinity", `spec.affinity.podAntiAffinity is not supported yet`, func(b *batchv1.Job) {
			b.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}}}}
		}),
		Entry("a port of the host", `ports of the host are not supported yet`, func(b *batchv1.Job) {
			b.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}),
	)
})
