package policies

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

const (
	// ourTemplate has the shape of the manager's template names.
	ourTemplate = "train" + plimsoll.TemplateInfix + "a1b2c3d4e5"
	otherGate   = "example.com/other"
)

var one = resource.MustParse("1")

// podOption changes a pod before it is created.
type podOption func(*corev1.Pod)

func withGates(names ...string) podOption {
	return func(pod *corev1.Pod) {
		for _, name := range names {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
		}
	}
}

func withLabel(value string) podOption {
	return func(pod *corev1.Pod) { pod.Labels[plimsoll.ManagedLabel] = value }
}

func withTemplate(name string) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{
			Name: "gpu", ResourceClaimTemplateName: &name,
		})
	}
}

func (s *scene) newPod(name string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name,
			Labels: map[string]string{"app": "train"}, Annotations: map[string]string{"note": "theirs"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			NodeSelector:  map[string]string{"zone": "a"},
			Containers:    []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// pod is a pod that is there already.
func (s *scene) pod(name string, options ...podOption) *corev1.Pod {
	s.t.Helper()
	pod := s.newPod(name, options...)
	s.must(s.admin.Create(s.ctx(), pod))
	return pod
}

// managedPod is a pod as the webhook leaves it: labelled, gated, with a template of its own that is not there yet.
func (s *scene) managedPod(name string, more ...podOption) *corev1.Pod {
	s.t.Helper()
	options := append([]podOption{withLabel("true"), withGates(plimsoll.PlacementGate), withTemplate(ourTemplate)}, more...)
	return s.pod(name, options...)
}

// ungatedPod is a managed pod that was released.
func (s *scene) ungatedPod(name string) *corev1.Pod {
	s.t.Helper()
	pod := s.pod(name, withLabel("true"), withGates(plimsoll.PlacementGate))
	s.must(s.by(manager).Patch(s.ctx(), pod, s.jsonPatch([]operation{remove("/spec/schedulingGates")})))
	return pod
}

func objectReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func controlledBy(owner client.Object, apiVersion, kind string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes,
	}
}

func claimSpec() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"},
	}}}}
}

// newTemplate is a template as a tenant would write one.
func (s *scene) newTemplate(name string) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: claimSpec()},
	}
}

// newOwnTemplate is a template as the manager makes it for a pod.
func (s *scene) newOwnTemplate(owner client.Object) *resourcev1.ResourceClaimTemplate {
	template := s.newTemplate(ourTemplate)
	template.Labels = map[string]string{plimsoll.OwnedLabel: "true"}
	template.OwnerReferences = []metav1.OwnerReference{controlledBy(owner, "v1", "Pod")}
	template.Spec.Labels = map[string]string{plimsoll.OwnedLabel: "true"}
	template.Spec.Annotations = map[string]string{
		plimsoll.DevicesAnnotation: "gpu.example.com/node-a/gpu-0", plimsoll.SlotAnnotation: "main/node-a/0",
	}
	return template
}

// ownTemplate is one that the manager made, for a pod that does not name it, so that no claim comes of it.
func (s *scene) ownTemplate() *resourcev1.ResourceClaimTemplate {
	s.t.Helper()
	template := s.newOwnTemplate(s.pod("owner", withGates(plimsoll.PlacementGate)))
	s.must(s.by(manager).Create(s.ctx(), template))
	return template
}

// newOwnClaim is a claim as the claim controller makes it from a template of the manager's.
func (s *scene) newOwnClaim(owner client.Object) *resourcev1.ResourceClaim {
	template := s.newOwnTemplate(owner)
	annotations := map[string]string{"resource.kubernetes.io/pod-claim-name": "gpu"}
	for key, value := range template.Spec.Annotations {
		annotations[key] = value
	}
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: "owner-gpu-x7k2p", Labels: template.Spec.Labels, Annotations: annotations,
			OwnerReferences: template.OwnerReferences,
		},
		Spec: claimSpec(),
	}
}

// ownClaim is one that the claim controller made for a pod of name "owner".
func (s *scene) ownClaim() *resourcev1.ResourceClaim {
	s.t.Helper()
	claim := s.newOwnClaim(s.pod("owner"))
	s.must(s.by(claimController).Create(s.ctx(), claim))
	return claim
}

// allocate gives a claim a device, as the scheduler does.
func (s *scene) allocate(claim *resourcev1.ResourceClaim) {
	s.t.Helper()
	claim.Status.Allocation = allocation()
	s.must(s.admin.Status().Update(s.ctx(), claim))
}

func allocation() *resourcev1.AllocationResult {
	return &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: "gpu.example.com", Pool: "node-a", Device: "gpu-0",
		}},
	}}
}

// reservation says that a pod uses a claim.
func reservation(name string, uid types.UID) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: uid}
}

func kueueObject(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "spec": spec,
	}}
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func newAdmissionCheck(name, controllerName string) *unstructured.Unstructured {
	return kueueObject("AdmissionCheck", "", name, map[string]any{"controllerName": controllerName})
}

func (s *scene) newWorkload(name string) *unstructured.Unstructured {
	podSet := func(name string) any {
		return map[string]any{
			"name": name, "count": int64(2),
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "train"}},
				"spec": map[string]any{
					"restartPolicy": "Never",
					"containers":    []any{map[string]any{"name": "main", "image": "none"}},
				},
			},
		}
	}
	workload := kueueObject("Workload", s.namespace, name, map[string]any{
		"queueName": "queue", "priority": int64(3), "podSets": []any{podSet("leader"), podSet("workers")},
	})
	workload.SetLabels(map[string]string{"team": "theirs"})
	workload.SetAnnotations(map[string]string{"note": "theirs"})
	return workload
}

// workload is one of Kueue's that is there already.
func (s *scene) workload() *unstructured.Unstructured {
	s.t.Helper()
	workload := s.newWorkload("train")
	s.must(s.admin.Create(s.ctx(), workload))
	return workload
}

// Names of the AdmissionChecks that checkedWorkload has, in this order. They are of the whole cluster.
const (
	ourCheck   = "devices"
	theirCheck = "budget"
)

func checkState(name, state string) map[string]any {
	return map[string]any{
		"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}
}

// checkedWorkload is a Workload whose quota is reserved, with a check of ours and one of somebody else.
func (s *scene) checkedWorkload() *unstructured.Unstructured {
	s.t.Helper()
	for name, controllerName := range map[string]string{
		ourCheck: plimsoll.ControllerName, theirCheck: "example.com/budget",
	} {
		s.must(client.IgnoreAlreadyExists(s.admin.Create(s.ctx(), newAdmissionCheck(name, controllerName))))
	}
	workload := s.workload()
	workload.Object["status"] = map[string]any{
		"conditions": []any{condition("QuotaReserved", "True")},
		"admissionChecks": []any{
			checkState(ourCheck, "Pending"), checkState(theirCheck, "Pending"),
		},
	}
	s.must(s.admin.Status().Update(s.ctx(), workload))
	return workload
}

func condition(kind, status string) map[string]any {
	return map[string]any{
		"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}
}

func (s *scene) newPlacement(workload client.Object) *unstructured.Unstructured {
	placement := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": plimsoll.GroupVersion.String(), "kind": "Placement", "spec": map[string]any{},
	}}
	placement.SetNamespace(s.namespace)
	placement.SetName(workload.GetName())
	placement.SetOwnerReferences([]metav1.OwnerReference{controlledBy(workload, "kueue.x-k8s.io/v1beta2", "Workload")})
	return placement
}

// placement is one that the manager wrote, for a Workload that is there.
func (s *scene) placement() *unstructured.Unstructured {
	s.t.Helper()
	placement := s.newPlacement(s.workload())
	s.must(s.by(manager).Create(s.ctx(), placement))
	return placement
}

func newPolicy(name string) *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": plimsoll.GroupVersion.String(), "kind": "DevicePolicy",
		"spec": map[string]any{
			"quotaResource": "gpus",
			"flavors": []any{map[string]any{
				"name": "h100",
				"selectors": []any{map[string]any{
					"cel": map[string]any{"expression": `device.driver == "gpu.example.com"`},
				}},
			}},
		},
	}}
	policy.SetName(name)
	return policy
}
