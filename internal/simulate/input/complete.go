package input

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// complete warns where a dump lacks what its objects hold: what is free in it is not free in its cluster.
func (r *reader) complete(is map[key]bool) {
	pods := map[types.UID]bool{} // by whom they are controlled
	for _, e := range r.entries {
		if ref := metav1.GetControllerOfNoCopy(e.object); ref != nil && e.is.name == "Pod" {
			pods[ref.UID] = true
		}
	}
	for _, e := range r.entries {
		if e.object.GetUID() == "" {
			continue
		}
		switch o := e.object.(type) {
		case *corev1.Pod:
			r.completePod(e, o, is)
		case *batchv1.Job:
			if o.Status.Active > 0 && !pods[o.UID] {
				r.warn(e.wrong("status.active", fmt.Sprintf("%d pods of it run and none is in the input: it is taken for one that has just lost them", o.Status.Active)))
			}
		case *kueue.Workload:
			r.completeWorkload(e, o, is)
		}
	}
}

func (r *reader) completePod(e *entry, p *corev1.Pod, is map[key]bool) {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	if !is[key{"Node", "", p.Spec.NodeName}] {
		r.warn(e.wrong("spec.nodeName", missing("Node", "", p.Spec.NodeName)+": it is taken for a pod whose node is gone"))
	}
	claims := []string{}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			claims = append(claims, *s.ResourceClaimName)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		claims = append(claims, s.ResourceClaimName)
	}
	for _, name := range claims {
		if !is[key{"ResourceClaim", p.Namespace, name}] {
			r.warn(e.wrong("status.resourceClaimStatuses", missing("ResourceClaim", p.Namespace, name)+": the devices of the pod are taken for free"))
		}
	}
}

// completeWorkload looks for the Placement of a Workload that was let in by a check which gives its pods our label.
func (r *reader) completeWorkload(e *entry, wl *kueue.Workload, is map[key]bool) {
	runs := meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) && !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
	ours := slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
		return slices.ContainsFunc(c.PodSetUpdates, func(u kueue.PodSetUpdate) bool { return u.Labels[v1alpha1.ManagedLabel] != "" })
	})
	if runs && ours && !is[key{"Placement", wl.Namespace, wl.Name}] {
		r.note(e.wrong("", "has no Placement in the input: what it was promised is taken from its pods"))
	}
}
