package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// right is a verb on a resource, as in "patch workloads.kueue.x-k8s.io/status".
func (c *cluster) may(ctx context.Context, as client.Client, right, namespace, name string) bool {
	GinkgoHelper()
	verb, what, _ := strings.Cut(right, " ")
	what, sub, _ := strings.Cut(what, "/")
	res, group, _ := strings.Cut(what, ".")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: res, Subresource: sub, Namespace: namespace, Name: name,
	}}}
	Expect(as.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// jsonPatch is a JSON patch of one operation after another.
func jsonPatch(ops ...map[string]any) client.Patch {
	GinkgoHelper()
	raw, err := json.Marshal(ops)
	Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.JSONPatchType, raw)
}

// checks is the apply configuration of a Workload's admission checks, as the manager writes it, with something besides.
func checks(wl *kueue.Workload, status map[string]any, states ...map[string]any) *unstructured.Unstructured {
	list := []any{}
	for _, s := range states {
		s["lastTransitionTime"] = time.Now().UTC().Format(time.RFC3339)
		list = append(list, s)
	}
	if status == nil {
		status = map[string]any{}
	}
	status["admissionChecks"] = list
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueue.GroupVersion.String(), "kind": "Workload",
		"metadata": map[string]any{"name": wl.Name, "namespace": wl.Namespace}, "status": status,
	}}
}

var _ = Describe("The manager's own account", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var as client.Client
	gated := job{namespace: teamA, name: "gated", gpus: 2, change: withOwnGate}
	waiting := job{namespace: teamA, name: "nine", gpus: 9}

	// The manager is stopped, so that nobody but the specs writes under its name.
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		Expect(c.Create(ctx, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/other"}})).To(Succeed())
		c.submit(ctx, gated)
		c.waitsForOwnGate(ctx, gated)
		c.submit(ctx, waiting)
		Eventually(func() *v1alpha1.Placement { return c.placement(ctx, waiting) }).ShouldNot(BeNil())
		Expect(c.StopManager(ctx)).To(Succeed())
		as = clientFor(c.Manager())
	})

	const sentence = "The Plimsoll manager may"
	update := func(ctx context.Context, change func(*kueue.Workload)) error {
		wl := c.workload(ctx, waiting)
		patch := client.MergeFrom(wl.DeepCopy())
		change(wl)
		return as.Patch(ctx, wl, patch)
	}
	apply := func(ctx context.Context, u *unstructured.Unstructured) error {
		return as.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldOwner), client.ForceOwnership)
	}
	ready := func() map[string]any {
		return map[string]any{"name": check, "state": "Ready", "message": "by hand",
			"podSetUpdates": []any{map[string]any{"name": "main", "labels": map[string]any{v1alpha1.ManagedLabel: "true"}}}}
	}

	It("may read what the ledger is made of, and nothing secret", func(ctx context.Context) {
		for _, r := range []string{"nodes", "pods", "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io",
			"deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io", "placements.plimsoll.dev", "devicepolicies.plimsoll.dev", "namespaces", "limitranges",
			"persistentvolumes", "persistentvolumeclaims", "runtimeclasses.node.k8s.io", "storageclasses.storage.k8s.io", "workloads.kueue.x-k8s.io",
			"clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io", "admissionchecks.kueue.x-k8s.io", "jobs.batch"} {
			for _, verb := range []string{"get", "list", "watch"} {
				Expect(c.may(ctx, as, verb+" "+r, teamA, "")).To(BeTrue(), verb+" "+r)
			}
		}
		for _, r := range []string{"secrets", "configmaps", "serviceaccounts", "pods/log", "leases.coordination.k8s.io"} {
			Expect(c.may(ctx, as, "get "+r, teamA, "")).To(BeFalse(), r)
		}
		Expect(as.List(ctx, &corev1.SecretList{})).To(refusedWith(`cannot list resource "secrets"`))
	})

	It("may not write what is somebody else's", func(ctx context.Context) {
		const claims, templates = "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"
		for _, right := range []string{
			"create " + claims, "update " + claims, "patch " + claims, "delete " + claims, "deletecollection " + claims,
			"update " + claims + "/status", "patch " + claims + "/status", "update " + claims + "/binding", "patch " + claims + "/binding",
			"update " + claims + "/driver", "associated-node:update " + claims + "/driver", "arbitrary-node:update " + claims + "/driver",
			"create resourceslices.resource.k8s.io", "update resourceslices.resource.k8s.io", "delete resourceslices.resource.k8s.io",
			"create deviceclasses.resource.k8s.io", "update devicetaintrules.resource.k8s.io",
			"update " + templates, "patch " + templates, "deletecollection " + templates,
			"create pods", "update pods", "delete pods", "deletecollection pods", "create pods/binding", "create pods/eviction", "create pods/exec", "patch pods/status", "patch pods/ephemeralcontainers", "patch pods/resize",
			"patch nodes", "update nodes", "patch nodes/status", "create jobs.batch", "patch jobs.batch", "delete jobs.batch", "patch jobs.batch/status",
			"create workloads.kueue.x-k8s.io", "update workloads.kueue.x-k8s.io", "delete workloads.kueue.x-k8s.io", "update workloads.kueue.x-k8s.io/status",
			"patch clusterqueues.kueue.x-k8s.io", "patch localqueues.kueue.x-k8s.io", "patch resourceflavors.kueue.x-k8s.io", "patch admissionchecks.kueue.x-k8s.io",
			"create devicepolicies.plimsoll.dev", "patch devicepolicies.plimsoll.dev", "delete devicepolicies.plimsoll.dev", "deletecollection placements.plimsoll.dev",
			"create secrets", "patch secrets", "create configmaps", "patch configmaps", "patch namespaces", "create serviceaccounts/token", "impersonate users", "impersonate serviceaccounts",
			"create roles.rbac.authorization.k8s.io", "patch clusterroles.rbac.authorization.k8s.io", "escalate clusterroles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io",
			"patch validatingadmissionpolicybindings.admissionregistration.k8s.io", "patch mutatingwebhookconfigurations.admissionregistration.k8s.io", "patch customresourcedefinitions.apiextensions.k8s.io",
			"create leases.coordination.k8s.io", "patch leases.coordination.k8s.io",
		} {
			for _, namespace := range []string{teamA, "kube-system"} {
				Expect(c.may(ctx, as, right, namespace, "")).To(BeFalse(), "%s in %s", right, namespace)
			}
		}
		Expect(c.may(ctx, as, "update leases.coordination.k8s.io", v1alpha1.SystemNamespace, "another")).To(BeFalse())
		for _, right := range []string{"create configmaps", "get secrets", "patch secrets", "delete pods"} {
			Expect(c.may(ctx, as, right, v1alpha1.SystemNamespace, "")).To(BeFalse(), right)
		}
	})

	It("is refused the writes that would take devices past the scheduler", func(ctx context.Context) {
		pod := c.podsOf(ctx, gated)[0]
		claim := &resourcev1.ResourceClaim{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: teamA, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}, claim)).To(Succeed())
		allocated := claim.DeepCopy()
		allocated.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: "gpu.nvidia.com", Pool: "h100-0", Device: "gpu-0"}}}}
		Expect(as.Status().Update(ctx, allocated)).To(refusedWith(`cannot update resource "resourceclaims/status"`))
		Expect(as.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "own"}, Spec: allGPUs()})).To(refusedWith(`cannot create resource "resourceclaims"`))
		Expect(as.Delete(ctx, claim.DeepCopy())).To(refusedWith(`cannot delete resource "resourceclaims"`))
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "h100-0"}}
		Expect(as.SubResource("binding").Create(ctx, pod.DeepCopy(), binding)).To(refusedWith(`cannot create resource "pods/binding"`))
		Expect(as.Delete(ctx, pod.DeepCopy())).To(refusedWith(`cannot delete resource "pods"`))
	})

	It("steers and notes in a Workload's spec, and changes nothing else there", func(ctx context.Context) {
		Expect(update(ctx, func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.Overhead = corev1.ResourceList{"gpus": resource.MustParse("7")}
			wl.Spec.PodSets[0].Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"x"}
			wl.Annotations[v1alpha1.ChargeAnnotation] = `{"main":"7"}`
		})).To(Succeed())
		nonce := func(wl *kueue.Workload, active bool) {
			wl.Annotations[v1alpha1.SteeringAnnotation], wl.Spec.Active = "nonce", ptr.To(active)
		}
		Expect(update(ctx, func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) })).To(refusedWith("may deactivate a Workload only together with annotation plimsoll.dev/steering"))
		Expect(update(ctx, func(wl *kueue.Workload) { nonce(wl, false) })).To(Succeed())
		Expect(update(ctx, func(wl *kueue.Workload) {
			delete(wl.Annotations, v1alpha1.SteeringAnnotation)
			wl.Spec.Active = ptr.To(true)
		})).To(Succeed())
		c.setActive(ctx, c.workload(ctx, waiting), false)
		Expect(update(ctx, func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) })).To(refusedWith("may activate only a Workload that it deactivated itself"))
		Expect(update(ctx, func(wl *kueue.Workload) { nonce(wl, false) })).To(refusedWith("only together with deactivating a Workload that is active"))
		c.setActive(ctx, c.workload(ctx, waiting), true)
		for name, change := range map[string]func(*kueue.Workload){
			"queue":      func(wl *kueue.Workload) { wl.Spec.QueueName = "other" },
			"priority":   func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To[int32](9) },
			"count":      func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 2 },
			"image":      func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Containers[0].Image = "other" },
			"selector":   func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"a": "b"} },
			"labels":     func(wl *kueue.Workload) { wl.Labels = map[string]string{"a": "b"} },
			"annotation": func(wl *kueue.Workload) { wl.Annotations["example.com/other"] = "x" },
			"finalizers": func(wl *kueue.Workload) { wl.Finalizers = nil },
			"owners":     func(wl *kueue.Workload) { wl.OwnerReferences = nil },
		} {
			Expect(update(ctx, change)).To(refusedWith(sentence), name)
		}
	})

	It("writes its own check in a Workload's status, and nothing else there", func(ctx context.Context) {
		wl := c.workload(ctx, gated)
		Expect(apply(ctx, checks(wl, nil, ready()))).To(Succeed())
		Expect(c.workload(ctx, gated).Status.AdmissionChecks).To(ConsistOf(HaveField("Message", "by hand")))
		with := func(change func(map[string]any)) map[string]any {
			s := ready()
			change(s)
			return s
		}
		updates := func(what map[string]any) map[string]any {
			return with(func(s map[string]any) { what["name"] = "main"; s["podSetUpdates"] = []any{what} })
		}
		label := map[string]any{v1alpha1.ManagedLabel: "true"}
		for name, u := range map[string]*unstructured.Unstructured{
			"Retry":          checks(wl, nil, with(func(s map[string]any) { s["state"], s["podSetUpdates"] = "Retry", []any{} })),
			"Rejected":       checks(wl, nil, with(func(s map[string]any) { s["state"], s["podSetUpdates"] = "Rejected", []any{} })),
			"another check":  checks(wl, nil, ready(), map[string]any{"name": "foreign", "state": "Ready", "message": "by hand"}),
			"another label":  checks(wl, nil, updates(map[string]any{"labels": map[string]any{"a": "b"}})),
			"a nodeSelector": checks(wl, nil, updates(map[string]any{"labels": label, "nodeSelector": map[string]any{"a": "b"}})),
			"tolerations":    checks(wl, nil, updates(map[string]any{"labels": label, "tolerations": []any{map[string]any{"operator": "Exists"}}})),
			"an annotation":  checks(wl, nil, updates(map[string]any{"labels": label, "annotations": map[string]any{"a": "b"}})),
			"a condition": checks(wl, map[string]any{"conditions": []any{map[string]any{"type": "Finished", "status": "True", "reason": "X", "message": "x",
				"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}, ready()),
			"reclaimable pods": checks(wl, map[string]any{"reclaimablePods": []any{map[string]any{"name": "main", "count": int64(1)}}}, ready()),
		} {
			Expect(apply(ctx, u)).To(Or(refusedWith(sentence), MatchError(ContainSubstring("podSetUpdates"))), name)
		}
		Expect(mergePatch(ctx, as, wl.DeepCopy(), `{"status":{"admission":null}}`, "status")).To(refusedWith(sentence))
		Expect(mergePatch(ctx, as, wl.DeepCopy(), `{"status":{"admissionChecks":[]}}`, "status")).To(refusedWith(sentence))
	})

	It("takes a pod's gate away and pins it, and changes nothing else there", func(ctx context.Context) {
		pod := c.podsOf(ctx, gated)[0]
		at := 0
		for i, g := range pod.Spec.SchedulingGates {
			if g.Name == v1alpha1.PlacementGate {
				at = i
			}
		}
		for name, body := range map[string]string{
			"both gates": `{"spec":{"schedulingGates":null}}`, "another gate": `{"spec":{"schedulingGates":[{"name":"plimsoll.dev/placement"}]}}`,
			"another selector": `{"spec":{"nodeSelector":{"a":"b"}}}`, "a label": `{"metadata":{"labels":{"a":"b"}}}`, "an annotation": `{"metadata":{"annotations":{"a":"b"}}}`,
			"an owner": `{"metadata":{"ownerReferences":null}}`, "the finalizers": `{"metadata":{"finalizers":null}}`,
			"the deadline": `{"spec":{"activeDeadlineSeconds":1}}`,
		} {
			Expect(mergePatch(ctx, as, pod.DeepCopy(), body)).To(refusedWith(sentence), name)
		}
		for _, op := range []map[string]any{
			{"op": "add", "path": "/spec/tolerations/-", "value": map[string]any{"operator": "Exists", "key": "a"}},
			{"op": "replace", "path": "/spec/containers/0/image", "value": "other"},
		} {
			Expect(as.Patch(ctx, pod.DeepCopy(), jsonPatch(op))).To(refusedWith(sentence), "%v", op)
		}
		Expect(as.Patch(ctx, pod.DeepCopy(), jsonPatch(
			map[string]any{"op": "remove", "path": "/spec/schedulingGates/" + string(rune('0'+at))},
			map[string]any{"op": "add", "path": "/spec/nodeSelector/kubernetes.io~1hostname", "value": "mixed-0"},
		))).To(Succeed())
		Expect(observe.Gated(&c.podsOf(ctx, gated)[0])).To(BeFalse())
	})

	It("makes templates of its own form, and no others", func(ctx context.Context) {
		pod := c.podsOf(ctx, gated)[0]
		mark := map[string]string{v1alpha1.OwnedLabel: "true"}
		form := func(change func(*resourcev1.ResourceClaimTemplate)) *resourcev1.ResourceClaimTemplate {
			t := &resourcev1.ResourceClaimTemplate{ObjectMeta: ofPod(&pod, "gated-plimsoll-0123456789"),
				Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: mark}, Spec: allGPUs()}}
			change(t)
			return t
		}
		right := form(func(*resourcev1.ResourceClaimTemplate) {})
		Expect(as.Create(ctx, right)).To(Succeed())
		Expect(as.Delete(ctx, right)).To(Succeed())
		for name, change := range map[string]func(*resourcev1.ResourceClaimTemplate){
			"another name":   func(t *resourcev1.ResourceClaimTemplate) { t.Name = "plain" },
			"no label":       func(t *resourcev1.ResourceClaimTemplate) { t.Labels = nil },
			"unmarked claim": func(t *resourcev1.ResourceClaimTemplate) { t.Spec.Labels = nil },
			"no owner":       func(t *resourcev1.ResourceClaimTemplate) { t.OwnerReferences = nil },
			"a Job as owner": func(t *resourcev1.ResourceClaimTemplate) {
				ownedBy(t, gated.object())
				t.OwnerReferences[0].UID = pod.UID
			},
			"a finalizer": func(t *resourcev1.ResourceClaimTemplate) { t.Finalizers = []string{"example.com/stay"} },
		} {
			Expect(as.Create(ctx, form(change))).To(Or(refusedWith("The Plimsoll manager may"), refusedWith("A claim template of the Plimsoll manager must")), name)
		}
		Expect(as.Delete(ctx, gated.template())).To(refusedWith("may write and delete only claim templates with label plimsoll.dev/owned=true"))
	})

	It("writes Placements, whole and with their status", func(ctx context.Context) {
		p := c.placement(ctx, waiting)
		owners := p.OwnerReferences
		Expect(as.Delete(ctx, p)).To(Succeed())
		p = &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: p.Name, OwnerReferences: owners}}
		p.Spec.Epoch = ptr.To[int64](7)
		Expect(as.Create(ctx, p)).To(Succeed())
		p.Status.Retry = &v1alpha1.PlacementRetry{Count: 1}
		Expect(as.Status().Update(ctx, p)).To(Succeed())
		p.Spec.Epoch = ptr.To[int64](8)
		Expect(as.Update(ctx, p)).To(Succeed())

		By("but not against a newer leader, nor one that outlives its Workload")
		older := p.DeepCopy()
		older.Spec.Epoch = ptr.To[int64](7)
		Expect(as.Update(ctx, older)).To(MatchError(ContainSubstring("a newer leader wrote this Placement: epoch may not go down")))
		Expect(mergePatch(ctx, as, p.DeepCopy(), `{"spec":{"epoch":null}}`)).To(MatchError(ContainSubstring("epoch may not go down")))
		Expect(as.Create(ctx, &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "stray"}})).
			To(refusedWith("A Placement must have the Workload of its name as owner and no finalizer"))
	})

	It("writes events, its Lease, and what it found about policies and checks", func(ctx context.Context) {
		Expect(as.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "by-hand"}, EventTime: metav1.NowMicro(), Type: corev1.EventTypeNormal, Reason: "Placed", Action: "Decide",
			ReportingController: "plimsoll", ReportingInstance: "x", Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: teamA, Name: "x"},
		})).To(Succeed())
		lease := &coordinationv1.Lease{}
		Expect(as.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.LeaseName}, lease)).To(Succeed())
		Expect(as.Update(ctx, lease)).To(Succeed())
		Expect(as.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "mine"}})).To(refusedWith(`cannot create resource "leases"`))
		Expect(mergePatch(ctx, as, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "h100-0"}}, `{"spec":{"holderIdentity":"me"}}`)).
			To(refusedWith(`cannot patch resource "leases"`))

		dp := &v1alpha1.DevicePolicy{}
		Expect(as.Get(ctx, client.ObjectKey{Name: "gpu"}, dp)).To(Succeed())
		Expect(mergePatch(ctx, as, dp, `{"status":{"revision":"by-hand"}}`, "status")).To(Succeed())
		Expect(mergePatch(ctx, as, dp, `{"spec":{"mode":"Frozen"}}`)).To(refusedWith(`cannot patch resource "devicepolicies"`))

		condition := metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionFalse, Reason: "ByHand", Message: "x"}
		for name, want := range map[string]OmegaMatcher{check: Succeed(), "foreign": refusedWith("may write the status of AdmissionChecks whose controllerName is plimsoll.dev/ledger")} {
			ac := &kueue.AdmissionCheck{}
			Expect(as.Get(ctx, client.ObjectKey{Name: name}, ac)).To(Succeed())
			patch := client.MergeFrom(ac.DeepCopy())
			meta.SetStatusCondition(&ac.Status.Conditions, condition)
			Expect(as.Status().Patch(ctx, ac, patch)).To(want, name)
		}
		Expect(as.Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "x"}, Spec: gated.object().Spec})).To(refusedWith(`cannot create resource "jobs"`))
	})
})
