package manager

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// epoch returns a function that gives the leader Lease's number of transitions as it was when first asked: a process
// leads at most once, and asks only while it leads. Without a Lease it is 0.
func epoch(live client.Reader, namespace string) func(context.Context) (int64, error) {
	var mu sync.Mutex
	var known *int64
	return func(ctx context.Context) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != nil {
			return *known, nil
		}
		lease := &coordinationv1.Lease{}
		err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.LeaseName}, lease)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("get lease: %w", err)
		}
		n := int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))
		known = &n
		return n, nil
	}
}
