package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MappingRules says which release's rules hold for a mapping.
type MappingRules string

// The rules.
const (
	// Rules136 are those of nodeAllocatableResourceMappings, Kubernetes 1.36.
	Rules136 MappingRules = "1.36"
	// Rules137 are those of nodeAllocatableResources, Kubernetes 1.37.
	Rules137 MappingRules = "1.37"
)

// Mappings says what of its node's own resources a device takes, in one form for what either release publishes.
type Mappings struct {
	Rules MappingRules
	// List is in order of the resources, each once. It holds what kube-scheduler would count, whatever Problem says.
	List []Mapping
	// Problem says why what is published cannot be counted with: the device is kept out. Empty for none.
	Problem string
}

// Mapping is one resource that a device takes of its node.
type Mapping struct {
	Resource corev1.ResourceName
	// Capacity is the device's capacity of which a claim's consumption is multiplied; empty for so much a device.
	Capacity resourcev1.QualifiedName
	// Multiplier is what one unit of Capacity, or one device, takes. Zero takes nothing, as for a mapping of overhead alone.
	Multiplier resource.Quantity
	// PerPod is taken once for each pod that uses the claim, PerContainer for each of its containers that refers to it. Both
	// are zero with Rules136.
	PerPod, PerContainer resource.Quantity
}

// Mapped says that a claim with the device cannot be used by two pods on one node: the device stands for some of the node's
// own resources. One that only adds overhead to each pod can. False for nil.
func (m *Mappings) Mapped() bool {
	return m != nil && (m.Rules == Rules136 || slices.ContainsFunc(m.List, func(e Mapping) bool { return !e.Multiplier.IsZero() }))
}

// NodeAllocatable137 is one entry of a device's nodeAllocatableResources as the API of Kubernetes 1.37 has it, which the
// types of 1.36 cannot hold.
type NodeAllocatable137 struct {
	Mapping  *NodeAllocatableMapping137  `json:"mapping,omitempty"`
	Overhead *NodeAllocatableOverhead137 `json:"overhead,omitempty"`
}

// NodeAllocatableMapping137 is by capacity, with CapacityKey and CapacityMultiplier, or by device, with DeviceMultiplier.
type NodeAllocatableMapping137 struct {
	CapacityKey        *resourcev1.QualifiedName `json:"capacityKey,omitempty"`
	CapacityMultiplier *resource.Quantity        `json:"capacityMultiplier,omitempty"`
	DeviceMultiplier   *resource.Quantity        `json:"deviceMultiplier,omitempty"`
}

// NodeAllocatableOverhead137 is what each pod that uses the device takes besides.
type NodeAllocatableOverhead137 struct {
	PerPod       *resource.Quantity `json:"perPod,omitempty"`
	PerContainer *resource.Quantity `json:"perContainer,omitempty"`
}

// MappingsOf returns what a device maps by the field of Kubernetes 1.36; nil for nothing.
func MappingsOf(d *resourcev1.Device) *Mappings {
	if len(d.NodeAllocatableResourceMappings) == 0 {
		return nil
	}
	m := &Mappings{Rules: Rules136}
	for _, name := range slices.Sorted(maps.Keys(d.NodeAllocatableResourceMappings)) {
		of := d.NodeAllocatableResourceMappings[name]
		e := Mapping{Resource: name}
		m.claim(name, !native(name), "is not a resource of a node itself")
		switch {
		case of.CapacityKey != nil && *of.CapacityKey != "":
			e.Capacity, e.Multiplier = *of.CapacityKey, resource.MustParse("1")
			m.capacity(d, name, *of.CapacityKey)
		default:
			m.claim(name, of.CapacityKey != nil, "names an empty capacity")
			m.claim(name, of.AllocationMultiplier == nil, "has neither a capacity nor a multiplier")
		}
		if of.AllocationMultiplier != nil {
			e.Multiplier = *of.AllocationMultiplier
		}
		m.multiplier(d, &e)
		m.List = append(m.List, e)
	}
	return m
}

// Mappings137 returns what a device maps by the field of Kubernetes 1.37; nil for nothing.
func Mappings137(d *resourcev1.Device, entries map[corev1.ResourceName]NodeAllocatable137) *Mappings {
	if len(entries) == 0 {
		return nil
	}
	m := &Mappings{Rules: Rules137}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		of := entries[name]
		e := Mapping{Resource: name}
		m.claim(name, name != corev1.ResourceCPU && name != corev1.ResourceMemory && !hugepages(name), "is neither cpu, memory nor hugepages")
		m.claim(name, of.Mapping == nil && of.Overhead == nil, "has neither a mapping nor an overhead")
		if of.Mapping != nil {
			m.by137(d, &e, of.Mapping)
			m.multiplier(d, &e)
		}
		if of.Overhead != nil {
			m.claim(name, of.Overhead.PerPod == nil && of.Overhead.PerContainer == nil, "has an overhead of nothing")
			for _, q := range []struct{ from, to *resource.Quantity }{{of.Overhead.PerPod, &e.PerPod}, {of.Overhead.PerContainer, &e.PerContainer}} {
				if q.from != nil {
					*q.to = *q.from
					m.claim(name, q.from.Sign() < 0, "has a negative overhead")
					m.claim(name, beyond(name, *q.from), "has an overhead that no node has")
				}
			}
		}
		m.List = append(m.List, e)
	}
	return m
}

// by137 reads how much a mapping of 1.37 takes.
func (m *Mappings) by137(d *resourcev1.Device, e *Mapping, of *NodeAllocatableMapping137) {
	name := e.Resource
	m.claim(name, of.CapacityKey != nil && of.DeviceMultiplier != nil, "is by capacity and by device at once")
	m.claim(name, of.CapacityKey == nil && of.DeviceMultiplier == nil, "has neither a capacity nor a multiplier")
	m.claim(name, (of.CapacityKey == nil) != (of.CapacityMultiplier == nil), "has a capacity without a multiplier, or a multiplier without a capacity")
	switch {
	case of.CapacityKey != nil && *of.CapacityKey != "":
		e.Capacity, e.Multiplier = *of.CapacityKey, resource.MustParse("1")
		m.capacity(d, name, *of.CapacityKey)
		if of.CapacityMultiplier != nil {
			e.Multiplier = *of.CapacityMultiplier
		}
	default:
		m.claim(name, of.CapacityKey != nil, "names an empty capacity")
		if of.DeviceMultiplier != nil {
			e.Multiplier = *of.DeviceMultiplier
		}
	}
}

// claim notes the first thing that is wrong.
func (m *Mappings) claim(name corev1.ResourceName, wrong bool, what string) {
	if wrong && m.Problem == "" {
		m.Problem = fmt.Sprintf("its mapping of %s %s", name, what)
	}
}

// capacity checks the capacity that a mapping is by.
func (m *Mappings) capacity(d *resourcev1.Device, name corev1.ResourceName, key resourcev1.QualifiedName) {
	_, listed := d.Capacity[key]
	m.claim(name, !listed, fmt.Sprintf("is by capacity %s, which it does not list", key))
	multiple := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	m.claim(name, !multiple, fmt.Sprintf("is by capacity %s, of which nothing is consumed as it does not allow multiple allocations: kube-scheduler fails for every pod that is given it", key))
}

// multiplier checks how much a mapping takes.
func (m *Mappings) multiplier(d *resourcev1.Device, e *Mapping) {
	m.claim(e.Resource, e.Multiplier.Sign() <= 0, "takes nothing, or less")
	most := e.Multiplier
	if e.Capacity != "" {
		most = product(d.Capacity[e.Capacity].Value, e.Multiplier)
	}
	m.claim(e.Resource, beyond(e.Resource, most), "takes more than any node has")
}

// beyond says that an amount is too large to be counted with, in thousandths for cpu.
func beyond(name corev1.ResourceName, q resource.Quantity) bool {
	limit := resource.MustParse("1E")
	if name == corev1.ResourceCPU {
		limit = resource.MustParse("1P")
	}
	return q.Cmp(limit) > 0
}

// native says that a resource is one of a node itself, not an extended one, as kube-scheduler has it.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func hugepages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// Taken is one device of a claim's allocation.
type Taken struct {
	// Device names it in errors.
	Device DeviceID
	// Mappings are the device's; nil for none.
	Mappings *Mappings
	// Consumed is the allocation's consumedCapacity; nil where it has none.
	Consumed Consumption
}

// MappedList returns what one claim of one pod takes of its node's own resources, exactly, as kube-scheduler notes it in the
// pod's status: the sum over all devices that the claim is given, those with adminAccess too. references is how often the
// pod's containers refer to the claim. nil is for nothing that is mapped. It fails where kube-scheduler does: a mapping by
// capacity of an allocation that consumes none.
func MappedList(devices []Taken, references int) (corev1.ResourceList, error) {
	var list corev1.ResourceList
	add := func(name corev1.ResourceName, q resource.Quantity) {
		if list == nil {
			list = corev1.ResourceList{}
		}
		sum := list[name]
		sum.Add(q)
		list[name] = sum
	}
	for i := range devices {
		t := &devices[i]
		if t.Mappings == nil {
			continue
		}
		for j := range t.Mappings.List {
			m := &t.Mappings.List[j]
			switch consumed, has := t.Consumed[m.Capacity]; {
			case m.Capacity == "" && m.Multiplier.IsZero() && t.Mappings.Rules == Rules137:
				// overhead alone
			case m.Capacity == "":
				add(m.Resource, m.Multiplier)
			case t.Consumed == nil:
				return nil, fmt.Errorf("device %s maps %s by capacity %s, of which the claim consumes nothing", t.Device, m.Resource, m.Capacity)
			case has:
				add(m.Resource, product(consumed, m.Multiplier))
			}
			if t.Mappings.Rules == Rules137 {
				overhead := m.PerContainer.DeepCopy()
				overhead.Mul(int64(references))
				overhead.Add(m.PerPod)
				if !overhead.IsZero() {
					add(m.Resource, overhead)
				}
			}
		}
	}
	return list, nil
}

// MappedBy is MappedList in whole numbers, each sum rounded up once.
func MappedBy(devices []Taken, references int) (Amounts, error) {
	list, err := MappedList(devices, references)
	if err != nil || list == nil {
		return nil, err
	}
	return AmountsOf(list), nil
}

// product multiplies two quantities, exactly.
func product(a, b resource.Quantity) resource.Quantity {
	a, b = a.DeepCopy(), b.DeepCopy()
	d := a.AsDec()
	return *resource.NewDecimalQuantity(*d.Mul(d, b.AsDec()), cmp.Or(a.Format, resource.DecimalSI))
}
