package v1alpha1

// Reason says why a workload waits, or why a flavor was not taken. The same words stand in records, events, metrics
// and JSON. One may be added; none is renamed.
// +kubebuilder:validation:MaxLength=64
type Reason string

// The reasons. The book on which each is taken is that of the standing (see Standing).
const (
	ReasonDevicesInUse          Reason = "DevicesInUse"
	ReasonDevicesFreeing        Reason = "DevicesFreeing"
	ReasonDevicesUnhealthy      Reason = "DevicesUnhealthy"
	ReasonNotEnoughDevices      Reason = "NotEnoughDevices"
	ReasonSelectorMismatch      Reason = "SelectorMismatch"
	ReasonConstraintUnsatisfied Reason = "ConstraintUnsatisfied"
	ReasonNodeResources         Reason = "NodeResources"
	ReasonNodeUnavailable       Reason = "NodeUnavailable"
	ReasonPoolStale             Reason = "PoolStale"
	ReasonPoolIncomplete        Reason = "PoolIncomplete"
	ReasonPoolRegressed         Reason = "PoolRegressed"
	ReasonPoolRebuilding        Reason = "PoolRebuilding"
	ReasonDriverNotServing      Reason = "DriverNotServing"
	ReasonForeignUse            Reason = "ForeignUse"
	ReasonGangShort             Reason = "GangShort"
	ReasonHeld                  Reason = "Held"
	ReasonClaimTemplateNotFound Reason = "ClaimTemplateNotFound"
	ReasonDeviceClassNotFound   Reason = "DeviceClassNotFound"
	ReasonClaimUnsupported      Reason = "ClaimUnsupported"
	ReasonQuotaExhausted        Reason = "QuotaExhausted"
	ReasonQueueInactive         Reason = "QueueInactive"
	ReasonPriorityInverted      Reason = "PriorityInverted"
	ReasonUndecided             Reason = "Undecided"

	// ReasonPolicyNotReady: the DevicePolicy is missing or not Ready; the message says what to mend.
	ReasonPolicyNotReady Reason = "PolicyNotReady"
	// ReasonPolicyFrozen: the DevicePolicy's mode lets nothing new in.
	ReasonPolicyFrozen Reason = "PolicyFrozen"
	// ReasonQuotaMismatch: Kueue reserved another flavor or charge than was allowed (a patch was overtaken).
	ReasonQuotaMismatch Reason = "QuotaMismatch"
	// ReasonChecksPending: admission checks of other controllers are not Ready yet.
	ReasonChecksPending Reason = "ChecksPending"
	// ReasonBehindQueueHead: the queue is StrictFIFO, and another workload stands before it.
	ReasonBehindQueueHead Reason = "BehindQueueHead"
	// ReasonClaimTampered: a pod's claim or template is not the one that was promised.
	ReasonClaimTampered Reason = "ClaimTampered"
	// ReasonPodChanged: a pod asks for more than its slot, or for another node than its slot's.
	ReasonPodChanged Reason = "PodChanged"
	// ReasonPromiseOverlap: another workload was promised the same device before, so this promise was withdrawn.
	ReasonPromiseOverlap Reason = "PromiseOverlap"
	// ReasonReleaseTimeout: a pod got no slot, or a released pod no node, within the policy's release times.
	ReasonReleaseTimeout Reason = "ReleaseTimeout"
)

// Standing is the physical half of a flavor's answer for one podset: what the ledger says.
// +kubebuilder:validation:Enum=Fits;Busy;Blocked;Provisionable;Impossible
type Standing string

// The standings, from best to worst.
const (
	// StandingFits: placeable now.
	StandingFits Standing = "Fits"
	// StandingBusy: placeable if workloads that Kueue manages finished, or what is freeing came free.
	StandingBusy Standing = "Busy"
	// StandingBlocked: placeable only if stale, unhealthy, cordoned or foreign-held capacity came back.
	StandingBlocked Standing = "Blocked"
	// StandingProvisionable: the flavor is onDemand and its inventory as it is would be Blocked or Impossible.
	StandingProvisionable Standing = "Provisionable"
	// StandingImpossible: not placeable on the whole inventory, empty and healthy.
	StandingImpossible Standing = "Impossible"
)

// Verdict is the outcome of one decision.
// +kubebuilder:validation:Enum=Admit;Wait;Reject
type Verdict string

// The verdicts.
const (
	VerdictAdmit  Verdict = "Admit"
	VerdictWait   Verdict = "Wait"
	VerdictReject Verdict = "Reject"
)
