package ledger

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Kind is the kind of an observed object.
type Kind string

// The kinds that the book takes.
const (
	KindNode        Kind = "Node"
	KindPod         Kind = "Pod"
	KindSlice       Kind = "ResourceSlice"
	KindClaim       Kind = "ResourceClaim"
	KindDeviceClass Kind = "DeviceClass"
	KindPlacement   Kind = "Placement"
	KindWorkload    Kind = "Workload"
	// KindTaintRule is a DeviceTaintRule of any served version.
	KindTaintRule Kind = "DeviceTaintRule"
	// KindLimitRange and KindRuntimeClass say what pods will ask for beyond their templates.
	KindLimitRange   Kind = "LimitRange"
	KindRuntimeClass Kind = "RuntimeClass"
)

// Ref names one version of one object. ResourceVersion is compared as a number, as the API server defines it.
type Ref struct {
	Kind            Kind
	UID             types.UID
	ResourceVersion uint64
	// Deleted says that the object was deleted. That is final for a uid, whatever version it was seen with.
	Deleted bool
}

// Observation is one object as it was seen. Exactly one of the pointers is set, the one of Ref.Kind; all are nil
// where the object counts for nothing: it was deleted, is terminal or withdrawn. What they point to must not change
// afterwards.
type Observation struct {
	Ref Ref
	// At is when it was seen; what it shows as lost counts as lost since then. The zero time is long ago.
	At           time.Time
	Node         *corev1.Node
	Pod          *Pod
	Slice        *resourcev1.ResourceSlice
	Claim        *Claim
	Class        *resourcev1.DeviceClass
	Placement    *Placement
	Workload     *Workload
	TaintRule    *TaintRule
	LimitRange   *corev1.LimitRange
	RuntimeClass *nodev1.RuntimeClass
	// Mappings are, by device, those of Slice that only the types of 1.37 hold; nil for none.
	Mappings map[string]Mappings
	// Unread says what of Slice the types here cannot hold and kube-scheduler goes by: nothing of its pool is lent. Empty for
	// nothing.
	Unread string

	// allocatable is Node's, worked out when the book takes it.
	allocatable Amounts
}

// TaintRule is what the book needs of a DeviceTaintRule.
type TaintRule struct {
	Name string
	// Version is the version of the API in which it was read.
	Version string
	Taint   resourcev1.DeviceTaint
	// All says that it taints every device; None that it taints none. What a rule without a deviceSelector means is the
	// server's release's to say: all in 1.36, none in 1.37.
	All, None bool
	// Driver, Pool and Device narrow it down; empty for any.
	Driver, Pool, Device string
}

// ClaimStatus is what a pod's status says that one of its claims takes of its node.
type ClaimStatus struct {
	// Claim is the name of the ResourceClaim.
	Claim string
	// Amounts is what kube-scheduler counts for it on the pod's node, overhead with it.
	Amounts Amounts
}

// Pod is what the book needs of a pod that is not terminal. A terminal pod is observed as gone.
type Pod struct {
	Namespace, Name string
	// Node is the node that the pod is bound to; empty before.
	Node string
	// Pin is the kubernetes.io/hostname value that a released pod was pinned to and is not bound yet; empty otherwise.
	Pin string
	// Requests is what kube-scheduler counts for it on a node, with one of pods.
	Requests Amounts
	// Owner is the uid of its controller; empty without one.
	Owner types.UID
	// PodSet is the podset of its Workload, from Kueue's label.
	PodSet string
	// CreatedUnix is its creationTimestamp in seconds since 1970.
	CreatedUnix int64
	// Terminating is true once it has a deletionTimestamp.
	Terminating bool
	// EndsUnix is that deletionTimestamp, by which it should have ended, in seconds since 1970; 0 before.
	EndsUnix int64
	// Claims are the names of its ResourceClaims as they stand; nil for a pod without any. Referring says how often its
	// containers refer to each, in the same order: a container that takes two requests of one is two.
	Claims    []string
	Referring []int
	// Mapped is what its status says that its claims take of its node, which Requests holds as well; nil for none.
	Mapped []ClaimStatus
	// Labels and Serving, whether it is Ready, are set for pods that no Workload made, among which those of drivers are found
	// by their labels; nil and false for the others. Labels is owned by the observer.
	Labels  map[string]string
	Serving bool
}

// Claim is what the book needs of a claim.
type Claim struct {
	Namespace, Name string
	// Allocated holds the devices of status.allocation that are its alone; nil while there is no allocation, empty for one
	// without such devices. Results with adminAccess are in Admin, those of devices that allow several in Shares.
	Allocated []DeviceID
	Admin     []DeviceID
	Shares    []Share
	// Spec is the claim's; owned by the observer. Nil stands for a claim of which nothing but the devices matters.
	Spec *resourcev1.ResourceClaimSpec
	// Pods are the pods that status.reservedFor names.
	Pods []types.UID
	// Promised holds the devices that a claim of ours is cut to as is noted beside it; nil for others. Named is what its spec says
	// of them, which counts where the two differ; nil where it says nothing, and once there is an allocation.
	Promised []DeviceID
	Named    []Naming
	// Pod is the uid of the pod that owns it; empty for a claim that a user made.
	Pod types.UID
	// Repeated holds the devices that its allocation lists more than once; the book fills it in.
	Repeated []DeviceID
}

// Share is one allocation of a device that allows several.
type Share struct {
	Device DeviceID
	// ID is the allocation's shareID.
	ID types.UID
	// Consumed is what it takes of each capacity of the device; nil for nothing.
	Consumed Consumption
}

// Placement is what the book needs of a Placement that promises anything. A withdrawn one is observed as gone.
type Placement struct {
	Namespace, Name string
	// Spec has a key.
	Spec *v1alpha1.PlacementSpec
	// CreatedUnix is the creationTimestamp in seconds since 1970.
	CreatedUnix int64
}

// Workload is what the book needs of a Workload.
type Workload struct {
	Namespace, Name string
	// Owner is the uid of the Workload's controller, such as the Job; empty without one.
	Owner types.UID
	// Key names its quota reservation while it is active, not evicted and not finished; nil otherwise.
	Key *v1alpha1.PlacementKey
	// Requests holds what one pod of each podset asks for by what the podset says, by podset, with one of pods.
	Requests map[string]Amounts
	// Templates are what the pods are made of, by podset, so that what is added when they are created counts as well; nil where
	// nothing is.
	Templates map[string]Template
	// Referring says how often the containers of a podset's pods refer to a claim, by podset and the claim's name in them. Those
	// that are referred to once or not at all are left out; nil for none.
	Referring map[string]map[string]int
}
