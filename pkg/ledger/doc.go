// Package ledger keeps the book of what a cluster can physically give: which devices, cpu, memory and pod places
// exist on which node, who holds them, and what is therefore free.
//
// It takes observations (nodes, pods, slices, claims, classes, placements, workloads), applies each once, and gives
// out immutable snapshots with a version. Any order of the same observations ends in the same accounts. It reads no
// clock, does no I/O, and never decides who gets what: that is package admission.
package ledger
