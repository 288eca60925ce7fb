// Package simulate runs a cluster in this process, on an API server in memory and a clock that jumps from one event to
// the next: Kueue's own scheduler and reconcilers, Plimsoll's own parts (package parts), and what kube-controller-manager
// and kube-scheduler would do (package kube). Nothing is decided here.
package simulate
