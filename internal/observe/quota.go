package observe

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// QuotaObserver feeds the quota book from informers. It is safe for concurrent use.
type QuotaObserver struct {
	Book *quota.Book
	// Changed is called after an object that may have changed an answer.
	Changed func()

	handlers []toolscache.ResourceEventHandlerRegistration
}

// quotaKinds are what the quota book is fed with.
func quotaKinds() []client.Object {
	return []client.Object{
		&kueue.ClusterQueue{}, &kueue.Cohort{}, &kueue.LocalQueue{}, &kueue.ResourceFlavor{}, &kueue.AdmissionCheck{},
		&kueue.Workload{}, &corev1.Namespace{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{},
	}
}

// Synced says whether everything that existed at the start has been given to the book. Nothing may be asked before.
func (o *QuotaObserver) Synced() bool { return allSynced(o.handlers) }

// Register adds the observer to the informers of every kind that the book takes. Call it once, before the informers
// start.
func (o *QuotaObserver) Register(ctx context.Context, informers cache.Cache) (err error) {
	o.handlers, err = register(ctx, informers, quotaKinds(), o.see)
	return err
}

func (o *QuotaObserver) see(obj any, gone bool) {
	if c, ok := obj.(client.Object); ok {
		o.Apply(c, gone)
	}
}

// Apply gives the book one object as it is, or as gone. Objects of other kinds than the book takes change nothing.
func (o *QuotaObserver) Apply(obj client.Object, gone bool) {
	if o.Book.Apply(obj, gone) {
		o.Changed()
	}
}
