package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// features are those that kube-scheduler 1.36 sets for the allocator; with them it takes the same implementation.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
	DeviceBindingAndStatus: true, ConsumableCapacity: true,
}

// allocate asks kube-scheduler's own allocator for the devices of k pods of a podset on one node, all in one call. It
// returns them by claim and request, the pods' shares one after another; false where they do not fit together.
func (d *Decider) allocate(ctx context.Context, ps *PodSet, n *nodeFit, b book, k int32) ([]v1alpha1.PlacementRequest, bool) {
	if len(ps.Shape.Claims) == 0 {
		return nil, true
	}
	a, err := structured.NewAllocator(ctx, features, structured.AllocatedState{}, n.classes, n.offered(b), d.Matcher.Cache)
	if err != nil {
		return nil, false
	}
	claims := make([]*resourcev1.ResourceClaim, 0, int(k)*len(ps.Shape.Claims))
	for pod := range k {
		for i := range ps.Shape.Claims {
			claims = append(claims, &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", ps.Shape.Claims[i].Name, pod)},
				Spec:       ps.Shape.Claims[i].Spec,
			})
		}
	}
	results, err := a.Allocate(ctx, n.node.Object, claims)
	if err != nil || len(results) != len(claims) {
		return nil, false
	}
	requests := make([]v1alpha1.PlacementRequest, len(ps.Shape.Claims))
	for i := range ps.Shape.Claims {
		requests[i].Claim, requests[i].Request = ps.Shape.Claims[i].Name, ps.Shape.Claims[i].Request
	}
	for j := range results {
		r := &requests[j%len(ps.Shape.Claims)]
		for _, res := range results[j].Devices.Results {
			r.Devices = append(r.Devices, ledger.DeviceID{Driver: res.Driver, Pool: res.Pool, Device: res.Device}.String())
		}
	}
	return requests, true
}

// offered returns the node's slices with only those devices that may be given in a book, in order of their names. A
// pool keeps all its slices, since the allocator passes over an incomplete one; of what is remembered the newest complete
// generation counts.
func (n *nodeFit) offered(b book) []*resourcev1.ResourceSlice {
	give, lost := map[ledger.DeviceID]bool{}, map[pool]bool{}
	for _, d := range n.matching {
		if n.usable(d, b) {
			give[d.ID] = true
			lost[pool{d.ID.Driver, d.ID.Pool}] = !d.Lost.IsZero()
		}
	}
	var out []*resourcev1.ResourceSlice
	for _, p := range n.node.Pools {
		if p.State == ledger.PoolFresh {
			for _, s := range p.Slices {
				out = append(out, cutSlice(s, give, b))
			}
		}
	}
	var seen *resourcev1.ResourceSlice
	for i := range n.node.Lost { // sorted by pool and name; a pool's slices may alternate
		s := n.node.Lost[i].Slice
		if s != seen && lost[pool{s.Spec.Driver, s.Spec.Pool.Name}] && !slices.ContainsFunc(out, func(o *resourcev1.ResourceSlice) bool { return o.UID == s.UID }) {
			out = append(out, cutSlice(s, give, b))
		}
		seen = s
	}
	complete(out)
	return out
}

// pool names a pool of a driver.
type pool struct{ driver, name string }

// cutSlice returns a slice with only the given devices.
func cutSlice(s *resourcev1.ResourceSlice, give map[ledger.DeviceID]bool, b book) *resourcev1.ResourceSlice {
	c := &resourcev1.ResourceSlice{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
	c.Spec.Devices = nil
	for i := range s.Spec.Devices {
		dev := s.Spec.Devices[i]
		if !give[ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: dev.Name}] {
			continue
		}
		if b == emptyHealthy {
			dev.Taints = nil
		}
		c.Spec.Devices = append(c.Spec.Devices, dev)
	}
	slices.SortFunc(c.Spec.Devices, func(x, y resourcev1.Device) int { return strings.Compare(x.Name, y.Name) })
	return c
}

// complete makes each pool's slices say how many of them there are: those that list no device are not remembered.
func complete(list []*resourcev1.ResourceSlice) {
	count := map[pool]int64{}
	for _, s := range list {
		count[pool{s.Spec.Driver, s.Spec.Pool.Name}]++
	}
	for _, s := range list {
		s.Spec.Pool.ResourceSliceCount = count[pool{s.Spec.Driver, s.Spec.Pool.Name}]
	}
}

// classLister gives the allocator the snapshot's classes.
type classLister struct{ s *ledger.Snapshot }

// List returns nothing: the allocator asks by name.
func (c classLister) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

// Get returns a class; a missing one is an error, as the allocator expects.
func (c classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.s.DeviceClass(name); class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}
