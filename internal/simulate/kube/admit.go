package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// defaultTolerationSeconds is for how long a pod that says nothing stays on a node that is lost.
const defaultTolerationSeconds = 300

// admitted fills in what the API server's own admission writes into a pod that is created: its priority, the overhead of its
// RuntimeClass, and how long it tolerates the loss of its node. A class that does not exist leaves the pod as it is.
func admitted(c client.Reader) store.Hook {
	return func(ctx context.Context, op store.Op, _ string, _, is client.Object) error {
		if op != store.Create {
			return nil
		}
		return admit(ctx, c, is.(*corev1.Pod))
	}
}

func admit(ctx context.Context, c client.Reader, p *corev1.Pod) error {
	p.Status.Phase = corev1.PodPending
	tolerateLoss(&p.Spec)
	if name := p.Spec.PriorityClassName; name != "" && p.Spec.Priority == nil {
		class := &schedulingv1.PriorityClass{}
		switch err := c.Get(ctx, types.NamespacedName{Name: name}, class); {
		case err == nil:
			p.Spec.Priority = ptr.To(class.Value)
			p.Spec.PreemptionPolicy = class.PreemptionPolicy
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get priority class: %w", err)
		}
	}
	if name := p.Spec.RuntimeClassName; name != nil && len(p.Spec.Overhead) == 0 {
		class := &nodev1.RuntimeClass{}
		switch err := c.Get(ctx, types.NamespacedName{Name: *name}, class); {
		case err == nil && class.Overhead != nil:
			p.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("get runtime class: %w", err)
		}
	}
	return nil
}

// tolerateLoss adds the tolerations that every pod gets unless it says otherwise.
func tolerateLoss(s *corev1.PodSpec) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		says := slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !says {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](defaultTolerationSeconds),
			})
		}
	}
}
