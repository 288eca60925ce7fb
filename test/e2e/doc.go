// Package e2e tests the product on a real control plane: see package lab. Every container of specs starts a lab of its
// own with the sample cluster, so that the specs of one container share a cluster and no two containers do.
package e2e
