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
	// AfterNote: why a Workload is to be evicted was written to its Placement, it is still active.
	AfterNote = "after-note"
	// AfterDeactivate: a Workload was deactivated to be steered, it is not active again yet.
	AfterDeactivate = "after-deactivate"
	// BeforeReactivate: Kueue has taken back the quota of a Workload that was deactivated, it is still inactive.
	BeforeReactivate = "before-reactivate"
	// AfterReactivate: a Workload that was deactivated is active again and closed, nothing was opened yet.
	AfterReactivate = "after-reactivate"
	// AfterRemember: what a waiter waits for, or who may be preempted for it, was written to its Placement, the allowed set
	// that goes with it was not.
	AfterRemember = "after-remember"
	// AfterComing: a Placement was written that counts on devices on their way.
	AfterComing = "after-coming"
)
