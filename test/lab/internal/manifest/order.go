package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kindOrder lists kinds that others refer to before those that refer to them. A kind that is not listed stands between
// the two parts.
var (
	firstKinds = []string{
		"Namespace",
		"CustomResourceDefinition",
		"PriorityClass",
		"RuntimeClass",
		"StorageClass",
		"DeviceClass",
		"LimitRange",
		"ResourceQuota",
		"ServiceAccount",
		"Secret",
		"ConfigMap",
		"ClusterRole",
		"Role",
		"ClusterRoleBinding",
		"RoleBinding",
		"Service",
		"Node",
		"ResourceSlice",
		"DeviceTaintRule",
		"ResourceClaimTemplate",
		"ResourceClaim",
		"WorkloadPriorityClass",
		"Topology",
		"ResourceFlavor",
		"DevicePolicy",
		"AdmissionCheck",
		"Cohort",
		"ClusterQueue",
		"LocalQueue",
	}
	lastKinds = []string{
		// These refuse or change what comes after them, so the cluster's own objects go first.
		"ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy",
		"MutatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration",
		"MutatingWebhookConfiguration",
		"Workload",
		"Pod",
		"Deployment",
		"StatefulSet",
		"DaemonSet",
		"Job",
		"CronJob",
		"JobSet",
	}
)

// Rank says when an object of this kind is applied: lower first.
func Rank(kind string) int {
	if i := slices.Index(firstKinds, kind); i >= 0 {
		return i
	}
	if i := slices.Index(lastKinds, kind); i >= 0 {
		return len(firstKinds) + 1 + i
	}
	return len(firstKinds)
}

// Group sorts objects by rank, keeping the given order within one, and returns a group a rank: the members of a group
// do not depend on each other and may be applied at once.
func Group(objects []*unstructured.Unstructured) [][]*unstructured.Unstructured {
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b *unstructured.Unstructured) int {
		return Rank(a.GetKind()) - Rank(b.GetKind())
	})
	var groups [][]*unstructured.Unstructured
	for start := 0; start < len(sorted); {
		end := start + 1
		for end < len(sorted) && Rank(sorted[end].GetKind()) == Rank(sorted[start].GetKind()) {
			end++
		}
		groups = append(groups, sorted[start:end:end])
		start = end
	}
	return groups
}
