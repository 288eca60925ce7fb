package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
)

// The paths that config/webhook leads to.
const (
	WorkloadPath     = "/mutate-workload"
	PodPath          = "/mutate-pod"
	DevicePolicyPath = "/validate-devicepolicy"
)

// ManagerUsername is the name under which the API server knows the manager as it is installed.
const ManagerUsername = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":" + v1alpha1.ManagerServiceAccount

// PolicyOf returns the policy of a LocalQueue; nil for a queue that is not managed.
type PolicyOf func(ctx context.Context, namespace, localQueue string) (*policies.Managed, error)

// Options is what the webhooks need besides a manager. The zero value works.
type Options struct {
	// Client reads what Workloads refer to. Nil is the manager's, which reads from its cache.
	Client client.Reader
	// PolicyOf finds a queue's policy. Nil looks it up through Client.
	PolicyOf PolicyOf
	// ManagerUsername is who may change what steering wrote. Empty is the constant of that name.
	ManagerUsername string
	// Rand is where the random ends of template names come from. Nil is crypto/rand.
	Rand io.Reader
}

// Register serves the three webhooks on the manager's webhook server. The manager's scheme must know Workloads, pods
// and DevicePolicies.
func Register(mgr ctrl.Manager, opts Options) error {
	if opts.Client == nil {
		opts.Client = mgr.GetClient()
	}
	handlers, err := newHandlers(mgr.GetScheme(), opts)
	if err != nil {
		return err
	}
	server := mgr.GetWebhookServer()
	for path, handler := range handlers {
		server.Register(path, handler)
	}
	return nil
}

// newHandlers returns the webhooks by path.
func newHandlers(scheme *runtime.Scheme, opts Options) (map[string]*admission.Webhook, error) {
	if opts.Client == nil {
		return nil, fmt.Errorf("webhooks need a client")
	}
	resolver := &policies.Resolver{Client: opts.Client}
	if opts.PolicyOf == nil {
		opts.PolicyOf = resolver.ForQueue
	}
	if opts.ManagerUsername == "" {
		opts.ManagerUsername = ManagerUsername
	}
	if opts.Rand == nil {
		opts.Rand = rand.Reader
	}
	decoder := admission.NewDecoder(scheme)
	return map[string]*admission.Webhook{
		WorkloadPath: {Handler: &workloadMutator{
			decoder: decoder, policyOf: opts.PolicyOf, resolver: resolver, manager: opts.ManagerUsername,
		}},
		PodPath:          {Handler: &podMutator{decoder: decoder, rand: opts.Rand}},
		DevicePolicyPath: admission.WithValidator(scheme, newPolicyValidator()),
	}, nil
}

// patched answers with what changed between two states of an object. The patch is taken between what our types hold of
// both, so that fields which they do not know are left as they are.
func patched(before, after runtime.Object) (admission.Response, error) {
	a, err := json.Marshal(before)
	if err != nil {
		return admission.Response{}, fmt.Errorf("marshal object: %w", err)
	}
	b, err := json.Marshal(after)
	if err != nil {
		return admission.Response{}, fmt.Errorf("marshal changed object: %w", err)
	}
	ops, err := jsonpatch.CreatePatch(a, b)
	if err != nil {
		return admission.Response{}, fmt.Errorf("compare objects: %w", err)
	}
	if len(ops) == 0 {
		return admission.Allowed(""), nil
	}
	return admission.Patched("", ops...), nil
}
