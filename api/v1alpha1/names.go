package v1alpha1

// Names that the parts of the product, and its users, agree on.
const (
	// ControllerName is the controllerName of the AdmissionChecks that Plimsoll answers.
	ControllerName = "plimsoll.dev/ledger"
	// FieldOwner is the field manager of every write.
	FieldOwner = "plimsoll"

	// ManagedLabel is on every pod of a managed Workload, put there by podSetUpdates; its value is "true".
	ManagedLabel = "plimsoll.dev/managed"
	// PlacementGate is the pod scheduling gate that only the manager removes, against a live Placement.
	PlacementGate = "plimsoll.dev/placement"
	// OwnedLabel marks objects in tenants' namespaces that belong to the manager (claim templates, and the claims
	// made from them); its value is "true".
	OwnedLabel = "plimsoll.dev/owned"

	// FencedLabel, on a namespace, with value "true", makes admission policies refuse pods that ask for devices and do
	// not carry the gate.
	FencedLabel = "plimsoll.dev/fenced"

	// ChargeAnnotation, on a Workload, holds the charge a pod by podset as JSON: {"main":"8"}.
	ChargeAnnotation = "plimsoll.dev/charge"
	// AllowedFlavorsAnnotation, on a Workload, holds the allowed set: flavor names joined by commas in the
	// policy's order, or, where podsets differ, "podset=flavor,...;podset=..."; empty is the empty set (closed).
	AllowedFlavorsAnnotation = "plimsoll.dev/allowed-flavors"
	// UserAffinityAnnotation, on a Workload, keeps what steering wrote over, by podset, as JSON.
	UserAffinityAnnotation = "plimsoll.dev/user-affinity"
	// SteeringAnnotation, on a Workload, holds the nonce of an eviction of ours that is under way. Only where it
	// is present, and nobody else has set active since, may the manager set it to true again.
	SteeringAnnotation = "plimsoll.dev/steering"
	// RejectedAnnotation, on a Workload, holds the reason for which onInfeasible: Reject ended it.
	RejectedAnnotation = "plimsoll.dev/rejected"

	// ClaimTemplatesAnnotation, on a pod, keeps the user's template names by pod claim as JSON.
	ClaimTemplatesAnnotation = "plimsoll.dev/claim-templates"
	// DevicesAnnotation, on an owned template and on the claims made from it, lists the devices it is cut to, as
	// "driver/pool/device" joined by commas.
	DevicesAnnotation = "plimsoll.dev/devices"
	// SlotAnnotation, on an owned template and its claims, says which slot they serve: "podset/node/index".
	SlotAnnotation = "plimsoll.dev/slot"

	// TemplateInfix stands in the name of every template that the manager makes: <user's template, cut> + infix +
	// TemplateRandomLength random lower-case letters and digits. Nobody else may create such a name.
	TemplateInfix = "-plimsoll-"
	// TemplateRandomLength is the length of the random end of an owned template's name.
	TemplateRandomLength = 10

	// SystemNamespace is where the manager runs unless told otherwise.
	SystemNamespace = "plimsoll-system"
	// ManagerServiceAccount is the manager's service account.
	ManagerServiceAccount = "plimsoll-manager"
	// LeaseName is the name of the leader election Lease.
	LeaseName = "plimsoll-manager"
	// MetricsService is the Service of the manager's metrics server.
	MetricsService = "plimsoll-metrics"

	// LedgerPath is where the metrics server serves the live ledger, to those who may get this nonResourceURL.
	LedgerPath = "/ledger"
	// LedgerReader is the ServiceAccount that may, and the Role of those who may ask for its token.
	LedgerReader = "plimsoll-ledger-reader"
	// LedgerTokenHeader holds a bearer token for LedgerPath where Authorization does not come through: the API server's proxy
	// keeps that to itself.
	LedgerTokenHeader = "Plimsoll-Token"
	// LedgerRebuilding begins the answer of a manager that has not filled its ledger yet.
	LedgerRebuilding = "Rebuilding"
)

// Condition types of DevicePolicy.
const (
	// PolicyReady is true when every other condition allows deciding by the policy.
	PolicyReady = "Ready"
	// PolicyFlavorsResolved is true when each flavor names a ResourceFlavor and they can be told apart.
	PolicyFlavorsResolved = "FlavorsResolved"
	// PolicyOrderConsistent is true when each queue that uses the policy can be steered and lists its flavors in
	// the policy's order.
	PolicyOrderConsistent = "OrderConsistent"
	// PolicyQuotaResourceConsistent is true when each queue gives quota for spec.quotaResource, for the same devices under no
	// other name, and Kueue charges what was written.
	PolicyQuotaResourceConsistent = "QuotaResourceConsistent"
)

// Condition types of Placement.
const (
	// PlacementReserved is true while the devices in spec are kept for the Workload.
	PlacementReserved = "Reserved"
	// PlacementReleased is true once every pod's gate was removed.
	PlacementReleased = "Released"
	// PlacementBound is true once every released pod is bound with the devices that it was promised.
	PlacementBound = "Bound"
	// PlacementDiverged is true where what happened differs from what was promised.
	PlacementDiverged = "Diverged"
	// DivergedNotAsPromised: a pod has other devices, or another node, than it was promised.
	DivergedNotAsPromised = "NotAsPromised"
	// DivergedNotAsCounted: what the cluster says that a pod takes of its node is not what the ledger counts.
	DivergedNotAsCounted = "NotAsCounted"
)

// ExtendedResourcesClaim stands in a Placement for the claim that kube-scheduler makes for a pod's extended resources,
// where devices serve them by DeviceClass; the request is then the resource's name. Such devices are promised by their
// number: the scheduler chooses which. No pod claim can have this name.
const ExtendedResourcesClaim = "<extended-resources>"
