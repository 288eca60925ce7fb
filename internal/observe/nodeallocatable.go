package observe

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Kubernetes 1.37 says in ResourceSlices what a device takes of its node in a field that the types of 1.36 lack. It is kept
// in an annotation of the object in memory, so that one copy of a slice serves whoever reads slices. No server sees it, and
// what a server has under that name is dropped.

// DevicesNodeAllocatable is that annotation: a JSON object that holds nodeAllocatableResources by device.
const DevicesNodeAllocatable = "memory.plimsoll.dev/devices-node-allocatable-resources"

// LaterFields is what a ResourceSlice of Kubernetes 1.37 holds and the types do not. It is read from the slice's JSON.
type LaterFields struct {
	Spec struct {
		Devices []LaterDevice `json:"devices"`
	} `json:"spec"`
}

// LaterDevice is what it holds of one device.
type LaterDevice struct {
	Name                     string          `json:"name"`
	NodeAllocatableResources json.RawMessage `json:"nodeAllocatableResources,omitempty"`
	ConsumesCounters         []LaterDraw     `json:"consumesCounters,omitempty"`
}

// Add adds a device's fields.
func (f *LaterFields) Add(d *LaterDevice) {
	f.Spec.Devices = append(f.Spec.Devices, *d)
}

// Keep notes the fields in the slice that they were read with; without any, it notes that there are none.
func (f *LaterFields) Keep(s *resourcev1.ResourceSlice) error {
	f.keepGroups(s)
	delete(s.Annotations, DevicesNodeAllocatable)
	byDevice := map[string]json.RawMessage{}
	for i := range f.Spec.Devices {
		if d := &f.Spec.Devices[i]; len(d.NodeAllocatableResources) > 0 && string(d.NodeAllocatableResources) != "null" {
			byDevice[d.Name] = d.NodeAllocatableResources
		}
	}
	if len(byDevice) == 0 {
		return nil
	}
	text, err := json.Marshal(byDevice)
	if err != nil {
		return fmt.Errorf("keep nodeAllocatableResources of %s: %w", s.Name, err)
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, DevicesNodeAllocatable, string(text))
	return nil
}

// mappings returns, by device, what Keep noted in a slice; nil for nothing.
func mappings(s *resourcev1.ResourceSlice) map[string]ledger.Mappings {
	text, ok := s.Annotations[DevicesNodeAllocatable]
	if !ok {
		return nil
	}
	var byDevice map[string]json.RawMessage
	unread := json.Unmarshal([]byte(text), &byDevice)
	out := make(map[string]ledger.Mappings, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if text, ok := byDevice[d.Name]; ok || unread != nil {
			if m := MappingsOf(d, text); m != nil {
				out[d.Name] = *m
			}
		}
	}
	return out
}

// MappingsOf reads a device's nodeAllocatableResources, as Kubernetes 1.37 has it; nil for nothing. What cannot be read in
// full, a field that is not known among it, gives a Problem: to count a part of it would be to lend what is not there.
func MappingsOf(d *resourcev1.Device, text []byte) *ledger.Mappings {
	var entries map[corev1.ResourceName]ledger.NodeAllocatable137
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entries); err != nil {
		return &ledger.Mappings{Rules: ledger.Rules137, Problem: fmt.Sprintf("its nodeAllocatableResources cannot be read: %.200s", err.Error())}
	}
	return ledger.Mappings137(d, entries)
}
