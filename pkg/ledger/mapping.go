package ledger

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MappingRules says which release's rules hold for a mapping.
type MappingRules string

// The rules.
const (
	// Rules136 are those of nodeAllocatableResourceMappings, Kubernetes 1.36.
	Rules136 MappingRules = "1.36"
	// Rules137 are those of nodeAllocatableResources, Kubernetes 1.37.
	Rules137 MappingRules = "1.37"
)

// Mappings says what of its node's own resources a device takes, in one form for what either release publishes.
type Mappings struct {
	Rules MappingRules
	// List is in order of the resources, each once.
	List []Mapping
	// Problem says why what is published cannot be counted with: the device is kept out. Empty for none.
	Problem string
}

// Mapping is one resource that a device takes of its node.
type Mapping struct {
	Resource corev1.ResourceName
	// Capacity is the device's capacity of which a claim's consumption is multiplied; empty for so much a device.
	Capacity resourcev1.QualifiedName
	// Multiplier is what one unit of Capacity, or one device, takes. Zero takes nothing, as for a mapping of overhead alone.
	Multiplier resource.Quantity
	// PerPod is taken once for each pod that uses the claim, PerContainer for each of its containers that refers to it. Both
	// are zero with Rules136.
	PerPod, PerContainer resource.Quantity
}
