package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/workload"
)

// kind is one of the kinds that the book takes.
type kind int

const (
	kindClusterQueue kind = iota
	kindCohort
	kindLocalQueue
	kindFlavor
	kindCheck
	kindWorkload
	kindNamespace
	kindLimitRange
	kindRuntimeClass
	kinds
)

// ref names an object.
type ref struct {
	kind kind
	name string // namespace/name where there is a namespace
}

func nameOf(o client.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// keep returns what the book keeps of an object: what Kueue's scheduler reads, and nothing else, so that two that are equal
// give the same answers. It shares memory with obj. The object is nil for a Workload that holds no quota; the kind is
// kinds for what the book does not take.
func keep(obj client.Object) (kind, client.Object) {
	named := metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	switch o := obj.(type) {
	case *kueue.ClusterQueue:
		named.DeletionTimestamp = terminating(o.DeletionTimestamp)
		return kindClusterQueue, &kueue.ClusterQueue{ObjectMeta: named, Spec: o.Spec}
	case *kueue.Cohort:
		return kindCohort, &kueue.Cohort{ObjectMeta: named, Spec: o.Spec}
	case *kueue.LocalQueue:
		return kindLocalQueue, &kueue.LocalQueue{ObjectMeta: named, Spec: kueue.LocalQueueSpec{StopPolicy: o.Spec.StopPolicy}}
	case *kueue.ResourceFlavor:
		spec := o.Spec
		spec.TopologyName = nil
		return kindFlavor, &kueue.ResourceFlavor{ObjectMeta: named, Spec: spec}
	case *kueue.AdmissionCheck:
		kept := &kueue.AdmissionCheck{ObjectMeta: named, Spec: kueue.AdmissionCheckSpec{ControllerName: o.Spec.ControllerName}}
		if meta.IsStatusConditionTrue(o.Status.Conditions, kueue.AdmissionCheckActive) {
			kept.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
		return kindCheck, kept
	case *kueue.Workload:
		if o.Status.Admission == nil || !workload.HasActiveQuotaReservation(o) {
			return kindWorkload, nil
		}
		return kindWorkload, holder(o)
	case *corev1.Namespace:
		named.Labels = o.Labels
		return kindNamespace, &corev1.Namespace{ObjectMeta: named}
	case *corev1.LimitRange:
		return kindLimitRange, &corev1.LimitRange{ObjectMeta: named, Spec: o.Spec}
	case *nodev1.RuntimeClass:
		return kindRuntimeClass, &nodev1.RuntimeClass{ObjectMeta: named, Overhead: o.Overhead}
	}
	return kinds, nil
}

// terminating is any time at all, if there is one.
func terminating(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	return &metav1.Time{}
}

// heldConditions are what Kueue's scheduler reads of those who hold quota.
var heldConditions = []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadPreempted}

// holder returns what is kept of a Workload that holds quota. Its podsets' templates, which are most of it, do not matter
// any more: what it uses is in its admission.
func holder(w *kueue.Workload) *kueue.Workload {
	out := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, UID: w.UID, CreationTimestamp: w.CreationTimestamp},
		Spec:       kueue.WorkloadSpec{QueueName: w.Spec.QueueName, Priority: w.Spec.Priority},
		Status:     kueue.WorkloadStatus{ReclaimablePods: w.Status.ReclaimablePods},
	}
	if boost, ok := w.Annotations[controllerconstants.PriorityBoostAnnotationKey]; ok {
		out.Annotations = map[string]string{controllerconstants.PriorityBoostAnnotationKey: boost}
	}
	for i := range w.Spec.PodSets {
		out.Spec.PodSets = append(out.Spec.PodSets, kueue.PodSet{Name: w.Spec.PodSets[i].Name, Count: w.Spec.PodSets[i].Count})
	}
	out.Status.Admission = &kueue.Admission{ClusterQueue: w.Status.Admission.ClusterQueue}
	for _, a := range w.Status.Admission.PodSetAssignments {
		a.TopologyAssignment, a.DelayedTopologyRequest = nil, nil
		out.Status.Admission.PodSetAssignments = append(out.Status.Admission.PodSetAssignments, a)
	}
	for _, c := range w.Status.Conditions {
		if slices.Contains(heldConditions, c.Type) {
			c.Message, c.ObservedGeneration = "", 0
			out.Status.Conditions = append(out.Status.Conditions, c)
		}
	}
	return out
}
