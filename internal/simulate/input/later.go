package input

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// The fields that Kubernetes 1.37 has in the devices of ResourceSlices, and the types here do not.
const (
	laterField = "nodeAllocatableResources"
	drawsField = "consumesCounters"
	laterGroup = "compatibilityGroups"
)

// takeLater takes them out of an entry's fields, for keepLater, and holds them against their types.
func (r *reader) takeLater(e *entry) {
	if e.is.name != "ResourceSlice" {
		return
	}
	spec, _ := e.fields["spec"].(map[string]any)
	devices, _ := spec["devices"].([]any)
	for i := range devices {
		device, _ := devices[i].(map[string]any)
		at, inner := fmt.Sprintf("spec.devices[%d]", i), device
		if basic, ok := device["basic"].(map[string]any); ok { // in v1beta1
			at, inner = at+".basic", basic
		}
		name, named := device["name"].(string)
		took := later{at: at + "." + laterField, LaterDevice: observe.LaterDevice{Name: name}}
		took.NodeAllocatableResources = r.takeField(e, inner, laterField, took.at, reflect.TypeFor[map[corev1.ResourceName]ledger.NodeAllocatable137]())
		draws, _ := inner[drawsField].([]any)
		for k := range draws {
			draw, _ := draws[k].(map[string]any)
			set, _ := draw["counterSet"].(string)
			text := r.takeField(e, draw, laterGroup, fmt.Sprintf("%s.%s[%d].%s", at, drawsField, k, laterGroup), reflect.TypeFor[[]string]())
			took.ConsumesCounters = append(took.ConsumesCounters, observe.LaterDraw{CounterSet: set, CompatibilityGroups: text})
		}
		if named {
			if e.later == nil {
				e.later = map[string]later{}
			}
			e.later[name] = took
		}
	}
}

// takeField takes a field out of others and returns it as JSON; nil for one that is not there.
func (r *reader) takeField(e *entry, of map[string]any, field, at string, is reflect.Type) json.RawMessage {
	value, ok := of[field]
	if !ok {
		return nil
	}
	delete(of, field)
	if value == nil {
		return nil
	}
	r.typeCheck(e).value(value, is, at)
	text, err := json.Marshal(value)
	if err != nil {
		r.fault(e.wrong(at, "cannot be written as JSON: "+err.Error()))
		return nil
	}
	return text
}

// later is what was taken out of one device's fields, and where its nodeAllocatableResources were.
type later struct {
	observe.LaterDevice
	at string
}

// keepLater notes in a slice what was taken out, as the manager's own reading of a server does.
func (r *reader) keepLater(e *entry, s *resourcev1.ResourceSlice) {
	fields := observe.LaterFields{}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		kept, ok := e.later[d.Name]
		if !ok {
			continue
		}
		fields.Add(&kept.LaterDevice)
		if kept.NodeAllocatableResources == nil {
			continue
		}
		if m := observe.MappingsOf(d, kept.NodeAllocatableResources); m != nil && m.Problem != "" {
			r.warn(e.wrong(kept.at, m.Problem+": the device is kept out"))
		}
	}
	if err := fields.Keep(s); err != nil {
		r.fault(e.wrong("", err.Error()))
	}
}
