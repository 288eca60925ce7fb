// Package input reads what a simulation starts from: manifests of a cluster, written by hand or dumped from one.
//
// It does what an API server does before it stores an object: defaults, validation and the refusal of what does not fit
// together; and it says so with file, line, object and field, all faults at once. It gives typed objects of one version
// each, in an order that does not depend on the order of files, documents or items. It reads no files itself, and it
// decides nothing about what becomes of the objects.
package input
