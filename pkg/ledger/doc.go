// Package ledger keeps the book of what a cluster can physically give: which devices, cpu, memory and pod places
// exist on which node, who holds them, and what is therefore free.
//
// It takes observations (nodes, pods, slices, claims, classes, taint rules, placements, workloads), applies each once, and gives
// out immutable snapshots with a version. Any order of the same observations ends in the same accounts. It reads no
// clock, does no I/O, and never decides who gets what: that is package admission.
//
// Where to look: observation.go is what comes in, apply.go takes it, view.go works out one node's accounts from it, with
// reach.go (which slices are for it), stopped.go (which keep kube-scheduler from all), rules.go (which taint), created.go (what pods
// will ask for), mapped.go and mapping.go (what devices take of it), consumption.go, cards.go, named.go,
// agents.go and extended.go; snapshot.go is what goes out, returned.go, reserve.go and overlap.go what promises do to it; memory.go
// is history, which the digest leaves out; totals.go, flags.go, twice.go, impossible.go and divergence.go are worked out when asked
// for; line.go, export.go, read.go and rebuild.go are the export. A new account belongs into view.go, into a line, and into the
// properties of property_test.go.
package ledger
