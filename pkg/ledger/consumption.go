package ledger

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Consumption is what is taken of a device's capacities.
type Consumption map[resourcev1.QualifiedName]resource.Quantity

// ConsumptionOf returns what a request takes of a device that allows several allocations, as kube-scheduler works it out:
// for a capacity that the request does not name, its policy's default or else all of it; for others what is asked for,
// rounded up to the policy's range and step, or to the next of its values. requests is what the request names; nil for
// nothing. It is false where a policy refuses the request, such as for more than its maximum, and where the request names a
// capacity that the device does not list. Whether there is as much is another question: see Takes.
func ConsumptionOf(d *resourcev1.Device, requests map[resourcev1.QualifiedName]resource.Quantity) (Consumption, bool) {
	for name := range requests {
		if _, listed := d.Capacity[name]; !listed {
			return nil, false
		}
	}
	c := make(Consumption, len(d.Capacity))
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		capacity := d.Capacity[name]
		if !sound(capacity.RequestPolicy) {
			return nil, false
		}
		asked, named := requests[name]
		switch {
		case named:
			asked = rounded(asked, capacity.RequestPolicy)
		case capacity.RequestPolicy != nil && capacity.RequestPolicy.Default != nil:
			asked = *capacity.RequestPolicy.Default
		default:
			asked = capacity.Value
		}
		if refused(asked, capacity.RequestPolicy) {
			return nil, false
		}
		c[name] = asked.DeepCopy()
	}
	return c, true
}

// DefaultConsumption returns what a request that names no capacity takes of a device, whether or not there is as much; nil
// for a device that allows one allocation only, and for one whose own policies refuse their defaults.
func DefaultConsumption(d *resourcev1.Device) Consumption {
	if d.AllowMultipleAllocations == nil || !*d.AllowMultipleAllocations {
		return nil
	}
	c, ok := ConsumptionOf(d, nil)
	if !ok {
		return nil
	}
	return c
}

// Add adds b to c, in place. c is not nil.
func (c Consumption) Add(b Consumption) {
	for name, q := range b {
		sum := c[name].DeepCopy()
		sum.Add(q)
		c[name] = sum
	}
}

// Clone returns a copy; a nil Consumption gives an empty one.
func (c Consumption) Clone() Consumption {
	out := make(Consumption, len(c))
	for name, q := range c {
		out[name] = q.DeepCopy()
	}
	return out
}

// Takes says whether a device, of which used is taken, has room for more of every capacity.
func Takes(d *resourcev1.Device, used, more Consumption) bool {
	for name, capacity := range d.Capacity {
		sum := used[name].DeepCopy()
		sum.Add(more[name])
		if sum.Cmp(capacity.Value) > 0 {
			return false
		}
	}
	return true
}

// Workable says that what a request consumes of a device can be worked out, whatever it asks for. kube-scheduler does not survive
// a device of which it cannot; the API server lets none in.
func Workable(d *resourcev1.Device) bool {
	for _, c := range d.Capacity {
		if !sound(c.RequestPolicy) {
			return false
		}
	}
	return true
}

// sound says that a policy can be worked with: a step counts from a minimum, and is not zero.
func sound(p *resourcev1.CapacityRequestPolicy) bool {
	return p == nil || p.ValidRange == nil || p.ValidRange.Step == nil || p.ValidRange.Min != nil && p.ValidRange.Step.Value() > 0
}

// rounded returns what a policy makes of an amount that is asked for. Steps count in whole units.
func rounded(asked resource.Quantity, p *resourcev1.CapacityRequestPolicy) resource.Quantity {
	switch {
	case p == nil:
	case p.ValidRange != nil && p.ValidRange.Min != nil:
		if asked.Cmp(*p.ValidRange.Min) < 0 {
			return *p.ValidRange.Min
		}
		if p.ValidRange.Step == nil {
			return asked
		}
		from, step := p.ValidRange.Min.Value(), p.ValidRange.Step.Value()
		over := asked.Value() - from
		n := over / step
		if over%step != 0 {
			n++
		}
		return *resource.NewQuantity(from+n*step, resource.BinarySI)
	case p.ValidValues != nil:
		for _, v := range p.ValidValues {
			if asked.Cmp(v) <= 0 {
				return v
			}
		}
	}
	return asked
}

// refused says whether a policy does not allow an amount, rounded as it is. Its default is always allowed.
func refused(asked resource.Quantity, p *resourcev1.CapacityRequestPolicy) bool {
	switch {
	case p == nil, p.Default != nil && asked.Cmp(*p.Default) == 0:
		return false
	case p.ValidRange != nil:
		r := p.ValidRange
		return r.Max != nil && asked.Cmp(*r.Max) > 0 || r.Step != nil && (asked.Value()-r.Min.Value())%r.Step.Value() != 0
	case len(p.ValidValues) > 0:
		return !slices.ContainsFunc(p.ValidValues, func(v resource.Quantity) bool { return v.Cmp(asked) == 0 })
	}
	return false
}
