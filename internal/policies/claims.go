package policies

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// RequestOverhead returns the pod overhead that a podset's RuntimeClass fixes; nil where it names none, or one that
// does not exist or fixes nothing. Kueue fills it in only where no overhead is set, so whoever charges has to.
func (r *Resolver) RequestOverhead(ctx context.Context, ps *kueue.PodSet) (corev1.ResourceList, error) {
	name := ps.Template.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return nil, nil
	}
	rc := &nodev1.RuntimeClass{}
	if found, err := r.get(ctx, types.NamespacedName{Name: *name}, rc); err != nil || !found {
		return nil, err
	}
	if rc.Overhead == nil || len(rc.Overhead.PodFixed) == 0 {
		return nil, nil
	}
	return rc.Overhead.PodFixed.DeepCopy(), nil
}

// Additions returns what admission plugins of the API server will add to the pods of a podset.
func (r *Resolver) Additions(ctx context.Context, namespace string, ps *kueue.PodSet) (ledger.Additions, error) {
	fixed, err := r.RequestOverhead(ctx, ps)
	if err != nil {
		return ledger.Additions{}, err
	}
	var limits corev1.LimitRangeList
	if err := r.Client.List(ctx, &limits, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ledger.Additions{}, fmt.Errorf("list limit ranges: %w", err)
	}
	return ledger.Additions{Overhead: fixed, Default: ledger.DefaultRequests(func(yield func(*corev1.LimitRange) bool) {
		for i := range limits.Items {
			if !yield(&limits.Items[i]) {
				return
			}
		}
	})}, nil
}

// Overheads returns RequestOverhead of each podset of a Workload that has any, as flavors.Plan takes it.
func (r *Resolver) Overheads(ctx context.Context, wl *kueue.Workload) (map[string]corev1.ResourceList, error) {
	overheads := map[string]corev1.ResourceList{}
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		fixed, err := r.RequestOverhead(ctx, ps)
		if err != nil {
			return nil, err
		}
		if len(fixed) > 0 {
			overheads[string(ps.Name)] = fixed
		}
	}
	return overheads, nil
}

// Shape reads the claims of a pod spec, as flavors.ShapeOf does, with the templates of a namespace. The error is one
// of reading; a template that does not exist is a refusal.
func (r *Resolver) Shape(ctx context.Context, namespace string, spec *corev1.PodSpec) (flavors.Shape, *flavors.Refusal, error) {
	var failed error
	shape, refusal := flavors.ShapeOf(spec, func(name string) *resourcev1.ResourceClaimTemplate {
		t := &resourcev1.ResourceClaimTemplate{}
		found, err := r.get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, t)
		if err != nil && failed == nil {
			failed = err
		}
		if !found {
			return nil
		}
		return t
	})
	return shape, refusal, failed
}
