package flavors

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Option is one way to serve a podset: a choice of alternatives on one flavor.
type Option struct {
	Variant Variant
	// Flavor is an index into the Policy's flavors.
	Flavor int
	// Charge is what one pod costs, as Policy.Charge says.
	Charge int64
}

// Charge returns what one pod of the shape costs on a flavor, in units of the policy's quotaResource, beside what Kueue
// counts by itself: a plain extended resource of that name costs nothing here.
func (p *Policy) Charge(s Shape, v Variant, flavor int) int64 {
	return s.Devices(v) * p.Flavors[flavor].ChargePerDevice
}

// Options returns the ways to serve a podset in order of preference: the user's order of alternatives, and within each
// the policy's order of flavors.
func (p *Policy) Options(s Shape) []Option {
	var out []Option
	for _, v := range s.Variants() {
		for f := range p.Flavors {
			out = append(out, Option{Variant: v, Flavor: f, Charge: p.Charge(s, v, f)})
		}
	}
	return out
}

// UniformCharge says whether a shape costs the same in every variant on each of the given flavors, and how much. Without
// flavors it looks at all.
func (p *Policy) UniformCharge(s Shape, flavors ...int) (int64, bool) {
	options := p.Options(s)
	if len(flavors) > 0 {
		options = slices.DeleteFunc(options, func(o Option) bool { return !slices.Contains(flavors, o.Flavor) })
	}
	if len(options) == 0 {
		return 0, false
	}
	for _, o := range options {
		if o.Charge != options[0].Charge {
			return 0, false
		}
	}
	return options[0].Charge, true
}

// PlainDevices returns how many devices one pod asks for as a plain extended resource of the policy's quotaResource.
func (p *Policy) PlainDevices(s Shape) int64 {
	return s.Plain[corev1.ResourceName(p.Spec.QuotaResource)]
}

// Asks says whether a shape asks for devices of the policy, by claim or as a plain extended resource.
func (p *Policy) Asks(s Shape) bool { return len(s.Claims) > 0 || p.PlainDevices(s) > 0 }

// AsksDevices says whether a pod spec asks for devices: by claim, or by the policy's quotaResource as a plain extended
// resource. p may be nil, then only claims count.
func (p *Policy) AsksDevices(spec *corev1.PodSpec) bool {
	return HasClaims(spec) || p != nil && plain(spec)[corev1.ResourceName(p.Spec.QuotaResource)] > 0
}
