// Package policies finds the DevicePolicy that a queue is decided by.
//
// It joins LocalQueue, ClusterQueue, AdmissionCheck, DevicePolicy and ResourceFlavors, all read through the client
// that it is given (in the manager that is the informers' cache), and says what about them an operator must mend. It
// writes nothing, and it remembers nothing between calls.
package policies
