package policies

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// RBAC refuses an administrator nothing, so what is refused here is what the policies keep for the manager.
func TestAdministrators(t *testing.T) {
	placements := denied("plimsoll-placements", "Only the Plimsoll manager may write Placements")
	deletions := denied("plimsoll-placements", "Only the Plimsoll manager, the garbage collector and the namespace controller")
	attempts := map[string]attempt{
		"an administrator may not delete a claim of ours": {as: administrator, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownClaim())
		}, refused: denied("plimsoll-claims", "Only the control plane's own controllers and group system:masters")},
		"a master may delete a claim of ours": {as: master, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownClaim())
		}},
		"an administrator may not delete a template of ours": {as: administrator, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownTemplate())
		}, refused: denied("plimsoll-templates", "Only the Plimsoll manager, the garbage collector, the namespace controller")},
		"a master may delete a template of ours": {as: master, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownTemplate())
		}},
		"an administrator may not label a pod without the gate through its status": {as: administrator, do: func(s *scene) error {
			return s.patchSubresource(s.pod("plain"), "status", add("/metadata/labels/plimsoll.dev~1managed", "true"))
		}, refused: denied("plimsoll-pod-label", "Label plimsoll.dev/managed is for pods that carry")},
		"an administrator may write a DevicePolicy": {as: administrator, do: func(s *scene) error {
			return s.as.Create(s.ctx(), newPolicy(s.namespace))
		}},
		"an administrator may deactivate a Workload": {as: administrator, do: func(s *scene) error {
			return s.patch(s.workload(), add("/spec/active", false))
		}},
		"an administrator may say that any AdmissionCheck is Active": {as: administrator, do: func(s *scene) error {
			check := newAdmissionCheck(s.namespace, "example.com/budget")
			s.must(s.admin.Create(s.ctx(), check))
			check.Object["status"] = map[string]any{"conditions": []any{condition("Active", "True")}}
			return s.as.Status().Update(s.ctx(), check)
		}},
		"an administrator may set any check": {as: administrator, do: func(s *scene) error {
			return s.patchSubresource(s.checkedWorkload(), "status", replace("/status/admissionChecks/1/state", "Retry"))
		}},
	}
	for _, who := range []user{administrator, master} {
		for name, a := range map[string]attempt{
			"take our gate away": {do: func(s *scene) error {
				return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"))
			}, refused: denied("plimsoll-pod-gate", "Only the Plimsoll manager may remove scheduling gate")},
			"write a Placement": {do: func(s *scene) error { return s.as.Create(s.ctx(), s.newPlacement(s.workload())) }, refused: placements},
			"change a Placement": {do: func(s *scene) error {
				return s.patch(s.placement(), add("/metadata/labels", map[string]string{"a": "b"}))
			}, refused: placements},
			"delete a Placement": {do: func(s *scene) error { return s.as.Delete(s.ctx(), s.placement()) }, refused: deletions},
			"delete Placements":  {do: func(s *scene) error { return s.as.DeleteAllOf(s.ctx(), s.placement(), client.InNamespace(s.namespace)) }, refused: deletions},
			"disown a Placement": {do: func(s *scene) error { return s.patch(s.placement(), remove("/metadata/ownerReferences")) }, refused: placements},
			"promise something": {do: func(s *scene) error {
				return s.patchSubresource(s.placement(), "status", add("/status", map[string]any{"conditions": []any{condition("Reserved", "True")}}))
			}, refused: placements},
		} {
			a.as = who
			attempts[who.name+" may not "+name] = a
		}
	}
	try(t, attempts)
}

// Gates can't be taken away, nor gated pods bound, by any subresource: what the gate's policy leans on.
func TestSubresourcesLeaveGatesAlone(t *testing.T) {
	gate := func(s *scene) []corev1.PodSchedulingGate {
		var pod corev1.Pod
		s.must(s.admin.Get(s.ctx(), client.ObjectKey{Namespace: s.namespace, Name: "train-0"}, &pod))
		return pod.Spec.SchedulingGates
	}
	for _, subresource := range []string{"status", "resize", "ephemeralcontainers"} {
		t.Run(subresource, func(t *testing.T) {
			s := newScene(t, master)
			err := s.patchSubresource(s.managedPod("train-0"), subresource, remove("/spec/schedulingGates"))
			if gates := gate(s); len(gates) != 1 {
				t.Errorf("pod has gates %v after a patch of its %s (%v)", gates, subresource, err)
			}
		})
	}
	t.Run("binding", func(t *testing.T) {
		s := newScene(t, master)
		pod := s.managedPod("train-0")
		err := s.as.SubResource("binding").Create(s.ctx(), pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node-a"},
		})
		if err == nil {
			t.Error("a gated pod was bound")
		}
	})
}

// What the scheduler and the controllers write, under their own names and rights.
func TestControlPlane(t *testing.T) {
	try(t, map[string]attempt{
		"the scheduler may allocate a claim of ours for the pod that owns it": {as: scheduler, do: func(s *scene) error {
			claim := s.ownClaim()
			claim.Finalizers = append(claim.Finalizers, "resource.kubernetes.io/delete-protection")
			s.must(s.as.Update(s.ctx(), claim))
			claim.Status.Allocation = allocation()
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, reservation("owner", claim.OwnerReferences[0].UID))
			return s.as.Status().Update(s.ctx(), claim)
		}},
		"the scheduler may not reserve a claim of ours for another pod": {as: scheduler, do: func(s *scene) error {
			claim := s.ownClaim()
			rider := s.pod("rider")
			claim.Status.Allocation = allocation()
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, reservation("rider", rider.UID))
			return s.as.Status().Update(s.ctx(), claim)
		}, refused: denied("plimsoll-claim-users", "A claim with label plimsoll.dev/owned is for the pod that owns it")},
		"the scheduler may reserve a tenant's claim for any pod": {as: scheduler, do: func(s *scene) error {
			claim := s.newClaim("data")
			s.must(s.by(tenant).Create(s.ctx(), claim))
			claim.Status.Allocation = allocation()
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, reservation("plain", s.pod("plain").UID))
			return s.as.Status().Update(s.ctx(), claim)
		}},
		"the scheduler may not take our gate away": {as: scheduler, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"))
		}, refused: noRight("patch", "pods")},
		"the claim controller may free a claim of ours after its pod was orphaned": {as: claimController, do: func(s *scene) error {
			claim := s.ownClaim()
			claim.Status.Allocation = allocation()
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, reservation("owner", claim.OwnerReferences[0].UID))
			s.must(s.by(scheduler).Status().Update(s.ctx(), claim))
			s.must(s.by(garbageCollector).Patch(s.ctx(), claim, s.jsonPatch([]operation{remove("/metadata/ownerReferences")})))
			claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
			return s.as.Status().Update(s.ctx(), claim)
		}},
		"the claim controller may delete a claim of ours": {as: claimController, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownClaim())
		}},
		"the claim controller may not change our marks": {as: claimController, do: func(s *scene) error {
			return s.patch(s.ownClaim(), remove("/metadata/labels/plimsoll.dev~1owned"))
		}, refused: denied("plimsoll-claims", "Nobody may put plimsoll.dev labels or annotations on a claim")},
		"the garbage collector may disown what outlives its owner": {as: garbageCollector, do: func(s *scene) error {
			template := s.ownTemplate()
			s.must(s.patch(template, remove("/metadata/ownerReferences")))
			return s.patch(s.placement(), remove("/metadata/ownerReferences"))
		}},
		"the garbage collector may not change a template of ours otherwise": {as: garbageCollector, do: func(s *scene) error {
			return s.patch(s.ownTemplate(), remove("/metadata/labels/plimsoll.dev~1owned"))
		}, refused: denied("plimsoll-templates", "Only the Plimsoll manager may make or change claim templates")},
		"the garbage collector may not change a Placement otherwise": {as: garbageCollector, do: func(s *scene) error {
			return s.patch(s.placement(), add("/metadata/labels", map[string]string{"a": "b"}))
		}, refused: denied("plimsoll-placements", "Only the Plimsoll manager may write Placements")},
		"the garbage collector may delete a template, and a Placement": {as: garbageCollector, do: func(s *scene) error {
			s.must(s.as.Delete(s.ctx(), s.ownTemplate()))
			return s.as.Delete(s.ctx(), s.placement())
		}},
		"the namespace controller may delete a template, a claim and a Placement": {as: namespaceController, do: func(s *scene) error {
			s.must(s.as.Delete(s.ctx(), s.ownTemplate()))
			s.must(s.as.Delete(s.ctx(), s.placement()))
			claim := s.newOwnClaim(s.pod("second"))
			s.must(s.by(claimController).Create(s.ctx(), claim))
			return s.as.Delete(s.ctx(), claim)
		}},
		"a write that changes nothing is anybody's": {as: administrator, do: func(s *scene) error {
			s.must(s.patch(s.ownTemplate()))
			return s.patch(s.placement())
		}},
	})
}

// Where the controller manager has one identity for all its controllers, the policies know that one too.
func TestControllerManagerWithoutServiceAccounts(t *testing.T) {
	grantEverything(t, controllerManager)
	try(t, map[string]attempt{
		"may make and delete a claim of ours": {as: controllerManager, do: func(s *scene) error {
			claim := s.newOwnClaim(s.pod("owner"))
			s.must(s.as.Create(s.ctx(), claim))
			return s.as.Delete(s.ctx(), claim)
		}},
		"may disown and delete a template of ours": {as: controllerManager, do: func(s *scene) error {
			template := s.ownTemplate()
			s.must(s.patch(template, remove("/metadata/ownerReferences")))
			return s.as.Delete(s.ctx(), template)
		}},
		"may disown and delete a Placement": {as: controllerManager, do: func(s *scene) error {
			placement := s.placement()
			s.must(s.patch(placement, remove("/metadata/ownerReferences")))
			return s.as.Delete(s.ctx(), placement)
		}},
		"may not take our gate away": {as: controllerManager, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), remove("/spec/schedulingGates"))
		}, refused: denied("plimsoll-pod-gate", "Only the Plimsoll manager may remove scheduling gate "+plimsoll.PlacementGate)},
	})
}
