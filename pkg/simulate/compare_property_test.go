package simulate

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// drawRun is a run of some Jobs that were admitted, evicted and finished at any times.
func drawRun(t *rapid.T) *Result {
	r := result(rapid.IntRange(400, 500).Draw(t, "until"))
	for i := range rapid.IntRange(0, 8).Draw(t, "workloads") {
		w := job(rapid.SampledFrom([]string{"team-a", "team-b"}).Draw(t, "queue"), string(rune('a'+i)), rapid.IntRange(0, 50).Draw(t, "submitted"))
		at := int(*w.SubmittedAt)
		for range rapid.IntRange(0, 3).Draw(t, "admissions") {
			at += rapid.IntRange(0, 50).Draw(t, "wait")
			w = ran(w, at, rapid.SampledFrom([]string{"h100", "a100"}).Draw(t, "flavor"), int64(rapid.IntRange(0, 9).Draw(t, "devices")), -1)
			if rapid.Bool().Draw(t, "evicted") {
				at += rapid.IntRange(0, 50).Draw(t, "ran for")
				w = evicted(w, at)
			} else {
				break
			}
		}
		r.Workloads = append(r.Workloads, w)
	}
	return r
}

func TestFiguresAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawRun(t), drawRun(t)
		there, back := Compare(before, after), Compare(after, before)
		if len(there.Tenants) != len(back.Tenants) || len(there.Changed) != len(back.Changed) {
			t.Fatalf("%d rows and %d changes one way, %d and %d the other", len(there.Tenants), len(there.Changed), len(back.Tenants), len(back.Changed))
		}
		hours, whole, share := map[string]DeviceSeconds{}, map[string]DeviceSeconds{}, int64(0)
		for i, row := range there.Tenants {
			d, b := row.Difference, back.Tenants[i].Difference
			if d.Admitted != -b.Admitted || d.Waiting != -b.Waiting || d.DeviceHours != -b.DeviceHours || (d.MeanWait == nil) != (b.MeanWait == nil) {
				t.Fatalf("difference %+v one way, %+v the other", d, b)
			}
			a := row.After
			if a.MeanWait != nil && (*a.MeanWait > *a.LongestWait || *a.P95Wait > *a.LongestWait || *a.MeanWait < 0) {
				t.Fatalf("mean %s, p95 %s, longest %s", a.MeanWait, a.P95Wait, a.LongestWait)
			}
			if a.FallbackRate != nil && (*a.FallbackRate < 0 || *a.FallbackRate > permille) {
				t.Fatalf("fallback rate %d", *a.FallbackRate)
			}
			if row.Flavor == "" {
				whole[row.ClusterQueue] = a.DeviceHours
				if a.DeviceShare != nil {
					share += *a.DeviceShare
				}
			} else {
				hours[row.ClusterQueue] += a.DeviceHours
			}
		}
		for queue, want := range whole {
			if hours[queue] != want {
				t.Fatalf("%s: %d device-seconds on its flavors, %d over all", queue, hours[queue], want)
			}
		}
		if share != 0 && (share < permille-1 || share > permille+1) {
			t.Fatalf("shares of device-hours are %d in all", share)
		}
		count := map[string]int64{}
		for i := range after.Workloads {
			if w := &after.Workloads[i]; w.Outcome == report.OutcomeWaiting {
				count[w.ClusterQueue]++
			}
		}
		for _, row := range there.Tenants {
			if row.Flavor == "" && row.After.Waiting != count[row.ClusterQueue] {
				t.Fatalf("%s: %d wait, want %d", row.ClusterQueue, row.After.Waiting, count[row.ClusterQueue])
			}
		}
	})
}
