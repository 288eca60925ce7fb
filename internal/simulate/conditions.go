package simulate

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// timeConditions has conditions change at the time of the run. Whoever sets one without a time gets that of the machine.
func (w *cluster) timeConditions() {
	for _, kind := range []client.Object{
		&kueue.AdmissionCheck{}, &kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.Workload{}, &v1alpha1.DevicePolicy{}, &v1alpha1.Placement{},
	} {
		w.store.Hook(kind, func(_ context.Context, op store.Op, subresource string, old, now client.Object) error {
			if op != store.Update || subresource != "status" {
				return nil
			}
			before, after := *conditionsOf(old), *conditionsOf(now)
			for i := range after {
				if had := meta.FindStatusCondition(before, after[i].Type); had != nil && had.Status == after[i].Status {
					after[i].LastTransitionTime = had.LastTransitionTime
				} else {
					after[i].LastTransitionTime = metav1.NewTime(w.clock.Now())
				}
			}
			return nil
		})
	}
}

// conditionsOf returns the conditions of an object of a kind that has them.
func conditionsOf(o client.Object) *[]metav1.Condition {
	switch o := o.(type) {
	case *kueue.AdmissionCheck:
		return &o.Status.Conditions
	case *kueue.ClusterQueue:
		return &o.Status.Conditions
	case *kueue.LocalQueue:
		return &o.Status.Conditions
	case *kueue.Workload:
		return &o.Status.Conditions
	case *v1alpha1.DevicePolicy:
		return &o.Status.Conditions
	case *v1alpha1.Placement:
		return &o.Status.Conditions
	}
	return &[]metav1.Condition{}
}
