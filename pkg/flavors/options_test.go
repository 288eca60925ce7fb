package flavors_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// asking is a shape of one claim with one request.
func asking(alternatives ...flavors.Alternative) flavors.Shape {
	return flavors.Shape{Claims: []flavors.ClaimShape{{Name: "gpus", Requests: []flavors.RequestShape{{Name: "gpu", Alternatives: alternatives}}}}}
}

// two adds a second claim with a request of two alternatives.
func two(first flavors.Shape) flavors.Shape {
	first.Claims = append(first.Claims, flavors.ClaimShape{Name: "nics", Requests: []flavors.RequestShape{
		{Name: "nic", Alternatives: []flavors.Alternative{{Sub: "fast", Count: 1}, {Sub: "slow", Count: 4}}},
	}})
	return first
}

func TestVariantsComeInTheUsersOrder(t *testing.T) {
	cases := map[string]struct {
		shape flavors.Shape
		want  []string
	}{
		"a pod without claims has one, which is empty": {want: []string{""}},
		"one request of exactly":                       {shape: asking(flavors.Alternative{Count: 8}), want: []string{""}},
		"one request of alternatives":                  {shape: asking(flavors.Alternative{Sub: "h100", Count: 1}, flavors.Alternative{Sub: "a100", Count: 2}), want: []string{"gpu/h100", "gpu/a100"}},
		"the first request's order counts most": {
			shape: two(asking(flavors.Alternative{Sub: "h100", Count: 1}, flavors.Alternative{Sub: "a100", Count: 2})),
			want:  []string{"gpu/h100,nic/fast", "gpu/h100,nic/slow", "gpu/a100,nic/fast", "gpu/a100,nic/slow"},
		},
		"what is exact is not named": {shape: two(asking(flavors.Alternative{Count: 8})), want: []string{"nic/fast", "nic/slow"}},
		"a choice of more devices than a claim holds is left out": {
			shape: flavors.Shape{Claims: []flavors.ClaimShape{{Requests: []flavors.RequestShape{
				{Name: "a", Alternatives: []flavors.Alternative{{Sub: "many", Count: 30}, {Sub: "few", Count: 2}}},
				{Name: "b", Alternatives: []flavors.Alternative{{Count: 3}}},
			}}}},
			want: []string{"a/few"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range c.shape.Variants() {
				got = append(got, c.shape.AlternativeOf(v))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("variants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOptionsTakeTheUsersOrderFirstAndThePolicysWithinIt(t *testing.T) {
	p := resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[0].ChargePerDevice = 3 })
	s := asking(flavors.Alternative{Sub: "one", Count: 1}, flavors.Alternative{Sub: "two", Count: 2})
	want := []flavors.Option{
		{Variant: flavors.Variant{0}, Flavor: 0, Charge: 3}, {Variant: flavors.Variant{0}, Flavor: 1, Charge: 1}, {Variant: flavors.Variant{0}, Flavor: 2, Charge: 1},
		{Variant: flavors.Variant{1}, Flavor: 0, Charge: 6}, {Variant: flavors.Variant{1}, Flavor: 1, Charge: 2}, {Variant: flavors.Variant{1}, Flavor: 2, Charge: 2},
	}
	if diff := cmp.Diff(want, p.Options(s)); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestChargeCountsEveryClaimAndNoPlainResource(t *testing.T) {
	p := resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.QuotaResource = "nvidia.com/gpu" })
	s := two(asking(flavors.Alternative{Count: 8}))
	s.Plain = map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
	for variant, want := range map[int]int64{0: 9, 1: 12} {
		if got := p.Charge(s, s.Variants()[variant], 0); got != want {
			t.Errorf("variant %d costs %d, want %d", variant, got, want)
		}
	}
	if got := p.Charge(flavors.Shape{Plain: s.Plain}, flavors.Variant{}, 0); got != 0 {
		t.Errorf("a plain resource costs %d: Kueue counts it by itself", got)
	}
}

func TestAsksDevicesByClaimOrByTheQuotaResourcesName(t *testing.T) {
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("1")}
	with := func(r corev1.ResourceRequirements) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: r}}}
	}
	plain := resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.QuotaResource = "nvidia.com/gpu" })
	cases := map[string]struct {
		policy *flavors.Policy
		spec   corev1.PodSpec
		want   bool
	}{
		"a claim":                              {policy: plain, spec: podSet("main").Template.Spec, want: true},
		"a claim, without a policy":            {spec: podSet("main").Template.Spec, want: true},
		"the quota resource":                   {policy: plain, spec: with(corev1.ResourceRequirements{Requests: gpu}), want: true},
		"the quota resource as a limit alone":  {policy: plain, spec: with(corev1.ResourceRequirements{Limits: gpu}), want: true},
		"the quota resource, without a policy": {spec: with(corev1.ResourceRequirements{Requests: gpu})},
		"another policy's resource":            {policy: resolved(t, oneKey), spec: with(corev1.ResourceRequirements{Requests: gpu})},
		"a charge under the name of the quota resource is not asked for": {policy: plain, spec: corev1.PodSpec{Overhead: gpu}},
		"nothing": {policy: plain, spec: with(corev1.ResourceRequirements{})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.AsksDevices(&c.spec); got != c.want {
				t.Errorf("asks for devices: %v, want %v", got, c.want)
			}
		})
	}
}

func TestShapeOfReadsPlainExtendedResources(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{
		{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"nvidia.com/gpu": resource.MustParse("4"), "cpu": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("1Gi"),
			"deviceclass.resource.kubernetes.io/gpu": resource.MustParse("2"), "attachable-volumes.kubernetes.io/x": resource.MustParse("2"),
		}}},
		{Name: "b", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}}},
	}}
	got, refusal := shapeOf(&spec)
	if refusal != nil {
		t.Fatal(refusal)
	}
	want := flavors.Shape{Plain: map[corev1.ResourceName]int64{"nvidia.com/gpu": 8, "deviceclass.resource.kubernetes.io/gpu": 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shape (-want +got):\n%s", diff)
	}
}

// TestSpecOfKeepsTheChosenSubrequestAlone: what refers to a request, or to the chosen subrequest, stays valid; what
// refers to subrequests that are gone goes with them, and never becomes about every request.
func TestSpecOfKeepsTheChosenSubrequestAlone(t *testing.T) {
	spec := podSet("main").Template.Spec
	numa, root := resourcev1.FullyQualifiedName("resource.kubernetes.io/numaNode"), resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot")
	tpl := template()
	alternatives("gpu", resourcev1.DeviceSubRequest{Name: "h100", DeviceClassName: "h", Count: 1}, resourcev1.DeviceSubRequest{Name: "a100", DeviceClassName: "a", Count: 2})(tpl)
	nic := resourcev1.DeviceRequest{Name: "nic", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "nic", Count: 1, AllocationMode: resourcev1.DeviceAllocationModeExactCount}}
	tpl.Spec.Spec.Devices.Requests = append(tpl.Spec.Spec.Devices.Requests, nic)
	tpl.Spec.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{
		{MatchAttribute: &numa}, {Requests: []string{"gpu/h100", "nic"}, MatchAttribute: ptr.To(root)}, {Requests: []string{"gpu/h100"}, MatchAttribute: &numa},
	}
	tpl.Spec.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{Requests: []string{"gpu/h100"}}, {Requests: []string{"gpu/a100"}}, {}}
	shape, refusal := shapeOf(&spec, tpl)
	if refusal != nil {
		t.Fatal(refusal)
	}
	want := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{{
				Name: "a100", DeviceClassName: "a", Count: 2, AllocationMode: resourcev1.DeviceAllocationModeExactCount}}}, nic,
		},
		Constraints: []resourcev1.DeviceConstraint{{MatchAttribute: &numa}, {Requests: []string{"nic"}, MatchAttribute: &root}},
		Config:      []resourcev1.DeviceClaimConfiguration{{Requests: []string{"gpu/a100"}}, {}},
	}}
	before := tpl.DeepCopy()
	if diff := cmp.Diff(want, shape.SpecOf(shape.Variants()[1], 0)); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, tpl); diff != "" {
		t.Errorf("the user's template was changed:\n%s", diff)
	}
	if diff := cmp.Diff(tpl.Spec.Spec.Devices.Constraints, shape.SpecOf(shape.Variants()[0], 0).Devices.Constraints); diff != "" {
		t.Errorf("constraints of the first choice (-want +got):\n%s", diff)
	}
}

func TestUniformChargeIsKnownOnlyWhereEveryFlavorCostsTheSame(t *testing.T) {
	dearer := func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[0].ChargePerDevice = 7 }
	shape := asking(flavors.Alternative{Count: 3})
	unequal := asking(flavors.Alternative{Sub: "h100", Count: 1}, flavors.Alternative{Sub: "a100", Count: 2})
	type answer struct {
		Charge  int64
		Uniform bool
	}
	cases := map[string]struct {
		policy  *flavors.Policy
		shape   *flavors.Shape // nil: three devices
		flavors []int
		want    answer
	}{
		"all flavors cost the same":         {policy: resolved(t, oneKey), want: answer{3, true}},
		"one flavor costs more":             {policy: resolved(t, oneKey, dearer), want: answer{0, false}},
		"the dearer one alone":              {policy: resolved(t, oneKey, dearer), flavors: []int{0}, want: answer{21, true}},
		"the others without the dearer one": {policy: resolved(t, oneKey, dearer), flavors: []int{1, 2}, want: answer{3, true}},
		"alternatives of unequal counts":    {policy: resolved(t, oneKey), shape: &unequal, want: answer{0, false}},
		"a policy without flavors":          {policy: &flavors.Policy{}, want: answer{0, false}},
		"a charge of zero was never defaulted": {
			policy: resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[1].ChargePerDevice = 0 }), want: answer{3, true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.shape == nil {
				c.shape = &shape
			}
			charge, uniform := c.policy.UniformCharge(*c.shape, c.flavors...)
			if diff := cmp.Diff(c.want, answer{charge, uniform}); diff != "" {
				t.Errorf("charge (-want +got):\n%s", diff)
			}
		})
	}
}
