package flavors_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// read returns the devices that a spec names by itself.
func read(spec *resourcev1.ResourceClaimSpec, devices []ledger.Device) []string {
	named, names := flavors.Named(spec), []string{}
	for i := range devices {
		if slices.ContainsFunc(named, func(n ledger.Naming) bool { return n.Names(&devices[i]) }) {
			names = append(names, devices[i].ID.String())
		}
	}
	slices.Sort(names)
	return names
}

// TestWhatExactWritesIsReadBack: a claim's own spec names exactly the devices that it was cut to, of one driver or two.
func TestWhatExactWritesIsReadBack(t *testing.T) {
	p := accepting(t, nil, []string{"device.driver.size() > 0"})
	m := flavors.NewMatcher()
	rapid.Check(t, func(t *rapid.T) {
		devices := node(gpuDriver, rapid.SliceOfN(drawAttributes, 1, 8).Draw(t, "devices")...)
		devices = append(devices, node("fpga.example.com", rapid.SliceOfN(drawAttributes, 0, 3).Draw(t, "another driver's devices")...)...)
		all := make([]int, len(devices))
		for i := range all {
			all[i] = i
		}
		promised := pick(devices, rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(1, len(all)).Draw(t, "count")]...)
		spec, refusal := exact(p, m, claim(int64(len(promised))), 0, promised, devices)
		if refusal != nil {
			return
		}
		if diff := cmp.Diff(ids(promised), read(&spec, devices)); diff != "" {
			t.Fatalf("devices (-promised +read):\n%s\n%s", diff, spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression)
		}
	})
}

// TestNothingElseIsRead: a spec that does not begin as ours do names nothing, in any of its requests.
func TestNothingElseIsRead(t *testing.T) {
	const ours = `(device.driver == "d" && "uuid" in device.attributes["d"] && device.attributes["d"]["uuid"] in ["a", "b"])`
	of := func(expressions ...string) *resourcev1.ResourceClaimSpec {
		spec := &resourcev1.ResourceClaimSpec{}
		for _, e := range expressions {
			r := resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{}}
			if e != "" {
				r.Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: e}}}
			}
			spec.Devices.Requests = append(spec.Devices.Requests, r)
		}
		return spec
	}
	if got := flavors.Named(of(ours)); len(got) != 1 || len(got[0].Values) != 2 {
		t.Fatalf("ours names %+v", got)
	}
	for name, spec := range map[string]*resourcev1.ResourceClaimSpec{
		"no request":               {},
		"no selector":              of(""),
		"one request without":      of(ours, ""),
		"a user's":                 of(`device.attributes["d"].uuid == "a"`),
		"more after it":            of(ours + " || true"),
		"a prefix of it":           of(ours[:len(ours)-2]),
		"another attribute":        of(strings.Replace(ours, `["d"]["uuid"]`, `["d"]["serial"]`, 1)),
		"negated":                  of("!" + ours),
		"no value":                 of(strings.Replace(ours, `"a", "b"`, "", 1)),
		"a number out of range":    of(strings.Replace(ours, `"a", "b"`, "99999999999999999999", 1)),
		"an unfinished text":       of(strings.Replace(ours, `"b"]`, `"b]`, 1)),
		"several subrequests":      {Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{FirstAvailable: make([]resourcev1.DeviceSubRequest, 2)}}}},
		"a selector that is empty": {Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Exactly: &resourcev1.ExactDeviceRequest{Selectors: make([]resourcev1.DeviceSelector, 1)}}}}},
	} {
		if got := flavors.Named(spec); got != nil {
			t.Errorf("%s: named are %+v", name, got)
		}
	}
}

// FuzzNamed: whatever a spec says, reading it ends, and what is read can be held against a device.
func FuzzNamed(f *testing.F) {
	f.Add(`(device.driver == "d" && "uuid" in device.attributes["d"] && device.attributes["d"]["uuid"] in ["a"])`)
	f.Add(`(device.driver == "d" && "a" in device.attributes["d"] && "b" in device.attributes["e"] && ((device.attributes["d"]["a"] == 1 && device.attributes["e"]["b"] == "x")))`)
	f.Add(`(device.driver == "d" && `)
	d := node("d", attributes{"uuid": text("a"), "a": number(1)})
	f.Fuzz(func(t *testing.T, e string) {
		spec := &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Exactly: &resourcev1.ExactDeviceRequest{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: e}}}}}}}}
		for _, n := range flavors.Named(spec) {
			if len(n.Keys) == 0 || len(n.Values) == 0 {
				t.Fatalf("%+v names devices by nothing", n)
			}
			n.Names(&d[0])
		}
	})
}
