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
	node *ledger.Node
	err  error
	at   turn
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
	for i := range n.Pools {
		p := &n.Pools[i]
		if p.State == ledger.PoolIncomplete { // passed over
			continue
		}
		for _, s := range p.Slices {
			device, err := d.Matcher.Fails(s, expressions...)
			if err == nil {
				continue
			}
			if at := turnOf(n, s, device); first == nil || compareTurns(at, first.at) < 0 {
				first = &failure{n, fmt.Errorf("kube-scheduler fails there: device class: %w", err), at}
			}
		}
	}
	return first
}

// turnOf returns when kube-scheduler comes to a device of a slice. Pools of which devices have binding conditions come last.
func turnOf(n *ledger.Node, s *resourcev1.ResourceSlice, device int) turn {
	late := slices.ContainsFunc(n.Pools, func(p ledger.Pool) bool {
		return p.Driver == s.Spec.Driver && p.Name == s.Spec.Pool.Name && slices.ContainsFunc(p.Slices, conditional)
	})
	return turn{late, s.Spec.Driver, s.Spec.Pool.Name, s.Name, device}
}

// conditional says whether a device of a slice has binding conditions.
func conditional(s *resourcev1.ResourceSlice) bool {
	return slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return d.BindingConditions != nil })
}

// comesBefore says whether kube-scheduler fails before it comes to a device.
func (f *failure) comesBefore(dev *ledger.Device) bool {
	if f == nil {
		return false
	}
	device := slices.IndexFunc(dev.Slice.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == dev.ID.Device })
	return compareTurns(f.at, turnOf(f.node, dev.Slice, device)) < 0
}
