package world

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// driver is one that lists devices, all of them alike in what they can do.
type driver struct {
	name string
	// prefix begins the names of its devices.
	prefix                     string
	mapped, multiple, counters bool
	// mapping is what most of its devices map to.
	mapping map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping
	// policy says how its devices' capacity may be asked for.
	policy  *resourcev1.CapacityRequestPolicy
	devices []*listed
}

// listed is a device that a slice lists.
type listed struct {
	driver *driver
	pool   string
	spec   *resourcev1.Device
	// near says that the target may use it, current that it is of its pool's newest generation.
	near, current bool
	held          bool
}

var driverNames = []string{"gpu.example.com", "nic.example.com", "cpu.example.com"}

const (
	model  = "model"
	zone   = "numa"
	extra  = "extra"
	memory = "memory"
	// bandwidth is a capacity that not all devices have, without a policy: who does not ask takes all.
	bandwidth = "bandwidth"
	pcieRoot  = "resource.kubernetes.io/pcieRoot"
	pages2    = corev1.ResourceName("hugepages-2Mi")
	pages1G   = corev1.ResourceName("hugepages-1Gi")
)

func (m *maker) makeDrivers() {
	for i := range m.between(1, 3) {
		d := &driver{name: driverNames[i], prefix: driverNames[i][:3]}
		if m.themes[twins] {
			d.prefix = "dev"
		}
		d.mapped = m.has(mapped, 70)
		d.multiple = m.has(multiple, 70)
		d.counters = !d.multiple && m.has(counters, 70)
		if d.multiple {
			d.policy = m.makePolicy()
		}
		if d.mapped {
			d.mapping = m.makeMapping(d)
		}
		m.drivers = append(m.drivers, d)
		m.makePool(d, m.target.Name, m.target, 1)
		if m.chance(30) {
			m.makePool(d, m.other.Name, m.other, 1)
		}
	}
	if m.themes[wide] {
		m.makePool(m.drivers[0], "fabric", nil, m.between(1, 3))
	}
	if m.has(wide, 15) { // of one pool each node lists a part
		d := pick(m, m.drivers...)
		m.makePool(d, "parts", m.target, 1)
		m.makePool(d, "parts", m.other, 1)
	}
	for range 2 {
		if m.has(broken, 60) {
			m.breakSlice()
		}
	}
}

// breakSlice makes what a slice lists impossible in the light of the others of its pool.
func (m *maker) breakSlice() {
	if len(m.w.Slices) == 0 {
		return
	}
	s := pick(m, m.w.Slices...)
	miscounted := max(1, s.Spec.Pool.ResourceSliceCount+int64(m.between(-1, 1)))
	if len(s.Spec.Devices) == 0 {
		s.Spec.Pool.ResourceSliceCount = miscounted
		return
	}
	d := &s.Spec.Devices[m.IntN(len(s.Spec.Devices))]
	switch m.IntN(4) {
	case 0: // a slice that lists one of its devices once more
		again := s.DeepCopy()
		again.ObjectMeta = m.meta("slice", fmt.Sprintf("again-%d", m.made))
		again.Spec.Devices = []resourcev1.Device{*d.DeepCopy()}
		again.Spec.Pool.ResourceSliceCount++
		if m.chance(70) {
			s.Spec.Pool.ResourceSliceCount++
		}
		m.w.Slices = append(m.w.Slices, again)
	case 1:
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "unknown", Counters: map[string]resourcev1.Counter{"memory": {Value: quantity("1")}}}}
	case 2:
		if len(d.ConsumesCounters) > 0 {
			d.ConsumesCounters[0].Counters = map[string]resourcev1.Counter{"unknown": {Value: quantity("1")}}
		}
	case 3:
		s.Spec.Pool.ResourceSliceCount = miscounted
	}
}

// makePolicy makes one that holds for capacities of 8Gi and 16Gi; nil for none.
func (m *maker) makePolicy() *resourcev1.CapacityRequestPolicy {
	switch m.IntN(4) {
	case 0:
		return &resourcev1.CapacityRequestPolicy{
			Default: ptr.To(quantity("2Gi")),
			ValidRange: &resourcev1.CapacityRequestPolicyRange{
				Min: ptr.To(quantity("1Gi")), Max: pick(m, nil, ptr.To(quantity("6Gi"))), Step: pick(m, nil, ptr.To(quantity("1Gi"))),
			},
		}
	case 1:
		return &resourcev1.CapacityRequestPolicy{
			Default:     ptr.To(quantity("2Gi")),
			ValidValues: []resource.Quantity{quantity("1Gi"), quantity("2Gi"), quantity("5Gi")},
		}
	case 2:
		return &resourcev1.CapacityRequestPolicy{Default: ptr.To(quantity("1Gi"))}
	}
	return nil
}

func (m *maker) makeMapping(d *driver) map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping {
	out := map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{}
	for range m.between(1, 2) {
		switch m.IntN(5) {
		case 0, 1:
			out[corev1.ResourceCPU] = times(pick(m, "1", "500m", "250m", "2", "0.3333"))
		case 2:
			out[corev1.ResourceMemory] = times(pick(m, "1Gi", "2Gi", "512Mi", "1500M", "0.7"))
		case 3:
			if m.themes[huge] {
				out[pick(m, pages2, pages1G)] = times(pick(m, "1Gi", "16Mi", "32Mi"))
			}
		case 4:
			out[corev1.ResourceEphemeralStorage] = times(pick(m, "1Gi", "5Gi"))
		}
	}
	if d.multiple && m.chance(70) || m.chance(2) { // on a device that allows but one it is an error of the scheduler's
		key := resourcev1.QualifiedName(memory)
		out[corev1.ResourceMemory] = resourcev1.NodeAllocatableResourceMapping{
			CapacityKey: &key, AllocationMultiplier: pick(m, nil, ptr.To(quantity("2")), ptr.To(quantity("0.5")), ptr.To(quantity("1100m"))),
		}
	}
	return out
}

func times(multiplier string) resourcev1.NodeAllocatableResourceMapping {
	return resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: ptr.To(quantity(multiplier))}
}

// makePool lists a pool of a driver on one node, or for several where node is nil.
func (m *maker) makePool(d *driver, name string, node *corev1.Node, parts int) {
	generation := int64(m.between(1, 4))
	if node != nil {
		parts = pick(m, 1, 1, 1, 2, 3)
	}
	count := parts
	if d.counters {
		count++
	}
	missing := -1
	if m.has(oddPools, 25) {
		missing = m.IntN(count)
	}
	pool := func(g int64, count int) resourcev1.ResourcePool {
		return resourcev1.ResourcePool{Name: name, Generation: g, ResourceSliceCount: int64(count)}
	}
	if m.has(oddPools, 30) && generation > 1 {
		s := m.makeSlice(d, node, pool(generation-1, 1))
		m.fill(d, s, 0, false)
		m.w.Slices = append(m.w.Slices, s)
	}
	sets := []resourcev1.CounterSet{m.makeCounterSet(0), m.makeCounterSet(1)}
	for part := range parts {
		s := m.makeSlice(d, node, pool(generation, count))
		m.fill(d, s, part, part != missing)
		if part != missing {
			m.w.Slices = append(m.w.Slices, s)
		}
	}
	if d.counters && missing != parts {
		s := m.makeSlice(d, node, pool(generation, count))
		s.Spec.SharedCounters = sets
		m.w.Slices = append(m.w.Slices, s)
	}
}

func (m *maker) makeCounterSet(i int) resourcev1.CounterSet {
	return resourcev1.CounterSet{Name: fmt.Sprintf("card-%d", i), Counters: map[string]resourcev1.Counter{
		"memory": {Value: amount("%dGi", m.between(4, 12))}, "engines": {Value: amount("%d", m.between(2, 7))},
	}}
}

func (m *maker) makeSlice(d *driver, node *corev1.Node, pool resourcev1.ResourcePool) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: m.meta("slice", fmt.Sprintf("%s-%s-%d", pool.Name, d.name[:3], m.made))}
	s.Spec.Driver, s.Spec.Pool = d.name, pool
	switch {
	case node != nil:
		s.Spec.NodeName = &node.Name
	case m.chance(35):
		s.Spec.AllNodes = ptr.To(true)
	case m.chance(50):
		s.Spec.NodeSelector = m.inZone()
	default:
		s.Spec.PerDeviceNodeSelection = ptr.To(true)
	}
	return s
}

// inZone selects the nodes of a zone, as often as not the target's.
func (m *maker) inZone() *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{pick(m, m.target.Labels[corev1.LabelTopologyZone], "two")},
	}}}}}
}

// fill lists devices in a slice.
func (m *maker) fill(d *driver, s *resourcev1.ResourceSlice, part int, current bool) {
	for i := range m.between(2, 5) {
		dev := m.makeDevice(d, fmt.Sprintf("%s-%d-%d", d.prefix, part, i))
		if ptr.Deref(s.Spec.PerDeviceNodeSelection, false) {
			switch m.IntN(3) {
			case 0:
				dev.AllNodes = ptr.To(true)
			case 1:
				dev.NodeName = ptr.To(pick(m, m.target.Name, m.other.Name))
			default:
				dev.NodeSelector = m.inZone()
			}
		}
		s.Spec.Devices = append(s.Spec.Devices, dev)
	}
	if m.chance(30) { // in no order
		m.Shuffle(len(s.Spec.Devices), func(i, j int) { s.Spec.Devices[i], s.Spec.Devices[j] = s.Spec.Devices[j], s.Spec.Devices[i] })
	}
	near := s.Spec.NodeName == nil || *s.Spec.NodeName == m.target.Name
	for i := range s.Spec.Devices {
		d.devices = append(d.devices, &listed{driver: d, pool: s.Spec.Pool.Name, spec: &s.Spec.Devices[i], near: near, current: current})
	}
}

func (m *maker) makeDevice(d *driver, name string) resourcev1.Device {
	dev := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		model:    {StringValue: ptr.To(pick(m, "a", "a", "b"))},
		zone:     {IntValue: ptr.To(int64(m.IntN(2)))},
		pcieRoot: {StringValue: ptr.To(fmt.Sprintf("pci0000:%02d", m.IntN(3)))},
	}}
	if m.gang {
		dev.Attributes[uuid] = resourcev1.DeviceAttribute{StringValue: ptr.To(fmt.Sprintf("%s-%d", name, m.IntN(1<<20)))}
	}
	if m.chance(60) {
		dev.Attributes[extra] = resourcev1.DeviceAttribute{BoolValue: ptr.To(m.chance(70))}
	}
	if m.has(lists, 60) {
		dev.Attributes[pcieRoot] = resourcev1.DeviceAttribute{StringValues: pick(m, []string{"pci0000:00"}, []string{"pci0000:00", "pci0000:01"}, []string{"pci0000:02"})}
	}
	dev.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{memory: {Value: pick(m, quantity("8Gi"), quantity("16Gi"))}}
	if d.multiple && m.chance(85) {
		dev.AllowMultipleAllocations = ptr.To(true)
		c := dev.Capacity[memory]
		c.RequestPolicy = d.policy
		dev.Capacity[memory] = c
	}
	if d.multiple && m.chance(40) {
		dev.Capacity[bandwidth] = resourcev1.DeviceCapacity{Value: pick(m, quantity("10"), quantity("100"), quantity("0"))}
	}
	if d.mapped && m.chance(75) {
		dev.NodeAllocatableResourceMappings = d.mapping
		if key := d.mapping[corev1.ResourceMemory].CapacityKey; key != nil && dev.AllowMultipleAllocations == nil && m.chance(90) {
			dev.NodeAllocatableResourceMappings = nil
		}
		if m.chance(10) {
			dev.NodeAllocatableResourceMappings = m.makeMapping(d)
		}
	}
	if len(dev.NodeAllocatableResourceMappings) == 0 {
		dev.NodeAllocatableResourceMappings = nil
	}
	if d.counters && m.chance(85) {
		dev.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: fmt.Sprintf("card-%d", m.IntN(2)), Counters: map[string]resourcev1.Counter{
			"memory": {Value: amount("%dGi", m.between(1, 6))}, "engines": {Value: amount("%d", m.between(1, 3))},
		}}}
	}
	if m.has(tainted, 35) {
		dev.Taints = []resourcev1.DeviceTaint{{
			Key: pick(m, "health", "reserved"), Value: pick(m, "", "bad"),
			Effect: pick(m, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNone),
		}}
	}
	if m.has(binding, 30) {
		dev.BindsToNode = ptr.To(m.chance(50))
		if m.chance(60) {
			dev.BindingConditions, dev.BindingFailureConditions = []string{"example.com/attached"}, []string{"example.com/failed"}
		}
	}
	return dev
}

func (m *maker) makeRules() {
	if !m.themes[rules] {
		return
	}
	for i := range m.between(1, 2) {
		r := &resourcev1beta2.DeviceTaintRule{ObjectMeta: m.meta("rule", fmt.Sprintf("rule-%d", i))}
		r.Spec.Taint = resourcev1beta2.DeviceTaint{
			Key: pick(m, "health", "reserved"), Effect: pick(m, resourcev1beta2.DeviceTaintEffectNoSchedule, resourcev1beta2.DeviceTaintEffectNoExecute, resourcev1beta2.DeviceTaintEffectNone),
		}
		d := pick(m, m.drivers...)
		l := pick(m, d.devices...)
		switch m.IntN(8) {
		case 0: // all devices
		case 1, 2:
			r.Spec.DeviceSelector = &resourcev1beta2.DeviceTaintSelector{Driver: &d.name}
		case 3:
			r.Spec.DeviceSelector = &resourcev1beta2.DeviceTaintSelector{Pool: &l.pool}
		case 4:
			r.Spec.DeviceSelector = &resourcev1beta2.DeviceTaintSelector{Device: &l.spec.Name}
		default:
			r.Spec.DeviceSelector = &resourcev1beta2.DeviceTaintSelector{Driver: &d.name, Pool: &l.pool, Device: &l.spec.Name}
		}
		m.w.TaintRules = append(m.w.TaintRules, r)
	}
}
