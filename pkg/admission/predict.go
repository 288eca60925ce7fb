package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Incoming is a pod that kube-scheduler is about to look at.
type Incoming struct {
	// Pod is as the API server has it; its gates are not looked at.
	Pod *corev1.Pod
	// Claims are its ResourceClaims as they stand, by their names in the pod's spec.resourceClaims. One that is missing keeps
	// the pod from every node. The one that kube-scheduler made for the pod's extended resources, if there is one, may be under
	// any other name.
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
	// Unsure is true where kube-scheduler may come to another answer each time: Quirk says why, and Fits is true only where
	// each answer is.
	Unsure bool
	// Allocations is what it would allocate, by the names of Incoming.Claims; claims that are allocated are left out. What is
	// given for extended resources is under ExtendedResourcesClaim. The shareIDs, which kube-scheduler draws, are made up.
	Allocations map[string]*resourcev1.AllocationResult
	// Mapped is what the claims take of the node's own resources.
	Mapped ledger.Amounts
}

// Predict says whether kube-scheduler 1.36 would put a pod on a node, on the accounts as they are: its node selector, affinity
// and tolerations, the node's resources, its claims and what they map to. Ports, volumes, and affinity and spreading between
// pods are not looked at. What is promised or released counts as what is allocated does, but for devices that are held for the
// pod's own claims; to leave out what else is held for the pod itself is the caller's part. Where kube-scheduler gives up the pod
// on all nodes over something on one of them, that shows on that node alone. Where devices map to the node's own resources as
// Kubernetes 1.37 has it, they count as there. Safe for concurrent use.
func (d *Decider) Predict(ctx context.Context, s *ledger.Snapshot, node string, p *Incoming) Prediction {
	n := s.Node(node)
	if n == nil {
		return Prediction{Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s is gone", node)}
	}
	forgets, doubt := d.predict(ctx, s, n, p, false)
	if doubt == "" {
		return forgets
	}
	knows, _ := d.predict(ctx, s, n, p, true)
	if forgets.Fits == knows.Fits && maps.Equal(forgets.Mapped, knows.Mapped) && apiequality.Semantic.DeepEqual(forgets.Allocations, knows.Allocations) {
		if knows.Unsure {
			return knows
		}
		return forgets
	}
	if !knows.Fits {
		forgets = knows
	}
	forgets.Unsure, forgets.Quirk = true, strings.TrimPrefix(forgets.Quirk+"; "+doubt, "; ")
	return forgets
}

// predict is Predict where kube-scheduler knows, or has forgotten, what DeviceClasses are called where that is chance. doubt says
// what is; empty for nothing.
func (d *Decider) predict(ctx context.Context, s *ledger.Snapshot, n *ledger.Node, p *Incoming, knows bool) (_ Prediction, doubt string) {
	f := &foresight{
		decider: d, s: s, n: n, in: p, pod: p.Pod, knows: knows,
		requests: resourcehelper.PodRequests(p.Pod, resourcehelper.PodResourcesOptions{}),
	}
	steps := []func(context.Context) *refusal{f.gather, f.ready, f.place, f.room, f.extend, f.usable, f.allocate, f.footing, f.bind}
	for _, step := range steps {
		if no := step(ctx); no != nil {
			return Prediction{Reason: no.reason, Message: no.message, Quirk: f.quirk(), Unsure: f.unsure}, f.doubt
		}
	}
	return Prediction{Fits: true, Quirk: f.quirk(), Unsure: f.unsure, Allocations: f.allocations(), Mapped: f.mapped}, f.doubt
}

// refusal says why a pod does not fit.
type refusal struct {
	reason  v1alpha1.Reason
	message string
}

func refuse(reason v1alpha1.Reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// foresight is one pod on one node, as kube-scheduler's plugins look at it one after another.
type foresight struct {
	decider *Decider
	s       *ledger.Snapshot
	n       *ledger.Node
	in      *Incoming
	pod     *corev1.Pod
	// requests is what the pod asks for without what its claims map to.
	requests corev1.ResourceList
	// claims are those of the pod, in its order; the one for its extended resources comes last.
	claims []*podClaim
	// classes are those that serve extended resources of the pod.
	classes map[corev1.ResourceName]*resourcev1.DeviceClass
	// knows says that kube-scheduler knows all classes by their own names, doubt which it may not.
	knows  bool
	doubt  string
	quirks []string
	unsure bool
	mapped ledger.Amounts
}

// podClaim is one claim of the pod.
type podClaim struct {
	// name is the claim's in the pod's spec.
	name string
	*resourcev1.ResourceClaim
	extended bool
	// result is what the allocator gives.
	result *resourcev1.AllocationResult
}

// allocated says that there is nothing to allocate.
func (c *podClaim) allocated() bool { return c.Status.Allocation != nil }

// odd notes where kube-scheduler counts otherwise than it is.
func (f *foresight) odd(format string, args ...any) {
	if quirk := fmt.Sprintf(format, args...); !slices.Contains(f.quirks, quirk) {
		f.quirks = append(f.quirks, quirk)
	}
}

func (f *foresight) quirk() string { return strings.Join(f.quirks, "; ") }

// allocations returns what the allocator gives, by the claims' names.
func (f *foresight) allocations() map[string]*resourcev1.AllocationResult {
	var out map[string]*resourcev1.AllocationResult
	for _, c := range f.claims {
		if c.result != nil && !(c.extended && len(c.result.Devices.Results) == 0) {
			if out == nil {
				out = map[string]*resourcev1.AllocationResult{}
			}
			out[c.name] = c.result
		}
	}
	return out
}

// place is what the plugins NodeName, NodeUnschedulable, TaintToleration and NodeAffinity say. Whether the node is Ready they
// know by its taints alone.
func (f *foresight) place(context.Context) *refusal {
	if name := f.pod.Spec.NodeName; name != "" && name != f.n.Name {
		return refuse(v1alpha1.ReasonNodeUnavailable, "the pod is for node %s", name)
	}
	if why, _ := kept(f.n, nodeaffinity.GetRequiredNodeAffinity(f.pod), f.pod.Spec.Tolerations); why != "" {
		return refuse(v1alpha1.ReasonNodeUnavailable, "%s", why)
	}
	return nil
}
