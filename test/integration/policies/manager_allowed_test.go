package policies

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

const pinPath = "/spec/nodeSelector/kubernetes.io~1hostname"

// What the manager has to do to serve a Workload, step by step.
func TestManagerMay(t *testing.T) {
	waitForChecksPolicy(t)
	try(t, map[string]attempt{
		"take its gate away and pin the pod in one patch": {as: manager, do: func(s *scene) error {
			pod := s.managedPod("train-0")
			return s.patch(pod, remove("/spec/schedulingGates/0"), add(pinPath, "node-a"))
		}},
		"take its gate away only from the pod that it looked at": {as: manager, do: func(s *scene) error {
			pod := s.managedPod("train-0")
			looked := operation{Op: "test", Path: "/metadata/resourceVersion", Value: pod.ResourceVersion}
			s.must(s.by(tenant).Patch(s.ctx(), pod.DeepCopy(), s.jsonPatch([]operation{add("/spec/nodeSelector/rack", "3")})))
			if err := s.patch(pod.DeepCopy(), looked, remove("/spec/schedulingGates/0")); err == nil {
				s.t.Error("the pod changed in between and was released all the same")
			}
			s.must(s.admin.Get(s.ctx(), client.ObjectKeyFromObject(pod), pod))
			looked.Value = pod.ResourceVersion
			return s.patch(pod, looked, remove("/spec/schedulingGates/0"))
		}},
		// Expressions have a budget, and what they compare may be large.
		"release a pod of a megabyte": {as: manager, do: func(s *scene) error {
			pod := s.managedPod("train-0", func(pod *corev1.Pod) {
				for i := range 5_000 {
					pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env,
						corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("x", 180)})
				}
			})
			return s.patch(pod, remove("/spec/schedulingGates/0"), add(pinPath, "node-a"))
		}},
		"steer a Workload of a megabyte": {as: manager, do: func(s *scene) error {
			workload := s.newWorkload("train")
			podSets, _, err := unstructured.NestedSlice(workload.Object, "spec", "podSets")
			s.must(err)
			for _, podSet := range podSets {
				var environment []any
				for i := range 2_500 {
					environment = append(environment, map[string]any{
						"name": fmt.Sprintf("VARIABLE_%d", i), "value": strings.Repeat("x", 180),
					})
				}
				s.must(unstructured.SetNestedSlice(podSet.(map[string]any), []any{
					map[string]any{"name": "main", "image": "none", "env": environment},
				}, "template", "spec", "containers"))
			}
			s.must(unstructured.SetNestedSlice(workload.Object, podSets, "spec", "podSets"))
			s.must(s.admin.Create(s.ctx(), workload))
			return s.patch(workload, add("/spec/podSets/1/template/spec/affinity", nodeAffinity("flavor", "none")))
		}},
		"take its gate away and leave another": {as: manager, do: func(s *scene) error {
			pod := s.managedPod("train-0", withGates(otherGate))
			return s.patch(pod, remove("/spec/schedulingGates/0"))
		}},
		"make a pod its template": {as: manager, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newOwnTemplate(s.managedPod("train-0")))
		}},
		"delete a template of its own": {as: manager, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.ownTemplate())
		}},
		"write a Placement": {as: manager, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPlacement(s.workload()))
		}},
		"write a Placement by server-side apply": {as: manager, do: func(s *scene) error {
			return s.as.Apply(s.ctx(), applied(s.newPlacement(s.workload())), client.ForceOwnership, owner)
		}},
		"empty a Placement": {as: manager, do: func(s *scene) error {
			return s.patch(s.placement(), replace("/spec", map[string]any{}))
		}},
		"write a Placement's status": {as: manager, do: func(s *scene) error {
			placement := s.placement()
			placement.Object["status"] = map[string]any{"conditions": []any{condition("Reserved", "True")}}
			return s.as.Status().Update(s.ctx(), placement)
		}},
		"delete a Placement": {as: manager, do: func(s *scene) error {
			return s.as.Delete(s.ctx(), s.placement())
		}},
		"turn its check Ready, by server-side apply": {as: manager, do: func(s *scene) error {
			return applyCheck(s, s.checkedWorkload(), "Ready", managedUpdates("leader", "workers"))
		}},
		"turn its check back to Pending and clear what it asked of the pods": {as: manager, do: func(s *scene) error {
			workload := s.checkedWorkload()
			s.must(applyCheck(s, workload, "Ready", managedUpdates("leader", "workers")))
			return applyCheck(s, workload, "Pending", []any{})
		}},
		"steer and charge a Workload, and note it there": {as: manager, do: func(s *scene) error {
			return s.patch(s.workload(),
				add("/spec/podSets/0/template/spec/overhead", map[string]any{"gpus": "8"}),
				add("/spec/podSets/1/template/spec/affinity", nodeAffinity("flavor", "none")),
				add("/metadata/annotations/plimsoll.dev~1charge", `{"leader":"8"}`),
				add("/metadata/annotations/plimsoll.dev~1allowed-flavors", ""))
		}},
		"take all of that out again": {as: manager, do: func(s *scene) error {
			workload := s.workload()
			s.must(s.patch(workload,
				add("/spec/podSets/0/template/spec/overhead", map[string]any{"gpus": "8"}),
				add("/spec/podSets/1/template/spec/affinity", nodeAffinity("flavor", "none")),
				add("/metadata/annotations/plimsoll.dev~1charge", `{"leader":"8"}`)))
			return s.patch(workload,
				remove("/spec/podSets/0/template/spec/overhead"),
				remove("/spec/podSets/1/template/spec/affinity"),
				remove("/metadata/annotations/plimsoll.dev~1charge"))
		}},
		"evict a Workload and let it go again": {as: manager, do: func(s *scene) error {
			workload := s.workload()
			s.must(s.patch(workload,
				add("/spec/active", false), add("/metadata/annotations/plimsoll.dev~1steering", "nonce")))
			return s.patch(workload,
				replace("/spec/active", true),
				remove("/metadata/annotations/plimsoll.dev~1steering"),
				add("/spec/podSets/1/template/spec/affinity", nodeAffinity("flavor", "a100")))
		}},
		"reject a Workload for good": {as: manager, do: func(s *scene) error {
			return s.patch(s.workload(),
				add("/spec/active", false), add("/metadata/annotations/plimsoll.dev~1rejected", "ClaimUnsupported"))
		}},
		"say that its AdmissionCheck is Active": {as: manager, do: func(s *scene) error {
			check := newAdmissionCheck(s.namespace, plimsoll.ControllerName)
			s.must(s.admin.Create(s.ctx(), check))
			check.Object["status"] = map[string]any{"conditions": []any{condition("Active", "True")}}
			return s.as.Status().Update(s.ctx(), check)
		}},
		"write a DevicePolicy's status": {as: manager, do: func(s *scene) error {
			policy := newPolicy(s.namespace)
			s.must(s.admin.Create(s.ctx(), policy))
			policy.Object["status"] = map[string]any{"conditions": []any{condition("Ready", "True")}}
			return s.as.Status().Update(s.ctx(), policy)
		}},
		"say in an event what it did": {as: manager, do: func(s *scene) error {
			pod := s.pod("train-0")
			return s.as.Create(s.ctx(), &eventsv1.Event{
				ObjectMeta:          metav1.ObjectMeta{Namespace: s.namespace, Name: "released"},
				EventTime:           metav1.NowMicro(),
				ReportingController: plimsoll.ControllerName, ReportingInstance: "manager-0",
				Action: "Release", Reason: "Released", Type: "Normal",
				Regarding: objectReference(pod),
			})
		}},
		"lead": {as: manager, do: func(s *scene) error {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: plimsoll.SystemNamespace, Name: plimsoll.LeaseName,
			}}
			s.must(s.as.Create(s.ctx(), lease))
			s.t.Cleanup(func() { s.must(s.admin.Delete(context.WithoutCancel(s.ctx()), lease)) })
			holder := "manager-0"
			lease.Spec.HolderIdentity = &holder
			return s.as.Update(s.ctx(), lease)
		}},
		"ask who somebody is": {as: manager, do: func(s *scene) error {
			return s.as.Create(s.ctx(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: "unknown"},
			})
		}},
		"ask whether somebody may read metrics": {as: manager, do: func(s *scene) error {
			return s.as.Create(s.ctx(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User:                  "somebody",
					NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
				},
			})
		}},
	})
}

// owner is the field owner of the manager's writes.
var owner = client.FieldOwner(plimsoll.FieldOwner)

func applied(object *unstructured.Unstructured) runtime.ApplyConfiguration {
	return client.ApplyConfigurationFromUnstructured(object)
}

// applyCheck writes our check's state as the manager does: server-side apply with the resourceVersion, forced.
func applyCheck(s *scene, workload *unstructured.Unstructured, state string, updates []any) error {
	s.t.Helper()
	s.must(s.admin.Get(s.ctx(), client.ObjectKeyFromObject(workload), workload))
	check := checkState(ourCheck, state)
	check["podSetUpdates"] = updates
	object := kueueObject("Workload", workload.GetNamespace(), workload.GetName(), nil)
	delete(object.Object, "spec")
	object.SetResourceVersion(workload.GetResourceVersion())
	object.Object["status"] = map[string]any{"admissionChecks": []any{check}}
	return s.as.Status().Apply(s.ctx(), applied(object), client.ForceOwnership, owner)
}

// managedUpdates asks for our label on the pods of some podsets.
func managedUpdates(podSets ...string) []any {
	var updates []any
	for _, name := range podSets {
		updates = append(updates, map[string]any{"name": name, "labels": map[string]any{plimsoll.ManagedLabel: "true"}})
	}
	return updates
}

func nodeAffinity(key, value string) map[string]any {
	return map[string]any{"nodeAffinity": map[string]any{
		"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{map[string]any{
			"matchExpressions": []any{map[string]any{"key": key, "operator": "In", "values": []any{value}}},
		}}},
	}}
}
