// Package manager wires the parts into one process: clients and caches, the ledger and what feeds it, the controllers,
// the webhooks, leader election and the servers for health and metrics.
package manager
