// Package v1alpha1 holds the API of Plimsoll: DevicePolicy, which says which devices are which flavor and how a
// workload falls back between them, and Placement, which holds what was promised to one Workload and why.
//
// It also holds every name that two parts of the product must agree on: labels, annotations, condition types and
// reasons. It decides nothing.
//
// +kubebuilder:object:generate=true
// +groupName=plimsoll.dev
package v1alpha1
