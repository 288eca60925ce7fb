package flavors_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

func model(name string) string { return `device.attributes["gpu.example.com"].model == "` + name + `"` }

// member returns the flavor of each device.
func member(m *flavors.Matcher, p *flavors.Policy, devices []ledger.Device) []int {
	var out []int
	for i := range devices {
		out = append(out, m.FlavorOf(p, &devices[i]))
	}
	return out
}

func TestADeviceBelongsToTheFirstFlavorThatMatches(t *testing.T) {
	constrained := func(expression string) func(*v1alpha1.DevicePolicy) {
		return func(dp *v1alpha1.DevicePolicy) { dp.Spec.Constraints = selectors(expression) }
	}
	devices := node(gpuDriver, attributes{"model": text("h100")}, attributes{"model": text("a100"), "health": text("ok")}, attributes{"health": text("ok")})
	cases := map[string]struct {
		policy *flavors.Policy
		want   []int
	}{
		"the first of two that match": {policy: accepting(t, nil, []string{model("h100")}, []string{`device.driver == "gpu.example.com"`}), want: []int{0, 1, 1}},
		"none":                        {policy: accepting(t, nil, []string{model("t4")}), want: []int{-1, -1, -1}},
		"all selectors must be true":  {policy: accepting(t, nil, []string{model("a100"), `device.attributes["gpu.example.com"].health == "ok"`}), want: []int{-1, 0, -1}},
		"a selector that fails on a device is false": {policy: accepting(t, nil, []string{`device.attributes["gpu.example.com"].health == "ok"`}, []string{"true"}), want: []int{1, 0, 0}},
		"a selector that does not compile is false":  {policy: accepting(t, nil, []string{"device.("}, []string{"true"}), want: []int{1, 1, 1}},
		"a constraint that is false":                 {policy: accepting(t, constrained(`device.driver == "other"`), []string{"true"}), want: []int{-1, -1, -1}},
		"a constraint that fails on a device":        {policy: accepting(t, constrained(model("a100")), []string{"true"}), want: []int{-1, 0, -1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, member(flavors.NewMatcher(), c.policy, devices)); diff != "" {
				t.Errorf("flavors by device (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlavorOfIsRememberedUntilSliceOrPolicyChange(t *testing.T) {
	m := flavors.NewMatcher()
	p := accepting(t, nil, []string{model("h100")}, []string{model("a100")})
	at := func(version, name string) []ledger.Device {
		devices := node(gpuDriver, attributes{"model": text(name)})
		devices[0].Slice.UID, devices[0].Slice.ResourceVersion = "slice", version
		return devices
	}
	steps := []struct {
		policy  *flavors.Policy
		devices []ledger.Device
		want    int
		why     string
	}{
		{p, at("1", "h100"), 0, "first sight"},
		{p, at("1", "a100"), 0, "the same version of a slice is not looked at again"},
		{p, at("2", "a100"), 1, "a new version is"},
		{accepting(t, nil, []string{model("a100")}), at("2", "a100"), 0, "a new revision of the policy is"},
		{p, at("2", "a100"), 1, "and so is the old one, when it comes back"},
	}
	for _, s := range steps {
		if got := member(m, s.policy, s.devices); got[0] != s.want {
			t.Errorf("%s: flavor is %d, want %d", s.why, got[0], s.want)
		}
	}
	m.Forget(func(slice types.UID) bool { return slice == "slice" })
	if got := member(m, p, at("2", "h100")); got[0] != 1 {
		t.Errorf("a slice that exists was forgotten: flavor is %d, want 1", got[0])
	}
	m.Forget(func(types.UID) bool { return false })
	if got := member(m, p, at("2", "h100")); got[0] != 0 {
		t.Errorf("a slice that is gone was not forgotten: flavor is %d, want 0", got[0])
	}
}

func TestMatchesNamesTheSelectorThatFails(t *testing.T) {
	d := node(gpuDriver, attributes{"uuid": text("a")})[0]
	m := flavors.NewMatcher()
	for _, expression := range []string{`device.("`, model("h100"), `"text"`} {
		_, err := m.Matches(gpuDriver, d.Spec, "true", expression)
		if err == nil || len(err.Error()) < len(expression) || err.Error()[:10] != fmt.Sprintf("selector %q", expression)[:10] {
			t.Errorf("error of %s is %v, want one that names it", expression, err)
		}
	}
}

func TestSelectsRemembersAVersionOfASlice(t *testing.T) {
	m := flavors.NewMatcher()
	of := func(version, modelName string) *ledger.Device {
		d := node(gpuDriver, attributes{"model": text(modelName)})
		d[0].Slice.UID, d[0].Slice.ResourceVersion = "slice", version
		return &d[0]
	}
	for _, s := range []struct {
		device *ledger.Device
		want   bool
		why    string
	}{
		{of("1", "h100"), true, "first sight"},
		{of("1", "a100"), true, "the same version of a slice is not looked at again"},
		{of("2", "a100"), false, "a new version is"},
	} {
		if got, err := m.Selects(s.device, model("h100")); err != nil || got != s.want {
			t.Errorf("%s: selects %t, %v, want %t", s.why, got, err, s.want)
		}
	}
	if got, err := m.Selects(of("2", "a100"), model("a100")); err != nil || !got {
		t.Errorf("another selector: selects %t, %v, want true", got, err)
	}
	if _, err := m.Selects(of("2", "a100"), `"text"`); err == nil {
		t.Error("a selector that fails is an error, remembered or not")
	}
	m.Forget(func(types.UID) bool { return false })
	if got, err := m.Selects(of("2", "h100"), model("h100")); err != nil || !got {
		t.Errorf("a slice that is gone was not forgotten: selects %t, %v", got, err)
	}
}
