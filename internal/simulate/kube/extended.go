package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// extendedClaim returns the claim that kube-scheduler makes for a pod's extended resources, with a request for each
// container that asks for one, and which of them serves which container. What an init container asks for that ends before
// the next starts it may have of those that start after it.
func extendedClaim(p *corev1.Pod, classes map[corev1.ResourceName]*resourcev1.DeviceClass) (*resourcev1.ResourceClaim, []corev1.ContainerExtendedResourceRequest) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name + "-extended-resources", OwnerReferences: []metav1.OwnerReference{ownedBy(p)},
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
	}}
	var mappings []corev1.ContainerExtendedResourceRequest
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		requests, m := requestsFor(p, name, classes[name].Name)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
		mappings = append(mappings, m...)
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return claim, mappings
}

// requestsFor is extendedClaim for one resource.
func requestsFor(p *corev1.Pod, name corev1.ResourceName, class string) ([]resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	containers := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	short := func(i int) bool {
		policy := containers[i].RestartPolicy
		return i < len(p.Spec.InitContainers) && (policy == nil || *policy != corev1.ContainerRestartPolicyAlways)
	}
	lasting := make([]*resourcev1.DeviceRequest, len(containers))
	var mappings, brief []corev1.ContainerExtendedResourceRequest
	for i := range containers {
		if !short(i) {
			var m []corev1.ContainerExtendedResourceRequest
			lasting[i], m = requestOf(i, &containers[i], name, class, nil)
			mappings = append(mappings, m...)
		}
	}
	var most *resourcev1.DeviceRequest
	names := map[string]bool{}
	for i := range containers {
		if !short(i) {
			continue
		}
		r, m := requestOf(i, &containers[i], name, class, lasting[i:])
		brief = append(brief, m...)
		if r == nil {
			continue
		}
		names[r.Name] = true
		if most == nil || most.Exactly.Count < r.Exactly.Count {
			most = r
		}
	}
	for i := range brief {
		if names[brief[i].RequestName] {
			brief[i].RequestName = most.Name
		}
	}
	var requests []resourcev1.DeviceRequest
	if most != nil {
		requests = append(requests, *most)
	}
	for _, r := range lasting {
		if r != nil {
			requests = append(requests, *r)
		}
	}
	return requests, append(mappings, brief...)
}

// requestOf returns what one container asks for beside what it may have of others; nil for nothing.
func requestOf(index int, c *corev1.Container, name corev1.ResourceName, class string, others []*resourcev1.DeviceRequest) (*resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	q, asks := c.Resources.Requests[name]
	if !asks {
		q, asks = c.Resources.Limits[name]
	}
	want := q.Value()
	if !asks || want == 0 {
		return nil, nil
	}
	var mappings []corev1.ContainerExtendedResourceRequest
	uses := func(request string) {
		mappings = append(mappings, corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(name), RequestName: request})
	}
	for _, r := range others {
		if r == nil {
			continue
		}
		uses(r.Name)
		if want -= r.Exactly.Count; want <= 0 {
			return nil, mappings
		}
	}
	all := maps.Clone(c.Resources.Limits)
	if all == nil {
		all = corev1.ResourceList{}
	}
	maps.Copy(all, c.Resources.Requests)
	at, _ := slices.BinarySearch(slices.Sorted(maps.Keys(all)), name)
	request := fmt.Sprintf("container-%d-request-%d", index, at)
	uses(request)
	return &resourcev1.DeviceRequest{Name: request, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: want,
	}}, mappings
}
