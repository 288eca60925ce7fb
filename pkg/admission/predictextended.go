package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// class returns the DeviceClass that serves an extended resource, as kube-scheduler has it; nil for none. Of classes that
// name the same resource it forgets the lesser ones, so that it may not know them by their own names either.
func (f *foresight) class(name corev1.ResourceName) *resourcev1.DeviceClass {
	class := f.s.ClassFor(name)
	if class == nil || class.Spec.ExtendedResourceName == nil {
		return class
	}
	explicit := corev1.ResourceName(*class.Spec.ExtendedResourceName)
	if name == explicit {
		return class
	}
	if f.s.ClassFor(explicit) == class {
		return class
	}
	f.doubt = fmt.Sprintf("kube-scheduler knows DeviceClass %s by its own name only if it saw it before the other one that serves %s", class.Name, explicit)
	if f.knows {
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
		return refuse(v1alpha1.ReasonClaimUnsupported, "the pod has claim %s for its extended resources from an earlier attempt: kube-scheduler removes it first", last.Name)
	}
	serves := map[corev1.ResourceName]*resourcev1.DeviceClass{}
	asked := ledger.AmountsOf(f.requests)
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		v := asked[name]
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
	claim.Spec.Devices.Requests = extendedRequests(f.pod, serves)
	last.ResourceClaim = claim
	return nil
}

// extendedRequests are the requests of the claim that kube-scheduler makes for a pod's extended resources: one for each of
// its containers and resources, where those of init containers use what later containers ask for.
func extendedRequests(pod *corev1.Pod, serves map[corev1.ResourceName]*resourcev1.DeviceClass) []resourcev1.DeviceRequest {
	containers := append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...)
	var out []resourcev1.DeviceRequest
	for _, name := range slices.Sorted(maps.Keys(serves)) {
		ask := func(i int, less int64) *resourcev1.DeviceRequest {
			q := containers[i].Resources.Requests[name]
			count, whole := q.AsInt64()
			if !whole || count == 0 || count <= less {
				return nil
			}
			of := slices.Sorted(maps.Keys(containers[i].Resources.Requests))
			return &resourcev1.DeviceRequest{
				Name: fmt.Sprintf("container-%d-request-%d", i, slices.Index(of, name)),
				Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: serves[name].Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count - less,
				},
			}
		}
		first := func(i int) bool { // ends before the containers after it start
			policy := containers[i].RestartPolicy
			return i < len(pod.Spec.InitContainers) && (policy == nil || *policy != corev1.ContainerRestartPolicyAlways)
		}
		long := make([]*resourcev1.DeviceRequest, len(containers))
		for i := range containers {
			if !first(i) {
				long[i] = ask(i, 0)
			}
		}
		var most *resourcev1.DeviceRequest
		for i := range containers {
			if !first(i) {
				continue
			}
			var reused int64
			for _, r := range long[i:] {
				if r != nil {
					reused += r.Exactly.Count
				}
			}
			if r := ask(i, reused); r != nil && (most == nil || most.Exactly.Count < r.Exactly.Count) {
				most = r
			}
		}
		for _, r := range append(long, most) {
			if r != nil {
				out = append(out, *r)
			}
		}
	}
	slices.SortFunc(out, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
