package input

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// convert makes the typed object of an entry, in the version that objects get, with the defaults and the validation of
// its CustomResourceDefinition where it has one. It says whether it could.
func (r *reader) convert(e *entry) bool {
	wanted := e.is.versions[0]
	if e.is.name == taintRule {
		selectNone(e)
	}
	if e.is.typeOf(e.version) != wanted.is {
		if !r.toVersion(e, wanted) {
			return false
		}
	}
	if e.is.crd && !r.applyDefinition(e) {
		return false
	}
	object, ok := r.decode(e, wanted.is)
	if !ok {
		return false
	}
	e.object = object.(client.Object)
	e.object.GetObjectKind().SetGroupVersionKind(e.is.gvk())
	return true
}

// toVersion replaces the fields by those of another version, by the API's own conversion.
func (r *reader) toVersion(e *entry, to version) bool {
	from, ok := r.decode(e, e.is.typeOf(e.version))
	if !ok {
		return false
	}
	converted := reflect.New(to.is).Interface().(runtime.Object)
	if err := conversions.Convert(from, converted, nil); err != nil {
		r.fault(e.wrong("", "cannot be converted to "+to.name+": "+err.Error()))
		return false
	}
	converted.GetObjectKind().SetGroupVersionKind(e.is.gvk())
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(converted)
	if err != nil {
		r.fault(e.wrong("", "cannot be converted to "+to.name+": "+err.Error()))
		return false
	}
	delete(fields, "status")
	if status, ok := nonZeroStatus(converted); ok {
		fields["status"] = status
	}
	dropEmpty(fields, "metadata", "creationTimestamp")
	e.fields = fields
	return true
}

func (r *reader) decode(e *entry, t reflect.Type) (runtime.Object, bool) {
	text, err := json.Marshal(e.fields)
	if err != nil {
		r.fault(e.wrong("", "cannot be written as JSON: "+err.Error()))
		return nil, false
	}
	object := reflect.New(t).Interface().(runtime.Object)
	if err := json.Unmarshal(text, object); err != nil {
		r.fault(e.wrong("", "cannot be decoded: "+err.Error()))
		return nil, false
	}
	return object, true
}

// nonZeroStatus returns the status of an object as a map, and whether it says anything.
func nonZeroStatus(object runtime.Object) (map[string]any, bool) {
	status := reflect.ValueOf(object).Elem().FieldByName("Status")
	if !status.IsValid() || status.IsZero() {
		return nil, false
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status.Addr().Interface())
	return fields, err == nil
}

// dropEmpty takes out a null below one key.
func dropEmpty(fields map[string]any, outer, key string) {
	if inner, ok := fields[outer].(map[string]any); ok && inner[key] == nil {
		delete(inner, key)
	}
}
