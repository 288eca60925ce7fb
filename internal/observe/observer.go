package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Observer feeds a book from informers. It is safe for concurrent use.
type Observer struct {
	Book    *ledger.Book
	Metrics *metrics.Metrics
	// Clock tells when something was seen.
	Clock clock.PassiveClock
	// Changed is called after an observation that may have changed an account.
	Changed func()

	handlers []toolscache.ResourceEventHandlerRegistration
	// rules is nil where no DeviceTaintRules are looked for.
	rules *TaintRules
}

// Synced says whether everything that existed at the start has been given to the book. Nothing may be decided before.
func (o *Observer) Synced() bool {
	return allSynced(o.handlers) && (o.rules == nil || o.rules.synced())
}

func allSynced(handlers []toolscache.ResourceEventHandlerRegistration) bool {
	for _, h := range handlers {
		if !h.HasSynced() {
			return false
		}
	}
	return true
}

// kinds are what the book is fed with, beside DeviceTaintRules, which a server need not serve.
func kinds() []client.Object {
	return []client.Object{
		&corev1.Node{}, &corev1.Pod{}, &resourcev1.ResourceSlice{}, &resourcev1.ResourceClaim{}, &resourcev1.DeviceClass{},
		&v1alpha1.Placement{}, &kueue.Workload{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{},
	}
}

// Register adds the observer to the informers of every kind that the book takes. Call it once, before the informers
// start.
func (o *Observer) Register(ctx context.Context, informers cache.Cache) (err error) {
	o.handlers, err = register(ctx, informers, kinds(), o.see)
	return err
}

// register lets see have every object of these kinds, as it is or as gone.
func register(
	ctx context.Context, informers cache.Cache, kinds []client.Object, see func(obj any, gone bool),
) (handlers []toolscache.ResourceEventHandlerRegistration, err error) {
	for _, kind := range kinds {
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("get informer for %T: %w", kind, err)
		}
		h, err := informer.AddEventHandler(handler(see))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		handlers = append(handlers, h)
	}
	return handlers, nil
}

func handler(see func(obj any, gone bool)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { see(obj, false) },
		UpdateFunc: func(_, obj any) { see(obj, false) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			see(obj, true)
		},
	}
}

func (o *Observer) see(obj any, gone bool) {
	if m, ok := obj.(metav1.Object); ok {
		o.Apply(m, gone)
	}
}

// Apply gives the book one object as it is, or as gone. A write's answer may be applied before its watch event comes.
func (o *Observer) Apply(obj metav1.Object, gone bool) {
	observation, ok := Of(obj, gone)
	if !ok {
		return
	}
	observation.At = o.Clock.Now()
	outcome, changed := o.Book.Apply(observation)
	o.Metrics.Observations.WithLabelValues(string(observation.Ref.Kind), string(outcome)).Inc()
	if changed {
		o.Changed()
	}
}
