// Package webhook changes Workloads and pods as they are created, and refuses DevicePolicies that cannot work.
//
// A Workload of a managed queue is born closed and charged, so that Kueue reserves no quota for it before a flavor was
// opened; a pod of a managed Workload gets the scheduling gate and claim templates of its own. Nothing here decides
// where anything goes, and nothing here is the fence: what the Workload webhook misses the manager mends before it
// decides, and a managed pod without the gate is refused by an admission policy.
package webhook
