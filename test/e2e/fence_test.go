package e2e

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// fence watches a namespace for the one thing that must never happen: a pod that lost its gate before the Placement that
// lets it go was there. Versions of one API server are in one order over all kinds.
type fence struct {
	mu       sync.Mutex
	gated    map[types.UID]bool
	ungated  map[types.UID]int64
	promised []promise
}

// promise is one version of a Placement; a nil key promises nothing.
type promise struct {
	version int64
	key     *v1alpha1.PlacementKey
}

// watchFence begins to watch the pods and Placements of a namespace, until the spec ends.
func (c *cluster) watchFence(ctx context.Context, namespace string) *fence {
	GinkgoHelper()
	w, err := client.NewWithWatch(c.Admin(), client.Options{Scheme: parts.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	f := &fence{gated: map[types.UID]bool{}, ungated: map[types.UID]int64{}}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &v1alpha1.PlacementList{}} {
		stream, err := w.Watch(ctx, list, client.InNamespace(namespace))
		Expect(err).NotTo(HaveOccurred())
		var done sync.WaitGroup
		done.Go(func() {
			for e := range stream.ResultChan() {
				f.see(e)
			}
		})
		DeferCleanup(func() { stream.Stop(); done.Wait() })
	}
	return f
}

func (f *fence) see(e watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o := e.Object.(type) {
	case *corev1.Pod:
		if observe.Gated(o) {
			f.gated[o.UID] = true
		} else if _, known := f.ungated[o.UID]; !known {
			f.ungated[o.UID] = versionOf(o)
		}
	case *v1alpha1.Placement:
		key := o.Spec.Key
		if e.Type == watch.Deleted {
			key = nil
		}
		f.promised = append(f.promised, promise{versionOf(o), key})
	}
}

func versionOf(o metav1.Object) int64 {
	v, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// expectHeld says that a pod was gated from its first version on and, if it lost its gate, did so while the Placement of its
// Workload had the given key.
func (f *fence) expectHeld(pod types.UID, key *v1alpha1.PlacementKey) {
	GinkgoHelper()
	f.mu.Lock()
	defer f.mu.Unlock()
	Expect(f.gated).To(HaveKey(pod), "a pod was seen without its gate from its first version on")
	at, open := f.ungated[pod]
	if !open {
		return
	}
	var live *v1alpha1.PlacementKey
	for _, p := range f.promised {
		if p.version < at {
			live = p.key
		}
	}
	Expect(ledger.SameKey(live, key)).To(BeTrue(), "the gate went at version %d; promised until then: %v, the reservation is %v", at, f.promised, key)
}

// setActive deactivates a Workload or activates it, as an administrator does.
func (c *cluster) setActive(ctx context.Context, wl *kueue.Workload, active bool) {
	GinkgoHelper()
	patch := client.MergeFrom(wl.DeepCopy())
	wl.Spec.Active = ptr.To(active)
	Expect(c.Patch(ctx, wl, patch)).To(Succeed())
}

// turnReady writes the check of a Job's Workload as the manager does.
func (c *cluster) turnReady(ctx context.Context, j job) {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	ready := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueue.GroupVersion.String(), "kind": "Workload",
		"metadata": map[string]any{"name": wl.Name, "namespace": wl.Namespace},
		"status": map[string]any{"admissionChecks": []any{map[string]any{
			"name": check, "state": string(kueue.CheckStateReady), "message": "late", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
			"podSetUpdates": []any{map[string]any{"name": "main", "labels": map[string]any{v1alpha1.ManagedLabel: "true"}}},
		}}},
	}}
	Expect(c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(ready), client.FieldOwner(v1alpha1.FieldOwner), client.ForceOwnership)).To(Succeed())
}

// admitByAnOldCheck makes Kueue admit a Job on a check that was turned Ready for its reservation before this one: while no
// manager runs, its quota is taken back, the check is written as the manager would have, late, and Kueue reserves and
// admits in one patch. It returns the key of the new reservation. The manager stays stopped.
func (c *cluster) admitByAnOldCheck(ctx context.Context, j job, between ...func()) *v1alpha1.PlacementKey {
	GinkgoHelper()
	Expect(c.StopManager(ctx)).To(Succeed())
	wl := c.workload(ctx, j)
	before, err := admission.KeyOf(wl)
	Expect(err).NotTo(HaveOccurred())
	c.setActive(ctx, wl, false)
	Eventually(func() bool {
		return meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)
	}).Should(BeFalse())
	if before != nil { // a key has whole seconds
		Eventually(time.Now).Should(BeTemporally(">", before.ReservedAt.Add(time.Second)))
	}
	for _, do := range between { // while it holds nothing
		do()
	}
	c.turnReady(ctx, j)
	c.setActive(ctx, c.workload(ctx, j), true)
	var key *v1alpha1.PlacementKey
	Eventually(func(g Gomega) {
		wl = c.workload(ctx, j)
		g.Expect(meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)).To(BeTrue())
		key, err = admission.KeyOf(wl)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(key).NotTo(BeNil())
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
	Expect(ledger.SameKey(before, key)).To(BeFalse(), "the reservation is a new one")
	return key
}

// onNode keeps a Job's pods on one node.
func onNode(name string) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		b.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: name}
	}
}

// setPolicy changes the sample cluster's DevicePolicy.
func (c *cluster) setPolicy(ctx context.Context, change func(*v1alpha1.DevicePolicySpec)) {
	GinkgoHelper()
	dp := &v1alpha1.DevicePolicy{}
	Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, dp)).To(Succeed())
	patch := client.MergeFrom(dp.DeepCopy())
	change(&dp.Spec)
	Expect(c.Patch(ctx, dp, patch)).To(Succeed())
}

var _ = Describe("A check that was turned Ready for an older reservation", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("lets no pod go before there is a Placement for this one", func(ctx context.Context) {
		j := job{namespace: teamA, name: "late", pods: 3, gpus: 4, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		f := c.watchFence(ctx, teamA)
		c.submit(ctx, j)
		first := c.bound(ctx, j)
		old := c.placement(ctx, j).Spec.Key
		for i := range first {
			f.expectHeld(first[i].UID, old)
		}

		// Frozen, the policy keeps the manager from promising anything to the new reservation, though the devices are free
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeFrozen })
		key := c.admitByAnOldCheck(ctx, j)
		Expect(ledger.SameKey(c.placement(ctx, j).Spec.Key, old)).To(BeTrue(), "the Placement is still that of the reservation before")
		Consistently(func() []corev1.Pod { return c.podsOf(ctx, j) }).Should(BeEmpty(), "pods of a managed Workload do not start while nobody can gate them")
		Expect(c.StartManager(ctx)).To(Succeed())
		Eventually(func() []corev1.Pod { return c.podsOf(ctx, j) }).WithTimeout(late).Should(HaveLen(3))
		Consistently(func(g Gomega) {
			for _, p := range c.podsOf(ctx, j) {
				g.Expect(observe.Gated(&p)).To(BeTrue())
			}
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			p := c.placement(ctx, j)
			g.Expect(p.Spec.Key).To(BeNil(), "a dead promise is withdrawn")
			g.Expect(p.Status.Record.Reason).To(Equal(v1alpha1.ReasonPolicyFrozen))
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Mode = v1alpha1.ModeEnforce })

		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		for i := range pods {
			Expect(slices.ContainsFunc(first, func(p corev1.Pod) bool { return p.UID == pods[i].UID })).To(BeFalse())
			f.expectHeld(pods[i].UID, key)
		}
		Expect(slices.Collect(maps.Keys(f.ungated))).To(HaveLen(6))
	})

	It("lets no pod go while somebody else has a device, gives the quota back at once, and says so", func(ctx context.Context) {
		j := job{namespace: teamA, name: "early", pods: 2, gpus: 4, change: onNode("h100-0")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		f := c.watchFence(ctx, teamA)
		c.submit(ctx, j)
		first := c.bound(ctx, j)
		device := c.devicesOf(ctx, &first[0])[0]

		var thief *corev1.Pod
		c.admitByAnOldCheck(ctx, j, func() {
			Eventually(func() []corev1.Pod { return c.podsOf(ctx, j) }).WithTimeout(late).Should(BeEmpty())
			thief = c.steal(ctx, device)
		})
		Expect(c.StartManager(ctx)).To(Succeed())

		wl := c.workload(ctx, j)
		Eventually(func() []string { return c.events(ctx, teamA, "Workload", wl.Name) }).WithTimeout(late).
			Should(ContainElement(And(HavePrefix("ForeignUse: "), ContainSubstring("h100-0"))), func() string { return c.story(ctx, j) })
		Eventually(func(g Gomega) {
			p := c.placement(ctx, j)
			g.Expect(p.Spec.Key).To(BeNil())
			g.Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictWait))
			g.Expect(p.Status.Record.Standings[0].Reasons).To(ContainElement(HaveField("Reason", v1alpha1.ReasonForeignUse)))
			g.Expect(meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeFalse())
			g.Expect(c.podsOf(ctx, j)).To(BeEmpty())
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(f.ungated).To(HaveLen(2), "only the first two pods have lost their gate")

		By("placing it once the device is free")
		c.giveBack(ctx, thief)
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("lets no pod go either while the manager runs, whoever of it and Kueue is first", func(ctx context.Context) {
		f := c.watchFence(ctx, teamA)
		j := job{namespace: teamA, name: "racer", gpus: 2, product: "L4"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		for range 5 {
			pods := c.bound(ctx, j)
			f.expectHeld(pods[0].UID, c.placement(ctx, j).Spec.Key)
			c.setActive(ctx, c.workload(ctx, j), false)
			Eventually(func() bool { // or else Kueue may miss it, and nothing ends
				return meta.IsStatusConditionTrue(c.workload(ctx, j).Status.Conditions, kueue.WorkloadEvicted)
			}).WithPolling(5 * time.Millisecond).Should(BeTrue())
			c.turnReady(ctx, j)
			c.setActive(ctx, c.workload(ctx, j), true)
			Eventually(func() []corev1.Pod { return c.podsOf(ctx, j) }).ShouldNot(ContainElement(HaveField("UID", pods[0].UID)))
		}
		c.bound(ctx, j)
	})
})
