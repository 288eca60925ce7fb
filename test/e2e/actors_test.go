package e2e

import (
	"context"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// ownGate is a gate that a Job's user keeps on its pods, so that the manager cuts their claims and releases them later.
const ownGate = "example.com/order"

// member returns a client with the rights that ClusterRoles give in one namespace.
func (c *cluster) member(ctx context.Context, name, namespace string, roles ...string) client.Client {
	GinkgoHelper()
	for _, role := range roles {
		Expect(c.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		})).To(Succeed())
	}
	cfg, err := c.User(name)
	Expect(err).NotTo(HaveOccurred())
	return clientFor(cfg)
}

// waitsForOwnGate waits until each pod of a Job with ownGate has its claims and nothing is left to do but to lift that gate.
func (c *cluster) waitsForOwnGate(ctx context.Context, j job) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(func(g Gomega) {
		pods = c.podsOf(ctx, j)
		g.Expect(pods).To(HaveLen(int(max(j.pods, 1))))
		for i := range pods {
			g.Expect(pods[i].DeletionTimestamp).To(BeNil())
			g.Expect(pods[i].Status.ResourceClaimStatuses).To(HaveLen(1))
		}
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	return pods
}

// liftOwnGate takes ownGate off the pods of a Job and off those that come after them.
func (c *cluster) liftOwnGate(ctx context.Context, j job) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(func(g Gomega) {
		pods = c.podsOf(ctx, j)
		g.Expect(pods).To(HaveLen(int(max(j.pods, 1))))
		for i := range pods {
			p := &pods[i]
			if slices.ContainsFunc(p.Spec.SchedulingGates, func(s corev1.PodSchedulingGate) bool { return s.Name == ownGate }) {
				patch := client.MergeFromWithOptions(p.DeepCopy(), client.MergeFromWithOptimisticLock{})
				p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(s corev1.PodSchedulingGate) bool { return s.Name == ownGate })
				g.Expect(c.Patch(ctx, p, patch)).To(Succeed())
			}
			g.Expect(p.Spec.NodeName).NotTo(BeEmpty())
		}
	}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	return pods
}

func withOwnGate(b *batchv1.Job) {
	b.Spec.Template.Spec.SchedulingGates = append(b.Spec.Template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: ownGate})
}

// expectOnlyGranted holds every allocation of the cluster against the Placements: each device once, and only where the live
// Placement of its pod's Workload promised it, on that pod's node.
func (c *cluster) expectOnlyGranted(ctx context.Context) {
	GinkgoHelper()
	claims, pods, workloads, placed := &resourcev1.ResourceClaimList{}, &corev1.PodList{}, &kueue.WorkloadList{}, &v1alpha1.PlacementList{}
	for _, list := range []client.ObjectList{claims, pods, workloads, placed} {
		Expect(c.List(ctx, list)).To(Succeed())
	}
	granted := map[types.UID]map[string][]string{} // by the Workload's owner and node
	for i := range placed.Items {
		p := &placed.Items[i]
		for k := range workloads.Items {
			wl := &workloads.Items[k]
			key, err := admission.KeyOf(wl)
			Expect(err).NotTo(HaveOccurred())
			if key != nil && ledger.SameKey(key, p.Spec.Key) && wl.Namespace == p.Namespace && wl.Name == p.Name {
				_, granted[observe.ControllerOf(wl)] = promisedOn(p)
			}
		}
	}
	holder := map[string]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		name := claim.Namespace + "/" + claim.Name
		if claim.Status.Allocation == nil {
			continue
		}
		at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.UID == observe.ControllerOf(claim) })
		Expect(at).NotTo(BeNumerically("<", 0), "claim %s has devices and no pod", name)
		pod := &pods.Items[at]
		for _, r := range claim.Status.Allocation.Devices.Results {
			id := ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}.String()
			Expect(holder).NotTo(HaveKey(id), "claim %s has it too", name)
			holder[id] = name
			Expect(granted[observe.ControllerOf(pod)][pod.Spec.NodeName]).To(ContainElement(id), "claim %s has what nobody promised", name)
		}
	}
}

// refusedWith matches an error by which the API server forbids something in these words.
func refusedWith(words string) OmegaMatcher {
	return And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(words)))
}

// mergePatch patches an object, or a subresource of it, with JSON that somebody wrote by hand.
func mergePatch(ctx context.Context, as client.Client, o client.Object, body string, subresource ...string) error {
	p := client.RawPatch(types.MergePatchType, []byte(body))
	if len(subresource) > 0 {
		return as.SubResource(subresource[0]).Patch(ctx, o, p)
	}
	return as.Patch(ctx, o, p)
}

// allGPUs is a claim for as many devices as a node has.
func allGPUs() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourcev1.DeviceAllocationModeAll},
	}}}}
}

// ownPod is a pod that somebody makes by hand, with a claim from a template if one is named.
func ownPod(name, template string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "training"}}},
	}
	if template != "" {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To(template)}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	change(p)
	return p
}

// marks returns the labels of a Job's pod without those by which the Job finds its pods: the Job would count a copy of
// all as one pod too many, and delete it.
func marks(p *corev1.Pod) map[string]string {
	out := maps.Clone(p.Labels)
	for _, name := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(out, name)
	}
	return out
}

// ownedBy makes a Job the controller of an object.
func ownedBy(o client.Object, b *batchv1.Job) {
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(b, batchv1.SchemeGroupVersion.WithKind("Job"))})
}
