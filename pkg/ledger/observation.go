package ledger

import (
	"time"

	corev1 "k8s.io/api/core/v1"
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
	At        time.Time
	Node      *corev1.Node
	Pod       *Pod
	Slice     *resourcev1.ResourceSlice
	Claim     *Claim
	Class     *resourcev1.DeviceClass
	Placement *Placement
	Workload  *Workload
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
}

// Claim is what the book needs of a claim.
type Claim struct {
	Namespace, Name string
	// Allocated holds the devices of status.allocation; nil while there is none. Results with adminAccess are left out.
	Allocated []DeviceID
	// Promised holds the devices that a claim of ours is cut to; nil for others.
	Promised []DeviceID
	// Pod is the uid of the pod that owns it; empty for a claim that a user made.
	Pod types.UID
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
	// Requests holds what one pod of each podset asks for, by podset, with one of pods.
	Requests map[string]Amounts
}
