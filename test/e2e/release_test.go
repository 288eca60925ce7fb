package e2e

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// fail makes a running pod fail.
func (c *cluster) fail(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	Expect(mergePatch(ctx, c.Client, p.DeepCopy(), `{"metadata":{"annotations":{"`+lab.ExitAnnotation+`":"fail","`+lab.RunSecondsAnnotation+`":"0"}}}`)).To(Succeed())
}

// liveOf returns a Job's pods that neither ended nor are ending.
func (c *cluster) liveOf(ctx context.Context, j job) []corev1.Pod {
	GinkgoHelper()
	return slices.DeleteFunc(c.podsOf(ctx, j), func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// withoutPods stops the Job controller, and with it the making of pods and claims, until the function it returns is called.
func (c *cluster) withoutPods(ctx context.Context) (start func()) {
	return c.without(ctx, lab.ControllerManager)
}

// withoutScheduler stops the scheduler until the function it returns is called.
func (c *cluster) withoutScheduler(ctx context.Context) (start func()) {
	return c.without(ctx, lab.Scheduler)
}

func (c *cluster) without(ctx context.Context, component string) (start func()) {
	GinkgoHelper()
	Expect(c.StopComponent(ctx, component)).To(Succeed())
	started := false
	again := func(ctx context.Context) {
		GinkgoHelper()
		if !started {
			started = true
			Expect(c.StartComponent(ctx, component)).To(Succeed())
		}
	}
	DeferCleanup(again)
	return func() { GinkgoHelper(); again(ctx) }
}

// admitted waits until Kueue has admitted a Job, and returns its promise.
func (c *cluster) admitted(ctx context.Context, j job) *v1alpha1.Placement {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		have := &batchv1.Job{}
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(j.object()), have)).To(Succeed())
		g.Expect(*have.Spec.Suspend).To(BeFalse())
		g.Expect(c.promise(ctx, j)).NotTo(BeNil())
	}).Should(Succeed(), func() string { return c.story(ctx, j) })
	return c.promise(ctx, j)
}

// twice is a Job of two pods that are promised four of the H100s of mixed-0, which has no more, and four of h100-0's.
func twice(name string) job {
	return job{namespace: teamA, name: name, pods: 2, gpus: 4, product: "H100"}
}

// deviceOn returns the first device that a Placement promises on a node.
func deviceOn(p *v1alpha1.Placement, node string) string {
	GinkgoHelper()
	_, devices := promisedOn(p)
	Expect(devices[node]).NotTo(BeEmpty())
	return devices[node][0]
}

// steal has a pod that nobody manages take one device, by a claim that names it, and waits until it has it.
func (c *cluster) steal(ctx context.Context, device string) *corev1.Pod {
	GinkgoHelper()
	slices := &resourcev1.ResourceSliceList{}
	Expect(c.List(ctx, slices)).To(Succeed())
	uuid := ""
	for _, s := range slices.Items {
		for _, d := range s.Spec.Devices {
			if s.Spec.Driver+"/"+s.Spec.Pool.Name+"/"+d.Name == device {
				uuid = *d.Attributes["uuid"].StringValue
			}
		}
	}
	Expect(uuid).NotTo(BeEmpty(), device)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "stolen-"}, Spec: allGPUs()}
	claim.Spec.Devices.Requests[0].Exactly = &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu.nvidia.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["gpu.nvidia.com"].uuid == "` + uuid + `"`}}},
	}
	Expect(c.Create(ctx, claim)).To(Succeed())
	pod := ownPod(claim.Name, "", func(p *corev1.Pod) {
		p.Namespace = metav1.NamespaceDefault
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim.Name)}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
	Expect(c.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { c.giveBack(ctx, pod) })
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		g.Expect(claim.Status.Allocation).NotTo(BeNil())
	}).Should(Succeed())
	return pod
}

// giveBack ends a pod that stole.
func (c *cluster) giveBack(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(c.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	Expect(client.IgnoreNotFound(c.Delete(ctx, claim))).To(Succeed())
	Eventually(func() error { return c.Get(ctx, client.ObjectKeyFromObject(claim), claim) }).ShouldNot(Succeed())
}

// expectEvictedFor waits until a Job was evicted for a reason.
func (c *cluster) expectEvictedFor(ctx context.Context, j job, reason v1alpha1.Reason) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		p := c.placement(ctx, j)
		g.Expect(p).NotTo(BeNil())
		g.Expect(p.Status.Retry).NotTo(BeNil())
		g.Expect(p.Status.Retry.Reason).To(Equal(reason), p.Status.Retry.Message)
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
}

// expectNeverEvicted says that a Job kept the quota that it had.
func (c *cluster) expectNeverEvicted(ctx context.Context, j job, before *v1alpha1.Placement) {
	GinkgoHelper()
	now := c.promise(ctx, j)
	Expect(now).NotTo(BeNil(), c.story(ctx, j))
	Expect(now.Spec.Key).To(Equal(before.Spec.Key))
	Expect(now.Status.Retry).To(BeNil())
	Expect(now.Spec.PodSets[0].Flavor).To(Equal(before.Spec.PodSets[0].Flavor))
	Expect(now.Spec.PodSets[0].Charge).To(Equal(before.Spec.PodSets[0].Charge))
}

var _ = Describe("A slot", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) {
			s.Retry.InitialSeconds, s.Retry.MaxSeconds = ptr.To[int32](1), ptr.To[int32](2)
		})
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	It("is taken by the retry of a pod that failed, after the old claim is gone", func(ctx context.Context) {
		j := job{namespace: teamA, name: "retry", pods: 2, gpus: 4, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		h := c.history()
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		before := c.promise(ctx, j)
		lost := pods[0]
		devices := c.devicesOf(ctx, &lost)
		c.fail(ctx, &lost)
		var next corev1.Pod
		Eventually(func(g Gomega) {
			live := c.liveOf(ctx, j)
			g.Expect(live).To(HaveLen(2))
			i := slices.IndexFunc(live, func(p corev1.Pod) bool { return p.UID != pods[1].UID })
			next = live[i]
			g.Expect(next.UID).NotTo(Equal(lost.UID))
			g.Expect(next.Spec.NodeName).NotTo(BeEmpty())
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(next.Spec.NodeName).To(Equal(lost.Spec.NodeName))
		Expect(c.devicesOf(ctx, &next)).To(Equal(devices))
		c.expectNeverEvicted(ctx, j, before)
		Expect(c.promise(ctx, j).Spec).To(Equal(before.Spec))
		c.expectNothingDoubled(ctx, h)
	})

	It("is used again by the next completions, so that no more is held than was promised", func(ctx context.Context) {
		j := job{namespace: teamA, name: "more", pods: 2, gpus: 4, product: "H100", runSeconds: 2, change: func(b *batchv1.Job) { b.Spec.Completions = ptr.To[int32](4) }}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		h := c.history()
		c.submit(ctx, j)
		promised := c.admitted(ctx, j)
		slots, on := promisedOn(promised)
		c.finished(ctx, j)
		c.expectNothingDoubled(ctx, h)
		pods := c.podsOf(ctx, j)
		Expect(pods).To(HaveLen(4))
		var devices []string
		for _, d := range on {
			devices = append(devices, d...)
		}
		Expect(devices).To(HaveLen(8))
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, v := range h.versions {
			switch o := v.object.(type) {
			case *resourcev1.ResourceClaim:
				for _, d := range allocatedTo(o) {
					Expect(devices).To(ContainElement(d))
				}
			case *corev1.Pod:
				if o.Spec.NodeName != "" {
					Expect(slots).To(HaveKey(o.Spec.NodeName))
				}
			}
		}
	})

	It("is given back as Kueue reclaims its quota, while the other pods run on", func(ctx context.Context) {
		j := job{namespace: teamB, name: "ending", pods: 2, gpus: 8, product: "A100"}
		next := job{namespace: teamB, name: "next", gpus: 8, product: "A100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j); c.remove(ctx, next) })
		c.submit(ctx, j)
		pods := c.bound(ctx, j)
		c.end(ctx, &pods[0])
		Eventually(func(g Gomega) {
			slots, devices := promisedOn(c.promise(ctx, j))
			g.Expect(slots).To(Equal(map[string]int32{pods[1].Spec.NodeName: 1}))
			g.Expect(devices[pods[1].Spec.NodeName]).To(Equal(c.devicesOf(ctx, &pods[1])))
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		c.submit(ctx, next)
		Expect(c.bound(ctx, next)[0].Spec.NodeName).To(Equal(pods[0].Spec.NodeName))
		Expect(c.liveOf(ctx, j)).To(HaveLen(1))
		c.end(ctx, &pods[1])
		c.finished(ctx, j)
	})

	It("whose device somebody takes before its pod comes is placed anew, and the others stay", func(ctx context.Context) {
		j := twice("stolen")
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		start := c.withoutPods(ctx)
		c.submit(ctx, j)
		before := c.admitted(ctx, j)
		device := deviceOn(before, "h100-0")
		thief := c.steal(ctx, device)
		start()
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		c.expectNeverEvicted(ctx, j, before)
		_, was := promisedOn(before)
		slots, now := promisedOn(c.promise(ctx, j))
		Expect(slots).To(Equal(map[string]int32{"mixed-0": 1, "h100-0": 1}), "a node with devices to spare is still the best")
		Expect(now["mixed-0"]).To(Equal(was["mixed-0"]))
		Expect(now["h100-0"]).NotTo(ContainElement(device))
		Eventually(func() string { return c.promise(ctx, j).Status.Record.Message }).
			Should(HaveSuffix("; 1 slot placed anew in flavor h100: node h100-0: a pod that Kueue does not manage has taken device " + device[len("gpu.nvidia.com/h100-0/"):]))
		c.giveBack(ctx, thief)
		c.finish(ctx, j)
	})

	It("whose device somebody takes is given up where there is no other, and the Job runs later", func(ctx context.Context) {
		j := job{namespace: teamA, name: "robbed", gpus: 4, change: onNode("l4-0")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		start := c.withoutPods(ctx)
		c.submit(ctx, j)
		before := c.admitted(ctx, j)
		thief := c.steal(ctx, before.Spec.PodSets[0].Nodes[0].Requests[0].Devices[0])
		start()
		c.expectEvictedFor(ctx, j, v1alpha1.ReasonForeignUse)
		c.giveBack(ctx, thief)
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("whose device somebody takes from under a pod that has its claim already is given up, and the Job runs elsewhere", func(ctx context.Context) {
		j := job{namespace: teamA, name: "late", gpus: 4, product: "H100", change: withOwnGate}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.submit(ctx, j)
		c.waitsForOwnGate(ctx, j)
		device := c.promise(ctx, j).Spec.PodSets[0].Nodes[0].Requests[0].Devices[0]
		c.steal(ctx, device)
		pod := c.podsOf(ctx, j)[0]
		Expect(mergePatch(ctx, c.Client, &pod, `{"metadata":{"labels":{"example.com/woken":"true"}}}`)).To(Succeed())
		c.expectEvictedFor(ctx, j, v1alpha1.ReasonForeignUse)
		pods := c.liftOwnGate(ctx, j)
		Expect(c.devicesOf(ctx, &pods[0])).NotTo(ContainElement(device))
		c.expectAsPromised(ctx, j, pods)
	})

	DescribeTable("on a node that goes before its pod comes is placed anew in the same flavor", append([]any{func(ctx context.Context, way string) {
		j := twice("moved")
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		h := c.history()
		start := c.withoutPods(ctx)
		c.submit(ctx, j)
		before := c.admitted(ctx, j)
		_, was := promisedOn(before)
		c.takeNode(ctx, way, "h100-0")
		DeferCleanup(func(ctx context.Context) { c.bringNode(ctx, way, "h100-0") })
		start()
		pods := c.bound(ctx, j)
		c.expectAsPromised(ctx, j, pods)
		c.expectNeverEvicted(ctx, j, before)
		_, now := promisedOn(c.promise(ctx, j))
		Expect(now).To(HaveLen(2))
		Expect(now).NotTo(HaveKey("h100-0"))
		Expect(now["mixed-0"]).To(Equal(was["mixed-0"]))
		c.expectNothingDoubled(ctx, h)
	}}, nodeEntries()...)...)

	DescribeTable("on a node that goes is given up where there is no other, and the Job runs once it is back", append([]any{func(ctx context.Context, way string) {
		j := job{namespace: teamA, name: "stuck", gpus: 4, change: onNode("l4-1")}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		start := c.withoutPods(ctx)
		c.submit(ctx, j)
		c.admitted(ctx, j)
		c.takeNode(ctx, way, "l4-1")
		back := func(ctx context.Context) { c.bringNode(ctx, way, "l4-1") }
		DeferCleanup(back)
		start()
		c.expectEvictedFor(ctx, j, v1alpha1.ReasonNodeUnavailable)
		back(ctx)
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	}}, nodeEntries()...)...)

	It("of a pod that was deleted from a lost node is placed anew for the next, while the old claim is still counted", func(ctx context.Context) {
		j := job{namespace: teamA, name: "dead", gpus: 4, product: "H100", change: func(b *batchv1.Job) {
			b.Spec.Template.Annotations = map[string]string{lab.GraceSecondsAnnotation: "600"}
		}}
		h := c.history()
		c.submit(ctx, j)
		old := c.bound(ctx, j)[0]
		before := c.promise(ctx, j)
		was := c.devicesOf(ctx, &old)
		c.takeNode(ctx, lostForLong, old.Spec.NodeName)
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(c.Delete(ctx, &old, client.GracePeriodSeconds(0)))).To(Succeed())
			c.remove(ctx, j)
			c.bringNode(ctx, lostForLong, old.Spec.NodeName)
		})
		Expect(c.Delete(ctx, &old)).To(Succeed())
		var next corev1.Pod
		Eventually(func(g Gomega) {
			live := c.liveOf(ctx, j)
			g.Expect(live).To(HaveLen(1))
			next = live[0]
			g.Expect(next.Spec.NodeName).NotTo(BeEmpty())
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(next.Spec.NodeName).NotTo(Equal(old.Spec.NodeName))
		c.expectNeverEvicted(ctx, j, before)
		Expect(held(c.book(ctx))).To(ConsistOf(slices.Concat(was, c.devicesOf(ctx, &next))), "what the old pod has is still its")
		c.expectNothingDoubled(ctx, h)
		for _, p := range []corev1.Pod{old, next} {
			Expect(mergePatch(ctx, c.Client, &p, `{"metadata":{"annotations":{"`+lab.GraceSecondsAnnotation+`":null}}}`)).To(Succeed())
		}
	})

	It("that is not free long after its pod should have ended is given up, and the Job runs elsewhere", func(ctx context.Context) {
		j := job{namespace: teamA, name: "slow", gpus: 4, product: "H100", change: func(b *batchv1.Job) {
			b.Spec.Template.Annotations = map[string]string{lab.GraceSecondsAnnotation: "600"}
		}}
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Release.WaitSeconds = ptr.To[int32](2) })
		c.submit(ctx, j)
		old := c.bound(ctx, j)[0]
		was := c.devicesOf(ctx, &old)
		DeferCleanup(func(ctx context.Context) {
			c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Release.WaitSeconds = ptr.To[int32](600) })
			for _, p := range c.podsOf(ctx, j) {
				Expect(client.IgnoreNotFound(c.Delete(ctx, &p, client.GracePeriodSeconds(0)))).To(Succeed())
			}
			c.remove(ctx, j)
		})
		Expect(c.Delete(ctx, &old, client.GracePeriodSeconds(1))).To(Succeed())
		c.expectEvictedFor(ctx, j, v1alpha1.ReasonReleaseTimeout)
		Eventually(func(g Gomega) {
			live := c.liveOf(ctx, j)
			g.Expect(live).To(HaveLen(1))
			g.Expect(live[0].Spec.NodeName).NotTo(BeEmpty())
			for _, d := range c.devicesOf(ctx, &live[0]) {
				g.Expect(was).NotTo(ContainElement(d))
			}
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	})

	It("whose pod is released and not bound in time is given up, and the Job runs later", func(ctx context.Context) {
		j := job{namespace: teamA, name: "unbound", pods: 2, gpus: 2, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Release.BindSeconds = ptr.To[int32](3) })
		start := c.withoutScheduler(ctx)
		DeferCleanup(func(ctx context.Context) {
			c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Release.BindSeconds = ptr.To[int32](900) })
		})
		c.submit(ctx, j)
		c.expectEvictedFor(ctx, j, v1alpha1.ReasonReleaseTimeout)
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Release.BindSeconds = ptr.To[int32](900) })
		start()
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
	})

	It("whose node is cordoned once its pod is released is given up at once, and the Job runs elsewhere", func(ctx context.Context) {
		j := job{namespace: teamA, name: "between", gpus: 8, product: "H100"}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		start := c.withoutScheduler(ctx)
		c.submit(ctx, j)
		Eventually(func(g Gomega) {
			pods := c.podsOf(ctx, j)
			g.Expect(pods).To(HaveLen(1))
			g.Expect(observe.Gated(&pods[0])).To(BeFalse())
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		name := c.podsOf(ctx, j)[0].Spec.NodeSelector[corev1.LabelHostname]
		c.takeNode(ctx, cordoned, name)
		DeferCleanup(func(ctx context.Context) { c.bringNode(ctx, cordoned, name) })
		c.expectEvictedFor(ctx, j, v1alpha1.ReasonNodeUnavailable)
		start()
		pods := c.bound(ctx, j)
		Expect(pods[0].Spec.NodeName).NotTo(Equal(name))
		c.expectAsPromised(ctx, j, pods)
	})

	It("is doubled by no death of the manager between placing it anew and releasing its pod", func(ctx context.Context) {
		j := twice("killed")
		DeferCleanup(func(ctx context.Context) {
			c.remove(ctx, j)
			c.restartManager(ctx)
		})
		before := c.reached(faultpoint.AfterReplace)
		c.restartManager(ctx, faultpointEnv+faultpoint.AfterReplace)
		h := c.history()
		start := c.withoutPods(ctx)
		c.submit(ctx, j)
		first := c.admitted(ctx, j)
		c.takeNode(ctx, cordoned, "h100-0")
		DeferCleanup(func(ctx context.Context) { c.bringNode(ctx, cordoned, "h100-0") })
		start()
		c.dies(ctx, faultpoint.AfterReplace, before)
		amended := c.promise(ctx, j)
		Expect(amended.Spec.Key).To(Equal(first.Spec.Key))
		slots, _ := promisedOn(amended)
		Expect(slots).NotTo(HaveKey("h100-0"))
		Expect(c.podsOf(ctx, j)).To(ContainElement(WithTransform(func(p corev1.Pod) bool { return observe.Gated(&p) }, BeTrue())))
		Expect(c.StartManager(ctx)).To(Succeed())
		c.expectServed(ctx, j)
		c.expectNeverEvicted(ctx, j, first)
		Expect(c.promise(ctx, j).Spec.PodSets).To(Equal(amended.Spec.PodSets))
		c.finish(ctx, j)
		c.expectNothingDoubled(ctx, h)
	})

	DescribeTable("whose template changes after admission is given up, and the Job runs by what it says then",
		func(ctx context.Context, reason v1alpha1.Reason, again bool) {
			j := job{namespace: teamA, name: "edited", gpus: 4, product: "H100"}
			DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
			start := c.withoutPods(ctx)
			c.submit(ctx, j)
			c.admitted(ctx, j)
			Expect(c.Delete(ctx, j.template())).To(Succeed())
			changed := j
			changed.gpus = 2
			if again {
				Expect(c.Create(ctx, changed.template())).To(Succeed())
			}
			start()
			c.expectEvictedFor(ctx, j, reason)
			if !again {
				Expect(c.Create(ctx, changed.template())).To(Succeed())
			}
			pods := c.bound(ctx, j)
			Expect(c.devicesOf(ctx, &pods[0])).To(HaveLen(2))
			c.expectServed(ctx, changed)
		},
		Entry("deleted", v1alpha1.ReasonClaimTemplateNotFound, false),
		Entry("deleted and made anew", v1alpha1.ReasonPodChanged, true),
	)
})
