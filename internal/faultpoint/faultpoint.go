// Package faultpoint names the places at which a test may have the manager die. In a build without the tag
// faultpoints, Reach does nothing.
package faultpoint

// The named points.
const (
	// AfterPlacement: a Placement was written and has come back, its check is not Ready yet.
	AfterPlacement = "after-placement"
	// AfterReady: the check was turned Ready, no pod is released yet.
	AfterReady = "after-ready"
	// AfterTemplate: a pod's exact template exists, its gate is still there.
	AfterTemplate = "after-template"
	// AfterReplace: a Placement was amended with other slots, no pod has taken one of them yet.
	AfterReplace = "after-replace"
	// AfterDeactivate: a Workload was deactivated to be steered, it is not active again yet.
	AfterDeactivate = "after-deactivate"
)
