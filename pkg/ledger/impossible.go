package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// The functions of this file and of impossible_device.go say what in ResourceSlices cannot be. Most of it the API server
// refuses; the rest it cannot see, because it looks at one slice at a time, or does not look at, such as the sign of a
// quantity. Where kube-scheduler leaves a whole pool out, so does impossiblePool. Where it would lend what cannot be counted
// with, such as a device that gives back more than it takes, the device is kept out all the same.

// impossiblePool returns why nothing of a complete pool can be lent on a node, or "". of holds the slices of its newest generation
// that concern the node; others those that are for other nodes alone, where the pool is not complete without them.
func impossiblePool(of, others []*slice) string {
	if why := impossibleSlices(of, others); why != "" {
		return why
	}
	if len(of) > 1 { // a slice by itself was looked at
		devices := map[string]bool{}
		for _, s := range of {
			for i := range s.Spec.Devices {
				name := s.Spec.Devices[i].Name
				if devices[name] {
					return fmt.Sprintf("device %s is listed twice", name)
				}
				devices[name] = true
			}
		}
	}
	totals := totalsOf(of)
	if totals.twice != "" {
		return fmt.Sprintf("counter set %s is listed twice", totals.twice)
	}
	for _, list := range [2][]*slice{of, others} {
		for _, s := range list {
			for i := range s.Spec.Devices {
				if why := totals.unknown(&s.Spec.Devices[i]); why != "" {
					return fmt.Sprintf("device %s %s", s.Spec.Devices[i].Name, why)
				}
			}
		}
	}
	return ""
}

// impossibleSlices returns why a pool cannot be, complete or not, or "".
func impossibleSlices(of, others []*slice) string {
	for _, list := range [2][]*slice{of, others} {
		for _, s := range list {
			if s.problem != "" {
				return s.problem
			}
			if first := of[0]; s.Spec.Pool.ResourceSliceCount != first.Spec.Pool.ResourceSliceCount {
				// kube-scheduler goes by whichever it finds first.
				return fmt.Sprintf("slice %s says that the pool has %d slices, slice %s that it has %d",
					first.Name, first.Spec.Pool.ResourceSliceCount, s.Name, s.Spec.Pool.ResourceSliceCount)
			}
		}
	}
	return ""
}

// impossibleSlice returns why a slice, and with it its pool, cannot be.
func impossibleSlice(s *resourcev1.ResourceSlice) string {
	spec := &s.Spec
	switch {
	case spec.Driver == "" || strings.Contains(spec.Driver, "/"):
		return fmt.Sprintf("%q cannot be the name of a driver", spec.Driver)
	case spec.Pool.Name == "":
		return "the pool has no name"
	case spec.Pool.ResourceSliceCount <= 0:
		return fmt.Sprintf("slice %s says that the pool has %d slices", s.Name, spec.Pool.ResourceSliceCount)
	case spec.Pool.Generation < 0:
		return fmt.Sprintf("slice %s is of generation %d", s.Name, spec.Pool.Generation)
	case len(spec.SharedCounters) > 0 && len(spec.Devices) > 0:
		return fmt.Sprintf("slice %s lists both devices and counters", s.Name)
	case len(spec.Devices) > resourcev1.ResourceSliceMaxDevices:
		return fmt.Sprintf("slice %s lists %d devices, more than %d", s.Name, len(spec.Devices), resourcev1.ResourceSliceMaxDevices)
	}
	perDevice := ptr.Deref(spec.PerDeviceNodeSelection, false)
	if n := selections(spec.NodeName, spec.AllNodes, spec.NodeSelector); n == 0 && !perDevice || n > 1 || n == 1 && perDevice {
		return fmt.Sprintf("slice %s does not select nodes in one way", s.Name)
	}
	if why := unreadable(spec.NodeSelector); why != "" {
		return fmt.Sprintf("slice %s has a node selector that cannot be read: %s", s.Name, why)
	}
	names := make(map[string]bool, len(spec.Devices))
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if names[d.Name] {
			return fmt.Sprintf("device %s is listed twice", d.Name)
		}
		names[d.Name] = true
		if perDevice {
			// It stops kube-scheduler at the slice, not only at the device.
			if why := unreadable(d.NodeSelector); why != "" {
				return fmt.Sprintf("device %s has a node selector that cannot be read: %s", d.Name, why)
			}
		}
	}
	return ""
}

// selections counts the ways in which nodes are selected.
func selections(nodeName *string, allNodes *bool, selector *corev1.NodeSelector) int {
	n := 0
	if nodeName != nil && *nodeName != "" {
		n++
	}
	if allNodes != nil && *allNodes {
		n++
	}
	if selector != nil {
		n++
	}
	return n
}

// unreadable returns why a node selector cannot be evaluated, or "".
func unreadable(selector *corev1.NodeSelector) string {
	if selector == nil {
		return ""
	}
	if _, err := nodeaffinity.NewNodeSelector(selector); err != nil {
		return err.Error()
	}
	return ""
}

// counterTotals are the shared counters of a pool.
type counterTotals struct {
	sets map[string]map[string]resourcev1.Counter
	// twice is a set that is listed more than once, and negative a counter below zero, as set/name; empty for none.
	twice, negative string
}

// totalsOf returns the counters of a pool's slices. What it holds is shared with them.
func totalsOf(of []*slice) counterTotals {
	var t counterTotals
	for _, s := range of {
		for i := range s.Spec.SharedCounters {
			set := &s.Spec.SharedCounters[i]
			if t.sets == nil {
				t.sets = map[string]map[string]resourcev1.Counter{}
			}
			if _, ok := t.sets[set.Name]; ok && (t.twice == "" || set.Name < t.twice) {
				t.twice = set.Name
			}
			t.sets[set.Name] = set.Counters
			for name, c := range set.Counters {
				if at := set.Name + "/" + name; c.Value.Sign() < 0 && (t.negative == "" || at < t.negative) {
					t.negative = at
				}
			}
		}
	}
	return t
}

// unknown returns which counter a device draws on that the pool does not have, or "".
func (t *counterTotals) unknown(d *resourcev1.Device) string {
	for i := range d.ConsumesCounters {
		c := &d.ConsumesCounters[i]
		set, ok := t.sets[c.CounterSet]
		if !ok {
			return fmt.Sprintf("draws on counter set %s, which the pool does not have", c.CounterSet)
		}
		for _, name := range slices.Sorted(maps.Keys(c.Counters)) {
			if _, ok := set[name]; !ok {
				return fmt.Sprintf("draws on counter %s, which counter set %s does not have", name, c.CounterSet)
			}
		}
	}
	return ""
}

// keepOut marks those devices of a possible pool that cannot be lent for what they draw on its counters.
func (t *counterTotals) keepOut(devices []Device) {
	for i := range devices {
		if d := &devices[i]; d.Unusable == "" {
			d.Unusable = t.impossible(d.Spec)
		}
	}
}

// impossible returns why a device of a pool that is possible cannot be lent for what it draws on the pool's counters, or "".
func (t *counterTotals) impossible(d *resourcev1.Device) string {
	if len(d.ConsumesCounters) == 0 {
		return ""
	}
	if t.negative != "" {
		return fmt.Sprintf("it draws on counters, of which %s is below zero", t.negative) // kube-scheduler lends none of them
	}
	type counter struct{ set, name string }
	drawn := map[counter]resource.Quantity{}
	for i := range d.ConsumesCounters {
		c := &d.ConsumesCounters[i]
		for _, name := range slices.Sorted(maps.Keys(c.Counters)) {
			draw := c.Counters[name].Value
			if draw.Sign() < 0 {
				return fmt.Sprintf("it draws %s of counter %s/%s", draw.String(), c.CounterSet, name)
			}
			sum := drawn[counter{c.CounterSet, name}].DeepCopy()
			sum.Add(draw)
			if total := t.sets[c.CounterSet][name].Value; sum.Cmp(total) > 0 {
				return fmt.Sprintf("it draws %s of counter %s/%s, which has %s", sum.String(), c.CounterSet, name, total.String())
			}
			drawn[counter{c.CounterSet, name}] = sum
		}
	}
	return ""
}
