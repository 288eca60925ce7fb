package policies

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// claimOf waits for the claim that the real claim controller makes for a pod.
func (s *scene) claimOf(pod *corev1.Pod) *resourcev1.ResourceClaim {
	s.t.Helper()
	claim := &resourcev1.ResourceClaim{}
	s.eventually("the pod's claim is made", func(ctx context.Context) (bool, error) {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		if len(pod.Status.ResourceClaimStatuses) == 0 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return false, nil
		}
		key := client.ObjectKey{Namespace: s.namespace, Name: *pod.Status.ResourceClaimStatuses[0].ResourceClaimName}
		return true, s.admin.Get(ctx, key, claim)
	})
	return claim
}

// served is a gated pod with its template and the claim that was made of it.
func (s *scene) served() (*corev1.Pod, *resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaim) {
	s.t.Helper()
	pod := s.managedPod("train-0")
	template := s.newOwnTemplate(pod)
	s.must(s.by(manager).Create(s.ctx(), template))
	return pod, template, s.claimOf(pod)
}

func TestClaimControllerMakesMarkedClaims(t *testing.T) {
	s := newScene(t, manager)
	pod, template, claim := s.served()
	if claim.Labels[plimsoll.OwnedLabel] != "true" {
		t.Errorf("claim has labels %v, want %s=true", claim.Labels, plimsoll.OwnedLabel)
	}
	for _, key := range []string{plimsoll.DevicesAnnotation, plimsoll.SlotAnnotation} {
		if claim.Annotations[key] != template.Spec.Annotations[key] {
			t.Errorf("claim has %s=%q, want %q", key, claim.Annotations[key], template.Spec.Annotations[key])
		}
	}
	if owner := metav1.GetControllerOf(claim); owner == nil || owner.UID != pod.UID {
		t.Errorf("claim is controlled by %v, want the pod", owner)
	}
}

func TestTemplateAndClaimGoWithTheirPod(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"deleted in the background": metav1.DeletePropagationBackground,
		"deleted in the foreground": metav1.DeletePropagationForeground,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, tenant)
			pod, template, claim := s.served()
			s.must(s.as.Delete(s.ctx(), pod, client.PropagationPolicy(policy)))
			s.eventually("the template is gone", s.gone(template))
			s.eventually("the claim is gone", s.gone(claim))
			s.eventually("the pod is gone", s.gone(pod))
		})
	}
}

// With --cascade=orphan the template stays, owned by nobody, for the manager to take away. The claim does as a rule not, as
// the claim controller deletes it before the garbage collector disowns it; if it stays, anybody can delete it.
func TestOrphansCanBeCleanedUp(t *testing.T) {
	s := newScene(t, tenant)
	pod, template, claim := s.served()
	s.must(s.as.Delete(s.ctx(), pod, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	s.eventually("the pod is gone", s.gone(pod))
	s.must(s.admin.Get(s.ctx(), client.ObjectKeyFromObject(template), template))
	if owners := template.GetOwnerReferences(); len(owners) != 0 {
		t.Errorf("template has owners %v, want none", owners)
	}
	s.must(s.by(manager).Delete(s.ctx(), template))
	s.must(client.IgnoreNotFound(s.as.Delete(s.ctx(), claim)))
	s.eventually("the claim is gone", s.gone(claim))
}

func TestPlacementGoesWithItsWorkload(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"deleted in the background": metav1.DeletePropagationBackground,
		"deleted in the foreground": metav1.DeletePropagationForeground,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, manager)
			placement := s.placement()
			workload := s.newWorkload(placement.GetName())
			s.must(s.admin.Delete(s.ctx(), workload, client.PropagationPolicy(policy)))
			s.eventually("the Placement is gone", s.gone(placement))
		})
	}
}

func TestEverythingGoesWithItsNamespace(t *testing.T) {
	s := newScene(t, manager)
	s.served()
	s.placement()
	namespace := &corev1.Namespace{}
	s.must(s.admin.Get(s.ctx(), client.ObjectKey{Name: s.namespace}, namespace))
	s.must(s.admin.Delete(s.ctx(), namespace))
	s.eventually("the namespace is gone", s.gone(namespace))
}

// The namespace enforces the strictest pod security standard; the Deployment has to pass it.
func TestManagerPodsAreCreated(t *testing.T) {
	s := newScene(t, manager)
	key := client.ObjectKey{Namespace: plimsoll.SystemNamespace, Name: "plimsoll-manager"}
	s.eventually("the Deployment has its pods", func(ctx context.Context) (bool, error) {
		var deployment appsv1.Deployment
		if err := s.admin.Get(ctx, key, &deployment); err != nil {
			return false, err
		}
		for _, condition := range deployment.Status.Conditions {
			if condition.Type == appsv1.DeploymentReplicaFailure {
				s.t.Fatal(condition.Message)
			}
		}
		return deployment.Status.Replicas == *deployment.Spec.Replicas, nil
	})
}
