package observe

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// WorkloadByOwner indexes Workloads by the uid of their controller.
const WorkloadByOwner = "plimsoll.dev/owner-uid"

// PodByController indexes pods by the uid of their controller.
const PodByController = "plimsoll.dev/controller-uid"

// WorkloadState indexes Workloads by whether they have finished: those that have not under Unfinished, the others not at all.
// Of a day's Workloads most have finished, and a round need not look at them.
const WorkloadState = "plimsoll.dev/state"

// Unfinished is the value of WorkloadState for a Workload that has not finished.
const Unfinished = "Unfinished"

// PlacementUse indexes Placements by what they are of use for: those that promise something under Promise, those that remember
// victims under Victims.
const PlacementUse = "plimsoll.dev/use"

// The values of PlacementUse.
const (
	Promise = "Promise"
	Victims = "Victims"
)

// Index is a field by which objects are looked up.
type Index struct {
	Object client.Object
	Field  string
	Of     client.IndexerFunc
}

// Indexes returns the indexes that the manager's client must have.
func Indexes() []Index {
	byController := func(o client.Object) []string {
		if uid := ControllerOf(o); uid != "" {
			return []string{string(uid)}
		}
		return nil
	}
	return []Index{
		{&kueue.Workload{}, WorkloadByOwner, byController},
		{&corev1.Pod{}, PodByController, byController},
		{&kueue.Workload{}, WorkloadState, stateOf},
		{&v1alpha1.Placement{}, PlacementUse, usesOf},
	}
}

func stateOf(o client.Object) []string {
	if wl, ok := o.(*kueue.Workload); ok && !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
		return []string{Unfinished}
	}
	return nil
}

func usesOf(o client.Object) (uses []string) {
	p, ok := o.(*v1alpha1.Placement)
	if ok && p.Spec.Key != nil {
		uses = append(uses, Promise)
	}
	if ok && len(p.Status.Victims) > 0 {
		uses = append(uses, Victims)
	}
	return uses
}
