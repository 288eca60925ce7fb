package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

const (
	gpuDriver = "gpu.nvidia.com"
	// driverNamespace is where the pods of the driver run.
	driverNamespace = "gpu-driver"
)

// driverPod is a driver's pod on a node, made by nobody's controller; a DaemonSet's would be ended otherwise.
func driverPod(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: driverNamespace, Name: name, Labels: map[string]string{"app": "dra-driver"}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "plugin", Image: "dra-driver"}}},
	}
}

// findDrivers lets the policy say how to find the driver's pods, of which there are none, until the spec has run.
func (c *cluster) findDrivers(ctx context.Context, graceSeconds int32) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		Expect(c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(driverNamespace), client.GracePeriodSeconds(0))).To(Succeed())
	})
	c.withPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) {
		s.Freshness.LossGraceSeconds = ptr.To(graceSeconds)
		s.Drivers = []v1alpha1.PolicyDriver{{
			Name: gpuDriver, PodNamespace: driverNamespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "dra-driver"}}}}
	})
}

// sliceOf returns a node's slice as the sample cluster has it, and puts it back when the spec has run.
func (c *cluster) sliceOf(ctx context.Context, node string) *resourcev1.ResourceSlice {
	GinkgoHelper()
	s := &resourcev1.ResourceSlice{}
	Expect(c.Get(ctx, client.ObjectKey{Name: node + "-" + gpuDriver + "-0"}, s)).To(Succeed())
	was := s.DeepCopy()
	DeferCleanup(func(ctx context.Context) {
		list := &resourcev1.ResourceSliceList{}
		Expect(c.List(ctx, list)).To(Succeed())
		for i := range list.Items {
			if x := &list.Items[i]; ptr.Deref(x.Spec.NodeName, "") == node {
				Expect(c.Delete(ctx, x)).To(Succeed())
			}
		}
		c.publish(ctx, was, was.Name, 1, 1, was.Spec.Devices)
	})
	return s
}

// publish creates a slice like another, under a name, of a generation with so many slices, with these devices.
func (c *cluster) publish(ctx context.Context, like *resourcev1.ResourceSlice, name string, generation, slices int64, devices []resourcev1.Device) *resourcev1.ResourceSlice {
	GinkgoHelper()
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *like.Spec.DeepCopy()}
	s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount, s.Spec.Devices = generation, slices, devices
	Expect(c.Create(ctx, s)).To(Succeed())
	return s
}

var _ = Describe("A driver whose pods the policy finds", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: driverNamespace}})).To(Succeed())
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("lends nothing on a node without a Ready pod although its slice is there, and by itself again once it has one", func(ctx context.Context) {
		const away = 30 * time.Second
		c.findDrivers(ctx, 2)
		pod := driverPod("h100-0", "first")
		Expect(c.Create(ctx, pod)).To(Succeed())
		before := job{namespace: teamA, name: "before", gpus: 4, product: "H100"}
		c.started(ctx, before)
		held := c.bound(ctx, before)
		Expect(held[0].Spec.NodeName).To(Equal("h100-0"), "the only node that the driver serves")

		Expect(c.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		j := job{namespace: teamA, name: "later", gpus: 4, product: "H100"}
		Eventually(func(g Gomega) {
			g.Expect(client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}))).To(Succeed())
		}).Should(Succeed())
		c.started(ctx, j)
		c.expectStanding(ctx, j, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonDriverNotServing, "Fit")
		status, out := c.explainAs(ctx, c.Admin(), "job/later", "-n", teamA)
		Expect(status).To(BeZero(), out)
		Expect(out).To(And(ContainSubstring("DriverNotServing"), ContainSubstring("no pod of driver "+gpuDriver+" is Ready there")))
		Consistently(func(g Gomega) {
			c.holdsNothing(ctx, g, j)
			g.Expect(c.podsOf(ctx, before)).To(HaveLen(1), "what is bound stays bound")
			g.Expect(c.podsOf(ctx, before)[0].UID).To(Equal(held[0].UID))
		}).WithTimeout(away).WithPolling(time.Second).Should(Succeed(), func() string { return c.story(ctx, j) })

		Expect(c.Create(ctx, driverPod("h100-0", "second"))).To(Succeed())
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		Expect(pods[0].Spec.NodeName).To(Equal("h100-0"))
	})

	It("is expected back within the grace", func(ctx context.Context) {
		c.findDrivers(ctx, 600)
		pod := driverPod("h100-0", "restarting")
		Expect(c.Create(ctx, pod)).To(Succeed())
		first := job{namespace: teamA, name: "first", gpus: 2, product: "H100"}
		c.started(ctx, first)
		c.bound(ctx, first)
		Expect(c.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		j := job{namespace: teamA, name: "waits", gpus: 6} // an A100 would do
		c.started(ctx, j)
		c.expectStanding(ctx, j, "h100", v1alpha1.StandingBusy, v1alpha1.ReasonDriverNotServing, "Fit")
		c.expectHoldsNothing(ctx, j)
		Expect(c.Create(ctx, driverPod("h100-0", "restarted"))).To(Succeed())
		Expect(c.bound(ctx, j)[0].Spec.NodeName).To(Equal("h100-0"))
	})
})

var _ = Describe("A pool", Ordered, ContinueOnFailure, func() {
	const node = "h100-0"
	var c *cluster
	j := job{namespace: teamA, name: "eight", gpus: 8, product: "H100", change: func(j *batchv1.Job) {
		j.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}}
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) })
		c.withPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Freshness.LossGraceSeconds = ptr.To[int32](2) })
	})

	It("starts again at generation 1 after it was at 7 and had no slice", func(ctx context.Context) {
		s := c.sliceOf(ctx, node)
		patch := client.MergeFrom(s.DeepCopy())
		s.Spec.Pool.Generation = 7
		Expect(c.Patch(ctx, s, patch)).To(Succeed())
		Expect(c.Delete(ctx, s)).To(Succeed())
		c.started(ctx, j)
		c.expectStanding(ctx, j, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonPoolRebuilding, "Fit")
		c.expectHoldsNothing(ctx, j)
		c.publish(ctx, s, s.Name, 1, 1, s.Spec.Devices)
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("lends nothing while its newest generation goes down, and again with a newer one", func(ctx context.Context) {
		s := c.sliceOf(ctx, node)
		for _, generation := range []int64{7, 6} {
			patch := client.MergeFrom(s.DeepCopy())
			s.Spec.Pool.Generation = generation
			Expect(c.Patch(ctx, s, patch)).To(Succeed())
			Eventually(func(g Gomega) { // both are seen
				now := &resourcev1.ResourceSlice{}
				g.Expect(c.Get(ctx, client.ObjectKeyFromObject(s), now)).To(Succeed())
				g.Expect(now.Spec.Pool.Generation).To(Equal(generation))
			}).Should(Succeed())
		}
		c.started(ctx, j)
		c.expectStanding(ctx, j, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonPoolRegressed, "Fit")
		c.expectHoldsNothing(ctx, j)
		patch := client.MergeFrom(s.DeepCopy())
		s.Spec.Pool.Generation = 8
		Expect(c.Patch(ctx, s, patch)).To(Succeed())
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("lends nothing of generation 2 while one of its two slices is missing, nor of generation 1", func(ctx context.Context) {
		s := c.sliceOf(ctx, node)
		c.publish(ctx, s, s.Name+"-a", 2, 2, s.Spec.Devices[:4])
		c.started(ctx, j)
		c.expectStanding(ctx, j, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonPoolIncomplete, "Fit")
		c.expectHoldsNothing(ctx, j)
		c.publish(ctx, s, s.Name+"-b", 2, 2, s.Spec.Devices[4:])
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		Expect(c.devicesOf(ctx, &pods[0])).To(HaveLen(8), fmt.Sprintf("of %s", node))
	})
})
