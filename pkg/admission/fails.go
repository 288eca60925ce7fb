package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// failure is where kube-scheduler fails on a node, as it goes over its devices in order.
type failure struct {
	err error
	at  turn
	// late says of pools, by driver and name, that they come after all others, since devices of theirs have binding conditions.
	late map[[2]string]bool
}

// turn is when kube-scheduler's allocator comes to a device: pools by driver and name, slices by name, devices as they are listed
// (structured/internal/incubating in k8s.io/dynamic-resource-allocation).
type turn struct {
	late                bool
	driver, pool, slice string
	device              int
}

func compareTurns(a, b turn) int {
	if a.late != b.late {
		if b.late {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.driver, b.driver), strings.Compare(a.pool, b.pool), strings.Compare(a.slice, b.slice), cmp.Compare(a.device, b.device))
}

// fails returns where kube-scheduler first fails with the selectors of a DeviceClass on a device that a node may be given; nil for
// nowhere. A claim that is cut to devices names them after its class, so that all that come before them are held against the
// class as well, and the pod is given up where that fails.
func (d *Decider) fails(n *ledger.Node, expressions []string) *failure {
	var first *failure
	late := map[[2]string]bool{}
	for i := range n.Pools {
		p := &n.Pools[i]
		if p.State == ledger.PoolIncomplete { // passed over
			continue
		}
		if slices.ContainsFunc(p.Slices, conditional) {
			late[[2]string{p.Driver, p.Name}] = true
		}
		for _, s := range p.Slices {
			device, err := d.Matcher.Fails(s, expressions...)
			if err == nil {
				continue
			}
			f := &failure{err: fmt.Errorf("kube-scheduler fails there: device class: %w", err), at: turnOf(s, device, late), late: late}
			if first == nil || compareTurns(f.at, first.at) < 0 {
				first = f
			}
		}
	}
	return first
}

// conditional says whether a device of a slice has binding conditions.
func conditional(s *resourcev1.ResourceSlice) bool {
	return slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return d.BindingConditions != nil })
}

func turnOf(s *resourcev1.ResourceSlice, device int, late map[[2]string]bool) turn {
	return turn{late[[2]string{s.Spec.Driver, s.Spec.Pool.Name}], s.Spec.Driver, s.Spec.Pool.Name, s.Name, device}
}

// comesBefore says whether kube-scheduler fails before it comes to a device.
func (f *failure) comesBefore(dev *ledger.Device) bool {
	if f == nil {
		return false
	}
	device := slices.IndexFunc(dev.Slice.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == dev.ID.Device })
	return compareTurns(f.at, turnOf(dev.Slice, device, f.late)) < 0
}
