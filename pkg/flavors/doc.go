// Package flavors says which devices belong to which flavor of a DevicePolicy, what a podset's claims cost, how the
// set of flavors that Kueue may try is written into a Workload, and how a claim is cut to exactly the devices that
// were promised.
//
// It never says whether a flavor has room (package admission does) nor whether a tenant may use it (Kueue does).
package flavors
