package webhook

import (
	"context"
	"crypto/rand"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
)

// Mutators change objects as the webhooks do, for whoever plays the API server in this process. They are safe for concurrent
// use if Options.Client and Options.Rand are.
type Mutators struct {
	workloads *workloadMutator
	pods      *podMutator
}

// NewMutators makes them. Options.Client must be set.
func NewMutators(opts Options) *Mutators {
	resolver := &policies.Resolver{Client: opts.Client}
	if opts.PolicyOf == nil {
		opts.PolicyOf = resolver.ForQueue
	}
	if opts.Rand == nil {
		opts.Rand = rand.Reader
	}
	return &Mutators{
		workloads: &workloadMutator{policyOf: opts.PolicyOf, resolver: resolver, manager: opts.ManagerUsername},
		pods:      &podMutator{rand: opts.Rand},
	}
}

// Workload changes a Workload before it is stored instead of old, which is nil for a new one. The manager's own writes do
// not go through it. Where it fails the Workload is left as it is.
func (m *Mutators) Workload(ctx context.Context, wl, old *kueue.Workload) {
	changed := wl.DeepCopy()
	if err := m.workloads.mutate(ctx, wl.Namespace, changed, old); err != nil {
		log.FromContext(ctx).Error(err, "Workload was let through as it is", "workload", wl.Namespace+"/"+wl.Name)
		return
	}
	*wl = *changed
}

// Pod changes a pod before it is created. The error is why it is refused.
func (m *Mutators) Pod(pod *corev1.Pod) error {
	if _, managed := pod.Labels[v1alpha1.ManagedLabel]; !managed {
		return nil
	}
	return m.pods.mutate(pod)
}
