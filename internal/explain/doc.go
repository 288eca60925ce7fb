// Package explain reads what the cluster says of one Workload, with the rights of whoever asks, and tells it on one
// screen. It decides nothing: package report says what became of the Workload, the Placement says why.
package explain
