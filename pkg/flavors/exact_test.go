package flavors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const gpuDriver = "gpu.example.com"

type attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute

func text(s string) resourcev1.DeviceAttribute  { return resourcev1.DeviceAttribute{StringValue: &s} }
func number(n int64) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{IntValue: &n} }

// node lists devices of one driver and pool, as a snapshot shows them.
func node(driver string, devices ...attributes) []ledger.Device {
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: ptr.To("node-a"), Pool: resourcev1.ResourcePool{Name: "node-a", ResourceSliceCount: 1},
	}}
	for i, a := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("dev-%02d", i), Attributes: a})
	}
	var out []ledger.Device
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		out = append(out, ledger.Device{ID: ledger.DeviceID{Driver: driver, Pool: "node-a", Device: d.Name}, Spec: d, Slice: slice})
	}
	return out
}

// pick returns pointers to devices by index.
func pick(devices []ledger.Device, indices ...int) []*ledger.Device {
	var out []*ledger.Device
	for _, i := range indices {
		out = append(out, &devices[i])
	}
	return out
}

// claim asks for n devices, with the user's selectors.
func claim(n int64, expressions ...string) flavors.ClaimShape {
	c := flavors.ClaimShape{Name: "gpus", Template: "eight", Requests: []flavors.RequestShape{
		{Name: "gpu", Alternatives: []flavors.Alternative{{Class: gpuDriver, Count: n, Selectors: expressions}}}}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: gpuDriver, Count: n, Selectors: selectors(expressions...),
		Tolerations: []resourcev1.DeviceToleration{{Key: "example.com/worn", Operator: resourcev1.DeviceTolerationOpExists}},
	}}}
	c.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{Requests: []string{"gpu"}}}
	return c
}

// exact cuts a claim of one request.
func exact(p *flavors.Policy, m *flavors.Matcher, c flavors.ClaimShape, flavor int, devices []*ledger.Device, onNode []ledger.Device) (resourcev1.ResourceClaimSpec, *flavors.Refusal) {
	return p.Exact(m, c, flavor, []flavors.Pick{{Devices: devices}}, onNode)
}

// accepting resolves a policy of flavors that accept the given expressions, in order.
func accepting(t testing.TB, change func(*v1alpha1.DevicePolicy), expressions ...[]string) *flavors.Policy {
	t.Helper()
	dp := devicePolicy()
	var rfs []*v1beta2.ResourceFlavor
	for i, e := range expressions {
		name := fmt.Sprintf("f%d", i)
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{Name: name, Selectors: selectors(e...)})
		rfs = append(rfs, flavor(name, "accelerator", name))
	}
	if change != nil {
		change(dp)
	}
	p, problems := flavors.Resolve(dp, lookup(rfs))
	if len(problems) > 0 {
		t.Fatalf("the fixture has problems: %v", problems)
	}
	return p
}

// failer is what a *testing.T and a *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// selected returns the names of the devices that a request's selectors are all true on. Each selector is compiled as
// the API server does for a new object, and must be within its limits.
func selected(t failer, spec resourcev1.ResourceClaimSpec, devices []ledger.Device) []string {
	t.Helper()
	newExpression := environment.NewExpressions
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	list := spec.Devices.Requests[0].Exactly.Selectors
	if len(list) > resourcev1.DeviceSelectorsMaxSize {
		t.Fatalf("%d selectors, the API server takes %d", len(list), resourcev1.DeviceSelectorsMaxSize)
	}
	var programs []cel.CompilationResult
	for _, s := range list {
		program := compiler.CompileCELExpression(s.CEL.Expression, cel.Options{EnvType: &newExpression})
		if program.Error != nil {
			t.Fatalf("selector does not compile: %v\n%s", program.Error, s.CEL.Expression)
		}
		if program.MaxCost > resourcev1.CELSelectorExpressionMaxCost || len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength {
			t.Fatalf("selector of %d bytes and cost %d is over the API server's limits:\n%s", len(s.CEL.Expression), program.MaxCost, s.CEL.Expression)
		}
		programs = append(programs, program)
	}
	names := []string{}
	for _, d := range devices {
		matches := true
		for i, program := range programs {
			ok, _, err := program.DeviceMatches(context.Background(), cel.Device{
				Driver: d.ID.Driver, AllowMultipleAllocations: d.Spec.AllowMultipleAllocations, Attributes: d.Spec.Attributes, Capacity: d.Spec.Capacity,
			})
			if err != nil {
				t.Fatalf("selector %d fails on device %s, which makes the scheduler give the pod up: %v\n%s", i, d.ID, err, list[i].CEL.Expression)
			}
			if !ok {
				matches = false
				break // as the allocator does
			}
		}
		if matches {
			names = append(names, d.ID.String())
		}
	}
	return names
}

func ids(devices []*ledger.Device) []string {
	names := []string{}
	for _, d := range devices {
		names = append(names, d.ID.String())
	}
	slices.Sort(names)
	return names
}

func TestExactSelectsThePromisedDevicesAndNoOther(t *testing.T) {
	uuids := func(values ...string) []ledger.Device {
		var list []attributes
		for i, v := range values {
			list = append(list, attributes{"uuid": text(v), "index": number(int64(i)), "type": text("gpu")})
		}
		return node(gpuDriver, list...)
	}
	grid := func() []ledger.Device {
		var list []attributes
		for i := range 8 {
			list = append(list, attributes{"type": text("gpu"), "board": number(int64(i / 2)), "die": text(fmt.Sprint(i % 2))})
		}
		return node(gpuDriver, list...)
	}
	foreign := node("fpga.example.com", attributes{"uuid": text("a"), "gpu.example.com/uuid": text("a")}, attributes{"uuid": text("b")})
	cases := map[string]struct {
		devices []ledger.Device
		promise []int
	}{
		"one device by its uuid":                             {devices: uuids("a", "b", "c"), promise: []int{1}},
		"two devices by their uuids":                         {devices: uuids("a", "b", "c"), promise: []int{2, 0}},
		"all devices":                                        {devices: uuids("a", "b", "c"), promise: []int{0, 1, 2}},
		"the only device of a node":                          {devices: uuids("a"), promise: []int{0}},
		"another driver's device of the same uuid stays out": {devices: append(uuids("a", "b"), foreign...), promise: []int{0}},
		"devices without uuid go by bus address": {
			devices: node(gpuDriver, attributes{"resource.kubernetes.io/pciBusID": text("0000:01:00.0")}, attributes{"resource.kubernetes.io/pciBusID": text("0000:02:00.0")}),
			promise: []int{1},
		},
		"devices that only a number tells apart": {
			devices: node(gpuDriver, attributes{"minor": number(-1)}, attributes{"minor": number(0)}, attributes{"minor": number(7)}), promise: []int{0, 2},
		},
		"the smallest and the largest number": {
			devices: node(gpuDriver, attributes{"n": number(-1 << 63)}, attributes{"n": number(1<<63 - 1)}, attributes{"n": number(0)}), promise: []int{0, 1},
		},
		"devices that only two attributes together tell apart": {devices: grid(), promise: []int{0, 3, 6}},
		"a uuid that some devices lack does not count": {
			devices: node(gpuDriver, attributes{"uuid": text("a"), "minor": number(0)}, attributes{"minor": number(1)}), promise: []int{1},
		},
		"a uuid that two devices share does not count": {
			devices: node(gpuDriver, attributes{"uuid": text("a"), "minor": number(0)}, attributes{"uuid": text("a"), "minor": number(1)}), promise: []int{1},
		},
		"an attribute that is a number here and a text there does not count": {
			devices: node(gpuDriver, attributes{"a": number(1), "b": text("x")}, attributes{"a": text("1"), "b": text("y")}, attributes{"a": number(2), "b": text("z")}), promise: []int{0, 1},
		},
		"quotes, backslashes, line ends and the like in a value": {
			devices: uuids(`"`, `\`, `\"`, "\n", "\r\n\t", `" || true || "`, `\x41`, "A", "${x}", "\x00", "\a\b\f\v", "", `'`, "`", "//", "\u007f"),
			promise: []int{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15},
		},
		"unicode in a value": {
			devices: uuids("ü", "u\u0308", "u", "日本", "\U0001F600", "\u2028", "\ufeff", "\ufffd", "\u00ff", "e\u0301"),
			promise: []int{0, 3, 4, 5, 6, 7, 8},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := accepting(t, nil, []string{`device.driver == "` + gpuDriver + `"`})
			promised := pick(c.devices, c.promise...)
			spec, refusal := exact(p, flavors.NewMatcher(), claim(int64(len(promised))), 0, promised, c.devices)
			if refusal != nil {
				t.Fatalf("refused: %v", refusal)
			}
			if diff := cmp.Diff(ids(promised), selected(t, spec, c.devices)); diff != "" {
				t.Errorf("devices (-promised +selected):\n%s\n%s", diff, spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression)
			}
		})
	}
}

func TestExactDoesNotDependOnTheOrderOfDevices(t *testing.T) {
	p := accepting(t, nil, []string{"true"})
	devices := node(gpuDriver, attributes{"uuid": text("a")}, attributes{"uuid": text("b")}, attributes{"uuid": text("c")})
	reversed := slices.Clone(devices)
	slices.Reverse(reversed)
	a, _ := exact(p, flavors.NewMatcher(), claim(2), 0, pick(devices, 0, 2), devices)
	b, _ := exact(p, flavors.NewMatcher(), claim(2), 0, pick(reversed, 0, 2), reversed)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("specs differ (-one order +other):\n%s", diff)
	}
}

func TestExactKeepsTheRestOfTheClaim(t *testing.T) {
	p := accepting(t, nil, []string{"true"})
	devices := node(gpuDriver, attributes{"uuid": text("a")}, attributes{"uuid": text("b")})
	c := claim(1, `device.attributes["gpu.example.com"].uuid != ""`)
	before := *c.Spec.DeepCopy()
	spec, refusal := exact(p, flavors.NewMatcher(), c, 0, pick(devices, 0), devices)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if diff := cmp.Diff(before, c.Spec); diff != "" {
		t.Errorf("the user's claim changed:\n%s", diff)
	}
	want := before.DeepCopy()
	e := want.Devices.Requests[0].Exactly
	e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeExactCount, 1
	e.Selectors = selectors(`(device.driver == "gpu.example.com" && "uuid" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"]["uuid"] in ["a"])`,
		"true", `device.attributes["gpu.example.com"].uuid != ""`)
	if diff := cmp.Diff(*want, spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestExactHoldsTheFlavorAndThePolicy(t *testing.T) {
	model := func(m string) string { return `device.attributes["gpu.example.com"].model == "` + m + `"` }
	anyGPU := `device.driver == "gpu.example.com"`
	as := func(m, health string) []ledger.Device {
		return node(gpuDriver, attributes{"uuid": text("a"), "model": text(m), "health": text(health)})
	}
	constrained := func(dp *v1alpha1.DevicePolicy) {
		dp.Spec.Constraints = selectors(`device.attributes["gpu.example.com"].health == "ok"`)
	}
	cases := map[string]struct {
		flavors [][]string
		flavor  int
		now     []ledger.Device // the promised device as it is later
		want    bool
	}{
		"the device is as it was":                           {flavors: [][]string{{model("h100")}, {anyGPU}}, flavor: 1, now: as("a100", "ok"), want: true},
		"the device left its flavor":                        {flavors: [][]string{{model("h100")}, {model("a100")}}, flavor: 1, now: as("t4", "ok")},
		"the device became one of an earlier flavor":        {flavors: [][]string{{model("h100")}, {anyGPU}}, flavor: 1, now: as("h100", "ok")},
		"the device fails a constraint by now":              {flavors: [][]string{{model("h100")}, {anyGPU}}, flavor: 1, now: as("a100", "worn")},
		"all selectors of an earlier flavor must be met":    {flavors: [][]string{{model("h100"), `device.attributes["gpu.example.com"].health == "worn"`}, {anyGPU}}, flavor: 1, now: as("h100", "ok"), want: true},
		"an earlier flavor's selector may end in a comment": {flavors: [][]string{{model("h100") + " // the best"}, {anyGPU}}, flavor: 1, now: as("h100", "ok")},
		"an earlier flavor whose selector fails on the device is passed over": {
			flavors: [][]string{{`device.attributes["gpu.example.com"].absent == "x"`}, {anyGPU}}, flavor: 1, now: as("a100", "ok"), want: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := accepting(t, constrained, c.flavors...)
			then := as("a100", "ok")
			spec, refusal := exact(p, flavors.NewMatcher(), claim(1), c.flavor, pick(then, 0), then)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if got := selected(t, spec, then); len(got) != 1 {
				t.Errorf("as it was, the device is not selected")
			}
			if got := len(selected(t, spec, c.now)) == 1; got != c.want {
				t.Errorf("as it is later, selected is %v, want %v", got, c.want)
			}
		})
	}
}

func TestExactRefusesWhatTheAPIServerWould(t *testing.T) {
	many := func(prefix string, n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`"%s-%d" != ""`, prefix, i))
		}
		return out
	}
	uuid := node(gpuDriver, attributes{"uuid": text("a")}, attributes{"uuid": text("b")})
	same := node(gpuDriver, attributes{"type": text("gpu")}, attributes{"type": text("gpu")})
	stranger := node(gpuDriver, attributes{})
	cases := map[string]struct {
		flavor  []string
		user    []string
		promise []*ledger.Device
		onNode  []ledger.Device
		asked   int64
		want    string
	}{
		"33 selectors": {
			flavor: many("flavor", 8), user: many("user", 24), promise: pick(uuid, 0), onNode: uuid,
			want: `claim "gpus": 33 selectors of 621 bytes together are too many to cut it to the promised devices (at most 32 and 10240)`,
		},
		"more than 10 KiB of CEL": {
			flavor: []string{"true"}, user: []string{`"` + strings.Repeat("x", 10<<10) + `" != ""`}, promise: pick(uuid, 0), onNode: uuid,
			want: `claim "gpus": 3 selectors of 10395 bytes together are too many to cut it to the promised devices (at most 32 and 10240)`,
		},
		"devices that nothing tells apart": {
			flavor: []string{"true"}, promise: pick(same, 0), onNode: same,
			want: "no attribute tells the devices of node node-a apart, so a claim cannot be cut to those promised",
		},
		"a device that is not on the node": {
			flavor: []string{"true"}, promise: pick(stranger, 0), onNode: uuid,
			want: "no attribute tells the devices of node node-a apart, so a claim cannot be cut to those promised",
		},
		"fewer devices than the claim asks for": {
			flavor: []string{"true"}, promise: pick(uuid, 0), onNode: uuid, asked: 2,
			want: `claim "gpus" asks for 2 devices, 1 are promised`,
		},
		"no devices": {
			flavor: []string{"true"}, onNode: uuid, asked: 1,
			want: `claim "gpus" asks for 1 devices, 0 are promised`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := accepting(t, nil, c.flavor)
			asked := c.asked
			if asked == 0 {
				asked = int64(len(c.promise))
			}
			_, refusal := exact(p, flavors.NewMatcher(), claim(asked, c.user...), 0, c.promise, c.onNode)
			if refusal == nil {
				t.Fatal("it was not refused")
			}
			if diff := cmp.Diff(&flavors.Refusal{Reason: v1alpha1.ReasonClaimUnsupported, Message: c.want}, refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("32 selectors are taken", func(t *testing.T) {
		p := accepting(t, nil, many("flavor", 8))
		spec, refusal := exact(p, flavors.NewMatcher(), claim(1, many("user", 23)...), 0, pick(uuid, 1), uuid)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if got := selected(t, spec, uuid); len(got) != 1 {
			t.Errorf("selected %v", got)
		}
	})
	t.Run("32 devices with the longest values are taken", func(t *testing.T) {
		p := accepting(t, nil, []string{"true"})
		var list []attributes
		var all []int
		for i := range resourcev1.AllocationResultsMaxSize {
			list = append(list, attributes{"uuid": text(strings.Repeat("\x00", resourcev1.DeviceAttributeMaxValueLength-2) + fmt.Sprintf("%02d", i))})
			all = append(all, i)
		}
		devices := node(gpuDriver, append(list, attributes{"uuid": text("b")})...)
		spec, refusal := exact(p, flavors.NewMatcher(), claim(int64(len(all))), 0, pick(devices, all...), devices)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if diff := cmp.Diff(ids(pick(devices, all...)), selected(t, spec, devices)); diff != "" {
			t.Errorf("devices (-promised +selected):\n%s", diff)
		}
	})
}

func TestExactLeavesOutANegationThatCostsTooMuch(t *testing.T) {
	costly := func(n int) string {
		return fmt.Sprintf(`device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, d.size() + e.size() + f.size() >= %d)))`, n)
	}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	one := compiler.CompileCELExpression(costly(0), cel.Options{}).MaxCost
	if one > resourcev1.CELSelectorExpressionMaxCost || 8*one < resourcev1.CELSelectorExpressionMaxCost {
		t.Fatalf("a costly selector costs %d: the fixture needs one within the limit, of which eight are not", one)
	}
	var earlier []string
	for i := range 7 {
		earlier = append(earlier, costly(i))
	}
	earlier = append(earlier, costly(1000))
	p := accepting(t, nil, earlier, []string{"true"})
	devices := node(gpuDriver, attributes{"uuid": text("a")}, attributes{"uuid": text("b")})
	spec, refusal := exact(p, flavors.NewMatcher(), claim(1), 1, pick(devices, 0), devices)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if diff := cmp.Diff(ids(pick(devices, 0)), selected(t, spec, devices)); diff != "" {
		t.Errorf("devices (-promised +selected):\n%s", diff)
	}
}

func TestDistinctSaysWhetherClaimsCanBeCut(t *testing.T) {
	cases := map[string]struct {
		devices []ledger.Device
		want    bool
	}{
		"devices with uuids":              {devices: node(gpuDriver, attributes{"uuid": text("a")}, attributes{"uuid": text("b")}), want: true},
		"devices that are all alike":      {devices: node(gpuDriver, attributes{"type": text("gpu")}, attributes{"type": text("gpu")})},
		"devices without attributes":      {devices: node(gpuDriver, nil, nil)},
		"only another driver's devices":   {devices: node("fpga.example.com", attributes{"uuid": text("a")})},
		"no devices":                      {},
		"values that are not valid UTF-8": {devices: node(gpuDriver, attributes{"uuid": text("\xff")}, attributes{"uuid": text("\xfe")})},
		"versions and booleans do not count": {devices: node(gpuDriver,
			attributes{"v": {VersionValue: ptr.To("1.0.0")}, "b": {BoolValue: ptr.To(true)}},
			attributes{"v": {VersionValue: ptr.To("2.0.0")}, "b": {BoolValue: ptr.To(false)}})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := flavors.Distinct(gpuDriver, c.devices); got != c.want {
				t.Errorf("Distinct is %v, want %v", got, c.want)
			}
		})
	}
}
