package ledger

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// RequestsOf returns what kube-scheduler counts for a pod on a node, with one of pods. bound says that the pod is on a
// node already, where resources that were resized in place count as well.
//
// What a container limits and does not ask for it asks for in that amount, as the API server has it in every pod that
// was created; templates of pods do not say so.
func RequestsOf(pod *corev1.Pod, bound bool) Amounts {
	if !bound {
		pod = limitsAsRequests(pod)
	}
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: bound,
		InPlacePodLevelResourcesVerticalScalingEnabled: bound,
		UseDRANodeAllocatableResourceClaimStatus:       bound,
	})
	a := AmountsOf(list)
	a[corev1.ResourcePods] = 1
	return a
}

// AsCreated returns what the API server makes of the requests of a pod that is created from a spec: limits stand in for requests
// that are not there, for containers and for the pod as a whole. The spec itself where there is nothing to add; it is not changed.
func AsCreated(spec *corev1.PodSpec) *corev1.PodSpec {
	pod := &corev1.Pod{Spec: *spec}
	if filled := limitsAsRequests(pod); filled != pod {
		return &filled.Spec
	}
	return spec
}

// limitsAsRequests returns the pod with each container's limits as its requests where it has none; the pod itself where
// there is nothing to add.
func limitsAsRequests(pod *corev1.Pod) *corev1.Pod {
	missing := func(containers []corev1.Container) bool {
		return slices.ContainsFunc(containers, func(c corev1.Container) bool {
			for name := range c.Resources.Limits {
				if _, ok := c.Resources.Requests[name]; !ok {
					return true
				}
			}
			return false
		})
	}
	if !missing(pod.Spec.Containers) && !missing(pod.Spec.InitContainers) && (pod.Spec.Resources == nil || len(pod.Spec.Resources.Limits) == 0) {
		return pod
	}
	filled := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: *pod.Spec.DeepCopy(), Status: pod.Status}
	for _, containers := range [][]corev1.Container{filled.Spec.Containers, filled.Spec.InitContainers} {
		for i := range containers {
			fill(&containers[i], containers[i].Resources.Limits)
		}
	}
	if filled.Spec.Resources != nil {
		filled.Spec.Resources.Requests = limitsOfPod(filled)
	}
	return filled
}

// fill has a container ask for what a list has and it does not ask for.
func fill(c *corev1.Container, list corev1.ResourceList) {
	r := &c.Resources
	for name, q := range list {
		if _, asked := r.Requests[name]; !asked {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q
		}
	}
}

// Referrers returns the containers of a pod that refer to a claim, by a name that is one of its, each as often as it does: as for
// kube-scheduler, one that takes two requests of a claim is two.
func Referrers(spec *corev1.PodSpec, is func(name string) bool) []string {
	var out []string
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, r := range list[i].Resources.Claims {
				if is(r.Name) {
					out = append(out, list[i].Name)
				}
			}
		}
	}
	return out
}

// Referring is how often the containers of a pod refer to the claim of a name.
func Referring(spec *corev1.PodSpec, name string) int {
	return len(Referrers(spec, func(n string) bool { return n == name }))
}

// limitsOfPod returns what a pod asks for as a whole: for what it limits as a whole and does not ask for, what its containers
// ask for, and that limit where they ask for nothing. Of hugepages it is the limit.
func limitsOfPod(pod *corev1.Pod) corev1.ResourceList {
	whole := pod.Spec.Resources
	if len(whole.Limits) == 0 {
		return whole.Requests
	}
	out := maps.Clone(whole.Requests)
	if out == nil {
		out = corev1.ResourceList{}
	}
	for _, from := range []corev1.ResourceList{resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}), whole.Limits} {
		for name, q := range from {
			if _, asked := out[name]; asked || !resourcehelper.IsSupportedPodLevelResource(name) {
				continue
			}
			if _, limited := whole.Limits[name]; limited && hugepages(name) {
				q = whole.Limits[name]
			}
			out[name] = q
		}
	}
	return out
}
