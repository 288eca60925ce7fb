package policies

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// What the manager's rights would allow, as they know no fields, and the policies don't.
func TestManagerMayNot(t *testing.T) {
	waitForChecksPolicy(t)
	try(t, managerRefusals())
}

// The same with every right there is: the policies don't lean on RBAC, which somebody might widen.
func TestManagerWithEveryRightMayNot(t *testing.T) {
	waitForChecksPolicy(t)
	grantEverything(t, manager)
	attempts := managerRefusals()
	for name, attempt := range map[string]attempt{
		"change a pod's status": {as: manager, do: func(s *scene) error {
			return s.patchSubresource(s.managedPod("train-0"), "status", add("/status/reason", "Because"))
		}, refused: denied("plimsoll-manager-pods", "The Plimsoll manager may change a pod's gate and node selector")},
		"label a pod through its status": {as: manager, do: func(s *scene) error {
			return s.patchSubresource(s.managedPod("train-0"), "status", add("/metadata/labels/team", "ours"))
		}, refused: denied("plimsoll-manager-pods", "The Plimsoll manager may not change a pod's labels")},
		"add an ephemeral container": {as: manager, do: func(s *scene) error {
			return s.patchSubresource(s.managedPod("train-0"), "ephemeralcontainers",
				add("/spec/ephemeralContainers", []any{map[string]any{"name": "debug", "image": "none"}}))
		}, refused: denied("plimsoll-manager-pods", "The Plimsoll manager may change a pod's gate and node selector")},
		"resize a pod": {as: manager, do: func(s *scene) error {
			pod := s.pod("train-0", func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: one, corev1.ResourceMemory: one}
			})
			return s.patchSubresource(pod, "resize", replace("/spec/containers/0/resources/requests/cpu", "2"))
		}, refused: denied("plimsoll-manager-pods", "The Plimsoll manager may change a pod's gate and node selector")},
		"change a template of its own so that nothing marks its claims": {as: manager, do: func(s *scene) error {
			return s.patch(s.ownTemplate(), remove("/metadata/labels/plimsoll.dev~1owned"))
		}, refused: denied("plimsoll-manager-templates", "The Plimsoll manager may write and delete only claim templates")},
		"change another controller's AdmissionCheck": {as: manager, do: func(s *scene) error {
			check := newAdmissionCheck(s.namespace, "example.com/budget")
			s.must(s.admin.Create(s.ctx(), check))
			return s.patch(check, add("/metadata/labels", map[string]string{"team": "ours"}))
		}, refused: denied("plimsoll-manager-admission-checks", "The Plimsoll manager may write the status of AdmissionChecks")},
		"make a claim of its own": {as: manager, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newOwnClaim(s.pod("owner")))
		}, refused: denied("plimsoll-claims", "Only the resource claim controller may make claims")},
		"delete a claim of its own": {as: manager, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownClaim())
		}, refused: denied("plimsoll-claims", "Only the control plane's own controllers")},
	} {
		attempts[name] = attempt
	}
	try(t, attempts)
}

func managerRefusals() map[string]attempt {
	attempts := map[string]attempt{}
	for _, some := range []map[string]attempt{
		podRefusals(), templateRefusals(), placementRefusals(), checkRefusals(), workloadRefusals(),
	} {
		for name, a := range some {
			a.as = manager
			attempts[name] = a
		}
	}
	return attempts
}

func podRefusals() map[string]attempt {
	const policy = "plimsoll-manager-pods"
	gates := denied(policy, "The Plimsoll manager may remove no scheduling gate but plimsoll.dev/placement")
	selector := denied(policy, "The Plimsoll manager may add kubernetes.io/hostname to a pod's node selector and nothing else")
	rest := denied(policy, "The Plimsoll manager may change a pod's gate and node selector and nothing else")
	metadata := denied(policy, "The Plimsoll manager may not change a pod's labels, annotations, finalizers or owners")
	return map[string]attempt{
		"take another's gate away": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0", withGates(otherGate)), remove("/spec/schedulingGates/1"))
		}, refused: gates},
		"take another's gate away with its own": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0", withGates(otherGate)), remove("/spec/schedulingGates"))
		}, refused: gates},
		"select nodes by anything but the hostname": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"), add("/spec/nodeSelector/pool", "ours"))
		}, refused: selector},
		"tolerate a taint for a pod": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"),
				add("/spec/tolerations/-", map[string]string{"key": "ours", "operator": "Exists"}))
		}, refused: rest},
		"give a pod affinity": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), add("/spec/affinity", nodeAffinity("pool", "ours")))
		}, refused: rest},
		"change a pod's image": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), replace("/spec/containers/0/image", "ours"))
		}, refused: rest},
		"change the image of a pod that is none of its own": {do: func(s *scene) error {
			return s.patch(s.pod("plain"), replace("/spec/containers/0/image", "ours"))
		}, refused: rest},
		"limit a pod's time": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), add("/spec/activeDeadlineSeconds", 1))
		}, refused: rest},
		"label a pod": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), add("/metadata/labels/team", "ours"))
		}, refused: metadata},
		"take our label off a pod": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/metadata/labels/plimsoll.dev~1managed"))
		}, refused: metadata},
		"annotate a pod": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"), add("/metadata/annotations/note", "ours"))
		}, refused: metadata},
		"hold a pod by a finalizer": {do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), add("/metadata/finalizers", []string{"plimsoll.dev/ours"}))
		}, refused: metadata},
		"give a pod an owner": {do: func(s *scene) error {
			other := s.pod("other")
			return s.patch(s.managedPod("train-0"),
				add("/metadata/ownerReferences", []metav1.OwnerReference{controlledBy(other, "v1", "Pod")}))
		}, refused: metadata},
	}
}

func templateRefusals() map[string]attempt {
	const policy = "plimsoll-manager-templates"
	others := denied(policy, "The Plimsoll manager may write and delete only claim templates with label plimsoll.dev/owned=true")
	unmarked := denied(policy, "A claim template of the Plimsoll manager must put label plimsoll.dev/owned=true on its claims")
	unowned := denied(policy, "A claim template of the Plimsoll manager must have one Pod as its controller")
	return map[string]attempt{
		"make a template with a name of another shape": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.Name = "train"
			return s.as.Create(s.ctx(), template)
		}, refused: others},
		"make a template without our label": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.Labels = nil
			return s.as.Create(s.ctx(), template)
		}, refused: others},
		"make a template that does not mark its claims": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.Spec.Labels = nil
			return s.as.Create(s.ctx(), template)
		}, refused: unmarked},
		"make a template that nobody owns": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.OwnerReferences = nil
			return s.as.Create(s.ctx(), template)
		}, refused: unowned},
		"make a template that a pod owns, but not as its controller": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.OwnerReferences[0].Controller = nil
			return s.as.Create(s.ctx(), template)
		}, refused: unowned},
		"make a template that something else owns": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.OwnerReferences = []metav1.OwnerReference{
				controlledBy(s.workload(), "kueue.x-k8s.io/v1beta2", "Workload"),
			}
			return s.as.Create(s.ctx(), template)
		}, refused: unowned},
		"make a template that a second pod keeps": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			second := controlledBy(s.pod("other"), "v1", "Pod")
			second.Controller = nil
			template.OwnerReferences = append(template.OwnerReferences, second)
			return s.as.Create(s.ctx(), template)
		}, refused: unowned},
		"make a template with a finalizer": {do: func(s *scene) error {
			template := s.newOwnTemplate(s.managedPod("train-0"))
			template.Finalizers = []string{"plimsoll.dev/ours"}
			return s.as.Create(s.ctx(), template)
		}, refused: unowned},
		"delete a tenant's template": {do: func(s *scene) error {
			template := s.newTemplate("train")
			s.must(s.by(tenant).Create(s.ctx(), template))
			return s.as.Delete(s.ctx(), template)
		}, refused: others},
	}
}

func placementRefusals() map[string]attempt {
	unowned := denied("plimsoll-placements", "A Placement must have the Workload of its name as owner and no finalizer")
	return map[string]attempt{
		"write a Placement that no Workload owns": {do: func(s *scene) error {
			placement := s.newPlacement(s.workload())
			placement.SetOwnerReferences(nil)
			return s.as.Create(s.ctx(), placement)
		}, refused: unowned},
		"write a Placement of another name than its Workload": {do: func(s *scene) error {
			placement := s.newPlacement(s.workload())
			placement.SetName("other")
			return s.as.Create(s.ctx(), placement)
		}, refused: unowned},
		"write a Placement with a finalizer": {do: func(s *scene) error {
			placement := s.newPlacement(s.workload())
			placement.SetFinalizers([]string{"plimsoll.dev/ours"})
			return s.as.Create(s.ctx(), placement)
		}, refused: unowned},
	}
}

func checkRefusals() map[string]attempt {
	const policy = "plimsoll-manager-workload-status"
	others := denied("plimsoll-manager-workload-checks", "The Plimsoll manager may write the state of admission checks whose controllerName")
	status := denied(policy, "The Plimsoll manager may write status.admissionChecks of a Workload and nothing else")
	list := denied(policy, "The Plimsoll manager may add no admission check to a Workload and take none away")
	state := denied(policy, "The Plimsoll manager may set its admission check to Pending or Ready")
	pods := denied(policy, "The Plimsoll manager may ask for label plimsoll.dev/managed=true on a Workload's pods")
	// Two policies refuse what takes a check of somebody else away; which of them speaks is not determined.
	either := []string{"denied request: The Plimsoll manager may "}
	withUpdate := func(state string, update map[string]any) func(s *scene) error {
		return func(s *scene) error {
			update["name"] = "leader"
			return applyCheck(s, s.checkedWorkload(), state, []any{update})
		}
	}
	patched := func(steps ...operation) func(s *scene) error {
		return func(s *scene) error { return s.patchSubresource(s.checkedWorkload(), "status", steps...) }
	}
	return map[string]attempt{
		"turn another controller's check Ready": {
			do: patched(replace("/status/admissionChecks/1/state", "Ready")), refused: others,
		},
		"turn another controller's check Ready with its own": {
			do: patched(
				replace("/status/admissionChecks/0/state", "Ready"),
				replace("/status/admissionChecks/1/state", "Ready")),
			refused: others,
		},
		"change the message of another controller's check": {
			do: patched(replace("/status/admissionChecks/1/message", "ours")), refused: others,
		},
		"add a check to a Workload": {
			do: patched(add("/status/admissionChecks/-", checkState("third", "Ready"))), refused: list,
		},
		"take its check from a Workload":  {do: patched(remove("/status/admissionChecks/0")), refused: list},
		"take all checks from a Workload": {do: patched(remove("/status/admissionChecks")), refused: either},
		"say that quota is not reserved": {
			do: patched(replace("/status/conditions/0/status", "False")), refused: status,
		},
		"say that a Workload is admitted": {
			do: patched(add("/status/conditions/-", condition("Admitted", "True"))), refused: status,
		},
		"give a Workload quota": {
			do: patched(add("/status/admission", map[string]any{
				"clusterQueue": "ours", "podSetAssignments": []any{
					map[string]any{"name": "leader", "count": 2}, map[string]any{"name": "workers", "count": 2},
				},
			})),
			refused: status,
		},
		"set its check to Retry":    {do: patched(replace("/status/admissionChecks/0/state", "Retry")), refused: state},
		"set its check to Rejected": {do: patched(replace("/status/admissionChecks/0/state", "Rejected")), refused: state},
		"ask for a node selector on the pods": {
			do: withUpdate("Ready", map[string]any{"nodeSelector": map[string]any{"pool": "ours"}}), refused: pods,
		},
		"ask for a toleration on the pods": {
			do:      withUpdate("Ready", map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}}),
			refused: pods,
		},
		"ask for an annotation on the pods": {
			do: withUpdate("Ready", map[string]any{"annotations": map[string]any{"note": "ours"}}), refused: pods,
		},
		"ask for another label on the pods": {
			do: withUpdate("Ready", map[string]any{"labels": map[string]any{"team": "ours"}}), refused: pods,
		},
		"ask for our label with another value": {
			do:      withUpdate("Ready", map[string]any{"labels": map[string]any{plimsoll.ManagedLabel: "false"}}),
			refused: pods,
		},
		"ask for anything on the pods before its check is Ready": {
			do:      withUpdate("Pending", map[string]any{"labels": map[string]any{plimsoll.ManagedLabel: "true"}}),
			refused: pods,
		},
		"say that another controller's AdmissionCheck is Active": {do: func(s *scene) error {
			check := newAdmissionCheck(s.namespace, "example.com/budget")
			s.must(s.admin.Create(s.ctx(), check))
			check.Object["status"] = map[string]any{"conditions": []any{condition("Active", "True")}}
			return s.as.Status().Update(s.ctx(), check)
		}, refused: denied("plimsoll-manager-admission-checks", "The Plimsoll manager may write the status of AdmissionChecks")},
	}
}

func workloadRefusals() map[string]attempt {
	const policy = "plimsoll-manager-workload-spec"
	metadata := denied(policy, "The Plimsoll manager may write a Workload's plimsoll.dev annotations and nothing else")
	spec := denied(policy, "The Plimsoll manager may write active and podSets of a Workload's spec and nothing else")
	podSets := denied(policy, "The Plimsoll manager may write affinity and overhead of a Workload's pod sets and nothing else")
	activate := denied(policy, "The Plimsoll manager may activate only a Workload that it deactivated itself")
	deactivate := denied(policy, "The Plimsoll manager may deactivate a Workload only together with annotation")
	patched := func(steps ...operation) func(s *scene) error {
		return func(s *scene) error { return s.patch(s.workload(), steps...) }
	}
	nonce := denied(policy, "The Plimsoll manager may write annotation plimsoll.dev/steering only together with")
	inactive := func(s *scene) *unstructured.Unstructured {
		workload := s.newWorkload("train")
		s.must(unstructured.SetNestedField(workload.Object, false, "spec", "active"))
		s.must(s.admin.Create(s.ctx(), workload))
		return workload
	}
	return map[string]attempt{
		"move a Workload to another queue":    {do: patched(replace("/spec/queueName", "ours")), refused: spec},
		"change a Workload's priority":        {do: patched(replace("/spec/priority", 99)), refused: spec},
		"take a Workload's priority away":     {do: patched(remove("/spec/priority")), refused: spec},
		"limit a Workload's time":             {do: patched(add("/spec/maximumExecutionTimeSeconds", 1)), refused: spec},
		"change a pod set's count":            {do: patched(replace("/spec/podSets/0/count", 1)), refused: podSets},
		"let a pod set be admitted partially": {do: patched(add("/spec/podSets/0/minCount", 1)), refused: podSets},
		"take a pod set away":                 {do: patched(remove("/spec/podSets/1")), refused: podSets},
		"change a pod set's image": {
			do: patched(replace("/spec/podSets/1/template/spec/containers/0/image", "ours")), refused: podSets,
		},
		"let a pod set tolerate a taint": {
			do:      patched(add("/spec/podSets/0/template/spec/tolerations", []any{map[string]any{"operator": "Exists"}})),
			refused: podSets,
		},
		"label a pod set's pods": {
			do: patched(add("/spec/podSets/0/template/metadata/labels/team", "ours")), refused: podSets,
		},
		"label a Workload":       {do: patched(add("/metadata/labels/team", "ours")), refused: metadata},
		"annotate a Workload":    {do: patched(replace("/metadata/annotations/note", "ours")), refused: metadata},
		"take a Workload's note": {do: patched(remove("/metadata/annotations/note")), refused: metadata},
		"hold a Workload":        {do: patched(add("/metadata/finalizers", []string{"plimsoll.dev/ours"})), refused: metadata},
		"give a Workload an owner": {do: func(s *scene) error {
			owner := controlledBy(s.pod("other"), "v1", "Pod")
			return s.patch(s.workload(), add("/metadata/ownerReferences", []metav1.OwnerReference{owner}))
		}, refused: metadata},
		"evict a Workload without a nonce": {do: patched(add("/spec/active", false)), refused: deactivate},
		"activate a Workload that an administrator deactivated": {do: func(s *scene) error {
			return s.patch(inactive(s), replace("/spec/active", true))
		}, refused: activate},
		"claim for its own what an administrator deactivated": {do: func(s *scene) error {
			return s.patch(inactive(s), add("/metadata/annotations/plimsoll.dev~1steering", "nonce"))
		}, refused: nonce},
		"activate such a Workload with a nonce written in the same patch": {do: func(s *scene) error {
			return s.patch(inactive(s),
				replace("/spec/active", true), add("/metadata/annotations/plimsoll.dev~1steering", "nonce"))
		}, refused: activate},
	}
}
