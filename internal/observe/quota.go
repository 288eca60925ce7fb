package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// Quota feeds a quota book from informers. It is safe for concurrent use.
type Quota struct {
	Book *quota.Book
	// Changed is called after news that may have changed an answer.
	Changed func()

	handlers []toolscache.ResourceEventHandlerRegistration
}

// Synced says whether everything that existed at the start has been given to the book.
func (q *Quota) Synced() bool {
	for _, h := range q.handlers {
		if !h.HasSynced() {
			return false
		}
	}
	return true
}

// Register adds the observer to the informers of every kind that the book takes. Call it once, before the informers
// start.
func (q *Quota) Register(ctx context.Context, informers cache.Cache) error {
	for _, kind := range []client.Object{
		&kueue.ResourceFlavor{}, &kueue.AdmissionCheck{}, &kueue.Cohort{}, &kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.Workload{},
		&corev1.Namespace{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{},
	} {
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("get informer for %T: %w", kind, err)
		}
		h, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { q.see(obj, false) },
			UpdateFunc: func(_, obj any) { q.see(obj, false) },
			DeleteFunc: func(obj any) { q.see(obj, true) },
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		q.handlers = append(q.handlers, h)
	}
	return nil
}

func (q *Quota) see(obj any, gone bool) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if o, ok := obj.(client.Object); ok && q.Book.Apply(o, gone) {
		q.Changed()
	}
}
