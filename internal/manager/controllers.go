package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/controller/policy"
	"github.com/plimsoll-dev/plimsoll/internal/controller/release"
	"github.com/plimsoll-dev/plimsoll/internal/controller/round"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// releaseWorkers is how many pods are released side by side; each takes two writes one after the other.
const releaseWorkers = 16

// once makes whatever happened ask for the same, single reconciliation.
func once(note func()) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		if note != nil {
			note()
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
}

// changedSpec lets creations, deletions and changes of spec pass.
var changedSpec = builder.WithPredicates(predicate.GenerationChangedPredicate{})

func addRound(mgr ctrl.Manager, e *round.Engine, changes chan event.GenericEvent) error {
	notOwned := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.OwnedLabel] != "true"
	}))
	err := ctrl.NewControllerManagedBy(mgr).Named("round").
		WatchesRawSource(source.Channel(changes, once(nil))).
		Watches(&kueue.Workload{}, once(nil)).
		Watches(&v1alpha1.Placement{}, once(nil), changedSpec).
		Watches(&v1alpha1.DevicePolicy{}, once(e.InputChanged), changedSpec).
		Watches(&kueue.ResourceFlavor{}, once(e.InputChanged)).
		Watches(&kueue.AdmissionCheck{}, once(e.InputChanged), changedSpec).
		Watches(&kueue.ClusterQueue{}, once(e.InputChanged), changedSpec).
		Watches(&kueue.LocalQueue{}, once(e.InputChanged), changedSpec).
		Watches(&nodev1.RuntimeClass{}, once(e.InputChanged)).
		Watches(&resourcev1.ResourceClaimTemplate{}, once(e.InputChanged), notOwned).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(e)
	if err != nil {
		return fmt.Errorf("add round: %w", err)
	}
	return nil
}

func addRelease(mgr ctrl.Manager, c *release.Controller) error {
	managed := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.GetLabels()[v1alpha1.ManagedLabel]
		p, isPod := o.(*corev1.Pod)
		return ok || isPod && observe.Gated(p) // the label can be taken off, the gate cannot
	}))
	ofWorkload := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		wl := &kueue.Workload{}
		if err := mgr.GetClient().Get(ctx, client.ObjectKeyFromObject(o), wl); err != nil {
			return nil
		}
		return c.PodsOf(ctx, wl)
	})
	ofClaim := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil || ref.Kind != "Pod" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("release").
		For(&corev1.Pod{}, managed).
		Watches(&v1alpha1.Placement{}, ofWorkload, changedSpec).
		Watches(&kueue.Workload{}, ofWorkload).
		Watches(&resourcev1.ResourceClaim{}, ofClaim).
		WithOptions(controller.Options{MaxConcurrentReconciles: releaseWorkers}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("add release: %w", err)
	}
	return nil
}

func addPolicy(mgr ctrl.Manager, c *policy.Controller) error {
	of := func(o client.Object) bool {
		p, ok := o.(*v1alpha1.Placement)
		return ok && policy.Mischarged(p)
	}
	mischarged := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return of(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return of(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) || of(e.ObjectNew) },
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("policy").
		Watches(&v1alpha1.DevicePolicy{}, once(nil), changedSpec).
		Watches(&kueue.ResourceFlavor{}, once(nil)).
		Watches(&kueue.AdmissionCheck{}, once(nil), changedSpec).
		Watches(&kueue.ClusterQueue{}, once(nil), changedSpec).
		Watches(&resourcev1.DeviceClass{}, once(nil), changedSpec).
		Watches(&resourcev1.ResourceSlice{}, once(nil), changedSpec).
		Watches(&v1alpha1.Placement{}, once(nil), mischarged).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("add policy: %w", err)
	}
	return nil
}
