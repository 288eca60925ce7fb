package input

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// checkFields holds an entry's fields against the type of its version: unknown ones, and values of the wrong type.
func (r *reader) checkFields(e *entry) {
	r.takeLater(e)
	r.typeCheck(e).value(e.fields, e.is.typeOf(e.version), "")
}

// typeCheck returns a check that reports faults of an entry.
func (r *reader) typeCheck(e *entry) typeCheck {
	return typeCheck{
		unknown: func(at string) {
			if f := e.wrong(at, "unknown field"); e.is.ours {
				r.fault(f)
			} else {
				r.warn(f)
			}
		},
		wrong: func(at, text string) { r.fault(e.wrong(at, text)) },
	}
}

// typeCheck walks a parsed value along a Go type as the decoder would, and reports all that the decoder would stop at.
// It takes out what it reports as unknown, and what is null.
type typeCheck struct {
	unknown func(at string)
	wrong   func(at, text string)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// opaque types hold anything.
var opaque = map[reflect.Type]bool{
	reflect.TypeFor[runtime.RawExtension](): true,
	reflect.TypeFor[metav1.FieldsV1]():      true,
}

// wanted says what text a type is written as.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():  "a quantity such as 500m or 64Gi",
	reflect.TypeFor[metav1.Time]():        "a time such as 2030-01-01T00:00:00Z",
	reflect.TypeFor[metav1.MicroTime]():   "a time such as 2030-01-01T00:00:00.000000Z",
	reflect.TypeFor[metav1.Duration]():    "a duration such as 90s",
	reflect.TypeFor[intstr.IntOrString](): "a number or text",
}

func (c typeCheck) value(v any, t reflect.Type, at string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if opaque[t] {
		return
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		c.special(v, t, at)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		c.object(v, t, at)
	case reflect.Map:
		if m, ok := v.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				if m[key] == nil {
					delete(m, key)
					continue
				}
				c.value(m[key], t.Elem(), join(at, key))
			}
			return
		}
		c.mismatch(v, "a map", at)
	case reflect.Slice:
		c.list(v, t, at)
	case reflect.Interface:
	default:
		c.plain(v, t, at)
	}
}

func (c typeCheck) object(v any, t reflect.Type, at string) {
	m, ok := v.(map[string]any)
	if !ok {
		c.mismatch(v, "a map", at)
		return
	}
	known := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		f, ok := known[key]
		switch {
		case !ok:
			c.unknown(join(at, key))
			delete(m, key)
		case m[key] == nil:
			delete(m, key)
		default:
			c.value(m[key], f, join(at, key))
		}
	}
}

func (c typeCheck) list(v any, t reflect.Type, at string) {
	if t.Elem().Kind() == reflect.Uint8 {
		if s, ok := v.(string); !ok {
			c.mismatch(v, "text in base64", at)
		} else if _, err := base64.StdEncoding.DecodeString(s); err != nil {
			c.wrong(at, "must be text in base64, not "+short(s))
		}
		return
	}
	items, ok := v.([]any)
	if !ok {
		c.mismatch(v, "a list", at)
		return
	}
	for i, item := range items {
		place := fmt.Sprintf("%s[%d]", at, i)
		if item == nil {
			c.wrong(place, "must not be null")
			continue
		}
		c.value(item, t.Elem(), place)
	}
}

// special holds a value against a type that decodes itself.
func (c typeCheck) special(v any, t reflect.Type, at string) {
	want := wanted[t]
	if want == "" {
		want = "a value of another form"
	}
	text, err := json.Marshal(v)
	if err != nil || json.Unmarshal(text, reflect.New(t).Interface()) != nil {
		c.mismatch(v, want, at)
	}
}

func (c typeCheck) plain(v any, t reflect.Type, at string) {
	switch t.Kind() {
	case reflect.String:
		if _, ok := v.(string); !ok {
			c.mismatch(v, "text", at)
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			c.mismatch(v, "true or false", at)
		}
	case reflect.Float32, reflect.Float64:
		switch v.(type) {
		case int64, float64:
		default:
			c.mismatch(v, "a number", at)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, ok := v.(int64)
		switch {
		case !ok:
			c.mismatch(v, "a whole number", at)
		case reflect.Zero(t).OverflowInt(i):
			c.wrong(at, fmt.Sprintf("must be a number of %d bits, not %d", t.Bits(), i))
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if i, ok := v.(int64); !ok || i < 0 || reflect.Zero(t).OverflowUint(uint64(i)) {
			c.mismatch(v, "a whole number from 0 up", at)
		}
	}
}

func (c typeCheck) mismatch(v any, want, at string) {
	c.wrong(at, fmt.Sprintf("must be %s, not %s", want, describe(v)))
}

func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case string:
		return short(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return fmt.Sprintf("%.1f", v)
		}
	}
	return fmt.Sprint(v)
}

var knownFields sync.Map // reflect.Type to map[string]reflect.Type

// fieldsOf returns a struct's fields by their names in JSON, with those of inlined structs.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	known := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(rest, "inline")) && inner.Kind() == reflect.Struct:
			maps.Copy(known, fieldsOf(inner))
		case name == "":
			known[f.Name] = f.Type
		default:
			known[name] = f.Type
		}
	}
	knownFields.Store(t, known)
	return known
}
