package parts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/controller/policy"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// The names of the controllers.
const (
	Round   = "round"
	Release = "release"
	Policy  = "policy"
	// SelfCheck is not among Controllers.
	SelfCheck = "self-check"
)

// releaseWorkers is how many pods are released side by side; each takes two writes one after the other.
const releaseWorkers = 16

// Controller is a reconciler with what wakes it.
type Controller struct {
	Name string
	reconcile.Reconciler
	// Workers is how many requests may be served side by side.
	Workers int
	Watches []Watch
}

// Watch says whom a change of an object wakes.
type Watch struct {
	Kind client.Object
	// When says which changes count; nil for all.
	When predicate.Predicate
	// Requests returns what is to be reconciled; an update asks for the object before it and as it is.
	Requests func(context.Context, client.Object) []reconcile.Request
}

// All is the only request of the controllers that look at everything.
var All = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// Whole asks for All, whatever happened.
func Whole(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{All} }

// Itself asks for the object that changed.
func Itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// everything makes whatever happened ask for the same, single reconciliation.
func everything(note func()) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if note != nil {
			note()
		}
		return Whole(ctx, o)
	}
}

// ChangedSpec lets creations, deletions and changes of spec pass.
var ChangedSpec predicate.Predicate = predicate.GenerationChangedPredicate{}

// Controllers returns the parts that reconcile. The round is also due when Environment.Changed is called.
func (p *Parts) Controllers() []Controller {
	return []Controller{
		{Name: Round, Reconciler: p.Round, Workers: 1, Watches: p.roundWatches()},
		{Name: Release, Reconciler: p.Release, Workers: releaseWorkers, Watches: p.releaseWatches()},
		{Name: Policy, Reconciler: p.Policy, Workers: 1, Watches: policyWatches()},
	}
}

// SelfChecker returns the part that compares the book with the cluster, which only has a meaning where there is one. It is due
// when Environment.Changed is called, and watches nothing by itself.
func (p *Parts) SelfChecker() Controller {
	return Controller{Name: SelfCheck, Reconciler: p.SelfCheck, Workers: 1}
}

func (p *Parts) roundWatches() []Watch {
	notOwned := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.OwnedLabel] != "true" })
	changed := everything(p.Round.InputChanged)
	return []Watch{
		{&kueue.Workload{}, nil, everything(nil)},
		{&v1alpha1.Placement{}, ChangedSpec, everything(nil)},
		{&v1alpha1.DevicePolicy{}, ChangedSpec, changed},
		{&kueue.ResourceFlavor{}, nil, changed},
		{&kueue.AdmissionCheck{}, ChangedSpec, changed},
		{&kueue.ClusterQueue{}, ChangedSpec, changed},
		{&kueue.LocalQueue{}, ChangedSpec, changed},
		{&nodev1.RuntimeClass{}, nil, changed},
		{&corev1.LimitRange{}, nil, changed},
		{&resourcev1.ResourceClaimTemplate{}, notOwned, changed},
	}
}

func (p *Parts) releaseWatches() []Watch {
	managed := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.GetLabels()[v1alpha1.ManagedLabel]
		pod, isPod := o.(*corev1.Pod)
		return ok || isPod && observe.Gated(pod) // the label can be taken off, the gate cannot
	})
	ofWorkload := func(ctx context.Context, o client.Object) []reconcile.Request {
		wl := &kueue.Workload{}
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(o), wl); err != nil {
			return nil
		}
		return p.Release.PodsOf(ctx, wl)
	}
	ofClaim := func(_ context.Context, o client.Object) []reconcile.Request {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil || ref.Kind != "Pod" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}}
	}
	return []Watch{
		{&corev1.Pod{}, managed, Itself},
		{&v1alpha1.Placement{}, ChangedSpec, ofWorkload},
		{&kueue.Workload{}, nil, ofWorkload},
		{&resourcev1.ResourceClaim{}, nil, ofClaim},
	}
}

func policyWatches() []Watch {
	of := func(o client.Object) bool {
		p, ok := o.(*v1alpha1.Placement)
		return ok && policy.Mischarged(p)
	}
	mischarged := predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return of(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return of(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) || of(e.ObjectNew) },
	}
	return []Watch{
		{&v1alpha1.DevicePolicy{}, ChangedSpec, everything(nil)},
		{&kueue.ResourceFlavor{}, nil, everything(nil)},
		{&kueue.AdmissionCheck{}, ChangedSpec, everything(nil)},
		{&kueue.ClusterQueue{}, ChangedSpec, everything(nil)},
		{&resourcev1.DeviceClass{}, ChangedSpec, everything(nil)},
		{&resourcev1.ResourceSlice{}, ChangedSpec, everything(nil)},
		{&v1alpha1.Placement{}, mischarged, everything(nil)},
	}
}
