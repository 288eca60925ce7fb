package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
)

// freedToReady returns how long after a pod's claim was deallocated a Workload held quota, and its check was Ready, by when
// each was seen on a watch; zero for what was not seen yet.
func freedToReady(h *history, pod, workload types.UID) (reserved, ready time.Duration) {
	var freed, quota, said time.Time
	each(h, func(c *resourcev1.ResourceClaim, gone bool, seen time.Time) {
		if observe.ControllerOf(c) == pod && freed.IsZero() && (gone || c.Status.Allocation == nil) {
			freed = seen
		}
	})
	each(h, func(wl *kueue.Workload, _ bool, seen time.Time) {
		if wl.UID != workload {
			return
		}
		if quota.IsZero() && reservedNow(wl) {
			quota = seen
		}
		if c := steering.CheckState(wl, check); said.IsZero() && c != nil && c.State == kueue.CheckStateReady {
			said = seen
		}
	})
	if freed.IsZero() || said.IsZero() {
		return 0, 0
	}
	return quota.Sub(freed), said.Sub(freed)
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
		var took []time.Duration
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
			var reserved, ready time.Duration
			Eventually(func() time.Duration {
				reserved, ready = freedToReady(h, holder.UID, workload.UID)
				return ready
			}).WithTimeout(late).ShouldNot(BeZero(), func() string { return c.story(ctx, waiter) })
			GinkgoWriter.Printf("try %d: quota %s and Ready %s after the devices were free\n", i, reserved, ready)
			took = append(took, ready)
			holder = c.bound(ctx, waiter)[0]
		}
		AddReportEntry("from free to Ready", took)
		fmt.Fprintf(GinkgoWriter, "best %s, median %s, worst %s of %d\n", slices.Min(took), median(took), slices.Max(took), tries)
		Expect(slices.Min(took)).To(BeNumerically("<", time.Second))
		Expect(median(took)).To(BeNumerically("<", time.Second), "%v", took)
	})
})

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
