package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxLookups bounds how many ways of finding the pod's devices are looked at.
const maxLookups = 64

// map136 is what kube-scheduler 1.36 makes of devices that map to the node's own resources. It looks at nothing but what it
// allocates now. A device it looks up by pool and name, without driver, among all slices in no particular order: where
// several have the name, each may be it.
func (f *foresight) map136(context.Context) *refusal {
	f.ignored()
	var results []*resourcev1.DeviceRequestAllocationResult
	var found [][]*resourcev1.Device
	ways, ambiguous := 1, ""
	for _, c := range f.claims {
		if c.result == nil {
			continue
		}
		for i := range c.result.Devices.Results {
			r := &c.result.Devices.Results[i]
			devices := f.named(r)
			if len(devices) > 1 && ambiguous == "" {
				ambiguous = fmt.Sprintf("%s/%s", r.Pool, r.Device)
			}
			results, found, ways = append(results, r), append(found, devices), min(ways*max(1, len(devices)), maxLookups+1)
		}
	}
	if ways == 1 {
		pick := map[*resourcev1.DeviceRequestAllocationResult]*resourcev1.Device{}
		for i, r := range results {
			if len(found[i]) > 0 {
				pick[r] = found[i][0]
			}
		}
		no, statuses := f.footprint(pick)
		f.takes(statuses)
		return no
	}
	f.odd("kube-scheduler 1.36 looks up device %s by pool and name alone, and several are listed that map otherwise: which it finds is chance", ambiguous)
	if ways > maxLookups {
		f.unsure = true
		return refuse(v1alpha1.ReasonUndecided, "node %s: the devices can be taken for others in more than %d ways", f.n.Name, maxLookups)
	}
	return f.chance(results, found)
}

// chance looks at each way of finding the devices. Where they differ, the pod counts as refused; where they differ in the amounts
// alone, those of the devices as they are count.
func (f *foresight) chance(results []*resourcev1.DeviceRequestAllocationResult, found [][]*resourcev1.Device) *refusal {
	var refused *refusal
	fits, first, differ := false, true, false
	at := make([]int, len(found))
	for {
		pick := map[*resourcev1.DeviceRequestAllocationResult]*resourcev1.Device{}
		for i, r := range results {
			if len(found[i]) > 0 {
				pick[r] = found[i][at[i]]
			}
		}
		no, statuses := f.footprint(pick)
		if first {
			f.takes(statuses)
			first = false
		}
		differ = differ || !maps.Equal(f.mapped, amountsIn(statuses))
		if no == nil {
			fits = true
		} else if refused == nil {
			refused = no
		}
		i := 0
		for ; i < len(at); i++ {
			if at[i]++; at[i] < len(found[i]) {
				break
			}
			at[i] = 0
		}
		if i == len(at) {
			break
		}
	}
	f.unsure = f.unsure || fits && (differ || refused != nil)
	return refused
}

// ignored names the claims whose devices kube-scheduler 1.36 counts nothing for, since it allocated them earlier.
func (f *foresight) ignored() {
	for _, c := range f.claims {
		if !c.allocated() {
			continue
		}
		for i := range c.Status.Allocation.Devices.Results {
			r := &c.Status.Allocation.Devices.Results[i]
			if slices.ContainsFunc(f.named(r), func(d *resourcev1.Device) bool { return len(d.NodeAllocatableResourceMappings) > 0 }) {
				f.odd("claim %s is allocated: what device %s maps to is not counted for the pod", c.name, r.Device)
				break
			}
		}
	}
}

// named returns the devices that a result may be taken for: the one that it is comes first, and of those that map the same
// there is one.
func (f *foresight) named(r *resourcev1.DeviceRequestAllocationResult) []*resourcev1.Device {
	return namesakes(ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}, f.n, f.s.Nodes())
}

// namesakes is named for a device of node n, among the slices of its pools and of those of other nodes.
func namesakes(id ledger.DeviceID, n *ledger.Node, others []*ledger.Node) []*resourcev1.Device {
	var out []*resourcev1.Device
	add := func(s *resourcev1.ResourceSlice, own bool) {
		if s.Spec.Pool.Name != id.Pool || (s.Spec.Driver == id.Driver) != own {
			return
		}
		i := slices.IndexFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == id.Device })
		if i < 0 {
			return
		}
		d := &s.Spec.Devices[i]
		same := func(o *resourcev1.Device) bool {
			return o == d || apiequality.Semantic.DeepEqual(o.NodeAllocatableResourceMappings, d.NodeAllocatableResourceMappings)
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, d)
		}
	}
	look := func(n *ledger.Node, own bool) {
		for i := range n.Pools {
			if p := &n.Pools[i]; p.Name == id.Pool {
				for _, s := range p.Every {
					add(s, own)
				}
			}
		}
	}
	for i := range n.Pools { // what is listed now goes before what is left of older generations
		if p := &n.Pools[i]; p.Name == id.Pool && p.Driver == id.Driver {
			for _, s := range p.Slices {
				add(s, true)
			}
		}
	}
	look(n, true)
	for _, own := range []bool{true, false} {
		for _, other := range others {
			look(other, own)
		}
	}
	return out
}

// footprint says whether the node has what the pod takes of its own resources, with what its claims map to where the devices
// are those picked; and how the pod's status would tell the latter.
func (f *foresight) footprint(pick map[*resourcev1.DeviceRequestAllocationResult]*resourcev1.Device) (*refusal, []corev1.NodeAllocatableResourceClaimStatus) {
	var statuses []corev1.NodeAllocatableResourceClaimStatus
	for n, c := range f.claims {
		if c.result == nil || slices.ContainsFunc(f.claims[n+1:], func(o *podClaim) bool { return o.UID == c.UID }) {
			continue
		}
		var taken []ledger.Taken
		for i := range c.result.Devices.Results {
			r := &c.result.Devices.Results[i]
			if d := pick[r]; d != nil {
				taken = append(taken, ledger.Taken{
					Device:   ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device},
					Mappings: ledger.MappingsOf(d), Consumed: ledger.Consumption(r.ConsumedCapacity),
				})
			}
		}
		references := f.references(c)
		list, err := ledger.MappedList(taken, len(references))
		switch {
		case err != nil:
			f.odd("kube-scheduler 1.36 fails for a pod with a device that maps a capacity of which nothing is consumed, on all nodes")
			return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s: %v", c.name, err).everywhere(), nil
		case list == nil:
			continue
		case len(references) == 0 && c.extended:
			f.odd("kube-scheduler 1.36 refuses extended resources served by devices that map the node's own, as no container refers to their claim")
			return refuse(v1alpha1.ReasonClaimUnsupported, "node %s: the devices for the pod's extended resources map the node's own", f.n.Name), nil
		case len(references) == 0:
			f.odd("kube-scheduler 1.36 refuses a claim that maps the node's own resources and that no container refers to")
			return refuse(v1alpha1.ReasonClaimUnsupported, "claim %s maps resources of node %s, and no container refers to it", c.name, f.n.Name), nil
		}
		statuses = append(statuses, corev1.NodeAllocatableResourceClaimStatus{ResourceClaimName: c.Name, Containers: references, Resources: list})
	}
	if len(statuses) == 0 {
		return nil, nil
	}
	return f.demand(statuses), statuses
}

// takes notes what the pod's claims map to.
func (f *foresight) takes(statuses []corev1.NodeAllocatableResourceClaimStatus) {
	slices.SortFunc(statuses, func(a, b corev1.NodeAllocatableResourceClaimStatus) int {
		return cmp.Compare(a.ResourceClaimName, b.ResourceClaimName)
	})
	f.statuses, f.mapped = statuses, amountsIn(statuses)
}

// amountsIn sums up what statuses tell; nil for none.
func amountsIn(statuses []corev1.NodeAllocatableResourceClaimStatus) ledger.Amounts {
	if len(statuses) == 0 {
		return nil
	}
	total := corev1.ResourceList{}
	for i := range statuses {
		for name, q := range statuses[i].Resources {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	return ledger.AmountsOf(total)
}

// references returns the pod's containers that refer to a claim, each as often as it does.
func (f *foresight) references(c *podClaim) []string {
	if c.extended {
		return nil
	}
	return ledger.Referrers(&f.pod.Spec, func(name string) bool {
		return slices.ContainsFunc(f.claims, func(o *podClaim) bool { return o.name == name && o.UID == c.UID })
	})
}

// demand says whether the node has what the pod takes with what its claims map to. What a pod as a whole asks for must cover
// both.
func (f *foresight) demand(statuses []corev1.NodeAllocatableResourceClaimStatus) *refusal {
	amounts, uncovered := taken(&f.pod.Spec, statuses)
	if uncovered != "" {
		return refuse(v1alpha1.ReasonNodeResources, "the pod as a whole asks for less %s than its containers and what its claims map to", uncovered)
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		v := amounts[name]
		huge := strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		plain := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
		if (huge || plain && v > 0) && v > f.n.Free[name] {
			f.odd("kube-scheduler tries no other devices of a node where those that it chose map to more than is left")
			return f.insufficient(name, v)
		}
	}
	return nil
}
