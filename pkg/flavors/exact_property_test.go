package flavors_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// TestExactSelectsAnySubset: whatever a node's devices are, and whichever of them are promised, the claim is refused
// only where nothing tells the devices apart, and otherwise cut to exactly those. A failure prints the seed; run it
// again with -rapid.seed.
func TestExactSelectsAnySubset(t *testing.T) {
	p := accepting(t, nil, []string{"device.driver.size() > 0"})
	m := flavors.NewMatcher()
	rapid.Check(t, func(t *rapid.T) {
		devices := node(gpuDriver, rapid.SliceOfN(drawAttributes, 1, 10).Draw(t, "devices")...)
		devices = append(devices, node("fpga.example.com", rapid.SliceOfN(drawAttributes, 0, 3).Draw(t, "another driver's devices")...)...)
		var own []int
		for i := range devices {
			if devices[i].ID.Driver == gpuDriver {
				own = append(own, i)
			}
		}
		promise := rapid.Permutation(own).Draw(t, "order")[:rapid.IntRange(1, len(own)).Draw(t, "count")]
		promised := pick(devices, promise...)
		spec, refusal := exact(p, m, claim(int64(len(promised))), 0, promised, devices)
		if apart := tellable(devices[:len(own)]); apart != (refusal == nil) {
			t.Fatalf("the devices can be told apart: %v, refusal: %v", apart, refusal)
		}
		if refusal != nil {
			return
		}
		if diff := cmp.Diff(ids(promised), selected(t, spec, devices)); diff != "" {
			t.Fatalf("devices (-promised +selected):\n%s\n%s", diff, spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression)
		}
	})
}

// drawAttributes draws one device's attributes: few names and few values, so that they often are missing, alike, or of
// different kinds.
var drawAttributes = rapid.Custom(func(t *rapid.T) attributes {
	a := attributes{}
	for _, name := range []resourcev1.QualifiedName{"uuid", "index", "board", "other.example.com/serial", "resource.kubernetes.io/pciBusID"} {
		switch rapid.SampledFrom([]string{"text", "text", "hostile", "number", "number", "version", "flag", "none"}).Draw(t, "kind") {
		case "text":
			a[name] = text(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "text")))
		case "hostile":
			a[name] = text(rapid.StringN(0, 12, 48).Draw(t, "hostile"))
		case "number":
			a[name] = number(rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64()).Draw(t, "number"))
		case "version":
			v := "1.2.3"
			a[name] = resourcev1.DeviceAttribute{VersionValue: &v}
		case "flag":
			b := rapid.Bool().Draw(t, "flag")
			a[name] = resourcev1.DeviceAttribute{BoolValue: &b}
		}
	}
	return a
})

// tellable says, in the plainest way, whether one or two attributes tell devices apart.
func tellable(devices []ledger.Device) bool {
	var columns [][]string
	for name := range devices[0].Spec.Attributes {
		var column, kinds []string
		for _, d := range devices {
			switch a := d.Spec.Attributes[name]; {
			case a.StringValue != nil:
				column, kinds = append(column, *a.StringValue), append(kinds, "text")
			case a.IntValue != nil:
				column, kinds = append(column, fmt.Sprint(*a.IntValue)), append(kinds, "number")
			}
		}
		slices.Sort(kinds)
		if len(column) == len(devices) && len(slices.Compact(kinds)) == 1 {
			columns = append(columns, column)
		}
	}
	for _, a := range columns {
		for _, b := range columns {
			rows := map[[2]string]bool{}
			for i := range devices {
				rows[[2]string{a[i], b[i]}] = true
			}
			if len(rows) == len(devices) {
				return true
			}
		}
	}
	return false
}
