package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Incoming is a pod that kube-scheduler is about to look at.
type Incoming struct {
	// Pod is as the API server has it; its gates are not looked at.
	Pod *corev1.Pod
	// Claims are its ResourceClaims as they stand, by their names in the pod's spec.resourceClaims. One that is missing keeps
	// the pod from every node.
	Claims map[string]*resourcev1.ResourceClaim
}

// Prediction is what kube-scheduler would say of a pod on one node.
type Prediction struct {
	Fits bool
	// Reason and Message say why not; empty where it fits.
	Reason  v1alpha1.Reason
	Message string
	// Quirk says where kube-scheduler counts otherwise than it is, though the pod may fit; empty for nowhere.
	Quirk string
	// Allocations is what it would allocate, by the names of Incoming.Claims; claims that are allocated are left out.
	Allocations map[string]*resourcev1.AllocationResult
	// Mapped is what the claims take of the node's own resources.
	Mapped ledger.Amounts
}

// Predict says whether kube-scheduler would put a pod on a node, on the accounts as they are: its node selector, affinity and
// tolerations, the node's resources, its claims and what they map to. Ports, volumes, and affinity and spreading between pods
// are not looked at.
func (d *Decider) Predict(ctx context.Context, s *ledger.Snapshot, node string, p *Incoming) Prediction {
	return Prediction{}
}
