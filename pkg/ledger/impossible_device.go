package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// impossibleDevice returns why a device cannot be lent whatever its pool lists besides, or "". s is the slice that lists it. Its
// draw on counters is counterTotals.impossible's to look at, its mappings have their own Problem.
func impossibleDevice(d *resourcev1.Device, s *resourcev1.ResourceSlice) string {
	if d.Name == "" || strings.Contains(d.Name, "/") {
		return fmt.Sprintf("%q cannot be the name of a device", d.Name)
	}
	switch n := selections(d.NodeName, d.AllNodes, d.NodeSelector); {
	case ptr.Deref(s.Spec.PerDeviceNodeSelection, false):
		if n != 1 {
			return "it does not select nodes in one way"
		}
	case n > 0:
		return "it selects nodes, which its slice does already"
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		a := d.Attributes[name]
		if why := impossibleAttribute(&a); why != "" {
			return fmt.Sprintf("its attribute %s %s", name, why)
		}
	}
	multiple := ptr.Deref(d.AllowMultipleAllocations, false)
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		if why := impossibleCapacity(&c, multiple); why != "" {
			return fmt.Sprintf("its capacity %s %s", name, why)
		}
	}
	return ""
}

// impossibleAttribute looks at what makes a selector fail that is evaluated on the device, whichever attribute it asks for:
// kube-scheduler then gives up on the claim.
func impossibleAttribute(a *resourcev1.DeviceAttribute) string {
	values := 0
	for _, set := range []bool{
		a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil,
		a.BoolValues != nil, a.IntValues != nil, a.StringValues != nil, a.VersionValues != nil,
	} {
		if set {
			values++
		}
	}
	switch {
	case values == 0:
		return "has no value"
	case values > 1:
		return "has several kinds of values"
	case a.VersionValue != nil && !readableVersion(*a.VersionValue):
		return fmt.Sprintf("is the version %q, which cannot be read", *a.VersionValue)
	}
	for _, v := range a.VersionValues {
		if !readableVersion(v) {
			return fmt.Sprintf("has the version %q, which cannot be read", v)
		}
	}
	return ""
}

// readableVersion says whether selectors can read a version by the rules of semver.org 2.0.0. Its numbers have to fit 64 bits,
// which the API server does not ask for.
func readableVersion(v string) bool {
	v, build, hasBuild := strings.Cut(v, "+")
	v, pre, hasPre := strings.Cut(v, "-")
	core := strings.Split(v, ".")
	if len(core) != 3 {
		return false
	}
	for _, n := range core {
		if !number(n) {
			return false
		}
	}
	if hasPre {
		for _, id := range strings.Split(pre, ".") {
			if !identifier(id) || digits(id) && !number(id) {
				return false
			}
		}
	}
	if hasBuild {
		for _, id := range strings.Split(build, ".") {
			if !identifier(id) {
				return false
			}
		}
	}
	return true
}

// number says that s is a number of 64 bits without leading zeros.
func number(s string) bool {
	if !digits(s) || len(s) > 1 && s[0] == '0' {
		return false
	}
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func identifier(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

func impossibleCapacity(c *resourcev1.DeviceCapacity, multiple bool) string {
	p := c.RequestPolicy
	switch {
	case c.Value.Sign() < 0:
		return fmt.Sprintf("is %s", c.Value.String())
	case p == nil:
		return ""
	case !multiple:
		return "has a request policy, while the device allows but one allocation"
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return "has a request policy of both values and a range"
	case p.Default == nil && (len(p.ValidValues) > 0 || p.ValidRange != nil):
		return "has a request policy without a default"
	case p.Default != nil && p.Default.Sign() < 0:
		return fmt.Sprintf("has a request policy whose default is %s", p.Default.String())
	case len(p.ValidValues) > 0:
		return impossibleValues(p, c.Value)
	case p.ValidRange != nil:
		return impossibleRange(p, c.Value)
	}
	return ""
}

// impossibleValues is for a policy of values that has a default.
func impossibleValues(p *resourcev1.CapacityRequestPolicy, value resource.Quantity) string {
	listed := false
	for i := range p.ValidValues {
		v := &p.ValidValues[i]
		switch {
		case v.Sign() < 0:
			return fmt.Sprintf("has a request policy with the value %s", v.String())
		case v.Cmp(value) > 0:
			return fmt.Sprintf("has a request policy with the value %s, above its own of %s", v.String(), value.String())
		case i > 0 && v.Cmp(p.ValidValues[i-1]) <= 0:
			return "has a request policy whose values do not ascend"
		}
		listed = listed || v.Cmp(*p.Default) == 0
	}
	if !listed {
		return fmt.Sprintf("has a request policy whose default %s is not among its values", p.Default.String())
	}
	return ""
}

// impossibleRange is for a policy of a range that has a default.
func impossibleRange(p *resourcev1.CapacityRequestPolicy, value resource.Quantity) string {
	r := p.ValidRange
	most := value
	if r.Max != nil {
		most = *r.Max
	}
	switch {
	case r.Min == nil:
		return "has a request policy of a range without a minimum"
	case r.Min.Sign() < 0:
		return fmt.Sprintf("has a request policy from %s", r.Min.String())
	case most.Cmp(value) > 0:
		return fmt.Sprintf("has a request policy up to %s, above its own of %s", most.String(), value.String())
	case r.Min.Cmp(most) > 0:
		return fmt.Sprintf("has a request policy from %s up to %s", r.Min.String(), most.String())
	case p.Default.Cmp(*r.Min) < 0 || r.Max != nil && p.Default.Cmp(most) > 0:
		return fmt.Sprintf("has a request policy whose default %s is out of its range", p.Default.String())
	case r.Step == nil:
		return ""
	case r.Step.Sign() <= 0:
		return fmt.Sprintf("has a request policy in steps of %s", r.Step.String())
	case !whole(r.Step) || !whole(r.Min) || r.Max != nil && !whole(r.Max):
		// 1.36 counts in whole units, 1.37 in thousandths by its feature gate DRAFractionalCapacityRange, which is on by default.
		return fmt.Sprintf("has a request policy in steps of %s from %s, which releases of kube-scheduler round differently", r.Step.String(), r.Min.String())
	case !onStep(p.Default, r) || r.Max != nil && !onStep(r.Max, r):
		return fmt.Sprintf("has a request policy whose default or maximum is no whole number of steps of %s from %s", r.Step.String(), r.Min.String())
	}
	return ""
}

// whole says that a quantity is a whole number.
func whole(q *resource.Quantity) bool { return q.CmpInt64(q.Value()) == 0 }

// onStep rounds as kube-scheduler does.
func onStep(q *resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) bool {
	return (q.Value()-r.Min.Value())%r.Step.Value() == 0
}
