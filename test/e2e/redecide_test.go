package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// What happens once a device comes free.
const (
	stepFreed = "freed"
	// stepGiven is when the pod's own Workload gave its slot back: until then the devices are kept for its next pod. The Job
	// controller looks at pods that ended once a second.
	stepGiven    = "given back"
	stepOpened   = "opened"
	stepReserved = "quota"
	stepReady    = "Ready"
)

// step is one of these, and how long after the claim's deallocation it was seen on a watch; stepGiven may come before it.
type step struct {
	what  string
	after time.Duration
}

// afterFreed returns what followed for a waiting Workload on a pod's claim being deallocated, in the order in which it was
// written; nil until it is Ready.
func afterFreed(h *history, pod *corev1.Pod, workload types.UID) []step {
	var out []step
	at := map[string]time.Time{}
	first := func(what string, is bool, seen time.Time) {
		if _, was := at[what]; is && !was {
			at[what] = seen
			out = append(out, step{what: what})
		}
	}
	each(h, func(o client.Object, gone bool, seen time.Time) {
		switch o := o.(type) {
		case *resourcev1.ResourceClaim:
			first(stepFreed, observe.ControllerOf(o) == pod.UID && (gone || o.Status.Allocation == nil), seen)
		case *kueue.Workload:
			if o.UID == workload {
				c := steering.CheckState(o, check)
				first(stepOpened, len(flavors.AllowedOf(o)) > 0, seen)
				first(stepReserved, reservedNow(o), seen)
				first(stepReady, c != nil && c.State == kueue.CheckStateReady, seen)
			}
			own := o.Namespace == pod.Namespace && o.Name == pod.Annotations["kueue.x-k8s.io/workload"]
			first(stepGiven, own && (len(o.Status.ReclaimablePods) > 0 || meta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadFinished)), seen)
		}
	})
	free := at[stepFreed]
	if free.IsZero() || at[stepReady].IsZero() {
		return nil
	}
	for i := range out {
		out[i].after = at[out[i].what].Sub(free)
	}
	return out
}

// measures, as an environment variable, lets specs hold what they take against a bound, which is for a machine that has
// nothing else to do: `make redecide`.
const measures = "PLIMSOLL_MEASURE"

func measured() bool { return os.Getenv(measures) != "" }

// How fast it goes; that it goes by the event alone is said where the manager is at rest.
var _ = Describe("A device that comes free", Ordered, func() {
	if !measured() {
		return
	}
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
			var s []step
			Eventually(func() []step {
				s = afterFreed(h, &holder, workload.UID)
				return s
			}).WithTimeout(late).ShouldNot(BeNil(), func() string { return c.story(ctx, waiter) })
			GinkgoWriter.Printf("try %d, after the devices were free: %v\n", i, s)
			after := map[string]time.Duration{}
			for _, x := range s {
				after[x.what] = x.after
			}
			took, ours = append(took, after[stepReady]), append(ours, after[stepReady]-max(after[stepGiven], 0))
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
