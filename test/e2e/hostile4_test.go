package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

var _ = Describe("What an administrator does by mistake", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var h *history
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() {
		DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) })
		h = c.history()
	})

	It("does not give a stopped queue that goes on more quota than there are devices", func(ctx context.Context) {
		c.withPolicy(ctx, falls(never))
		stop := func(ctx context.Context, policy kueue.StopPolicy) {
			cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: teamA}}
			Expect(mergePatch(ctx, c.Client, cq, `{"spec":{"stopPolicy":"`+string(policy)+`"}}`)).To(Succeed())
		}
		stop(ctx, kueue.Hold)
		DeferCleanup(func(ctx context.Context) { stop(ctx, kueue.None) })
		var all []job
		for i := range 8 {
			all = append(all, gangOf(fmt.Sprintf("stopped-%d", i), 1))
			c.started(ctx, all[i])
		}
		for _, j := range all {
			c.expectRecord(ctx, j, v1alpha1.ReasonQueueInactive)
		}
		stop(ctx, kueue.None)
		for _, j := range all[:4] {
			c.bound(ctx, j)
		}
		for _, j := range all[4:] {
			c.expectRecord(ctx, j, v1alpha1.ReasonDevicesInUse)
			had, _ := c.reservations(ctx, h, j)
			Expect(had).To(BeEmpty(), j.name)
		}
	})

	It("does not keep a node from lending whose driver goes on under another pool name", func(ctx context.Context) {
		rename := func(from, to string) {
			s := &resourcev1.ResourceSlice{}
			Expect(c.Get(ctx, client.ObjectKey{Name: from}, s)).To(Succeed())
			Expect(c.Delete(ctx, s.DeepCopy())).To(Succeed())
			s.ObjectMeta = metav1.ObjectMeta{Name: to}
			s.Spec.Pool.Name = to
			Expect(c.Create(ctx, s)).To(Succeed())
		}
		for i := range 4 {
			rename(fmt.Sprintf("h100-%d-gpu.nvidia.com-0", i), fmt.Sprintf("renamed-%d", i))
		}
		c.withPolicy(ctx, falls(never))
		j := gangOf("renamed", 4)
		c.started(ctx, j)
		c.bound(ctx, j)
		c.expectGets(ctx, h, j, "h100", 32)
	})
})
