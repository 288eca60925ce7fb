package admission

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// What a pod takes of a node is worked out here, for what is decided and for what is foreseen of kube-scheduler alike.

// counted says whether kube-scheduler counts a resource at all: of names without a domain it knows a few.
func counted(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix) ||
		strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// ofNode returns what of a pod's requests counts against the node's own resources: what kube-scheduler counts, and is not served
// by a claim of its own there. It may be requests itself.
func ofNode(requests ledger.Amounts, byClaim func(corev1.ResourceName) bool) ledger.Amounts {
	out := requests
	for name := range requests {
		if counted(name) && !byClaim(name) {
			continue
		}
		if len(out) == len(requests) {
			out = requests.Clone()
		}
		delete(out, name)
	}
	return out
}

// taken returns what a pod takes of a node with what its claims map to. What it asks for as a whole stands for both and must cover
// them: uncovered is a resource of which it does not, the first by name; empty for none.
func taken(spec *corev1.PodSpec, claims []corev1.NodeAllocatableResourceClaimStatus) (_ ledger.Amounts, uncovered corev1.ResourceName) {
	pod := &corev1.Pod{Spec: *spec, Status: corev1.PodStatus{NodeAllocatableResourceClaimStatuses: claims}}
	whole := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseDRANodeAllocatableResourceClaimStatus: true})
	if asWhole(spec) {
		parts := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{SkipPodLevelResources: true, UseDRANodeAllocatableResourceClaimStatus: true})
		for _, name := range slices.Sorted(maps.Keys(whole)) {
			if q, asked := parts[name]; asked && q.Cmp(whole[name]) > 0 {
				return nil, name
			}
		}
	}
	return ledger.AmountsOf(whole), ""
}

// asWhole says whether a pod asks for anything as a whole.
func asWhole(spec *corev1.PodSpec) bool {
	return spec != nil && spec.Resources != nil && spec.Resources.Requests != nil
}
