package simulate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// row returns one row of a comparison.
func (c *Comparison) row(t *testing.T, queue, flavor string) Tenant {
	t.Helper()
	for _, x := range c.Tenants {
		if x.ClusterQueue == queue && x.Flavor == flavor {
			return x
		}
	}
	t.Fatalf("no row of %s on %q", queue, flavor)
	return Tenant{}
}

func TestFigures(t *testing.T) {
	waits := func(seconds ...int) *Result {
		var all []Workload
		for i, s := range seconds {
			all = append(all, ran(job("team-a", string(rune('a'+i)), 0), s, "h100", 1, -1))
		}
		return result(1000, all...)
	}
	preempted := evicted(ran(job("team-a", "x", 0), 0, "h100", 8, -1), 3600)
	cases := map[string]struct {
		in     *Result
		flavor string
		figure func(Figures) any
		want   any
	}{
		"admitted counts a workload once, however often it started": {
			in:     result(9000, ran(preempted, 7200, "h100", 8, -1)),
			figure: func(f Figures) any { return f.Admitted }, want: int64(1),
		},
		"a workload counts on every flavor that it started on": {
			in: result(9000, ran(preempted, 7200, "a100", 8, -1)), flavor: "a100",
			figure: func(f Figures) any { return f.Admitted }, want: int64(1),
		},
		"what was evicted and waits again is admitted and waiting": {
			in:     result(9000, preempted),
			figure: func(f Figures) any { return []int64{f.Admitted, f.Waiting} }, want: []int64{1, 1},
		},
		"what waits counts on the flavor that is tried first": {
			in: result(100, waitsFor(job("team-a", "x", 0), "a100", "h100")), flavor: "a100",
			figure: func(f Figures) any { return f.Waiting }, want: int64(1),
		},
		"and on no other": {
			in: result(100, waitsFor(job("team-a", "x", 0), "a100", "h100"), ran(job("team-a", "y", 0), 0, "h100", 1, -1)), flavor: "h100",
			figure: func(f Figures) any { return f.Waiting }, want: int64(0),
		},
		"the mean of waits is rounded half up": {
			in: waits(1, 2), figure: func(f Figures) any { return *f.MeanWait }, want: report.Clock(2),
		},
		"a wait counts from submission": {
			in:     result(100, ran(job("team-a", "x", 30), 40, "h100", 1, -1)),
			figure: func(f Figures) any { return *f.MeanWait }, want: report.Clock(10),
		},
		"a wait ends with the first admission": {
			in:     result(9000, ran(preempted, 7200, "h100", 8, -1)),
			figure: func(f Figures) any { return *f.LongestWait }, want: report.Clock(0),
		},
		"what still waits has waited until the end": {
			in:     result(100, job("team-a", "x", 30)),
			figure: func(f Figures) any { return []report.Clock{*f.MeanWait, *f.P95Wait, *f.LongestWait} }, want: []report.Clock{70, 70, 70},
		},
		"what was rejected has no wait": {
			in: func() *Result {
				w := job("team-a", "x", 30)
				w.Outcome = report.OutcomeRejected
				return result(100, w)
			}(),
			figure: func(f Figures) any { return f.MeanWait == nil }, want: true,
		},
		"of twenty waits the 95th percentile is the nineteenth": {
			in:     waits(20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1),
			figure: func(f Figures) any { return []report.Clock{*f.P95Wait, *f.LongestWait} }, want: []report.Clock{19, 20},
		},
		"of three waits it is the longest": {
			in: waits(1, 2, 3), figure: func(f Figures) any { return *f.P95Wait }, want: report.Clock(3),
		},
		"eight devices for half an hour are four device-hours": {
			in:     result(9000, ran(job("team-a", "x", 0), 0, "h100", 8, 1800)),
			figure: func(f Figures) any { return f.DeviceHours.String() }, want: "4.00",
		},
		"what runs holds devices until the end": {
			in:     result(5400, ran(job("team-a", "x", 0), 0, "h100", 1, -1)),
			figure: func(f Figures) any { return f.DeviceHours.String() }, want: "1.50",
		},
		"an eviction ends device-hours, and the next admission goes on": {
			in:     result(9000, ran(preempted, 7200, "h100", 8, 9000)),
			figure: func(f Figures) any { return f.DeviceHours.String() }, want: "12.00",
		},
		"device-hours before the start do not count": {
			in:     result(3600, ran(job("team-a", "x", -7200), -3600, "h100", 1, -1)),
			figure: func(f Figures) any { return f.DeviceHours.String() }, want: "1.00",
		},
		"device-hours are those of the flavor": {
			in: result(9000, ran(preempted, 7200, "a100", 8, 9000)), flavor: "a100",
			figure: func(f Figures) any { return f.DeviceHours.String() }, want: "4.00",
		},
		"a share is of what all tenants held": {
			in:     result(3600, ran(job("team-a", "x", 0), 0, "h100", 1, -1), ran(job("team-b", "y", 0), 0, "h100", 3, -1)),
			figure: func(f Figures) any { return []int64{*f.DeviceShare, *f.DeviceSharePerWeight} }, want: []int64{250, 250},
		},
		"a share on a flavor is of what all tenants held of it": {
			in: result(3600, ran(job("team-a", "x", 0), 0, "a100", 1, -1), ran(job("team-b", "y", 0), 0, "h100", 3, -1)), flavor: "a100",
			figure: func(f Figures) any { return *f.DeviceShare }, want: int64(1000),
		},
		"Kueue's share is of the whole queue": {
			in:     result(3600, ran(job("team-a", "x", 0), 0, "h100", 1, -1)),
			figure: func(f Figures) any { return *f.Share }, want: int64(125),
		},
		"and null on one flavor": {
			in: result(3600, ran(job("team-a", "x", 0), 0, "h100", 1, -1)), flavor: "h100",
			figure: func(f Figures) any { return f.Share == nil }, want: true,
		},
		"an admission on the second flavor is a fallback": {
			in:     result(9000, ran(preempted, 7200, "a100", 8, -1)),
			figure: func(f Figures) any { return *f.FallbackRate }, want: int64(500),
		},
		"a podset without devices is never one": {
			in:     result(100, ran(job("team-a", "x", 0), 0, "a100", 0, -1), ran(job("team-a", "y", 0), 0, "h100", 1, -1)),
			figure: func(f Figures) any { return *f.FallbackRate }, want: int64(0),
		},
		"without a policy there is no fallback rate": {
			in: func() *Result {
				r := result(100, ran(job("team-a", "x", 0), 0, "a100", 8, -1))
				r.FirstFlavors = nil
				return r
			}(),
			figure: func(f Figures) any { return f.FallbackRate == nil }, want: true,
		},
		"nobody who waits, no waits": {
			in:     result(100),
			figure: func(f Figures) any { return f.MeanWait == nil && f.P95Wait == nil && f.LongestWait == nil }, want: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Compare(result(1), c.in).row(t, "team-a", c.flavor)
			if diff := cmp.Diff(c.want, c.figure(got.After)); diff != "" {
				t.Errorf("after (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARunThatEndedBeforeWentOnUnchanged(t *testing.T) {
	short, long := result(1800, job("team-a", "x", 0), ran(job("team-a", "y", 0), 0, "h100", 1, -1)), result(3600)
	for name, got := range map[string]Figures{
		"before": Compare(short, long).row(t, "team-a", "").Before,
		"after":  Compare(long, short).row(t, "team-a", "").After,
	} {
		if *got.LongestWait != 3600 || got.DeviceHours != 3600 {
			t.Errorf("%s: longest wait %s and %s device-hours, want 3600s and 1.00", name, got.LongestWait, got.DeviceHours)
		}
	}
	if short.Ended.Seconds() != 1800 {
		t.Errorf("the result was changed: it ended at %s", short.Ended)
	}
}

func TestWeightZeroHasNoShareByWeight(t *testing.T) {
	r := result(3600, ran(job("team-a", "x", 0), 0, "h100", 1, -1))
	r.Shares[0].Weight, r.Shares[0].Share = "0", unlimited
	got := Compare(r, r).row(t, "team-a", "")
	if got.After.DeviceSharePerWeight != nil || got.Difference.Share != nil {
		t.Errorf("share by weight %v, difference of unlimited shares %v: want null", got.After.DeviceSharePerWeight, got.Difference.Share)
	}
}

func TestDifferenceIsAfterLessBefore(t *testing.T) {
	before := result(100, job("team-a", "x", 0))
	after := result(100, ran(job("team-a", "x", 0), 40, "h100", 36, -1))
	after.Shares[0].Weight, after.Shares[0].Share = "2500m", 25
	got := Compare(before, after).row(t, "team-a", "").Difference
	want := Figures{
		Admitted: 1, Waiting: -1, MeanWait: clock(-60), P95Wait: clock(-60), LongestWait: clock(-60),
		DeviceHours: 2160, Share: ptr.To[int64](-100), Weight: got.Weight,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
	if got.Weight.String() != "1500m" {
		t.Errorf("difference of weights %s, want 1500m", got.Weight)
	}
}

func TestRows(t *testing.T) {
	r := result(100, ran(job("team-b", "x", 0), 0, "h100", 1, -1), ran(job("team-b", "y", 0), 0, "a100", 1, -1))
	rows := func(c *Comparison) (names []string) {
		for _, x := range c.Tenants {
			names = append(names, x.ClusterQueue+"/"+x.Flavor)
		}
		return names
	}
	if got, want := rows(Compare(result(100), r)), []string{"team-a/", "team-b/", "team-b/a100", "team-b/h100"}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	named := Compare(result(100), r, "team-a")
	if got, want := rows(named), []string{"team-a/"}; !slices.Equal(got, want) {
		t.Errorf("rows of team-a %v, want %v", got, want)
	}
	if len(named.Changed) > 0 {
		t.Errorf("changed workloads of others: %+v", named.Changed)
	}
	whole := Compare(result(100), r).row(t, "team-b", "").After
	for _, f := range []string{"a100", "h100"} {
		if one := Compare(result(100), r).row(t, "team-b", f).After; one.DeviceHours*2 != whole.DeviceHours {
			t.Errorf("%s: %s device-hours, want half of %s", f, one.DeviceHours, whole.DeviceHours)
		}
	}
}

func TestChanged(t *testing.T) {
	base := func() Workload { return ran(job("team-a", "x", 0), 10, "h100", 8, 50) }
	cases := map[string]struct {
		after Workload
		want  bool
	}{
		"nothing":             {base(), false},
		"another outcome":     {job("team-a", "x", 0), true},
		"another flavor":      {func() Workload { w := base(); w.Flavors = map[string]string{"main": "a100"}; return w }(), true},
		"another node":        {func() Workload { w := base(); w.Pods[0].Node = "other"; return w }(), true},
		"another start":       {func() Workload { w := base(); w.AdmittedAt = clock(11); return w }(), true},
		"another end":         {func() Workload { w := base(); w.FinishedAt = clock(51); return w }(), true},
		"another message":     {func() Workload { w := base(); w.Message = "other"; return w }(), false},
		"another device only": {func() Workload { w := base(); w.Pods[0].Devices = []string{"d"}; return w }(), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Compare(result(100, base()), result(100, c.after)).Changed
			if (len(got) == 1) != c.want {
				t.Errorf("changed %+v, want %v", got, c.want)
			}
		})
	}
	gone := Compare(result(100, base()), result(100)).Changed
	if len(gone) != 1 || gone[0].After != nil || gone[0].Before == nil {
		t.Errorf("a workload that is not there after: %+v", gone)
	}
	twice := Compare(result(100, base()), result(100, base(), job("team-a", "x", 60))).Changed
	if len(twice) != 1 || twice[0].Before != nil || *twice[0].After.SubmittedAt != 60 {
		t.Errorf("a workload that was made anew after: %+v", twice)
	}
}

const comparisonTable = `Simulated 100s before and 200s after; figures are until 200s. What still waits has waited until then.

CLUSTERQUEUE  FLAVOR  FIGURE                          BEFORE  AFTER   DIFFERENCE
team-a        (all)   admitted                        0       1       +1
team-a        (all)   waiting                         1       0       -1
team-a        (all)   mean wait                       200s    40s     -160s
team-a        (all)   p95 wait                        200s    40s     -160s
team-a        (all)   longest wait                    200s    40s     -160s
team-a        (all)   device-hours                    0.00    1.60    +1.60
team-a        (all)   share of device-hours           -       100.0%  -
team-a        (all)   weight                          1       1       0
team-a        (all)   share of device-hours / weight  -       100.0%  -
team-a        (all)   Kueue's weighted share          125     125     0
team-a        (all)   fallback rate                   -       0.0%    -

1 workload came to something else:

WORKLOAD  OUTCOME             FLAVOR     NODES           STARTED   ENDED
team-a/x  Waiting -> Running  - -> h100  - -> node-h100  - -> 40s  -
`

func TestComparisonTable(t *testing.T) {
	before, after := result(100, job("team-a", "x", 0)), result(200, ran(job("team-a", "x", 0), 40, "h100", 36, -1))
	c := Compare(before, after, "team-a")
	c.Tenants = c.Tenants[:1] // of team-a over all flavors
	var out bytes.Buffer
	if err := c.Table(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(comparisonTable, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	out.Reset()
	if err := Compare(before, before).Table(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "\nNo workload came to anything else.\n") {
		t.Errorf("two equal runs end in\n%s", out.String())
	}
}

func TestComparisonJSON(t *testing.T) {
	before, after := result(100, job("team-a", "x", 0)), result(200, ran(job("team-a", "x", 0), 40, "h100", 36, -1))
	data := Compare(before, after).JSON()
	var got struct {
		Version int
		Ended   map[string]string
		Tenants []struct {
			ClusterQueue, Flavor      string
			Before, After, Difference map[string]any
		}
		Changed []struct {
			Namespace, Name, Kind string
			Before, After         map[string]any
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if got.Version != 1 || got.Ended["after"] != "200s" || len(got.Tenants) != 3 || len(got.Changed) != 1 {
		t.Fatalf("got %s", data)
	}
	want := map[string]any{
		"admitted": 1.0, "waiting": 0.0, "meanWait": "40s", "p95Wait": "40s", "longestWait": "40s", "deviceHours": "1.60",
		"deviceShare": 1000.0, "weight": "1", "deviceSharePerWeight": 1000.0, "share": 125.0, "fallbackRate": 0.0,
	}
	if diff := cmp.Diff(want, got.Tenants[0].After); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if got.Changed[0].Before["outcome"] != "Waiting" || got.Changed[0].After["admittedAt"] != "40s" || got.Changed[0].Before["nodes"] == nil {
		t.Errorf("changed %v", got.Changed[0])
	}
	if empty := string(Compare(&Result{}, &Result{}).JSON()); strings.Contains(empty, "null") {
		t.Errorf("a comparison of nothing holds null:\n%s", empty)
	}
}

func TestDeviceHoursAreRounded(t *testing.T) {
	for seconds, want := range map[DeviceSeconds]string{0: "0.00", 17: "0.00", 18: "0.01", -18: "-0.01", -17: "0.00", 3600: "1.00", 3599: "1.00", 45000: "12.50", 360000: "100.00"} {
		if got := seconds.String(); got != want {
			t.Errorf("%d device-seconds are %s, want %s", int64(seconds), got, want)
		}
	}
}
