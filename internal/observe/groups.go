package observe

import (
	"encoding/json"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubernetes 1.37 lets a device say, with what it draws of a counter set, which groups it is of: its compatibilityGroups. Only
// devices that have one in common may be allocated of a set at a time. kube-scheduler minds that with the feature gate
// DRADeviceCompatibilityGroups. By default it is off, and then whole slices with a device that is of a group count as not there,
// and so do their pools, which lack them. Nobody who reads slices knows which it is, so nothing of such pools is lent.

// SliceCompatibilityGroups is the annotation, in memory alone, that names a device of a slice that is of groups, as
// DevicesNodeAllocatable is.
const SliceCompatibilityGroups = "memory.plimsoll.dev/compatibility-groups"

// LaterDraw is what a device draws of a counter set, as far as the types lack it.
type LaterDraw struct {
	CounterSet          string          `json:"counterSet"`
	CompatibilityGroups json.RawMessage `json:"compatibilityGroups,omitempty"`
}

// Grouped says whether the device is of any group. What cannot be read is.
func (d *LaterDraw) Grouped() bool {
	var groups []json.RawMessage
	return len(d.CompatibilityGroups) > 0 && (json.Unmarshal(d.CompatibilityGroups, &groups) != nil || len(groups) > 0)
}

// keepGroups notes the first device that is of a group.
func (f *LaterFields) keepGroups(s *resourcev1.ResourceSlice) {
	delete(s.Annotations, SliceCompatibilityGroups)
	for i := range f.Spec.Devices {
		d := &f.Spec.Devices[i]
		for k := range d.ConsumesCounters {
			if draw := &d.ConsumesCounters[k]; draw.Grouped() {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, SliceCompatibilityGroups,
					fmt.Sprintf("device %s has compatibilityGroups in counter set %s", d.Name, draw.CounterSet))
				return
			}
		}
	}
}

// unreadOf returns what of a slice is not counted with, as Keep noted it; empty for nothing.
func unreadOf(s *resourcev1.ResourceSlice) string {
	of, ok := s.Annotations[SliceCompatibilityGroups]
	if !ok {
		return ""
	}
	return of + ": kube-scheduler looks at no such slice unless its feature gate DRADeviceCompatibilityGroups is on, and which devices may go together is not counted here"
}
