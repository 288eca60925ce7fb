package input

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// observed reads one object, at version 1 as a store would have it, as the ledger sees it.
func observed(t *testing.T, text string) ledger.Observation {
	t.Helper()
	in := read(t, Options{}, text)
	if len(in.Objects) != 1 || len(in.Warnings) > 0 {
		t.Fatalf("read %d objects, with warnings %q", len(in.Objects), in.Warnings)
	}
	in.Objects[0].Object.SetResourceVersion("1")
	o, ok := observe.Of(in.Objects[0].Object, false)
	if !ok {
		t.Fatal("not observed")
	}
	return o
}

const sliceHead = "kind: ResourceSlice\nmetadata: {name: one, annotations: {" + observe.DevicesNodeAllocatable + ": '{\"b\": {}}'}}\n" +
	"spec:\n  driver: gpu.example.com\n  pool: {name: one, generation: 1, resourceSliceCount: 1}\n  nodeName: one\n"

func TestWhatLaterDevicesMapIsReadInEveryVersion(t *testing.T) {
	const mapped = `nodeAllocatableResources: {memory: {mapping: {deviceMultiplier: 2Gi}, overhead: {perPod: 1Gi}}}`
	cases := map[string]string{
		"v1":      "apiVersion: resource.k8s.io/v1\n" + sliceHead + "  devices: [{name: a, " + mapped + "}, {name: b}]\n",
		"v1beta2": "apiVersion: resource.k8s.io/v1beta2\n" + sliceHead + "  devices: [{name: a, " + mapped + "}, {name: b}]\n",
		"v1beta1": "apiVersion: resource.k8s.io/v1beta1\n" + sliceHead + "  devices: [{name: a, basic: {" + mapped + "}}, {name: b, basic: {}}]\n",
	}
	want := map[string]ledger.Mappings{"a": {Rules: ledger.Rules137, List: []ledger.Mapping{
		{Resource: "memory", Multiplier: resource.MustParse("2Gi"), PerPod: resource.MustParse("1Gi")},
	}}}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, observed(t, text).Mappings); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if got := observed(t, "apiVersion: resource.k8s.io/v1\n"+sliceHead+"  devices: [{name: a}, {name: b}]\n"); got.Mappings != nil {
		t.Errorf("a slice with the annotation alone maps %v", got.Mappings)
	}
}

func TestGroupsOfLaterDevicesAreReadInEveryVersion(t *testing.T) {
	draws := func(groups string) string {
		return "consumesCounters: [{counterSet: card, counters: {memory: {value: 1Gi}}, compatibilityGroups: " + groups + "}]"
	}
	for version, devices := range map[string]func(fields string) string{
		"v1":      func(fields string) string { return "[{name: a, " + fields + "}, {name: b}]" },
		"v1beta2": func(fields string) string { return "[{name: a, " + fields + "}, {name: b}]" },
		"v1beta1": func(fields string) string { return "[{name: a, basic: {" + fields + "}}, {name: b, basic: {}}]" },
	} {
		for groups, want := range map[string]bool{"[mig]": true, "[]": false, "null": false} {
			o := observed(t, "apiVersion: resource.k8s.io/"+version+"\n"+sliceHead+"  devices: "+devices(draws(groups))+"\n")
			if got := strings.HasPrefix(o.Unread, "device a has compatibilityGroups in counter set card"); got != want || (o.Unread != "") != want {
				t.Errorf("%s, groups %s: unread %q", version, groups, o.Unread)
			}
			if draw := o.Slice.Spec.Devices[0].ConsumesCounters; len(draw) != 1 || draw[0].CounterSet != "card" {
				t.Errorf("%s: draws %v", version, draw)
			}
		}
	}
	_, err := Read(filesOf([]string{"apiVersion: resource.k8s.io/v1\n" + sliceHead + "  devices: [{name: a, " + draws("mig") + "}]\n"}), Options{})
	if got := refusals(t, err); !strings.Contains(got, `spec.devices[0].consumesCounters[0].compatibilityGroups: must be a list, not "mig"`) {
		t.Errorf("got\n%s", got)
	}
}

func TestALaterFieldOfTheWrongTypeIsRefused(t *testing.T) {
	const text = "apiVersion: resource.k8s.io/v1\n" + sliceHead + "  devices: [{name: a, nodeAllocatableResources: {memory: {overhead: 1Gi}, cpu: {mapping: {deviceMultiplier: many}}}}]\n"
	_, err := Read(filesOf([]string{text}), Options{})
	got := refusals(t, err)
	for _, want := range []string{
		`spec.devices[0].nodeAllocatableResources.memory.overhead: must be a map, not "1Gi"`,
		`spec.devices[0].nodeAllocatableResources.cpu.mapping.deviceMultiplier: must be a quantity such as 500m or 64Gi, not "many"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestDeviceTaintRulesAreReadInEveryVersion(t *testing.T) {
	const head = "kind: DeviceTaintRule\nmetadata: {name: r}\nspec: {taint: {key: example.com/t, effect: NoSchedule}"
	type want struct {
		All, None bool
		Driver    string
	}
	cases := map[string]struct {
		text string
		want want
	}{
		"v1alpha3 without a selector: every device": {"apiVersion: resource.k8s.io/v1alpha3\n" + head + "}\n", want{All: true}},
		"v1beta2 without a selector: every device":  {"apiVersion: resource.k8s.io/v1beta2\n" + head + "}\n", want{All: true}},
		"v1 without a selector: none":               {"apiVersion: resource.k8s.io/v1\n" + head + "}\n", want{None: true}},
		"v1 with an empty selector: every device":   {"apiVersion: resource.k8s.io/v1\n" + head + ", deviceSelector: {}}\n", want{All: true}},
		"v1 with a driver":                          {"apiVersion: resource.k8s.io/v1\n" + head + ", deviceSelector: {driver: d}}\n", want{Driver: "d"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := observed(t, c.text).TaintRule
			if r == nil || r.Name != "r" || r.Taint.Key != "example.com/t" || r.Taint.Effect != "NoSchedule" {
				t.Fatalf("read %+v", r)
			}
			if diff := cmp.Diff(c.want, want{r.All, r.None, r.Driver}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	_, err := Read(filesOf([]string{"apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: r}\nspec: {taint: {effect: Never}}\n"}), Options{})
	if got := refusals(t, err); !strings.Contains(got, "spec.taint.key") || !strings.Contains(got, "spec.taint.effect") {
		t.Errorf("got\n%s", got)
	}
}
