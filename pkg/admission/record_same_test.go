package admission

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// TestSameRecordLooksAtEveryField changes one field at a time, so that one that is added is not forgotten.
func TestSameRecordLooksAtEveryField(t *testing.T) {
	record := func() *v1alpha1.DecisionRecord {
		return &v1alpha1.DecisionRecord{Standings: []v1alpha1.FlavorStanding{{Reasons: []v1alpha1.StandingReason{{}}}}}
	}
	parts := map[string]func(*v1alpha1.DecisionRecord) any{
		"record":   func(r *v1alpha1.DecisionRecord) any { return r },
		"standing": func(r *v1alpha1.DecisionRecord) any { return &r.Standings[0] },
		"reason":   func(r *v1alpha1.DecisionRecord) any { return &r.Standings[0].Reasons[0] },
	}
	for part, of := range parts {
		for i := range reflect.TypeOf(of(record())).Elem().NumField() {
			changed := record()
			field := reflect.ValueOf(of(changed)).Elem().Field(i)
			name := reflect.TypeOf(of(changed)).Elem().Field(i).Name
			switch field.Kind() {
			case reflect.String:
				field.SetString("x")
			case reflect.Int32, reflect.Int64:
				field.SetInt(1)
			case reflect.Slice:
				field.Set(reflect.Zero(field.Type()))
			case reflect.Struct:
				field.Set(reflect.ValueOf(metav1.NewTime(after(0))))
			default:
				t.Fatalf("%s.%s is a %s", part, name, field.Kind())
			}
			if want := name == "Time" || name == "LedgerVersion"; SameRecord(record(), changed) != want {
				t.Errorf("another %s.%s makes the same record: %t, want %t", part, name, !want, want)
			}
		}
	}
}
