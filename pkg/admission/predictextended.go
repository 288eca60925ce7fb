package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// class returns the DeviceClass that serves an extended resource, as kube-scheduler has it; nil for none. Of classes that
// name the same resource it forgets the lesser ones, so that it may not know them by their own names either.
func (o *prospect) class(name corev1.ResourceName) *resourcev1.DeviceClass {
	class := o.s.ClassFor(name)
	if class == nil || class.Spec.ExtendedResourceName == nil {
		return class
	}
	explicit := corev1.ResourceName(*class.Spec.ExtendedResourceName)
	if name == explicit {
		return class
	}
	if o.s.ClassFor(explicit) == class {
		return class
	}
	o.doubt = fmt.Sprintf("kube-scheduler knows DeviceClass %s by its own name only if it saw it before the other one that serves %s", class.Name, explicit)
	if o.knows {
		return class
	}
	return nil
}

// extend has the claim for the pod's extended resources ask for what the node does not list itself.
func (f *foresight) extend(context.Context) *refusal {
	if f.classes == nil {
		return nil
	}
	last := f.claims[len(f.claims)-1]
	if last.Spec.Devices.Requests != nil {
		return refuse(v1alpha1.ReasonClaimUnsupported, "the pod has claim %s for its extended resources from an earlier attempt: kube-scheduler removes it first", last.Name).everywhere()
	}
	serves := map[corev1.ResourceName]*resourcev1.DeviceClass{}
	for _, name := range f.asked {
		v := f.requests[name]
		_, listed := f.n.Allocatable[name]
		switch {
		case v == 0 || !byClaim(name):
		case f.classes[name] != nil && f.n.Allocatable[name] == 0:
			serves[name] = f.classes[name]
		case !listed:
			return refuse(v1alpha1.ReasonNodeResources, "node %s: nothing serves %s", f.n.Name, name)
		}
	}
	if len(f.claims) == 1 && len(serves) == 0 || last.allocated() {
		f.claims = f.claims[:len(f.claims)-1] // a device plugin serves them all
		return nil
	}
	claim := last.DeepCopy()
	claim.Spec.Devices.Requests, f.mappings = extendedRequests(f.pod, serves)
	last.ResourceClaim = claim
	return nil
}

// ExtendedClaim is the claim that kube-scheduler makes for a pod's extended resources.
type ExtendedClaim struct {
	// Claim is as it is to be created: with a generateName, and what it asks for on the node that was looked at.
	Claim *resourcev1.ResourceClaim
	// Mappings say which request serves which container, as the pod's status does.
	Mappings []corev1.ContainerExtendedResourceRequest
}

// special returns that claim; nil where none is made.
func (f *foresight) special() *ExtendedClaim {
	if len(f.claims) == 0 {
		return nil
	}
	last := f.claims[len(f.claims)-1]
	if !last.extended || last.result == nil || len(last.result.Devices.Results) == 0 {
		return nil
	}
	claim := last.DeepCopy()
	claim.Name, claim.UID = "", ""
	return &ExtendedClaim{Claim: claim, Mappings: f.mappings}
}

// emptyExtendedClaim is that claim before it is known what it asks for. Its name and uid are none that a claim has.
func emptyExtendedClaim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: v1alpha1.ExtendedResourcesClaim, UID: v1alpha1.ExtendedResourcesClaim, GenerateName: pod.Name + "-extended-resources-",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}},
		Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
	}}
}

// extendedRequests are the requests of the claim that kube-scheduler makes for a pod's extended resources, one for each of its
// containers and resources, and which of them serves which container. What an init container asks for that ends before the next
// starts it may have of those that start after it.
func extendedRequests(pod *corev1.Pod, serves map[corev1.ResourceName]*resourcev1.DeviceClass) ([]resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	var requests []resourcev1.DeviceRequest
	var mappings []corev1.ContainerExtendedResourceRequest
	for _, name := range slices.Sorted(maps.Keys(serves)) {
		r, m := requestsFor(pod, name, serves[name].Name)
		requests, mappings = append(requests, r...), append(mappings, m...)
	}
	slices.SortFunc(requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return requests, mappings
}

// requestsFor is extendedRequests for one resource.
func requestsFor(pod *corev1.Pod, name corev1.ResourceName, class string) (requests []resourcev1.DeviceRequest, mappings []corev1.ContainerExtendedResourceRequest) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	brief := func(i int) bool { // ends before the containers after it start
		policy := containers[i].RestartPolicy
		return i < len(pod.Spec.InitContainers) && (policy == nil || *policy != corev1.ContainerRestartPolicyAlways)
	}
	lasting := make([]*resourcev1.DeviceRequest, len(containers))
	for i := range containers {
		if !brief(i) {
			var m []corev1.ContainerExtendedResourceRequest
			lasting[i], m = requestOf(i, &containers[i], name, class, nil)
			mappings = append(mappings, m...)
		}
	}
	var most *resourcev1.DeviceRequest
	of := map[string]bool{}
	lastingOnes := len(mappings)
	for i := range containers {
		if !brief(i) {
			continue
		}
		r, m := requestOf(i, &containers[i], name, class, lasting[i:])
		mappings = append(mappings, m...)
		if r == nil {
			continue
		}
		of[r.Name] = true
		if most == nil || most.Exactly.Count < r.Exactly.Count {
			most = r
		}
	}
	for i := range mappings[lastingOnes:] { // they follow each other, so that the largest request does for all
		if m := &mappings[lastingOnes+i]; of[m.RequestName] {
			m.RequestName = most.Name
		}
	}
	for _, r := range append(lasting, most) {
		if r != nil {
			requests = append(requests, *r)
		}
	}
	return requests, mappings
}

// requestOf returns what one container asks for beside what it may have of others, and what serves it; nil for nothing.
func requestOf(index int, c *corev1.Container, name corev1.ResourceName, class string, others []*resourcev1.DeviceRequest) (*resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	q := c.Resources.Requests[name]
	want, whole := q.AsInt64()
	if !whole || want == 0 {
		return nil, nil
	}
	var mappings []corev1.ContainerExtendedResourceRequest
	served := func(by string) {
		mappings = append(mappings, corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(name), RequestName: by})
	}
	for _, r := range others {
		if r == nil {
			continue
		}
		served(r.Name)
		if want -= r.Exactly.Count; want <= 0 {
			return nil, mappings
		}
	}
	at, _ := slices.BinarySearch(slices.Sorted(maps.Keys(c.Resources.Requests)), name)
	request := fmt.Sprintf("container-%d-request-%d", index, at)
	served(request)
	return &resourcev1.DeviceRequest{Name: request, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: want,
	}}, mappings
}
