package e2e

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// withPolicy changes the sample cluster's DevicePolicy until the spec has run.
func (c *cluster) withPolicy(ctx context.Context, change func(*v1alpha1.DevicePolicySpec)) {
	GinkgoHelper()
	dp := &v1alpha1.DevicePolicy{}
	Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, dp)).To(Succeed())
	before := dp.Spec.DeepCopy()
	set := func(ctx context.Context, change func(*v1alpha1.DevicePolicySpec)) {
		GinkgoHelper()
		c.setPolicy(ctx, change)
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, dp)).To(Succeed())
			g.Expect(dp.Status.ObservedGeneration).To(Equal(dp.Generation))
		}).Should(Succeed())
	}
	set(ctx, change)
	DeferCleanup(func(ctx context.Context) { set(ctx, func(s *v1alpha1.DevicePolicySpec) { *s = *before }) })
}

// started submits a Job and removes it when the spec has run.
func (c *cluster) started(ctx context.Context, jobs ...job) {
	GinkgoHelper()
	for _, j := range jobs {
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
	}
}

// hasProduct says whether a device's productName contains a word.
func hasProduct(d *resourcev1.Device, product string) bool {
	a, ok := d.Attributes["productName"]
	return ok && strings.Contains(*a.StringValue, product)
}

// taintDevices taints every device of a product until back is called or the spec has run.
func (c *cluster) taintDevices(ctx context.Context, product string) (back func(ctx context.Context)) {
	GinkgoHelper()
	set := func(ctx context.Context, taints []resourcev1.DeviceTaint) {
		GinkgoHelper()
		list := &resourcev1.ResourceSliceList{}
		Expect(c.List(ctx, list)).To(Succeed())
		for i := range list.Items {
			s := &list.Items[i]
			patch := client.MergeFrom(s.DeepCopy())
			for k := range s.Spec.Devices {
				if hasProduct(&s.Spec.Devices[k], product) {
					s.Spec.Devices[k].Taints = taints
				}
			}
			Expect(c.Patch(ctx, s, patch)).To(Succeed())
		}
	}
	set(ctx, []resourcev1.DeviceTaint{{Key: "gpu.nvidia.com/xid", Effect: resourcev1.DeviceTaintEffectNoSchedule}})
	back = func(ctx context.Context) { set(ctx, nil) }
	DeferCleanup(back)
	return back
}

// taintByRules taints every device of a product, by a DeviceTaintRule each, until the spec has run.
func (c *cluster) taintByRules(ctx context.Context, product string) {
	GinkgoHelper()
	list := &resourcev1.ResourceSliceList{}
	Expect(c.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		s := &list.Items[i].Spec
		for k := range s.Devices {
			if !hasProduct(&s.Devices[k], product) {
				continue
			}
			rule := &resourcev1beta2.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{GenerateName: "broken-"}, Spec: resourcev1beta2.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1beta2.DeviceTaintSelector{Driver: &s.Driver, Pool: &s.Pool.Name, Device: &s.Devices[k].Name},
				Taint:          resourcev1beta2.DeviceTaint{Key: "example.com/broken", Effect: resourcev1beta2.DeviceTaintEffectNoSchedule},
			}}
			Expect(c.Create(ctx, rule)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, rule)).To(Succeed()) })
		}
	}
}

// cordonNode cordons a node until back is called or the spec has run.
func (c *cluster) cordonNode(ctx context.Context, name string) (back func(ctx context.Context)) {
	GinkgoHelper()
	set := func(ctx context.Context, value string) {
		GinkgoHelper()
		c.patchNode(ctx, name, `{"spec":{"unschedulable":`+value+`}}`)
	}
	set(ctx, "true")
	back = func(ctx context.Context) { set(ctx, "null") }
	DeferCleanup(back)
	return back
}

// cordonNodes cordons every node of a flavor until the spec has run.
func (c *cluster) cordonNodes(ctx context.Context, flavor string) {
	GinkgoHelper()
	list := &corev1.NodeList{}
	Expect(c.List(ctx, list, client.MatchingLabels{"plimsoll.dev/flavor-" + flavor: "true"})).To(Succeed())
	for i := range list.Items {
		c.cordonNode(ctx, list.Items[i].Name)
	}
}

// withdrawSlices deletes every slice that has a device of a product, as a driver that stops may. They are published again,
// from the first generation on, when republish is called or the spec has run.
func (c *cluster) withdrawSlices(ctx context.Context, product string) (republish func(ctx context.Context)) {
	GinkgoHelper()
	list := &resourcev1.ResourceSliceList{}
	Expect(c.List(ctx, list)).To(Succeed())
	gone := slices.DeleteFunc(list.Items, func(s resourcev1.ResourceSlice) bool {
		return !slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return hasProduct(&d, product) })
	})
	for i := range gone {
		Expect(c.Delete(ctx, &gone[i])).To(Succeed())
	}
	republish = func(ctx context.Context) {
		GinkgoHelper()
		for i := range gone {
			s := gone[i].DeepCopy()
			s.ObjectMeta = metav1.ObjectMeta{Name: s.Name}
			s.Spec.Pool.Generation = 1
			Expect(c.Create(ctx, s)).To(Succeed())
		}
		gone = nil
	}
	DeferCleanup(func(ctx context.Context) { republish(ctx) })
	return republish
}

// reservation is quota that a Workload was given.
type reservation struct {
	Flavor string
	Gpus   int64
}

// reservations returns all quota for devices that a Job's Workload was given since a history began, in order, over every
// version that was stored, and when it got each.
func (c *cluster) reservations(ctx context.Context, h *history, j job) (had []reservation, at []time.Time) {
	GinkgoHelper()
	wl := c.workload(ctx, j)
	Eventually(func() bool { return h.has(wl) }).Should(BeTrue())
	for _, v := range h.of(wl.UID) {
		o, ok := v.object.(*kueue.Workload)
		if !ok || o.Status.Admission == nil {
			continue
		}
		since := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
		var r reservation
		for _, a := range o.Status.Admission.PodSetAssignments {
			for _, name := range []corev1.ResourceName{"gpus", gpuName} {
				if used, ok := a.ResourceUsage[name]; ok {
					r.Flavor, r.Gpus = string(a.Flavors[name]), r.Gpus+used.Value()
				}
			}
		}
		if len(had) == 0 || !at[len(at)-1].Equal(since) {
			had, at = append(had, r), append(at, since)
		}
	}
	return had, at
}

// of returns the versions of one object in the order in which they were stored.
func (h *history) of(uid types.UID) []version {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(h.versions), func(v version) bool { return v.object.GetUID() != uid })
	slices.SortStableFunc(out, func(a, b version) int { return cmp.Compare(a.revision, b.revision) })
	return out
}

// waitedSince returns since when, by its Placement's history, a Job waited for a flavor with quota and busy devices; zero
// where it did not.
func (c *cluster) waitedSince(ctx context.Context, h *history, j job, flavor string) time.Time {
	GinkgoHelper()
	for _, v := range h.of(c.placement(ctx, j).UID) {
		for _, w := range v.object.(*v1alpha1.Placement).Status.Waits {
			if w.Flavor == flavor {
				return w.Since.Time
			}
		}
	}
	return time.Time{}
}

// standing returns what a Job's record says of a flavor; the zero value while it says nothing.
func (c *cluster) standing(ctx context.Context, j job, flavor string) v1alpha1.FlavorStanding {
	GinkgoHelper()
	p := c.placement(ctx, j)
	if p == nil || p.Status.Record == nil {
		return v1alpha1.FlavorStanding{}
	}
	for _, s := range p.Status.Record.Standings {
		if s.Flavor == flavor {
			return s
		}
	}
	return v1alpha1.FlavorStanding{}
}

// first returns the first reason of a standing.
func first(s v1alpha1.FlavorStanding) v1alpha1.Reason {
	if len(s.Reasons) == 0 {
		return ""
	}
	return s.Reasons[0].Reason
}

// expectStanding waits until a Job's record gives a flavor a standing, with a first reason and what Kueue would do.
func (c *cluster) expectStanding(ctx context.Context, j job, flavor string, standing v1alpha1.Standing, reason v1alpha1.Reason, quota string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		s := c.standing(ctx, j, flavor)
		g.Expect(s.Standing).To(Equal(standing))
		g.Expect(first(s)).To(Equal(reason))
		g.Expect(s.Quota).To(Equal(quota))
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
}

// expectGets waits until a Job's pods are bound as promised on a flavor, and expects that this was all the quota that its
// Workload was ever given, and that its queue is charged for it.
func (c *cluster) expectGets(ctx context.Context, h *history, j job, flavor string, gpus int64) []corev1.Pod {
	GinkgoHelper()
	pods := c.bound(ctx, j)
	c.expectAsPromised(ctx, j, pods)
	had, _ := c.reservations(ctx, h, j)
	Expect(had).To(Equal([]reservation{{flavor, gpus}}), c.story(ctx, j))
	Expect(c.promise(ctx, j).Spec.PodSets[0].Flavor).To(Equal(flavor))
	Eventually(func() int64 { return c.usageOf(ctx, j.namespace, flavor) }).Should(BeNumerically(">=", gpus))
	return pods
}

// usageOf returns how much of the quota for gpus of one flavor a ClusterQueue has in use.
func (c *cluster) usageOf(ctx context.Context, name, flavor string) int64 {
	GinkgoHelper()
	cq := &kueue.ClusterQueue{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, cq)).To(Succeed())
	for _, f := range cq.Status.FlavorsReservation {
		for _, r := range f.Resources {
			if string(f.Name) == flavor && r.Name == "gpus" {
				return r.Total.Value()
			}
		}
	}
	return 0
}

// holdsNothing expects that a Job's Workload has neither quota nor pods.
func (c *cluster) holdsNothing(ctx context.Context, g Gomega, j job) {
	wl := c.workload(ctx, j)
	g.Expect(wl).NotTo(BeNil())
	g.Expect(wl.Status.Admission).To(BeNil())
	g.Expect(c.podsOf(ctx, j)).To(BeEmpty())
}

// expectHoldsNothing waits for a while, in which none of some Jobs has quota or pods.
func (c *cluster) expectHoldsNothing(ctx context.Context, jobs ...job) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		for _, j := range jobs {
			c.holdsNothing(ctx, g, j)
		}
	}).Should(Succeed(), func() string { return c.story(ctx, jobs[0]) })
}
