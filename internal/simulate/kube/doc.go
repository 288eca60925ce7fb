// Package kube does, on a client and a clock, what kube-controller-manager, kube-scheduler and kubelets do on a cluster: it
// makes the pods of Jobs and the claims of pods, binds pods and gives them devices, lets them run and end, and takes them
// off nodes that are lost or tainted. It decides nothing about queues, quota or promises, and whether kube-scheduler puts a pod on
// a node, with which devices and what they take of the node, it asks package admission, whose answers are held against the real
// kube-scheduler (test/oracle).
//
// Every part reconciles one object at a time and says exactly when it wants to look again. Nothing is random and nothing
// reads the wall clock: names count up, and what is to be chosen is chosen in order. Latencies are zero.
//
// Deliberately otherwise than on a cluster: a Job's failed pod is replaced without a back-off; a pod that was deleted, or was
// lost with its node, is replaced and does not count as failed; of the nodes that a pod fits on the scheduler takes the
// first by name; it does not preempt. Where kube-scheduler's answer is chance a pod is bound only where each answer is that it fits,
// to the devices that are predicted; else it is not, and its condition says what is chance. A pod that kube-scheduler gives up on all
// nodes over something on one of them is given up where that node comes before the first that the pod fits on, and only there. What
// fails only once kube-scheduler has chosen a node keeps a pod from that node, and other nodes are looked at. What a pod's status
// tells of resources that its devices take of the node is in the shape of 1.36, also where the devices map by the rules of 1.37.
//
// Left out are what Jobs may say of single indexes or exit codes (backoffLimitPerIndex, successPolicy, podFailurePolicy),
// controllers other than those of Jobs, host ports, affinity between pods, topology spread, volumes, device binding conditions, which
// count as met at once, and a claim for extended resources that an earlier attempt left, which counts as another's.
package kube
