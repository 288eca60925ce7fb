package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

var _ = Describe("A tenant who may edit his namespace", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var mallory, lord client.Client // lord may do everything in the namespace, whatever RBAC's own roles say
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		mallory = c.member(ctx, "mallory", teamA, "edit", "kueue-batch-user-role")
		lord = c.member(ctx, "lord", teamA, "cluster-admin")
		Expect(c.Create(ctx, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "all"},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: allGPUs()}})).To(Succeed())
	})
	BeforeEach(func() { DeferCleanup(func(ctx context.Context) { c.expectFree(ctx) }) })

	// granted submits a Job as the tenant, waits until its pods have their claims, and gives all back at the end.
	granted := func(ctx context.Context, j job) []corev1.Pod {
		GinkgoHelper()
		change := j.change
		j.change = func(b *batchv1.Job) {
			withOwnGate(b)
			if change != nil {
				change(b)
			}
		}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(mallory.Create(ctx, j.template())).To(Succeed())
		Expect(mallory.Create(ctx, j.object())).To(Succeed())
		return c.waitsForOwnGate(ctx, j)
	}
	// own makes a pod by hand as the tenant, and takes it away at the end.
	own := func(ctx context.Context, p *corev1.Pod) error {
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(c.Delete(ctx, p, client.GracePeriodSeconds(0)))).To(Succeed())
		})
		return mallory.Create(ctx, p)
	}
	// inPlaceOf puts a pod of his own in the place of a Job's, and waits until its events tell what came of it. The Job
	// controller, which would be as fast, is stopped meanwhile.
	inPlaceOf := func(ctx context.Context, pod, by *corev1.Pod, told string) {
		GinkgoHelper()
		Expect(c.StopComponent(ctx, lab.ControllerManager)).To(Succeed())
		start := sync.OnceValue(func() error { return c.StartComponent(ctx, lab.ControllerManager) })
		defer func() { _ = start() }() // where an expectation fails
		Expect(own(ctx, by)).To(Succeed())
		Expect(mergePatch(ctx, mallory, pod, `{"metadata":{"finalizers":null}}`)).To(Succeed())
		Expect(mallory.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(func() []string { return c.events(ctx, teamA, "Pod", by.Name) }).Should(ContainElement(HavePrefix(told)))
		Expect(start()).To(Succeed())
	}
	ended := func(ctx context.Context, j job) {
		GinkgoHelper()
		c.expectAsPromised(ctx, j, c.liftOwnGate(ctx, j))
		c.expectOnlyGranted(ctx)
	}

	It("cannot take the gate off his pod, bind it or write its status", func(ctx context.Context) {
		j := job{namespace: teamA, name: "gated", gpus: 2}
		pod := granted(ctx, j)[0]
		const sentence = "Only the Plimsoll manager may remove scheduling gate plimsoll.dev/placement"
		for _, as := range []client.Client{mallory, lord} {
			Expect(mergePatch(ctx, as, pod.DeepCopy(), `{"spec":{"schedulingGates":null}}`)).To(refusedWith(sentence))
			Expect(mergePatch(ctx, as, pod.DeepCopy(), `{"metadata":{"labels":null},"spec":{"schedulingGates":[{"name":"example.com/order"}]}}`)).To(refusedWith(sentence))
			changed := c.podsOf(ctx, j)[0]
			changed.Spec.SchedulingGates = nil
			Expect(as.Update(ctx, &changed)).To(refusedWith(sentence))
		}
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "h100-0"}}
		Expect(mallory.SubResource("binding").Create(ctx, pod.DeepCopy(), binding.DeepCopy())).To(refusedWith(`cannot create resource "pods/binding"`))
		Expect(lord.SubResource("binding").Create(ctx, pod.DeepCopy(), binding.DeepCopy())).To(MatchError(ContainSubstring("has non-empty .spec.schedulingGates")))
		for _, s := range []string{"status", "ephemeralcontainers", "resize"} {
			Expect(mergePatch(ctx, mallory, pod.DeepCopy(), `{"spec":{"schedulingGates":null}}`, s)).To(refusedWith("cannot"))
			_ = mergePatch(ctx, lord, pod.DeepCopy(), `{"spec":{"schedulingGates":null}}`, s) // dropped by some, refused by others
			Expect(c.podsOf(ctx, j)[0].Spec.SchedulingGates).To(HaveLen(2), s)
		}
		ended(ctx, j)
	})

	It("cannot forge a Placement", func(ctx context.Context) {
		j := job{namespace: teamA, name: "forged", gpus: 2}
		granted(ctx, j)
		p := c.placement(ctx, j)
		forged := p.DeepCopy()
		forged.ObjectMeta = metav1.ObjectMeta{Namespace: teamA, Name: "mine", OwnerReferences: p.OwnerReferences}
		const more = `{"spec":{"podSets":[]}}`
		const record = `{"status":{"record":{"verdict":"Admit","time":"2026-01-01T00:00:00Z"}}}`
		Expect(mallory.Create(ctx, forged.DeepCopy())).To(refusedWith(`cannot create resource "placements"`))
		Expect(mergePatch(ctx, mallory, p.DeepCopy(), more)).To(refusedWith(`cannot patch resource "placements"`))
		Expect(mergePatch(ctx, mallory, p.DeepCopy(), record, "status")).To(refusedWith(`cannot patch resource "placements/status"`))
		Expect(mallory.Delete(ctx, p.DeepCopy())).To(refusedWith(`cannot delete resource "placements"`))
		// whoever has every right in the namespace is told who writes them
		const sentence = "Only the Plimsoll manager may write Placements"
		Expect(lord.Create(ctx, forged.DeepCopy())).To(refusedWith(sentence))
		Expect(mergePatch(ctx, lord, p.DeepCopy(), more)).To(refusedWith(sentence))
		Expect(mergePatch(ctx, lord, p.DeepCopy(), record, "status")).To(refusedWith(sentence))
		changed := p.DeepCopy()
		changed.Spec.PodSets[0].Nodes[0].Slots = 9
		Expect(lord.Update(ctx, changed)).To(refusedWith(sentence))
		Expect(lord.Delete(ctx, p.DeepCopy())).To(refusedWith("may delete Placements"))
		Expect(lord.DeleteAllOf(ctx, p.DeepCopy(), client.InNamespace(teamA))).To(refusedWith("may delete Placements"))
		ended(ctx, j)
	})

	It("cannot write the template or the claim of his pod, nor change those that are there", func(ctx context.Context) {
		j := job{namespace: teamA, name: "cut", gpus: 2}
		pod := granted(ctx, j)[0]
		name := *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName
		const sentence = "Only the Plimsoll manager may make or change claim templates"
		template := func(change func(*resourcev1.ResourceClaimTemplate)) *resourcev1.ResourceClaimTemplate {
			t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: teamA}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: allGPUs()}}
			change(t)
			return t
		}
		other := name[:len(name)-1] + "0"
		if other == name {
			other = name[:len(name)-1] + "1"
		}
		mark := map[string]string{v1alpha1.OwnedLabel: "true"}
		for _, as := range []client.Client{mallory, lord} {
			Expect(as.Create(ctx, template(func(t *resourcev1.ResourceClaimTemplate) { t.Name = other }))).To(refusedWith(sentence))
			Expect(as.Create(ctx, template(func(t *resourcev1.ResourceClaimTemplate) { t.GenerateName = "cut-plimsoll-abcde" }))).To(refusedWith(sentence))
			Expect(as.Create(ctx, template(func(t *resourcev1.ResourceClaimTemplate) { t.Name, t.Labels = "mine", mark }))).To(refusedWith(sentence))
			Expect(as.Create(ctx, template(func(t *resourcev1.ResourceClaimTemplate) { t.Name, t.Spec.Labels = "mine", mark }))).
				To(refusedWith("Only the Plimsoll manager may make claim templates that put plimsoll.dev labels"))
			ours := template(func(t *resourcev1.ResourceClaimTemplate) { t.Name = name })
			Expect(mergePatch(ctx, as, ours, `{"metadata":{"labels":null,"ownerReferences":null}}`)).To(refusedWith(sentence))
			Expect(as.Delete(ctx, ours)).To(refusedWith("may delete a claim template of Plimsoll's"))
			Expect(as.DeleteAllOf(ctx, ours, client.InNamespace(teamA), client.MatchingLabels(mark))).To(refusedWith("may delete a claim template of Plimsoll's"))

			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}}
			Expect(as.Delete(ctx, claim)).To(refusedWith("delete the pod, and its claim goes too"))
			Expect(as.DeleteAllOf(ctx, claim, client.InNamespace(teamA))).To(refusedWith("delete the pod, and its claim goes too"))
			for _, body := range []string{
				`{"metadata":{"annotations":{"plimsoll.dev/devices":"gpu.nvidia.com/h100-0/gpu-0"}}}`, `{"metadata":{"annotations":null}}`,
				`{"metadata":{"labels":null}}`, `{"metadata":{"annotations":{"resource.kubernetes.io/pod-claim-name":"other"}}}`,
			} {
				Expect(mergePatch(ctx, as, claim.DeepCopy(), body)).To(refusedWith("Nobody may put plimsoll.dev labels or annotations on a claim that exists"), body)
			}
			Expect(mergePatch(ctx, as, claim.DeepCopy(), `{"metadata":{"ownerReferences":null}}`)).To(refusedWith("Only the garbage collector may change the owner"))
			mimic := &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "mimic", Labels: mark, Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "gpu"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}}},
				Spec: allGPUs(),
			}
			Expect(as.Create(ctx, mimic)).To(refusedWith("Only the resource claim controller may make claims with label plimsoll.dev/owned"))
		}
		ended(ctx, j)
	})

	It("gets nothing for a pod of his own that carries our marks", func(ctx context.Context) {
		j := job{namespace: teamA, name: "real", gpus: 2}
		pod := granted(ctx, j)[0]
		owner := &batchv1.Job{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(j.object()), owner)).To(Succeed())
		theirs := job{namespace: teamB, name: "theirs", gpus: 2}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, theirs) })
		other := c.submit(ctx, theirs)
		c.bound(ctx, theirs)
		copied := func(p *corev1.Pod) { p.Labels, p.Annotations = marks(&pod), pod.Annotations }
		const notManaged = "NotManaged: no Workload that Plimsoll manages owns this pod, so it stays gated"

		for name, try := range map[string]struct {
			pod  *corev1.Pod
			told string
		}{
			"the label":                    {ownPod("marked", "all", func(p *corev1.Pod) { p.Labels[v1alpha1.ManagedLabel] = "true" }), notManaged},
			"the label with another value": {ownPod("falsely", "all", func(p *corev1.Pod) { p.Labels[v1alpha1.ManagedLabel] = "false" }), notManaged},
			"the gate without the label": {ownPod("gated", "all", func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlacementGate}}
			}), notManaged},
			"all labels and annotations":        {ownPod("copied", "all", copied), notManaged},
			"the owner in another namespace":    {ownPod("abroad", "all", func(p *corev1.Pod) { copied(p); ownedBy(p, other) }), ""}, // garbage-collected
			"his template name, and annotation": {ownPod("second", *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName, copied), notManaged},
		} {
			Expect(own(ctx, try.pod)).To(Succeed(), name)
			if try.told != "" {
				Eventually(func() []string { return c.events(ctx, teamA, "Pod", try.pod.Name) }).Should(ContainElement(HavePrefix(try.told)), name)
			}
		}
		Consistently(func(g Gomega) {
			for _, name := range []string{"marked", "falsely", "gated", "copied", "abroad", "second"} {
				p := &corev1.Pod{}
				if err := c.Get(ctx, client.ObjectKey{Namespace: teamA, Name: name}, p); apierrors.IsNotFound(err) {
					g.Expect(name).To(Equal("abroad"))
					continue
				}
				g.Expect(observe.Gated(p)).To(BeTrue(), name)
			}
		}).Should(Succeed())
		c.expectOnlyGranted(ctx)
		ended(ctx, j)
	})

	It("has his Job put back for a pod that he smuggles into it, and told why", func(ctx context.Context) {
		j := job{namespace: teamA, name: "host", gpus: 2}
		pod := granted(ctx, j)[0]
		owner := &batchv1.Job{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(j.object()), owner)).To(Succeed())
		smuggled := ownPod("smuggled", "all", func(p *corev1.Pod) { p.Labels, p.Annotations = pod.Labels, pod.Annotations; ownedBy(p, owner) })
		inPlaceOf(ctx, &pod, smuggled, "PodChanged: pod smuggled: claim \"gpu\" is made from template \"all\"")
		ended(ctx, j)
	})

	It("cannot ride along on a claim of ours, by the scheduler or past it", func(ctx context.Context) {
		j := job{namespace: teamA, name: "driver", gpus: 2}
		pod := granted(ctx, j)[0]
		claim := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		ride := func(name, node string) *corev1.Pod {
			return ownPod(name, "x", func(p *corev1.Pod) {
				p.Spec.NodeName = node
				p.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To(claim)}
			})
		}
		Expect(own(ctx, ride("before", ""))).To(Succeed())
		Expect(own(ctx, ride("pinned", "h100-1"))).To(Succeed())
		Eventually(func() []string { return c.events(ctx, teamA, "Pod", "before") }).
			Should(ContainElement(ContainSubstring("A claim with label plimsoll.dev/owned is for the pod that owns it")))
		got := c.liftOwnGate(ctx, j)
		c.expectAsPromised(ctx, j, got)
		Expect(own(ctx, ride("after", ""))).To(Succeed())
		Eventually(func() []string { return c.events(ctx, teamA, "Pod", "after") }).
			Should(ContainElement(ContainSubstring("A claim with label plimsoll.dev/owned is for the pod that owns it")))
		have := &resourcev1.ResourceClaim{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: teamA, Name: claim}, have)).To(Succeed())
		Expect(have.Status.ReservedFor).To(ConsistOf(HaveField("UID", got[0].UID)))
		c.expectOnlyGranted(ctx)
	})

	It("gets exactly what was granted for a Job whose template carries our marks", func(ctx context.Context) {
		j := job{namespace: teamA, name: "posing", pods: 2, gpus: 2, change: func(b *batchv1.Job) {
			t := &b.Spec.Template
			t.Labels = map[string]string{v1alpha1.ManagedLabel: "true", v1alpha1.OwnedLabel: "true"}
			t.Annotations = map[string]string{
				v1alpha1.ClaimTemplatesAnnotation: `{"gpu":"all"}`, v1alpha1.DevicesAnnotation: "gpu.nvidia.com/h100-0/gpu-0", v1alpha1.SlotAnnotation: "main/h100-0/0",
				v1alpha1.ChargeAnnotation: `{"main":"0"}`, v1alpha1.AllowedFlavorsAnnotation: "other",
			}
			t.Spec.SchedulingGates = append(t.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.PlacementGate})
			b.Annotations = map[string]string{v1alpha1.ChargeAnnotation: `{"main":"0"}`, v1alpha1.AllowedFlavorsAnnotation: "other"}
		}}
		granted(ctx, j)
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(4))
		ended(ctx, j)
	})

	It("is told when he takes the label off a pod, and has it back at the next", func(ctx context.Context) {
		j := job{namespace: teamA, name: "bare", gpus: 2}
		pod := granted(ctx, j)[0]
		Expect(mergePatch(ctx, mallory, pod.DeepCopy(), `{"metadata":{"labels":{"plimsoll.dev/managed":null}}}`)).To(Succeed())
		Eventually(func() []string { return c.events(ctx, teamA, "Pod", pod.Name) }).
			Should(ContainElement(HavePrefix("PodChanged: someone took label plimsoll.dev/managed off pod " + pod.Name)))
		Eventually(func() []corev1.Pod { return c.podsOf(ctx, j) }).Should(And(HaveLen(1), Not(ContainElement(HaveField("UID", pod.UID)))))
		ended(ctx, j)
	})

	It("is charged anew when he makes his template another between grant and release", func(ctx context.Context) {
		j := job{namespace: teamA, name: "swap", gpus: 2, product: "L4"}
		pod := granted(ctx, j)[0]
		Expect(mallory.Delete(ctx, j.template())).To(Succeed())
		greedy := job{namespace: teamA, name: "swap", gpus: 8, product: "H100"}
		Expect(mallory.Create(ctx, greedy.template())).To(Succeed())
		Eventually(func() []string { // the manager may see the pod before it sees the template
			touch(ctx, mallory, &pod)
			return c.events(ctx, teamA, "Pod", pod.Name)
		}).
			Should(ContainElement("PodChanged: ResourceClaimTemplate swap asks for 8 devices now, 2 were promised"))
		ended(ctx, j)
		Eventually(func() int64 { return c.usage(ctx, teamA) }).Should(BeEquivalentTo(8))
	})

	It("is placed anew when he selects other devices between grant and release", func(ctx context.Context) {
		j := job{namespace: teamA, name: "turn", gpus: 2, product: "H100"}
		pod := granted(ctx, j)[0]
		Expect(mallory.Delete(ctx, j.template())).To(Succeed())
		other := job{namespace: teamA, name: "turn", gpus: 2, product: "A100"}
		Expect(mallory.Create(ctx, other.template())).To(Succeed())
		Eventually(func() []string { // the manager may see the pod before it sees the template
			touch(ctx, mallory, &pod)
			return c.events(ctx, teamA, "Pod", pod.Name)
		}).
			Should(ContainElement(And(HavePrefix("PodChanged: device gpu.nvidia.com/"), ContainSubstring("ResourceClaimTemplate turn"))))
		ended(ctx, j)
		Expect(c.placement(ctx, j).Spec.PodSets[0].Flavor).To(Equal("a100"))
	})

	It("gets no device by a resource's name", func(ctx context.Context) {
		const name = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
		j := job{namespace: teamA, name: "extended", change: func(b *batchv1.Job) {
			r := &b.Spec.Template.Spec.Containers[0].Resources
			r.Requests[name], r.Limits = resource.MustParse("4"), corev1.ResourceList{name: resource.MustParse("4")}
		}}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(mallory.Create(ctx, j.object())).To(Succeed())
		Eventually(func(g Gomega) {
			wl := c.workload(ctx, j)
			g.Expect(wl).NotTo(BeNil())
			cond := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect(cond).NotTo(BeNil())
			g.Expect(cond.Message).To(ContainSubstring("resource " + name + " unavailable in ClusterQueue"))
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		Consistently(func() []corev1.Pod { return c.podsOf(ctx, j) }).Should(BeEmpty())

		By("not on a pod that takes the place of a granted one either")
		host := job{namespace: teamA, name: "trojan", gpus: 2}
		pod := granted(ctx, host)[0]
		owner := &batchv1.Job{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(host.object()), owner)).To(Succeed())
		greedy := ownPod("greedy", "trojan", func(p *corev1.Pod) {
			p.Labels, p.Annotations = pod.Labels, pod.Annotations
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("4")}
			ownedBy(p, owner)
		})
		inPlaceOf(ctx, &pod, greedy, "PodChanged: pod greedy asks for more "+name+" than was promised to its podset")
		ended(ctx, host)
	})

	It("waits, and is told so, with pods for another scheduler, on a node of his choice or with somebody's claim", func(ctx context.Context) {
		for says, change := range map[string]func(*corev1.PodSpec){
			`spec.schedulerName "mine" is not supported`: func(s *corev1.PodSpec) { s.SchedulerName = "mine" },
			`spec.nodeName is not supported`:             func(s *corev1.PodSpec) { s.NodeName = "h100-0" },
			`spec.resourceClaims["gpu"].resourceClaimName is not supported`: func(s *corev1.PodSpec) {
				s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("somebodys")}}
			},
		} {
			j := job{namespace: teamA, name: "choosy", gpus: 2, change: func(b *batchv1.Job) { change(&b.Spec.Template.Spec) }}
			Expect(mallory.Create(ctx, j.template())).To(Succeed())
			Expect(mallory.Create(ctx, j.object())).To(Succeed())
			Eventually(func(g Gomega) {
				p := c.placement(ctx, j)
				g.Expect(p).NotTo(BeNil())
				g.Expect(p.Status.Record).NotTo(BeNil())
				g.Expect(p.Status.Record.Reason).To(Equal(v1alpha1.ReasonClaimUnsupported))
				g.Expect(p.Status.Record.Message).To(ContainSubstring(says))
			}).Should(Succeed(), func() string { return c.story(ctx, j) })
			Expect(c.usage(ctx, teamA)).To(BeZero())
			c.remove(ctx, j)
		}
	})

	It("gets nothing for a Job whose template carries our label with another value", func(ctx context.Context) {
		j := job{namespace: teamA, name: "valued", gpus: 2, change: func(b *batchv1.Job) { b.Spec.Template.Labels = map[string]string{v1alpha1.ManagedLabel: "false"} }}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(mallory.Create(ctx, j.template())).To(Succeed())
		Expect(mallory.Create(ctx, j.object())).To(Succeed())
		Eventually(func(g Gomega) { // Kueue's own answer to labels that contradict
			wl := c.workload(ctx, j)
			g.Expect(wl).NotTo(BeNil())
			cond := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
			g.Expect(cond).NotTo(BeNil())
			g.Expect(cond.Reason).To(Equal("FailedToStart"))
			g.Expect(cond.Message).To(ContainSubstring(v1alpha1.ManagedLabel))
			g.Expect(c.placement(ctx, j).Spec.Key).To(BeNil())
		}).Should(Succeed(), func() string { return c.story(ctx, j) })
		Expect(c.podsOf(ctx, j)).To(BeEmpty())
	})

	It("can take free devices without any queue where the namespace is not fenced, which these specs would find", func(ctx context.Context) {
		p := ownPod("plain", "all", func(*corev1.Pod) {})
		Expect(own(ctx, p)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Spec.NodeName).NotTo(BeEmpty())
		}).Should(Succeed())
		Expect(InterceptGomegaFailures(func() { c.expectOnlyGranted(ctx) })).To(ContainElement(ContainSubstring("has what nobody promised")))
	})

	It("cannot start a Job past Kueue, nor take devices without a queue, where the namespace is fenced", func(ctx context.Context) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamA}}
		fenced := `{"metadata":{"labels":{"` + v1alpha1.FencedLabel + `":"true"}}}`
		Expect(mergePatch(ctx, mallory, ns, fenced)).To(refusedWith(`cannot patch resource "namespaces"`))
		Expect(mergePatch(ctx, c.Client, ns, fenced)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(mergePatch(ctx, c.Client, ns, `{"metadata":{"labels":{"`+v1alpha1.FencedLabel+`":null}}}`)).To(Succeed())
		})
		const sentence = "In a namespace with label plimsoll.dev/fenced=true only pods from queues that Plimsoll serves may ask for devices"
		Eventually(func() error { return own(ctx, ownPod("plain", "all", func(*corev1.Pod) {})) }).Should(refusedWith(sentence))
		Expect(own(ctx, ownPod("named", "", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"deviceclass.resource.kubernetes.io/gpu.nvidia.com": resource.MustParse("1")}
		}))).To(refusedWith(sentence))
		Expect(own(ctx, ownPod("without", "", func(*corev1.Pod) {}))).To(Succeed())

		By("a Job that waits, and whose user sets suspend to false")
		j := job{namespace: teamA, name: "hasty", pods: 10, gpus: 5, change: func(b *batchv1.Job) { b.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600) }}
		DeferCleanup(func(ctx context.Context) { c.remove(ctx, j) })
		Expect(mallory.Create(ctx, j.template())).To(Succeed())
		Expect(mallory.Create(ctx, j.object())).To(Succeed())
		Eventually(func() *v1alpha1.Placement { return c.placement(ctx, j) }).ShouldNot(BeNil())
		Eventually(func() []string {
			Expect(mergePatch(ctx, mallory, j.object(), `{"spec":{"suspend":false}}`)).To(Succeed())
			return c.events(ctx, teamA, "Job", j.name)
		}).Should(ContainElement(And(HavePrefix("FailedCreate: "), ContainSubstring(sentence))))
		Expect(c.podsOf(ctx, j)).To(BeEmpty())

		By("a Job that waits its turn")
		k := job{namespace: teamA, name: "patient", gpus: 2}
		granted(ctx, k)
		ended(ctx, k)
	})
})

// touch changes a pod so that whoever watches it looks again.
func touch(ctx context.Context, as client.Client, p *corev1.Pod) {
	GinkgoHelper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"example.com/touched": fmt.Sprint(time.Now().UnixNano())}}})
	Expect(err).NotTo(HaveOccurred())
	Expect(client.IgnoreNotFound(mergePatch(ctx, as, p.DeepCopy(), string(body)))).To(Succeed())
}
