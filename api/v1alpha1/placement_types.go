package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Placement is what was promised to one Workload (spec) and why it was or was not (status). It has the Workload's
// name, is owned by it, and only the manager writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=plc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.record.verdict`
// +kubebuilder:printcolumn:name="Flavor",type=string,JSONPath=`.spec.podSets[0].flavor`
// +kubebuilder:printcolumn:name="Reserved",type=string,JSONPath=`.status.conditions[?(@.type=="Reserved")].status`
// +kubebuilder:printcolumn:name="Bound",type=string,JSONPath=`.status.conditions[?(@.type=="Bound")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.record.reason`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.record.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the promise. Without a key nothing is promised.
	// +optional
	Spec PlacementSpec `json:"spec,omitempty"`
	// status is the record.
	// +optional
	Status PlacementStatus `json:"status,omitempty"`
}

// PlacementSpec is the promise.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.epoch) || (has(self.epoch) && self.epoch >= oldSelf.epoch)",message="a newer leader wrote this Placement: epoch may not go down"
type PlacementSpec struct {
	// key says for which quota reservation the promise holds; absent, nothing is promised (withdrawn).
	// +optional
	Key *PlacementKey `json:"key,omitempty"`
	// epoch is the writing leader's number of lease transitions.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Epoch *int64 `json:"epoch,omitempty"`
	// policy is the name of the DevicePolicy that was decided by.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Policy string `json:"policy,omitempty"`
	// revision is that policy's status.revision.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Revision string `json:"revision,omitempty"`
	// podSets holds what each podset was promised.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PodSets []PlacementPodSet `json:"podSets,omitempty"`
}

// PlacementKey names one quota reservation of one Workload.
type PlacementKey struct {
	// workloadUID is the Workload's uid.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	WorkloadUID types.UID `json:"workloadUID"`
	// reservedAt is the lastTransitionTime of the Workload's condition QuotaReserved.
	// +required
	ReservedAt metav1.Time `json:"reservedAt"`
	// admission is a hash of status.admission without topologyAssignment and delayedTopologyRequest.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	Admission string `json:"admission"`
}

// PlacementPodSet is what one podset was promised.
type PlacementPodSet struct {
	// name is the podset's.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`
	// flavor is the ResourceFlavor of the quotaResource, or of cpu where the podset has no devices.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Flavor string `json:"flavor,omitempty"`
	// charge is what one pod costs of the policy's quotaResource.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Charge int64 `json:"charge,omitempty"`
	// nodes holds the slots by node, sorted by node name.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +optional
	Nodes []PlacementNode `json:"nodes,omitempty"`
}

// PlacementNode is the slots on one node. Slot i of n has, of each request's devices, the i-th of n equal parts.
type PlacementNode struct {
	// name is the Node's.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// slots is how many pods the node was promised to.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +required
	Slots int32 `json:"slots"`
	// requests holds the devices by pod claim and request, sorted by both.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Requests []PlacementRequest `json:"requests,omitempty"`
}

// PlacementRequest is the devices of one request of one pod claim, over all slots of a node.
type PlacementRequest struct {
	// claim is the name in the pod's spec.resourceClaims, or <extended-resources>: devices that serve an extended
	// resource by DeviceClass, which are promised by their number.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Claim string `json:"claim"`
	// request is the request's name in the claim, or request/subrequest, or the extended resource.
	// +kubebuilder:validation:MaxLength=317
	// +required
	Request string `json:"request"`
	// devices are ids "driver/pool/device", slots times the devices a pod.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=12800
	// +kubebuilder:validation:items:MaxLength=400
	// +required
	Devices []string `json:"devices"`
}

// PlacementStatus is the record.
type PlacementStatus struct {
	// conditions are Reserved, Released, Bound and Diverged.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// waits holds the flavors that were waited for since the last admission, with since when.
	// +listType=map
	// +listMapKey=flavor
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Waits []FlavorWait `json:"waits,omitempty"`
	// closed holds the flavors that are not tried for a while, since a reservation on them could not be kept.
	// +listType=map
	// +listMapKey=flavor
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Closed []FlavorClosed `json:"closed,omitempty"`
	// victims are the uids of the Workloads that Kueue was let preempt for this one since its last admission: what of theirs
	// is ending is its own. The newest are kept.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Victims []string `json:"victims,omitempty"`
	// retry is what is known of refusals since the last admission.
	// +optional
	Retry *PlacementRetry `json:"retry,omitempty"`
	// record is the last decision.
	// +optional
	Record *DecisionRecord `json:"record,omitempty"`
	// history holds the decisions before it, newest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	History []DecisionSummary `json:"history,omitempty"`
}

// FlavorWait is a flavor that is waited for although the next may be free.
type FlavorWait struct {
	// flavor is the ResourceFlavor's name.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Flavor string `json:"flavor"`
	// since is when that began; it moves on by what the Workload spent holding quota for devices on their way.
	// +required
	Since metav1.Time `json:"since"`
}

// FlavorClosed is a flavor that is not tried before a time.
type FlavorClosed struct {
	// flavor is the ResourceFlavor's name.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Flavor string `json:"flavor"`
	// until is when it is tried again.
	// +required
	Until metav1.Time `json:"until"`
}

// PlacementRetry is what must outlive an eviction.
type PlacementRetry struct {
	// count is how often the Workload was evicted by us since it last ran.
	// +kubebuilder:validation:Minimum=0
	// +required
	Count int32 `json:"count"`
	// notBefore is when it is opened again.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// reason is that of the last eviction.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// message says it in a sentence.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// DecisionRecord says what was decided and why. It is at most about 8 KiB whatever the cluster's size.
type DecisionRecord struct {
	// time is when it was decided.
	// +required
	Time metav1.Time `json:"time"`
	// verdict is the outcome.
	// +required
	Verdict Verdict `json:"verdict"`
	// policy and revision decided.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Policy string `json:"policy,omitempty"`
	// revision is the policy's.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Revision string `json:"revision,omitempty"`
	// ledgerVersion is the version of the ledger that was decided on, local to the deciding process.
	// +optional
	LedgerVersion int64 `json:"ledgerVersion,omitempty"`
	// reason is the first reason for which the workload waits; empty when it does not.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// message says the outcome in one sentence.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// standings holds, by podset and flavor in the order tried, what the ledger said.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Standings []FlavorStanding `json:"standings,omitempty"`
}

// FlavorStanding is what the ledger said of one flavor for one podset.
type FlavorStanding struct {
	// podSet is the podset's name.
	// +kubebuilder:validation:MaxLength=63
	// +required
	PodSet string `json:"podSet"`
	// flavor is the ResourceFlavor's name.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Flavor string `json:"flavor"`
	// alternative names the subrequests of firstAvailable that the standing is about, as request/subrequest, joined by
	// commas; empty where the podset offers no alternatives.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Alternative string `json:"alternative,omitempty"`
	// standing is the physical half of the answer.
	// +required
	Standing Standing `json:"standing"`
	// nodes and devices are how many of this flavor were looked at.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// devices is how many devices of this flavor were looked at.
	// +optional
	Devices int32 `json:"devices,omitempty"`
	// quota is the other half of the answer: what Kueue would do if this flavor alone were open; empty where Kueue was not
	// asked.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Quota string `json:"quota,omitempty"`
	// reasons say why not, those that concern most nodes first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Reasons []StandingReason `json:"reasons,omitempty"`
}

// StandingReason is one reason with how many nodes failed on it and one example.
type StandingReason struct {
	// reason is the word.
	// +required
	Reason Reason `json:"reason"`
	// nodes is how many nodes failed on it.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// message is one example in a sentence.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// DecisionSummary is one earlier decision in a line.
type DecisionSummary struct {
	// time is when it was decided.
	// +required
	Time metav1.Time `json:"time"`
	// verdict is its outcome.
	// +required
	Verdict Verdict `json:"verdict"`
	// reason is its first reason.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// message says it in one sentence.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// PlacementList is a list of Placement.
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Placement `json:"items"`
}
