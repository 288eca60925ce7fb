package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// ended marks the context of a deletion by which a kubelet says that a pod has ended.
type ended struct{}

// graceful keeps a pod that is deleted until it has ended: for its grace, or while its node is not Ready for as long as that
// is so. Its deletionTimestamp is when it is to have ended.
func graceful(s *store.Store, now clock.PassiveClock) store.Hook {
	return func(ctx context.Context, op store.Op, _ string, was, _ client.Object) error {
		if op != store.Delete || ctx.Value(ended{}) != nil {
			return nil
		}
		p := was.(*corev1.Pod)
		if p.Spec.NodeName == "" || terminal(p) {
			return nil
		}
		n := &corev1.Node{}
		if err := s.Client().Get(ctx, types.NamespacedName{Name: p.Spec.NodeName}, n); err != nil {
			return client.IgnoreNotFound(err) // a pod without its node goes at once
		}
		g := grace(p)
		if g == 0 && !nodeReady(n) {
			g = time.Second // nobody is there to say that it has ended
		}
		switch {
		case g == 0:
			return nil
		case p.DeletionTimestamp != nil:
			return store.ErrHandled
		}
		ending := p.DeepCopy()
		ending.DeletionTimestamp = ptr.To(metav1.NewTime(now.Now().Add(g)))
		ending.DeletionGracePeriodSeconds = ptr.To(int64((g + time.Second - 1) / time.Second))
		ending.Generation++
		if err := s.Put(ending); err != nil {
			return fmt.Errorf("mark pod as ending: %w", err)
		}
		return store.ErrHandled
	}
}
