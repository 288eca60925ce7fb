package e2e

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// otherManager is a client of one who has the manager's name and every right, as a manager that lost its lease has for a
// moment.
func (c *cluster) otherManager() client.Client {
	GinkgoHelper()
	cfg := rest.CopyConfig(c.Admin())
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-system:plimsoll-manager", Groups: []string{"system:masters"}}
	return clientFor(cfg)
}

// promiseByHand writes a promise of these places to a Job that holds quota, whoever has them, and returns the Placement.
func (c *cluster) promiseByHand(ctx context.Context, as client.Client, j job, like *v1alpha1.PlacementSpec) *v1alpha1.Placement {
	GinkgoHelper()
	p := &v1alpha1.Placement{}
	Eventually(func(g Gomega) {
		wl := c.workload(ctx, j)
		g.Expect(wl).NotTo(BeNil())
		key, err := admission.KeyOf(wl)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(key).NotTo(BeNil(), "it holds no quota")
		p = &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: wl.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Name: wl.Name, UID: wl.UID, Controller: ptr.To(true)}}}}
		spec := v1alpha1.PlacementSpec{Key: key, Policy: like.Policy, Revision: like.Revision, PodSets: like.PodSets}
		p.Spec = spec
		err = as.Create(ctx, p)
		if apierrors.IsAlreadyExists(err) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(wl), p)).To(Succeed())
			spec.Epoch = p.Spec.Epoch
			p.Spec = spec
			err = as.Update(ctx, p)
		}
		g.Expect(err).NotTo(HaveOccurred())
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	return p
}

var _ = Describe("Promises of the same devices", Ordered, func() {
	var c *cluster
	one := job{namespace: teamA, name: "one", gpus: 8, product: "H100"}
	two := job{namespace: teamA, name: "two", gpus: 8, product: "H100"}

	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })

	It("are settled: one stays, the other is withdrawn, says why and gets another place", func(ctx context.Context) {
		probe := job{namespace: teamA, name: "probe", gpus: 8, product: "H100"}
		c.submit(ctx, probe)
		c.bound(ctx, probe)
		like := c.promise(ctx, probe)
		Expect(like).NotTo(BeNil())
		c.remove(ctx, probe)

		c.addOtherCheck(ctx)
		c.setChecks(ctx, teamA, check, otherCheck)
		c.expectActive(ctx)
		DeferCleanup(func(ctx context.Context) {
			c.remove(ctx, one)
			c.remove(ctx, two)
		})
		c.submit(ctx, one)
		c.submit(ctx, two)
		as := c.otherManager()
		first := c.promiseByHand(ctx, as, one, &like.Spec)
		second := c.promiseByHand(ctx, as, two, &like.Spec)
		stays, goes := one, two
		if byAge := first.CreationTimestamp.Compare(second.CreationTimestamp.Time); byAge > 0 || byAge == 0 && first.UID > second.UID {
			stays, goes = two, one
		}
		Eventually(func(g Gomega) {
			p := c.placement(ctx, goes)
			g.Expect(p.Spec.Key).To(BeNil())
			g.Expect(p.Status.Conditions).To(ContainElement(And(
				HaveField("Type", v1alpha1.PlacementReserved), HaveField("Status", metav1.ConditionFalse), HaveField("Reason", string(v1alpha1.ReasonPromiseOverlap)))))
		}).Should(Succeed(), func() string { return c.story(ctx, goes) })
		wl := c.workload(ctx, goes)
		Eventually(func() []string { return c.events(ctx, wl.Namespace, "Workload", wl.Name) }).
			Should(ContainElement(ContainSubstring("is promised to another workload as well, which comes before")))
		Consistently(func(g Gomega) {
			g.Expect(c.promise(ctx, stays)).NotTo(BeNil())
			g.Expect(c.podsOf(ctx, goes)).To(BeEmpty())
		}).Should(Succeed())
		Expect(c.promise(ctx, stays).Spec.PodSets).To(Equal(like.Spec.PodSets))

		c.setOther(ctx, one, kueue.CheckStateReady)
		c.setOther(ctx, two, kueue.CheckStateReady)
		kept := c.expectServed(ctx, stays)
		moved := c.expectServed(ctx, goes)
		devices := slices.Concat(c.devicesOf(ctx, &kept[0]), c.devicesOf(ctx, &moved[0]))
		Expect(slices.Compact(slices.Sorted(slices.Values(devices)))).To(HaveLen(16), "no device is bound twice")
		_, promised := promisedOn(like)
		Expect(c.devicesOf(ctx, &kept[0])).To(Equal(promised[kept[0].Spec.NodeName]))
		Expect(meta.IsStatusConditionTrue(c.workload(ctx, stays).Status.Conditions, kueue.WorkloadEvicted)).To(BeFalse())
	})
})
