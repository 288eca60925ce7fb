package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// AssignedOf returns what it means for a podset to be given ResourceFlavors, by resource. resource is the one whose flavor
// counts: the policy's quotaResource, or cpu for a podset without devices. lookup returns nil for a ResourceFlavor that
// does not exist.
func AssignedOf(byResource map[corev1.ResourceName]string, resource corev1.ResourceName, lookup func(name string) *kueue.ResourceFlavor) *Assigned {
	out := &Assigned{Flavor: byResource[resource], NodeLabels: map[string]string{}}
	names := slices.Compact(slices.Sorted(maps.Values(byResource)))
	for _, name := range names {
		if rf := lookup(name); rf != nil {
			maps.Copy(out.NodeLabels, rf.Spec.NodeLabels)
			out.Tolerations = append(out.Tolerations, rf.Spec.Tolerations...)
		}
	}
	if out.Flavor == "" && len(names) > 0 {
		out.Flavor = names[0]
	}
	return out
}
