package policies

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// What somebody with ClusterRole edit and Kueue's batch-user-role in a namespace does there without meaning harm.
func TestTenantMay(t *testing.T) {
	try(t, map[string]attempt{
		"create a pod": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("plain"))
		}},
		"create a pod as the webhook leaves it": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("train-0",
				withLabel("true"), withGates(plimsoll.PlacementGate), withTemplate(ourTemplate)))
		}},
		"take a gate of somebody else away": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0", withGates(otherGate)), remove("/spec/schedulingGates/1"))
		}},
		"annotate a gated pod": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), replace("/metadata/annotations/note", "mine"))
		}},
		"select nodes for a gated pod": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), add("/spec/nodeSelector/rack", "3"))
		}},
		"take our label off a gated pod, which keeps the gate": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/metadata/labels/plimsoll.dev~1managed"))
		}},
		"put our label back on a gated pod": {as: tenant, do: func(s *scene) error {
			return s.patch(s.pod("train-0", withGates(plimsoll.PlacementGate)),
				add("/metadata/labels/plimsoll.dev~1managed", "true"))
		}},
		"change a released pod that has our label": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ungatedPod("train-0"), replace("/spec/containers/0/image", "mine"))
		}},
		"delete a managed pod": {as: tenant, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.managedPod("train-0"))
		}},
		"make a template": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newTemplate("train"))
		}},
		"make a template with a name that is nearly of our shape": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newTemplate("train-plimsoll-a1b2c3"))
		}},
		"make a template that labels its claims": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("train")
			template.Spec.Labels = map[string]string{"team": "theirs"}
			return s.as.Create(s.ctx(), template)
		}},
		"delete a template": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("train")
			s.must(s.as.Create(s.ctx(), template))
			return s.as.Delete(s.ctx(), template)
		}},
		"make and delete a claim": {as: tenant, do: func(s *scene) error {
			claim := s.newClaim("data")
			s.must(s.as.Create(s.ctx(), claim))
			return s.as.Delete(s.ctx(), claim)
		}},
		"label a claim of ours otherwise": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownClaim(), add("/metadata/labels/team", "theirs"))
		}},
		"delete a claim of ours that no pod owns and that holds no device": {as: tenant, do: func(s *scene) error {
			claim := s.ownClaim()
			s.must(s.by(garbageCollector).Patch(s.ctx(), claim, s.jsonPatch([]operation{remove("/metadata/ownerReferences")})))
			return s.as.Delete(s.ctx(), claim)
		}},
		"read the Placements of the namespace": {as: tenant, do: func(s *scene) error {
			return s.as.List(s.ctx(), listOf("Placement"), client.InNamespace(s.namespace))
		}},
		"read DevicePolicies": {as: tenant, do: func(s *scene) error {
			return s.as.List(s.ctx(), listOf("DevicePolicy"))
		}},
		"read the Workloads of the namespace": {as: tenant, do: func(s *scene) error {
			return s.as.Get(s.ctx(), client.ObjectKeyFromObject(s.workload()), s.newWorkload(""))
		}},
	})
}

// And what somebody does there who means to get devices past the queue.
func TestTenantMayNot(t *testing.T) {
	gate := denied("plimsoll-pod-gate", "Only the Plimsoll manager may remove scheduling gate plimsoll.dev/placement")
	label := denied("plimsoll-pod-label", "Label plimsoll.dev/managed is for pods that carry scheduling gate")
	template := denied("plimsoll-pod-template", "A claim template whose name ends in -plimsoll-")
	try(t, map[string]attempt{
		"take our gate away by a patch": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"))
		}, refused: gate},
		"take our gate away by an update": {as: tenant, do: func(s *scene) error {
			pod := s.managedPod("train-0")
			pod.Spec.SchedulingGates = nil
			return s.as.Update(s.ctx(), pod)
		}, refused: gate},
		"take our gate away by server-side apply": {as: tenant, do: func(s *scene) error {
			mine := client.FieldOwner("tenant")
			s.must(s.as.Apply(s.ctx(), applied(gatedPod(s.namespace, plimsoll.PlacementGate)), mine))
			return s.as.Apply(s.ctx(), applied(gatedPod(s.namespace)), mine)
		}, refused: gate},
		"take our gate and our label away at once": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"),
				remove("/metadata/labels/plimsoll.dev~1managed"), remove("/spec/schedulingGates"))
		}, refused: gate},
		"put another gate in the place of ours": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0", withGates(otherGate)), remove("/spec/schedulingGates/0"))
		}, refused: gate},
		"create a pod with our label and without the gate": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("train-0", withLabel("true")))
		}, refused: label},
		"create a pod with our label of another value and another gate": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("train-0", withLabel(""), withGates(otherGate)))
		}, refused: label},
		"put our label on a pod without the gate": {as: tenant, do: func(s *scene) error {
			return s.patch(s.pod("plain"), add("/metadata/labels/plimsoll.dev~1managed", "true"))
		}, refused: label},
		"create a pod without a gate that names a template of ours": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("plain", withTemplate(s.ownTemplate().Name)))
		}, refused: template},
		"create a pod that names a template of ours among others": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("plain", withTemplate("train"), func(pod *corev1.Pod) {
				name := ourTemplate
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
					corev1.PodResourceClaim{Name: "second", ResourceClaimTemplateName: &name})
			}))
		}, refused: template},
		"bind a gated pod": {as: tenant, do: func(s *scene) error {
			pod := s.managedPod("train-0")
			return s.as.SubResource("binding").Create(s.ctx(), pod, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod.Name},
				Target:     corev1.ObjectReference{Kind: "Node", Name: "node-a"},
			})
		}, refused: noRight("create", "pods/binding")},
		"write a Placement": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPlacement(s.workload()))
		}, refused: noRight("create", "placements")},
		"change a Placement": {as: tenant, do: func(s *scene) error {
			return s.patch(s.placement(), add("/metadata/labels", map[string]string{"team": "mine"}))
		}, refused: noRight("patch", "placements")},
		"delete a Placement": {as: tenant, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.placement())
		}, refused: noRight("delete", "placements")},
		"read the Placements of others": {as: tenant, do: func(s *scene) error {
			return s.as.List(s.ctx(), listOf("Placement"), client.InNamespace("default"))
		}, refused: noRight("list", "placements")},
		"write a DevicePolicy": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), newPolicy("mine"))
		}, refused: noRight("create", "devicepolicies")},
		"steer a Workload": {as: tenant, do: func(s *scene) error {
			return s.patch(s.workload(), add("/metadata/annotations/plimsoll.dev~1charge", "{}"))
		}, refused: noRight("patch", "workloads")},
		"turn a check Ready": {as: tenant, do: func(s *scene) error {
			return s.patchSubresource(s.checkedWorkload(), "status", replace("/status/admissionChecks/0/state", "Ready"))
		}, refused: noRight("patch", "workloads/status")},
	})
}

// Templates and claims of ours in a tenant's namespace, where edit includes every right on both kinds.
func TestTenantMayNotTouchWhatIsOurs(t *testing.T) {
	makeTemplate := denied("plimsoll-templates", "Only the Plimsoll manager may make or change claim templates")
	marks := denied("plimsoll-templates", "Only the Plimsoll manager may make claim templates that put plimsoll.dev labels")
	remains := denied("plimsoll-templates", "Only the Plimsoll manager, the garbage collector, the namespace controller")
	makeClaim := denied("plimsoll-claims", "Only the resource claim controller may make claims with label plimsoll.dev/owned")
	mark := denied("plimsoll-claims", "Nobody may put plimsoll.dev labels or annotations on a claim that exists")
	disown := denied("plimsoll-claims", "Only the garbage collector may change the owner of a claim")
	keep := denied("plimsoll-claims", "Only the control plane's own controllers and group system:masters may delete a claim")
	try(t, map[string]attempt{
		"make a template with a name of our shape": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newTemplate(ourTemplate))
		}, refused: makeTemplate},
		"make a template that gets a name of our shape": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("")
			template.GenerateName = "train-plimsoll-abcde"
			return s.as.Create(s.ctx(), template)
		}, refused: makeTemplate},
		"make a template with a name of our shape by an older API version": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), &resourcev1beta1.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: ourTemplate},
				Spec: resourcev1beta1.ResourceClaimTemplateSpec{Spec: resourcev1beta1.ResourceClaimSpec{
					Devices: resourcev1beta1.DeviceClaim{Requests: []resourcev1beta1.DeviceRequest{{
						Name: "gpu", DeviceClassName: "gpu.example.com",
					}}},
				}},
			})
		}, refused: makeTemplate},
		"make a template with our label": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("train")
			template.Labels = map[string]string{plimsoll.OwnedLabel: "false"}
			return s.as.Create(s.ctx(), template)
		}, refused: makeTemplate},
		"put our label on a template": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("train")
			s.must(s.as.Create(s.ctx(), template))
			return s.patch(template, add("/metadata/labels", map[string]string{plimsoll.OwnedLabel: "true"}))
		}, refused: makeTemplate},
		"make a template that puts our label on its claims": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("train")
			template.Spec.Labels = map[string]string{plimsoll.OwnedLabel: "true"}
			return s.as.Create(s.ctx(), template)
		}, refused: marks},
		"make a template that puts our annotations on its claims": {as: tenant, do: func(s *scene) error {
			template := s.newTemplate("train")
			template.Spec.Annotations = map[string]string{plimsoll.SlotAnnotation: "main/node-a/0"}
			return s.as.Create(s.ctx(), template)
		}, refused: marks},
		"take our label off a template": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownTemplate(), remove("/metadata/labels/plimsoll.dev~1owned"))
		}, refused: makeTemplate},
		"take the owner off a template": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownTemplate(), remove("/metadata/ownerReferences"))
		}, refused: makeTemplate},
		"hold a template of ours by a finalizer": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownTemplate(), add("/metadata/finalizers", []string{"example.com/mine"}))
		}, refused: makeTemplate},
		"delete a template of ours": {as: tenant, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownTemplate())
		}, refused: remains},
		"delete all templates": {as: tenant, do: func(s *scene) error {
			s.ownTemplate()
			return s.as.DeleteAllOf(s.ctx(), &resourcev1.ResourceClaimTemplate{}, client.InNamespace(s.namespace))
		}, refused: remains},

		"make a claim with our label": {as: tenant, do: func(s *scene) error {
			claim := s.newClaim("mine")
			claim.Labels = map[string]string{plimsoll.OwnedLabel: "true"}
			return s.as.Create(s.ctx(), claim)
		}, refused: makeClaim},
		"make the claim that a gated pod waits for": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newOwnClaim(s.managedPod("owner")))
		}, refused: makeClaim},
		"put our label on a claim": {as: tenant, do: func(s *scene) error {
			claim := s.newClaim("mine")
			s.must(s.as.Create(s.ctx(), claim))
			return s.patch(claim, add("/metadata/labels", map[string]string{plimsoll.OwnedLabel: "true"}))
		}, refused: mark},
		"take our label off a claim": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownClaim(), remove("/metadata/labels/plimsoll.dev~1owned"))
		}, refused: mark},
		"say that a claim is for other devices": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownClaim(), replace("/metadata/annotations/plimsoll.dev~1devices", "gpu.example.com/node-a/gpu-1"))
		}, refused: mark},
		"say that a claim is for another slot": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownClaim(), remove("/metadata/annotations/plimsoll.dev~1slot"))
		}, refused: mark},
		"say that a claim is for another of the pod's claims": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownClaim(), replace("/metadata/annotations/resource.kubernetes.io~1pod-claim-name", "nic"))
		}, refused: mark},
		"give a claim to another pod": {as: tenant, do: func(s *scene) error {
			other := controlledBy(s.pod("other"), "v1", "Pod")
			return s.patch(s.ownClaim(), replace("/metadata/ownerReferences", []metav1.OwnerReference{other}))
		}, refused: disown},
		"take the owner off a claim": {as: tenant, do: func(s *scene) error {
			return s.patch(s.ownClaim(), remove("/metadata/ownerReferences"))
		}, refused: disown},
		"delete a claim of ours": {as: tenant, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownClaim())
		}, refused: keep},
		"delete all claims": {as: tenant, do: func(s *scene) error {
			s.ownClaim()
			return s.as.DeleteAllOf(s.ctx(), &resourcev1.ResourceClaim{}, client.InNamespace(s.namespace))
		}, refused: keep},
		"delete a claim of ours that no pod owns and that still holds devices": {as: tenant, do: func(s *scene) error {
			claim := s.ownClaim()
			s.must(s.by(garbageCollector).Patch(s.ctx(), claim, s.jsonPatch([]operation{remove("/metadata/ownerReferences")})))
			s.allocate(claim)
			return s.as.Delete(s.ctx(), claim)
		}, refused: keep},
		"allocate a claim of ours": {as: tenant, do: func(s *scene) error {
			claim := s.ownClaim()
			claim.Status.Allocation = allocation()
			return s.as.Status().Update(s.ctx(), claim)
		}, refused: noRight("update", "resourceclaims/status")},
	})
}

func (s *scene) newClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: claimSpec(),
	}
}

func listOf(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(plimsoll.GroupVersion.WithKind(kind + "List"))
	return list
}

// gatedPod is a pod for server-side apply.
func gatedPod(namespace string, gates ...string) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}},
	}}
	pod.SetNamespace(namespace)
	pod.SetName("train-0")
	var list []any
	for _, gate := range gates {
		list = append(list, map[string]any{"name": gate})
	}
	if list != nil {
		pod.Object["spec"].(map[string]any)["schedulingGates"] = list
	}
	return pod
}
