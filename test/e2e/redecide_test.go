package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// steps is how long after a pod's claim was deallocated each step for a waiting Workload was seen on a watch.
type steps struct {
	// given is when the pod's own Workload gave its slot back: until then the devices are kept for its next pod. The Job
	// controller looks at pods that ended once a second.
	given, opened, reserved, ready time.Duration
}

// afterFreed returns the steps; nil until the last was seen.
func afterFreed(h *history, pod *corev1.Pod, workload types.UID) *steps {
	var freed, given, opened, reserved, ready time.Time
	each(h, func(c *resourcev1.ResourceClaim, gone bool, seen time.Time) {
		if observe.ControllerOf(c) == pod.UID && freed.IsZero() && (gone || c.Status.Allocation == nil) {
			freed = seen
		}
	})
	first := func(t *time.Time, is bool, seen time.Time) {
		if is && t.IsZero() {
			*t = seen
		}
	}
	each(h, func(wl *kueue.Workload, _ bool, seen time.Time) {
		if wl.UID == workload {
			c := steering.CheckState(wl, check)
			first(&opened, len(flavors.AllowedOf(wl)) > 0, seen)
			first(&reserved, reservedNow(wl), seen)
			first(&ready, c != nil && c.State == kueue.CheckStateReady, seen)
		}
		if wl.Namespace == pod.Namespace && wl.Name == pod.Annotations["kueue.x-k8s.io/workload"] {
			first(&given, len(wl.Status.ReclaimablePods) > 0 || meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished), seen)
		}
	})
	if freed.IsZero() || ready.IsZero() {
		return nil
	}
	return &steps{given.Sub(freed), opened.Sub(freed), reserved.Sub(freed), ready.Sub(freed)}
}

var _ = Describe("A device that comes free", Ordered, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })

	It("is given to who waits for it within a second, with resync off", func(ctx context.Context) {
		const tries = 5
		gang := job{namespace: teamA, name: "gang", pods: 4, gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, gang); c.expectFree(ctx) })
		c.submit(ctx, gang)
		holder := c.bound(ctx, gang)[0]
		var took, ours []time.Duration
		for i := range tries {
			waiter := job{namespace: teamA, name: fmt.Sprintf("waiter-%d", i), gpus: 8, product: "H100"}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, waiter) })
			c.submit(ctx, waiter)
			c.expectRecord(ctx, waiter, v1alpha1.ReasonDevicesInUse)
			workload := c.workload(ctx, waiter)
			Expect(reservedNow(workload)).To(BeFalse())

			h := c.history()
			Eventually(func() bool { return h.has(&holder) }).Should(BeTrue(), "the watches are at work")
			c.end(ctx, &holder)
			var s *steps
			Eventually(func() *steps {
				s = afterFreed(h, &holder, workload.UID)
				return s
			}).WithTimeout(late).ShouldNot(BeNil(), func() string { return c.story(ctx, waiter) })
			GinkgoWriter.Printf("try %d: given back %s, opened %s, quota %s, Ready %s after the devices were free\n", i, s.given, s.opened, s.reserved, s.ready)
			took, ours = append(took, s.ready), append(ours, s.ready-max(s.given, 0))
			holder = c.bound(ctx, waiter)[0]
		}
		for what, of := range map[string][]time.Duration{"from the claim's deallocation to Ready": took, "of it from when the slot was given back": ours} {
			AddReportEntry(what, of)
			GinkgoWriter.Printf("%s: best %s, median %s, worst %s of %d\n", what, slices.Min(of), median(of), slices.Max(of), tries)
		}
		Expect(slices.Min(took)).To(BeNumerically("<", time.Second))
		Expect(median(ours)).To(BeNumerically("<", time.Second))
	})
})

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
