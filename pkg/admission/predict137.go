package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// byRules says by which release's rules the node's devices map to its own resources.
func (f *foresight) byRules() ledger.MappingRules {
	for _, d := range listed(f.n) {
		if d.Mappings != nil && d.Mappings.Rules == ledger.Rules137 {
			return ledger.Rules137
		}
	}
	return ledger.Rules136
}

// footing is what kube-scheduler makes of devices that map to the node's own resources.
func (f *foresight) footing(ctx context.Context) *refusal {
	if f.byRules() == ledger.Rules137 {
		return f.map137(ctx)
	}
	return f.map136(ctx)
}

// map137 is what kube-scheduler 1.37 makes of them: claims that are allocated count as well, and devices are looked up by all
// of their names. That a pod's limits as a whole cover what its claims map to is not looked at.
func (f *foresight) map137(context.Context) *refusal {
	devices := map[ledger.DeviceID]*ledger.Device{}
	for _, d := range listed(f.n) {
		devices[d.ID] = d
	}
	var statuses []corev1.NodeAllocatableResourceClaimStatus
	for n, c := range f.claims {
		allocation := c.result
		if allocation == nil {
			allocation = c.Status.Allocation
		}
		if allocation == nil || slices.ContainsFunc(f.claims[n+1:], func(o *podClaim) bool { return o.UID == c.UID }) {
			continue
		}
		var taken []ledger.Taken
		gone, maps, mapped := "", false, false
		for i := range allocation.Devices.Results {
			r := &allocation.Devices.Results[i]
			id := ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
			d := devices[id]
			if d == nil {
				gone = id.String()
				continue
			}
			maps, mapped = maps || d.Mappings != nil, mapped || d.Mappings.Mapped()
			taken = append(taken, ledger.Taken{Device: id, Mappings: d.Mappings, Consumed: ledger.Consumption(r.ConsumedCapacity)})
		}
		references := f.references(c)
		list, err := ledger.MappedList(taken, len(references))
		switch {
		case !maps:
			continue
		case mapped && c.allocated() && len(c.Status.ReservedFor) > 0 && !resourceclaim.IsReservedForPod(f.pod, c.ResourceClaim, false):
			f.odd("kube-scheduler lets no two pods share a claim that maps the node's own resources")
			return refuse(v1alpha1.ReasonDevicesInUse, "claim %s maps resources of its node and is used by another pod", c.name)
		case gone != "":
			return refuse(v1alpha1.ReasonDevicesUnhealthy, "claim %s: device %s is not listed any more", c.name, gone)
		case err != nil:
			return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s: %v", c.name, err).everywhere()
		case list != nil:
			statuses = append(statuses, corev1.NodeAllocatableResourceClaimStatus{ResourceClaimName: c.Name, Containers: references, Resources: list})
		}
	}
	if len(statuses) == 0 {
		return nil
	}
	f.takes(statuses)
	return f.demand(statuses)
}
