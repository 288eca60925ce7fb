package admission

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

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

// TestSizeIsBoundedFromAbove holds the bound by which most records need not be marshalled against their size as JSON.
func TestSizeIsBoundedFromAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "<&>\"\\\n\x00", "\xff\xfe", "\u2028\u2029"}))
		r := &v1alpha1.DecisionRecord{
			Time: metav1.NewTime(time.Date(2026, 12, 31, 23, 59, 59, 999, time.UTC)), LedgerVersion: math.MinInt64,
			Verdict: v1alpha1.Verdict(text.Draw(t, "verdict")), Policy: text.Draw(t, "policy"), Revision: text.Draw(t, "revision"),
			Reason: v1alpha1.Reason(text.Draw(t, "reason")), Message: text.Draw(t, "message"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "standings") {
			s := v1alpha1.FlavorStanding{
				PodSet: text.Draw(t, "podset"), Flavor: text.Draw(t, "flavor"), Alternative: text.Draw(t, "alternative"),
				Standing: v1alpha1.Standing(text.Draw(t, "standing")), Nodes: math.MinInt32, Devices: math.MinInt32, Quota: text.Draw(t, "quota"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "reasons") {
				s.Reasons = append(s.Reasons, v1alpha1.StandingReason{Reason: v1alpha1.Reason(text.Draw(t, "why")), Nodes: math.MinInt32, Message: text.Draw(t, "words")})
			}
			r.Standings = append(r.Standings, s)
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if most := sizeAtMost(r); most < len(raw) {
			t.Fatalf("%d bytes at most, %d in fact: %s", most, len(raw), raw)
		}
	})
}
