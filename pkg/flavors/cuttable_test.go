package flavors_test

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

func TestClaimsThatAreTooLargeToBeCutAreKnownBeforeAnyDeviceIsPromised(t *testing.T) {
	many := func(n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`"%d" != ""`, i))
		}
		return out
	}
	long := func(bytes int) string { return `"` + strings.Repeat("x", bytes-len(`"" != ""`)) + `" != ""` }
	cases := map[string]struct {
		claims []flavors.ClaimShape
		want   string
	}{
		"29 selectors of the user's, one of the flavor's, one constraint and the devices' names": {claims: []flavors.ClaimShape{claim(1, many(29)...)}},
		"30 selectors of the user's": {
			claims: []flavors.ClaimShape{claim(1, many(30)...)},
			want:   `spec.devices.requests["gpu"]: 33 selectors, or 532 bytes of them, with those of flavor f1 are too many (at most 32 and 10240)`,
		},
		"CEL that leaves room for the devices' names": {claims: []flavors.ClaimShape{claim(32, long(8<<10))}},
		"CEL that leaves none": {
			claims: []flavors.ClaimShape{claim(32, long(9<<10))}, want: `4 selectors, or 11008 bytes of them`,
		},
		"as much CEL in two claims": {claims: []flavors.ClaimShape{claim(16, long(6<<10)), claim(16, long(6<<10))}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := accepting(t, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Constraints = selectors(`"constraint" != ""`) },
				[]string{`device.driver == "first"`}, []string{`"flavor" != ""`})
			s := flavors.Shape{Claims: c.claims}
			got := p.Uncuttable(s, flavors.Option{Variant: s.Variants()[0], Flavor: 1})
			switch {
			case c.want == "" && got != nil:
				t.Errorf("it is refused: %s", got.Message)
			case c.want != "" && (got == nil || got.Reason != v1alpha1.ReasonClaimUnsupported || !strings.Contains(got.Message, c.want)):
				t.Errorf("got %+v, want %q", got, c.want)
			}
		})
	}
}

func TestWhereThereIsNoRoomEarlierFlavorsAreNotExcludedByName(t *testing.T) {
	uuid := node(gpuDriver, attributes{"uuid": text("a")}, attributes{"uuid": text("b")})
	for _, user := range []int{28, 29, 30} { // beside the devices' names and the flavor's own
		var expressions []string
		for i := range user {
			expressions = append(expressions, fmt.Sprintf(`"%d" != ""`, i))
		}
		p := accepting(t, nil, []string{`device.driver == "first"`}, []string{`device.driver == "second"`}, []string{"true"})
		spec, refusal := exact(p, flavors.NewMatcher(), claim(1, expressions...), 2, pick(uuid, 1), uuid)
		if refusal != nil {
			t.Fatalf("with %d selectors: %s", user, refusal.Message)
		}
		if got := len(spec.Devices.Requests[0].Exactly.Selectors); got != resourcev1.DeviceSelectorsMaxSize {
			t.Errorf("with %d selectors it has %d", user, got)
		}
		if got := selected(t, spec, uuid); len(got) != 1 {
			t.Errorf("with %d selectors it selects %v", user, got)
		}
	}
}
