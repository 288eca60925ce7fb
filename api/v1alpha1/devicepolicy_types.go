package v1alpha1

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DevicePolicy says which devices are which flavor, in which order flavors are preferred, and what no fallback may
// loosen. An AdmissionCheck with controllerName plimsoll.dev/ledger names it in spec.parameters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=dpol
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.spec.quotaResource`
// +kubebuilder:printcolumn:name="Preferred",type=string,JSONPath=`.spec.flavors[0].name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DevicePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the operator declares.
	// +required
	Spec DevicePolicySpec `json:"spec"`
	// status is what the manager found.
	// +optional
	Status DevicePolicyStatus `json:"status,omitempty"`
}

// Mode says how far a policy's decisions reach.
// +kubebuilder:validation:Enum=Enforce;Shadow;Frozen
type Mode string

// The modes.
const (
	// ModeEnforce decides and acts.
	ModeEnforce Mode = "Enforce"
	// ModeShadow decides and records, turns the check Ready on sight and writes nothing else.
	ModeShadow Mode = "Shadow"
	// ModeFrozen lets nothing new in and serves all that runs.
	ModeFrozen Mode = "Frozen"
)

// Ordering says which node is filled first within a flavor.
// +kubebuilder:validation:Enum=Pack;Spread
type Ordering string

// The orderings.
const (
	// OrderingPack takes the node with the fewest free devices that still holds the pod.
	OrderingPack Ordering = "Pack"
	// OrderingSpread takes the node with the most free devices.
	OrderingSpread Ordering = "Spread"
)

// OnInfeasible says what becomes of a workload that no inventory could ever hold.
// +kubebuilder:validation:Enum=Wait;Reject
type OnInfeasible string

// What may become of it.
const (
	OnInfeasibleWait   OnInfeasible = "Wait"
	OnInfeasibleReject OnInfeasible = "Reject"
)

// DevicePolicySpec is the declared policy. All times are whole seconds.
//
// +kubebuilder:validation:XValidation:rule="!self.flavors.exists(f, f.onDemand) || self.quotaResource.contains('/')",message="quotaResource must carry a domain (example.com/gpus) where a flavor is onDemand, because node groups list it as capacity"
type DevicePolicySpec struct {
	// mode says how far decisions reach.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// quotaResource is the resource name under which ClusterQueues give quota for devices, such as "gpus".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['cpu','memory','pods','ephemeral-storage']) && !self.startsWith('hugepages-')",message="quotaResource must be a name of its own, such as gpus: cpu, memory, pods, ephemeral-storage and hugepages-* mean something else"
	// +required
	QuotaResource string `json:"quotaResource"`

	// flavors is the declared order of preference, best first. A device belongs to the first that matches it.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +required
	Flavors []PolicyFlavor `json:"flavors"`

	// constraints are hard: a device that fails one is never used, whatever the flavor.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Constraints []resourcev1.DeviceSelector `json:"constraints,omitempty"`

	// drivers says how to find the pods that serve a driver; a node whose driver pod is not Ready lends none of
	// that driver's devices.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Drivers []PolicyDriver `json:"drivers,omitempty"`

	// fallback is about when a preferred flavor is given up.
	// +kubebuilder:default={}
	// +optional
	Fallback PolicyFallback `json:"fallback,omitempty"`

	// ordering says which node is filled first within a flavor.
	// +kubebuilder:default=Pack
	// +optional
	Ordering Ordering `json:"ordering,omitempty"`

	// freshness is about how old knowledge may be.
	// +kubebuilder:default={}
	// +optional
	Freshness PolicyFreshness `json:"freshness,omitempty"`

	// retry bounds how a workload is tried again after a refusal.
	// +kubebuilder:default={}
	// +optional
	Retry PolicyRetry `json:"retry,omitempty"`

	// release bounds how long a promise may stay unused.
	// +kubebuilder:default={}
	// +optional
	Release PolicyRelease `json:"release,omitempty"`

	// headOfLine is about keeping capacity for the longest-entitled waiter.
	// +kubebuilder:default={}
	// +optional
	HeadOfLine PolicyHeadOfLine `json:"headOfLine,omitempty"`

	// onInfeasible says what becomes of a workload that no inventory could ever hold.
	// +kubebuilder:default=Wait
	// +optional
	OnInfeasible OnInfeasible `json:"onInfeasible,omitempty"`

	// canary lets another policy decide a stable share of the workloads.
	// +optional
	Canary *PolicyCanary `json:"canary,omitempty"`
}

// PolicyFlavor binds devices to a Kueue ResourceFlavor.
type PolicyFlavor struct {
	// name is the ResourceFlavor's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// selectors must all be true of a device that belongs to the flavor.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +required
	Selectors []resourcev1.DeviceSelector `json:"selectors"`

	// chargePerDevice is what one device costs in units of quotaResource.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	ChargePerDevice int32 `json:"chargePerDevice,omitempty"`

	// onDemand says that the flavor's nodes are made when a ProvisioningRequest asks for them.
	// +kubebuilder:default=false
	// +optional
	OnDemand bool `json:"onDemand,omitempty"`
}

// PolicyDriver says which pods serve a driver.
type PolicyDriver struct {
	// name is the driver's, as in ResourceSlices.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`
	// podNamespace is where the driver's pods run.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	PodNamespace string `json:"podNamespace"`
	// podSelector selects the driver's pods; an empty selector selects every pod of the namespace.
	// +required
	PodSelector metav1.LabelSelector `json:"podSelector"`
}

// PolicyFallback is about when a preferred flavor is given up.
type PolicyFallback struct {
	// afterSeconds is how long a flavor with free quota and busy devices is waited for before the next.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +optional
	AfterSeconds *int32 `json:"afterSeconds,omitempty"`
}

// PolicyFreshness is about how old knowledge may be.
// +kubebuilder:validation:XValidation:rule="!has(self.inventoryMemorySeconds) || !has(self.lossGraceSeconds) || self.inventoryMemorySeconds >= self.lossGraceSeconds",message="inventoryMemorySeconds must be at least lossGraceSeconds: what is expected back must be remembered"
type PolicyFreshness struct {
	// windowSeconds is how long a watch may be silent (bookmarks count) before what it feeds lends nothing. The API server sends a
	// bookmark a minute and leaves one out now and then: below 150 a quiet cluster may be taken for a silent one.
	// +kubebuilder:default=180
	// +kubebuilder:validation:Minimum=90
	// +kubebuilder:validation:Maximum=3600
	// +optional
	WindowSeconds *int32 `json:"windowSeconds,omitempty"`
	// lossGraceSeconds is how long lost capacity is expected back.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +optional
	LossGraceSeconds *int32 `json:"lossGraceSeconds,omitempty"`
	// inventoryMemorySeconds is how long what was published counts as inventory that exists.
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +optional
	InventoryMemorySeconds *int32 `json:"inventoryMemorySeconds,omitempty"`
}

// PolicyRetry bounds how a workload is tried again after a refusal.
// +kubebuilder:validation:XValidation:rule="!has(self.maxSeconds) || !has(self.initialSeconds) || self.maxSeconds >= self.initialSeconds",message="maxSeconds must be at least initialSeconds"
type PolicyRetry struct {
	// initialSeconds is the first backoff; it doubles.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	InitialSeconds *int32 `json:"initialSeconds,omitempty"`
	// maxSeconds is the longest backoff.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MaxSeconds *int32 `json:"maxSeconds,omitempty"`
	// limit is from how many refusals on a workload is tried again no sooner than maxSeconds after the last.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Limit *int32 `json:"limit,omitempty"`
}

// PolicyRelease bounds how long a promise may stay unused.
type PolicyRelease struct {
	// waitSeconds is how long a quota holder waits for devices on their way, and a pod for a slot.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	WaitSeconds *int32 `json:"waitSeconds,omitempty"`
	// bindSeconds is how long a pod may stay unbound after its gate was removed.
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	BindSeconds *int32 `json:"bindSeconds,omitempty"`
}

// PolicyHeadOfLine is about keeping capacity for the longest-entitled waiter.
type PolicyHeadOfLine struct {
	// holdAfterSeconds is after how long capacity that frees is kept for that waiter.
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +optional
	HoldAfterSeconds *int32 `json:"holdAfterSeconds,omitempty"`
}

// PolicyCanary lets another policy decide a stable share of the workloads.
type PolicyCanary struct {
	// policyName is the other DevicePolicy.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	PolicyName string `json:"policyName"`
	// percent of the workloads that it decides.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +required
	Percent int32 `json:"percent"`
}

// DevicePolicyStatus is what the manager found.
type DevicePolicyStatus struct {
	// observedGeneration is the generation of spec that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// revision is a hash of all that a decision by this policy depends on.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Revision string `json:"revision,omitempty"`
	// conditions are Ready, FlavorsResolved, OrderConsistent and QuotaResourceConsistent.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DevicePolicyList is a list of DevicePolicy.
// +kubebuilder:object:root=true
type DevicePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DevicePolicy `json:"items"`
}
