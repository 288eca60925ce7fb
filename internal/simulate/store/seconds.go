package store

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wholeSeconds cuts the times in an object to seconds, as they go over the wire, so that it makes no difference whether a
// write came as JSON. The metadata keeps its times: creation is told apart by nanoseconds. Nothing else is written, so
// that what is shared with a stored object, and cut already, stays untouched.
func (k *kind) wholeSeconds(obj client.Object) {
	v := reflect.ValueOf(obj).Elem()
	for _, i := range k.rest {
		cutTimes(v.Field(i))
	}
	if k.status >= 0 {
		cutTimes(v.Field(k.status))
	}
}

var timeType = reflect.TypeFor[metav1.Time]()

func cutTimes(v reflect.Value) {
	t := v.Type()
	if !holdsTime(t) {
		return
	}
	switch {
	case t == timeType:
		at := v.Addr().Interface().(*metav1.Time)
		if at.Nanosecond() != 0 {
			*at = metav1.NewTime(at.Truncate(time.Second))
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				cutTimes(v.Field(i))
			}
		}
	case t.Kind() == reflect.Slice:
		for i := range v.Len() {
			cutTimes(v.Index(i))
		}
	case t.Kind() == reflect.Pointer:
		if !v.IsNil() {
			cutTimes(v.Elem())
		}
	}
}

var timeHolders sync.Map // of reflect.Type to bool

// holdsTime says whether a value of the type can hold a time, other than in a map.
func holdsTime(t reflect.Type) bool {
	if t == timeType {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Pointer:
	default:
		return false
	}
	if holds, ok := timeHolders.Load(t); ok {
		return holds.(bool)
	}
	holds := findTime(t, map[reflect.Type]bool{})
	timeHolders.Store(t, holds)
	return holds
}

func findTime(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == timeType {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && findTime(f.Type, seen) {
				return true
			}
		}
	case reflect.Slice, reflect.Pointer:
		return findTime(t.Elem(), seen)
	}
	return false
}
