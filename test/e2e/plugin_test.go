package e2e

import (
	"context"
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
)

// gpuName is the name under which device plugins list GPUs and Jobs ask for them; extended is the queue, with its check and its
// policy, of those Jobs.
const (
	gpuName  = "nvidia.com/gpu"
	extended = "extended"
)

// addPlugin gives the cluster two flavors of one node with eight devices each that a device plugin serves, plugin-h100 and
// plugin-a100, and a queue for them. The A100s' node has more huge pages.
func (c *cluster) addPlugin(ctx context.Context) {
	GinkgoHelper()
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: extended}}
	dp.Spec.QuotaResource = gpuName
	dp.Spec.Fallback.AfterSeconds = ptr.To[int32](5)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: extended}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: extended}}}
	covered := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "hugepages-1Gi", gpuName}
	group := kueue.ResourceGroup{CoveredResources: covered}
	for name, pages := range map[string]string{"plugin-h100": "8Gi", "plugin-a100": "64Gi"} {
		labels := map[string]string{"plimsoll.dev/flavor-" + name: "true"}
		Expect(c.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: labels}})).To(Succeed())
		has := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("110"),
			"hugepages-1Gi": resource.MustParse(pages), gpuName: resource.MustParse("8"),
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		for k, v := range labels {
			node.Labels[k] = v
		}
		node.Status.Capacity, node.Status.Allocatable = has, has
		Expect(c.Create(ctx, node)).To(Succeed())
	}
	for _, name := range []string{"plugin-h100", "plugin-a100"} {
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{Name: name, Selectors: celSelector(`device.driver == "` + name + `.example.com"`)})
		quotas := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)}
		for _, r := range covered {
			quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: r, NominalQuota: resource.MustParse("1Ti")})
		}
		group.Flavors = append(group.Flavors, quotas)
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: extended}}
	ac.Spec.ControllerName = v1alpha1.ControllerName
	ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "DevicePolicy", Name: extended}
	for _, o := range []client.Object{dp, ac, cq, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: extended}, Spec: kueue.LocalQueueSpec{ClusterQueue: extended}}} {
		Expect(c.Create(ctx, o)).To(Succeed())
	}
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(cq), cq)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)).To(BeTrue())
	}).Should(Succeed())
}

// plainly makes a Job ask for devices by their plain name, and for huge pages of 1 GiB.
func plainly(devices, pages int) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		b.Labels["kueue.x-k8s.io/queue-name"] = extended
		r := &b.Spec.Template.Spec.Containers[0].Resources
		r.Limits = corev1.ResourceList{gpuName: resource.MustParse(strconv.Itoa(devices))}
		if pages > 0 {
			r.Limits["hugepages-1Gi"] = resource.MustParse(strconv.Itoa(pages) + "Gi")
		}
		for name, v := range r.Limits {
			r.Requests[name] = v
		}
	}
}

var _ = Describe("A plain extended resource", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var h *history
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		c.addPlugin(ctx)
	})
	BeforeEach(func() { h = c.history() })
	all := job{namespace: teamA, name: "all", change: plainly(8, 0)}
	// expectOn waits until a Job runs on the one node of a flavor, and expects that it was given no other quota.
	expectOn := func(ctx context.Context, j job, flavor string, devices int64) {
		GinkgoHelper()
		pods := c.bound(ctx, j)
		Expect(pods[0].Spec.NodeName).To(Equal(flavor))
		slots, _ := promisedOn(c.promise(ctx, j))
		Expect(slots).To(Equal(map[string]int32{flavor: 1}))
		had, _ := c.reservations(ctx, h, j)
		Expect(had).To(Equal([]reservation{{flavor, devices}}), c.story(ctx, j))
	}

	It("is served by the preferred flavor while that is free", func(ctx context.Context) {
		c.started(ctx, all)
		expectOn(ctx, all, "plugin-h100", 8)
	})

	It("falls back at once where the preferred nodes are cordoned, and says why", func(ctx context.Context) {
		c.cordonNode(ctx, "plugin-h100")
		c.started(ctx, all)
		expectOn(ctx, all, "plugin-a100", 8)
		c.expectStanding(ctx, all, "plugin-h100", v1alpha1.StandingBlocked, v1alpha1.ReasonNodeUnavailable, "Fit")
	})

	It("falls back at once where the preferred nodes never have the huge pages beside it", func(ctx context.Context) {
		paged := job{namespace: teamA, name: "paged", change: plainly(2, 16)}
		c.started(ctx, paged)
		expectOn(ctx, paged, "plugin-a100", 2)
		c.expectStanding(ctx, paged, "plugin-h100", v1alpha1.StandingImpossible, v1alpha1.ReasonNodeResources, "Fit")
	})

	It("that is busy is waited for without quota, and then falls back", func(ctx context.Context) {
		some := job{namespace: teamA, name: "some", change: plainly(1, 0)}
		c.started(ctx, some)
		expectOn(ctx, some, "plugin-h100", 1)
		c.started(ctx, all)
		c.expectStanding(ctx, all, "plugin-h100", v1alpha1.StandingBusy, v1alpha1.ReasonDevicesInUse, "Fit")
		expectOn(ctx, all, "plugin-a100", 8)
		_, at := c.reservations(ctx, h, all)
		since := c.waitedSince(ctx, h, all, "plugin-h100")
		Expect(since).NotTo(BeZero())
		Expect(at[0]).To(BeTemporally(">=", since.Add(5*time.Second)))
	})

	It("that is more than any node has is waited for, and the Job says how many there are", func(ctx context.Context) {
		nine := job{namespace: teamA, name: "nine", change: plainly(9, 0)}
		c.started(ctx, nine)
		c.expectWaits(ctx, nine, v1alpha1.ReasonNotEnoughDevices, "the most that one node has for it is 8")
	})
})
