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
	// Reach is how far that goes; empty for this node alone.
	Reach Reach
	// Quirk says where kube-scheduler counts otherwise than it is, though the pod may fit; empty for nowhere.
	Quirk string
	// Unsure is true where kube-scheduler may come to another answer each time: Quirk says why, and Fits is true only where
	// each answer is.
	Unsure bool
	// Allocations is what it would allocate, by the names of Incoming.Claims; claims that are allocated are left out. What is
	// given for extended resources is under ExtendedResourcesClaim. The shareIDs, which kube-scheduler draws, are made up.
	Allocations map[string]*resourcev1.AllocationResult
	// Extended is the claim that it would make for the pod's extended resources; nil for none.
	Extended *ExtendedClaim
	// Mapped is what the claims take of the node's own resources, Statuses how the pod's status would tell it: in order of the
	// claims' names, and in the shape of 1.36 where the devices map by the rules of 1.37 too.
	Mapped   ledger.Amounts
	Statuses []corev1.NodeAllocatableResourceClaimStatus
}

// Reach says of how many nodes kube-scheduler says no at once.
type Reach string

// The reaches beside that of one node.
const (
	// ReachPod: it gives up the pod on all nodes, and says so in its status.
	ReachPod Reach = "Pod"
	// ReachQueue: it does not take the pod out of its queue, and says nothing.
	ReachQueue Reach = "Queue"
)

// Predict says whether kube-scheduler 1.36 would put a pod on a node, on the accounts as they are: its node selector, affinity
// and tolerations, the node's resources, its claims and what they map to. Ports, volumes, and affinity and spreading between
// pods are not looked at. What is promised or released counts as what is allocated does, but for devices that are held for the
// pod's own claims; to leave out what else is held for the pod itself is the caller's part. Where kube-scheduler gives up the pod
// on all nodes over something on one of them, Reach says so on that node alone. Where devices map to the node's own resources as
// Kubernetes 1.37 has it, they count as there. Safe for concurrent use.
func (d *Decider) Predict(ctx context.Context, s *ledger.Snapshot, node string, p *Incoming) Prediction {
	return d.Outlook(s, p).On(ctx, node)
}

// Outlook returns what Predict needs of a pod for any node. The pod and its claims must not change while it is used.
func (d *Decider) Outlook(s *ledger.Snapshot, p *Incoming) *Outlook {
	o := &Outlook{forgets: d.prospect(s, p, false)}
	if o.forgets.doubt != "" {
		o.knows = d.prospect(s, p, true)
	}
	return o
}

// Outlook is a pod on some accounts, of which what is the same on every node was worked out. Safe for concurrent use.
type Outlook struct {
	// knows is where kube-scheduler knows, forgets where it has forgotten, what DeviceClasses are called; knows is nil where that
	// makes no difference.
	forgets, knows *prospect
}

// Before is what kube-scheduler says before it looks at any node, the same as On would then for each; the zero value where it
// looks at them.
func (o *Outlook) Before() Prediction {
	if o.forgets.no == nil {
		return Prediction{}
	}
	return o.forgets.no.prediction()
}

// On is Predict on one node.
func (o *Outlook) On(ctx context.Context, node string) Prediction {
	n := o.forgets.s.Node(node)
	if n == nil {
		return Prediction{Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s is gone", node)}
	}
	forgets := o.forgets.on(ctx, n)
	if o.knows == nil {
		return forgets
	}
	knows := o.knows.on(ctx, n)
	if forgets.Fits == knows.Fits && maps.Equal(forgets.Mapped, knows.Mapped) && apiequality.Semantic.DeepEqual(forgets.Allocations, knows.Allocations) {
		if knows.Unsure {
			return knows
		}
		return forgets
	}
	if !knows.Fits {
		forgets = knows
	}
	forgets.Unsure, forgets.Quirk = true, strings.TrimPrefix(forgets.Quirk+"; "+o.forgets.doubt, "; ")
	return forgets
}

// prospect is a pod as kube-scheduler's plugins look at it before they look at nodes.
type prospect struct {
	decider *Decider
	s       *ledger.Snapshot
	in      *Incoming
	pod     *corev1.Pod
	// requests is what the pod asks for without what its claims map to, asked the same in whole numbers, in order of the names.
	requests ledger.Amounts
	asked    []corev1.ResourceName
	affinity nodeaffinity.RequiredNodeAffinity
	// its are the claims of the pod, in its order; the one for its extended resources comes last.
	its []podClaim
	// classes are those that serve extended resources of the pod.
	classes map[corev1.ResourceName]*resourcev1.DeviceClass
	// knows says that kube-scheduler knows all classes by their own names, doubt which it may not.
	knows bool
	doubt string
	// no says why it looks at no node.
	no *refusal
}

// prospect is Outlook where kube-scheduler knows, or has forgotten, what DeviceClasses are called where that is chance.
func (d *Decider) prospect(s *ledger.Snapshot, p *Incoming, knows bool) *prospect {
	o := &prospect{
		decider: d, s: s, in: p, pod: p.Pod, knows: knows, affinity: nodeaffinity.GetRequiredNodeAffinity(p.Pod),
		requests: ledger.AmountsOf(resourcehelper.PodRequests(p.Pod, resourcehelper.PodResourcesOptions{})),
	}
	o.asked = slices.Sorted(maps.Keys(o.requests))
	if o.no = o.gather(); o.no == nil {
		o.no = o.ready()
	}
	return o
}

// on says what comes of the pod on a node.
func (o *prospect) on(ctx context.Context, n *ledger.Node) Prediction {
	if o.no != nil {
		return o.no.prediction()
	}
	f := o.at(n)
	for _, step := range []func(context.Context) *refusal{f.place, f.room, f.extend, f.usable, f.allocate, f.footing, f.bind} {
		if no := step(ctx); no != nil {
			p := no.prediction()
			p.Quirk, p.Unsure = f.quirk(), f.unsure
			return p
		}
	}
	return Prediction{
		Fits: true, Quirk: f.quirk(), Unsure: f.unsure, Allocations: f.allocations(), Extended: f.special(), Mapped: f.mapped, Statuses: f.statuses,
	}
}

// at returns the pod as nothing was said of it yet on a node.
func (o *prospect) at(n *ledger.Node) *foresight {
	f := &foresight{prospect: o, n: n, claims: make([]*podClaim, len(o.its))}
	for i := range o.its {
		c := o.its[i]
		f.claims[i] = &c
	}
	return f
}

// refusal says why a pod does not fit.
type refusal struct {
	reason  v1alpha1.Reason
	message string
	reach   Reach
}

func refuse(reason v1alpha1.Reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

// everywhere says that kube-scheduler gives up the pod on all nodes.
func (r *refusal) everywhere() *refusal {
	r.reach = ReachPod
	return r
}

func (r *refusal) prediction() Prediction {
	return Prediction{Reason: r.reason, Message: r.message, Reach: r.reach}
}

// foresight is one pod on one node, as kube-scheduler's plugins look at it one after another.
type foresight struct {
	*prospect
	n *ledger.Node
	// claims are the prospect's, with what comes of them here.
	claims []*podClaim
	// mappings say which request of the claim for extended resources serves which container.
	mappings []corev1.ContainerExtendedResourceRequest
	quirks   []string
	unsure   bool
	mapped   ledger.Amounts
	statuses []corev1.NodeAllocatableResourceClaimStatus
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
	if why, _ := kept(f.n, f.affinity, f.pod.Spec.Tolerations); why != "" {
		return refuse(v1alpha1.ReasonNodeUnavailable, "%s", why)
	}
	return nil
}
