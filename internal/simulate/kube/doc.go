// Package kube does, on a client and a clock, what kube-controller-manager, kube-scheduler and kubelets do on a cluster: it
// makes the pods of Jobs and the claims of pods, binds pods and gives them devices, lets them run and end, and takes them
// off nodes that are lost or tainted. It decides nothing about queues, quota or promises.
//
// Every part reconciles one object at a time and says exactly when it wants to look again. Nothing is random and nothing
// reads the wall clock: names count up, and what is to be chosen is chosen in order. Latencies are zero.
//
// Deliberately otherwise than on a cluster: a Job's failed pod is replaced without a back-off; a pod that was deleted, or was
// lost with its node, is replaced and does not count as failed; of the nodes that a pod fits on the scheduler takes the
// first by name; it does not preempt. Left out are what Jobs may say of single indexes or exit codes (backoffLimitPerIndex,
// successPolicy, podFailurePolicy), controllers other than those of Jobs, host ports, affinity between pods, topology spread, volumes,
// device binding conditions and node allocatable resources of devices.
package kube
