package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// causes returns what an answer says is wrong: "field: message".
func causes(t testing.TB, w *webhooks, op admissionv1.Operation, dp, old *v1alpha1.DevicePolicy) []string {
	t.Helper()
	response := w.ask(DevicePolicyPath, op, "operator", dp, old)
	if response.Allowed {
		return nil
	}
	if response.Result.Reason != metav1.StatusReasonInvalid || response.Result.Details == nil {
		t.Fatalf("it was refused otherwise than as invalid: %v", response.Result)
	}
	var list []string
	for _, c := range response.Result.Details.Causes {
		list = append(list, c.Field+": "+c.Message)
	}
	return list
}

// tooCostly is a selector that the API server does not take for its cost.
const tooCostly = `device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, device.attributes.all(g, d == e && f == g))))`

func TestDevicePoliciesThatCannotWorkAreRefused(t *testing.T) {
	const example = `write CEL over device.driver, device.attributes and device.capacity that yields true or false, such as device.driver == "gpu.nvidia.com"`
	selector := func(expression string) func(*v1alpha1.DevicePolicy) {
		return func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[1].Selectors = selectors(expression) }
	}
	cases := map[string]struct {
		change func(*v1alpha1.DevicePolicy)
		want   []string // the beginning of each
	}{
		"nothing is wrong": {change: func(*v1alpha1.DevicePolicy) {}},
		"nothing is wrong with constraints, drivers and a canary": {change: func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.Constraints = selectors(`device.attributes["gpu.example.com"].driverVersion.compareTo(semver("550.0.0")) >= 0`, "!device.allowMultipleAllocations")
			dp.Spec.Drivers = []v1alpha1.PolicyDriver{{Name: "gpu.example.com", PodNamespace: "gpu-driver", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "dra"}}}}
			dp.Spec.Canary = &v1alpha1.PolicyCanary{PolicyName: "gpu-next", Percent: 10}
		}},
		"a selector without cel": {
			change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[1].Selectors = make([]resourcev1.DeviceSelector, 1) },
			want:   []string{"spec.flavors[1].selectors[0].cel: Required value: " + example},
		},
		"an empty expression": {change: selector(" \n"), want: []string{"spec.flavors[1].selectors[0].cel.expression: Required value: " + example}},
		"an expression that does not compile": {
			change: selector("device.drivr =="), want: []string{`spec.flavors[1].selectors[0].cel.expression: Invalid value: "device.drivr ==": compilation failed: ERROR: <input>:1:16: Syntax error`},
		},
		"a field that devices do not have": {
			change: selector(`device.pool == "a"`), want: []string{`spec.flavors[1].selectors[0].cel.expression: Invalid value: "device.pool == \"a\"": compilation failed: ERROR: <input>:1:7: undefined field 'pool'`},
		},
		"an expression that yields no truth": {
			change: selector(`"yes"`), want: []string{`spec.flavors[1].selectors[0].cel.expression: Invalid value: "\"yes\"": must evaluate to bool or the unknown type, not string: ` + example},
		},
		"an expression that may cost too much": {
			change: selector(tooCostly), want: []string{"spec.flavors[1].selectors[0].cel.expression: Forbidden: may cost "},
		},
		"an expression that is too long": {
			change: selector(`"` + strings.Repeat("x", 10<<10) + `" != ""`),
			want:   []string{"spec.flavors[1].selectors[0].cel.expression: Too long: may not be more than 10240 bytes: split it over several selectors, which must all be true"},
		},
		"a long expression is not repeated in full": {
			change: selector(strings.Repeat("x", 9<<10)), want: []string{`spec.flavors[1].selectors[0].cel.expression: Invalid value: "` + strings.Repeat("x", 128) + `…": compilation failed`},
		},
		"a selector twice in a flavor": {
			change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[1].Selectors = selectors("true", "!false", "true") },
			want:   []string{`spec.flavors[1].selectors[2].cel.expression: Duplicate value: "true"`},
		},
		"a constraint twice": {
			change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.Constraints = selectors("true", "true") },
			want:   []string{`spec.constraints[1].cel.expression: Duplicate value: "true"`},
		},
		"two flavors of the same selectors in another order": {
			change: func(dp *v1alpha1.DevicePolicy) {
				dp.Spec.Flavors[0].Selectors = selectors("true", "!false")
				dp.Spec.Flavors[1].Selectors = selectors("!false", " true")
			},
			want: []string{`spec.flavors[1].selectors: Invalid value: "a100": flavor h100 has the same selectors, and a device belongs to the first flavor that it matches: write selectors that tell a100 from it, or take one of the two out`},
		},
		"a policy that is its own canary": {
			change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.Canary = &v1alpha1.PolicyCanary{PolicyName: "gpu"} },
			want:   []string{`spec.canary.policyName: Invalid value: "gpu": a policy cannot be its own canary: name the policy that is to be tried out, or take canary out`},
		},
		"a canary that no policy can be called": {
			change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.Canary = &v1alpha1.PolicyCanary{PolicyName: "GPU"} },
			want:   []string{`spec.canary.policyName: Invalid value: "GPU": a lowercase RFC 1123 label must consist of`},
		},
		"a driver's pods that cannot be found": {
			change: func(dp *v1alpha1.DevicePolicy) {
				dp.Spec.Drivers = []v1alpha1.PolicyDriver{{Name: "GPU", PodNamespace: "a.b", PodSelector: metav1.LabelSelector{
					MatchLabels:      map[string]string{"app": "a b"},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}},
				}}}
			},
			want: []string{
				`spec.drivers[0].name: Invalid value: "GPU": a lowercase RFC 1123 subdomain must consist of`,
				`spec.drivers[0].podNamespace: Invalid value: "a.b": must not contain dots: write the namespace that the driver's pods run in`,
				`spec.drivers[0].podSelector.matchLabels: Invalid value: "a b": a valid label must be`,
				`spec.drivers[0].podSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`,
			},
		},
		"a name that no admission check can refer to": {
			change: func(dp *v1alpha1.DevicePolicy) { dp.Name = "gpu.example.com" },
			want:   []string{`metadata.name: Invalid value: "gpu.example.com": must not contain dots: an AdmissionCheck could not name this policy in spec.parameters`},
		},
		"everything at once": {
			change: func(dp *v1alpha1.DevicePolicy) {
				dp.Spec.Flavors[0].Selectors = selectors("(", "true", "true")
				dp.Spec.Flavors[1].Selectors = selectors("")
				dp.Spec.Constraints = selectors("[")
				dp.Spec.Canary = &v1alpha1.PolicyCanary{PolicyName: "gpu"}
			},
			want: []string{
				`spec.flavors[0].selectors[0].cel.expression: Invalid value: "("`, `spec.flavors[0].selectors[2].cel.expression: Duplicate value`,
				`spec.flavors[1].selectors[0].cel.expression: Required value`, `spec.constraints[0].cel.expression: Invalid value: "["`,
				`spec.canary.policyName: Invalid value`,
			},
		},
		"more than is looked at": {
			change: func(dp *v1alpha1.DevicePolicy) {
				dp.Spec.Constraints = make([]resourcev1.DeviceSelector, 9)
				dp.Spec.Drivers = make([]v1alpha1.PolicyDriver, 17)
				dp.Spec.Flavors = make([]v1alpha1.PolicyFlavor, 17)
				dp.Spec.Flavors[3].Selectors = make([]resourcev1.DeviceSelector, 9)
			},
			want: []string{
				"spec.flavors: Too many: 17: must have at most 16 items", "spec.constraints: Too many: 9: must have at most 8 items",
				"spec.drivers: Too many: 17: must have at most 16 items", "spec.flavors[3].selectors: Too many: 9: must have at most 8 items",
			},
		},
	}
	w := serve(t, Options{})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := causes(t, w, admissionv1.Create, devicePolicy(c.change), nil)
			if len(got) != len(c.want) {
				t.Fatalf("%d faults, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("fault %d (-want +got):\n%s", i, cmp.Diff(c.want[i], got[i]))
				}
				if len(got[i]) > 2<<10 {
					t.Errorf("fault %d is told in %d bytes", i, len(got[i]))
				}
			}
		})
	}
}

func TestUpdatesOfDevicePolicies(t *testing.T) {
	stored := func(expression string) *v1alpha1.DevicePolicy {
		return devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Constraints = selectors("true", expression) })
	}
	deleted := stored("(")
	deleted.DeletionTimestamp, deleted.Finalizers = ptr.To(metav1.Unix(1, 0)), []string{"example.com/f"}
	named := stored("true == true")
	named.Name = "gpu.example.com"
	moved := devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[0].Selectors = selectors(tooCostly) })
	cases := map[string]struct {
		old, now *v1alpha1.DevicePolicy
		faults   int
	}{
		"a costly expression that was stored before is taken":           {old: stored(tooCostly), now: stored(tooCostly)},
		"a costly expression that was stored elsewhere is taken":        {old: stored(tooCostly), now: moved},
		"a costly expression that is new is refused":                    {old: stored("!false"), now: stored(tooCostly), faults: 1},
		"a costly expression that was changed a little is refused":      {old: stored(tooCostly), now: stored(tooCostly + " || false"), faults: 1},
		"an expression that does not compile any more is refused":       {old: stored("("), now: stored("("), faults: 1},
		"a policy that is being deleted is refused for nothing":         {old: deleted, now: deleted},
		"a name that cannot be changed any more is refused for nothing": {old: named, now: named},
	}
	w := serve(t, Options{})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := causes(t, w, admissionv1.Update, c.now, c.old); len(got) != c.faults {
				t.Errorf("%d faults, want %d:\n%s", len(got), c.faults, strings.Join(got, "\n"))
			}
		})
	}
	t.Run("a deletion is refused for nothing", func(t *testing.T) {
		if got := causes(t, w, admissionv1.Delete, nil, stored("(")); len(got) != 0 {
			t.Errorf("faults: %v", got)
		}
	})
}

func TestStoredExpressionsMayUseWhatTheAPIServerTakesFromStorage(t *testing.T) {
	onlyStored := &policyValidator{selectors: &selectorChecker{compile: func(expression string, stored bool) (uint64, error) {
		if expression == "old()" && !stored {
			return 0, errors.New("undeclared reference to old")
		}
		return 1, nil
	}}}
	dp := devicePolicy(func(dp *v1alpha1.DevicePolicy) { dp.Spec.Constraints = selectors("old()") })
	if _, err := onlyStored.ValidateCreate(context.Background(), dp); err == nil {
		t.Error("a new expression was taken for a stored one")
	}
	if _, err := onlyStored.ValidateUpdate(context.Background(), dp, dp); err != nil {
		t.Errorf("a stored expression was taken for a new one: %v", err)
	}
}

func TestAPolicyMayBeAsLargeAsTheBounds(t *testing.T) {
	dp := devicePolicy(func(dp *v1alpha1.DevicePolicy) {
		dp.Spec.Flavors = make([]v1alpha1.PolicyFlavor, maxFlavors)
		for i := range dp.Spec.Flavors {
			dp.Spec.Flavors[i].Name = fmt.Sprint("f", i)
			for j := range maxSelectors {
				dp.Spec.Flavors[i].Selectors = append(dp.Spec.Flavors[i].Selectors,
					selectors(fmt.Sprintf(`device.attributes["gpu.example.com"].model.contains("%d-%d")`, i, j))...)
			}
		}
	})
	if got := causes(t, serve(t, Options{}), admissionv1.Create, dp, nil); len(got) != 0 {
		t.Errorf("faults: %v", got)
	}
}
