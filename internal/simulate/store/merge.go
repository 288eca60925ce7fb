package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mergePatch applies a JSON merge patch (RFC 7386) to the typed object itself: only what the patch names is decoded, and
// nothing is encoded. What the patch does not reach is shared with old.
func (k *kind) mergePatch(old client.Object, data []byte, subresource string) (client.Object, error) {
	var patch map[string]json.RawMessage
	if err := utiljson.Unmarshal(data, &patch); err != nil {
		return nil, k.unprocessable(old, err)
	}
	next := k.shallow(old)
	k.metaOf(next).ResourceVersion = "" // unless the patch names it
	v := reflect.ValueOf(next).Elem()
	for name, raw := range patch {
		if (name == statusName) != (subresource == statusName) && name != "metadata" {
			continue
		}
		f, ok := fieldsOf(k.typ)[name]
		if !ok {
			continue
		}
		if err := mergeValue(v.FieldByIndex(f), raw); err != nil {
			return nil, k.unprocessable(old, fmt.Errorf("%s: %w", name, err))
		}
	}
	return next, nil
}

// mergeValue merges a patch into a value, which may share what it refers to with a stored object: that is made anew, never
// changed in place.
func mergeValue(v reflect.Value, raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if bytes.Equal(raw, []byte("null")) {
		v.SetZero()
		return nil
	}
	if len(raw) == 0 || raw[0] != '{' {
		return replaceValue(v, raw)
	}
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		n := reflect.New(t.Elem())
		if !v.IsNil() {
			n.Elem().Set(v.Elem())
		}
		if err := mergeValue(n.Elem(), raw); err != nil {
			return err
		}
		v.Set(n)
		return nil
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return mergeText(v, raw)
	case t.Kind() == reflect.Struct:
		return mergeStruct(v, raw)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		return mergeMap(v, raw)
	}
	return mergeText(v, raw)
}

func mergeStruct(v reflect.Value, raw json.RawMessage) error {
	var patch map[string]json.RawMessage
	if err := utiljson.Unmarshal(raw, &patch); err != nil {
		return err
	}
	fields := fieldsOf(v.Type())
	for name, raw := range patch {
		f, ok := fields[name]
		if !ok {
			continue // an unknown field is dropped
		}
		if err := mergeValue(v.FieldByIndex(f), raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func mergeMap(v reflect.Value, raw json.RawMessage) error {
	var patch map[string]json.RawMessage
	if err := utiljson.Unmarshal(raw, &patch); err != nil {
		return err
	}
	t := v.Type()
	merged := reflect.MakeMapWithSize(t, v.Len()+len(patch))
	for i := v.MapRange(); i.Next(); {
		merged.SetMapIndex(i.Key(), i.Value())
	}
	for name, raw := range patch {
		key := reflect.ValueOf(name).Convert(t.Key())
		if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			merged.SetMapIndex(key, reflect.Value{})
			continue
		}
		n := reflect.New(t.Elem()).Elem()
		if current := merged.MapIndex(key); current.IsValid() {
			n.Set(current)
		}
		if err := mergeValue(n, raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		merged.SetMapIndex(key, n)
	}
	v.Set(merged)
	return nil
}

func replaceValue(v reflect.Value, raw json.RawMessage) error {
	n := reflect.New(v.Type())
	if err := utiljson.Unmarshal(raw, n.Interface()); err != nil {
		return err
	}
	v.Set(n.Elem())
	return nil
}

// mergeText merges into what decodes itself, by way of its JSON.
func mergeText(v reflect.Value, raw json.RawMessage) error {
	current, err := json.Marshal(v.Interface())
	if err != nil {
		return err
	}
	if len(current) == 0 || current[0] != '{' {
		current = []byte("{}")
	}
	merged, err := jsonpatch.MergePatch(current, raw)
	if err != nil {
		return err
	}
	return replaceValue(v, merged)
}

var fieldTables sync.Map // of reflect.Type to map[string][]int

// fieldsOf returns where the fields of a struct are, by their names in JSON. Those of an inlined struct are its own.
func fieldsOf(t reflect.Type) map[string][]int {
	if fields, ok := fieldTables.Load(t); ok {
		return fields.(map[string][]int)
	}
	fields := map[string][]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			for name, at := range fieldsOf(f.Type) {
				fields[name] = append([]int{i}, at...)
			}
		case name == "":
			fields[f.Name] = []int{i}
		default:
			fields[name] = []int{i}
		}
	}
	fieldTables.Store(t, fields)
	return fields
}
