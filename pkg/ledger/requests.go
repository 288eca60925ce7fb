package ledger

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// RequestsOf returns what kube-scheduler counts for a pod on a node, with one of pods. bound says that the pod is on a
// node already, where resources that were resized in place count as well.
func RequestsOf(pod *corev1.Pod, bound bool) Amounts {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: bound,
		InPlacePodLevelResourcesVerticalScalingEnabled: bound,
		UseDRANodeAllocatableResourceClaimStatus:       bound,
	})
	a := AmountsOf(list)
	a[corev1.ResourcePods] = 1
	return a
}
