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

// laterField is what Kubernetes 1.37 has in the devices of ResourceSlices, and the types here do not.
const laterField = "nodeAllocatableResources"

// takeLater takes it out of an entry's fields, for keepLater, and holds it against its type.
func (r *reader) takeLater(e *entry) {
	if e.is.name != "ResourceSlice" {
		return
	}
	spec, _ := e.fields["spec"].(map[string]any)
	devices, _ := spec["devices"].([]any)
	c := r.typeCheck(e)
	for i := range devices {
		device, _ := devices[i].(map[string]any)
		at, inner := fmt.Sprintf("spec.devices[%d]", i), device
		if basic, ok := device["basic"].(map[string]any); ok { // in v1beta1
			at, inner = at+".basic", basic
		}
		value, ok := inner[laterField]
		if !ok {
			continue
		}
		delete(inner, laterField)
		at += "." + laterField
		name, named := device["name"].(string)
		if value == nil || !named {
			continue
		}
		c.value(value, reflect.TypeFor[map[corev1.ResourceName]ledger.NodeAllocatable137](), at)
		text, err := json.Marshal(value)
		if err != nil {
			r.fault(e.wrong(at, "cannot be written as JSON: "+err.Error()))
			continue
		}
		if e.later == nil {
			e.later = map[string]later{}
		}
		e.later[name] = later{at, text}
	}
}

// later is what was taken out of one device's fields, and where it was.
type later struct {
	at   string
	text json.RawMessage
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
		fields.Add(d.Name, kept.text)
		if m := observe.MappingsOf(d, kept.text); m != nil && m.Problem != "" {
			r.warn(e.wrong(kept.at, m.Problem+": the device is kept out"))
		}
	}
	if err := fields.Keep(s); err != nil {
		r.fault(e.wrong("", err.Error()))
	}
}
