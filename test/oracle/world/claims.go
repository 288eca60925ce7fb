package world

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// makeClasses makes one for each driver, named as the devices are, and some more.
func (m *maker) makeClasses() {
	for _, d := range m.drivers {
		c := m.makeClass(d.name[:3], fmt.Sprintf(`device.driver == "%s"`, d.name))
		if m.has(extended, 60) {
			name := corev1.ResourceName("example.com/" + d.name[:3])
			c.Spec.ExtendedResourceName = ptr.To(string(name))
			m.extendedNames = append(m.extendedNames, name, corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+c.Name))
		}
	}
	d := m.drivers[0]
	c := m.makeClass("model-a", fmt.Sprintf(`device.driver == "%s" && device.attributes["%s"].model == "a"`, d.name, d.name))
	if len(m.extendedNames) > 0 && m.chance(30) { // the newest class serves a resource
		c.Spec.ExtendedResourceName = ptr.To(string(m.extendedNames[0]))
		c.CreationTimestamp = metav1.Unix(1_800_000_000+int64(m.IntN(100)), 0)
	}
	if m.themes[extended] {
		for _, name := range m.extendedNames { // some nodes have a device plugin for it
			if m.chance(25) {
				m.target.Status.Allocatable[name] = amount("%d", m.between(0, 3))
				m.target.Status.Capacity[name] = m.target.Status.Allocatable[name]
			}
		}
	}
}

func (m *maker) makeClass(name, expression string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: m.meta("class", name)}
	c.Spec.Selectors = []resourcev1.DeviceSelector{selector(expression)}
	m.w.Classes = append(m.w.Classes, c)
	return c
}

func selector(expression string) resourcev1.DeviceSelector {
	return resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}
}

// makeHolders puts pods on the nodes, and allocates some of the devices to them and to others.
func (m *maker) makeHolders() {
	for i := range m.IntN(6) {
		p := m.makeUser(fmt.Sprintf("there-%d", i))
		p.Spec.NodeName = m.target.Name
		switch {
		case m.chance(15):
			p.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1_800_001_000, 0).Time}
			p.Finalizers = []string{"example.com/slow"}
			p.DeletionGracePeriodSeconds = ptr.To(int64(30))
		case m.chance(8):
			p.Status.Phase = pick(m, corev1.PodSucceeded, corev1.PodFailed)
		case m.chance(12):
			p.Spec.NodeName = m.other.Name
		}
		if m.has(resized, 60) {
			m.resize(p)
		}
		if m.has(extended, 20) && len(m.extendedNames) > 0 {
			m.extend(p)
		}
		m.w.Pods = append(m.w.Pods, p)
	}
	for _, d := range m.drivers {
		for _, l := range d.devices {
			if !l.current || !m.chance(18) {
				continue
			}
			times := 1
			if multi(l.spec) {
				times = m.between(1, 3)
			}
			for range times {
				m.hold(l)
			}
		}
	}
}

func multi(d *resourcev1.Device) bool { return ptr.Deref(d.AllowMultipleAllocations, false) }

// hold allocates a device to a claim, of a pod that is there or of one that is not told.
func (m *maker) hold(l *listed) {
	c := &resourcev1.ResourceClaim{ObjectMeta: m.spaced("claim", fmt.Sprintf("held-%d", m.made))}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: exactly(l.driver.name[:3], 1)}}
	c.Finalizers = []string{resourcev1.Finalizer}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{m.result(l, "r")}
	if m.has(broken, 20) {
		m.misallocate(&c.Status.Allocation.Devices.Results[0])
	}
	if m.has(admin, 30) {
		c.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
		c.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	}
	l.held = true
	user := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "elsewhere", UID: types.UID(fmt.Sprintf("elsewhere-%d", m.made))}
	if len(m.w.Pods) > 0 && m.chance(60) {
		p := pick(m, m.w.Pods...)
		user.Name, user.UID = p.Name, p.UID
		m.refer(p, c)
		if len(l.spec.NodeAllocatableResourceMappings) > 0 && m.chance(85) {
			m.note(p, c, l)
		}
	}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{user}
	m.w.Claims = append(m.w.Claims, c)
}

// misallocate makes a result say what the slices do not, or no longer.
func (m *maker) misallocate(r *resourcev1.DeviceRequestAllocationResult) {
	switch m.IntN(4) {
	case 0:
		r.Device = "gone"
	case 1:
		r.Pool = "gone"
	case 2: // it did not allow several then
		r.ShareID, r.ConsumedCapacity = nil, nil
	case 3: // it did
		r.ShareID = ptr.To(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", m.IntN(1<<30))))
		r.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{memory: quantity("1Gi")}
	}
}

// note writes into a pod's status what a claim maps to, more or less.
func (m *maker) note(p *corev1.Pod, c *resourcev1.ResourceClaim, l *listed) {
	s := corev1.NodeAllocatableResourceClaimStatus{ResourceClaimName: c.Name, Containers: []string{p.Spec.Containers[0].Name}}
	s.Resources = map[corev1.ResourceName]resource.Quantity{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, pages2, pages1G} {
		switch mapping, ok := l.spec.NodeAllocatableResourceMappings[name]; {
		case !ok:
		case mapping.CapacityKey != nil:
			s.Resources[name] = pick(m, quantity("1Gi"), quantity("2Gi"))
		default:
			s.Resources[name] = *mapping.AllocationMultiplier
		}
	}
	p.Status.NodeAllocatableResourceClaimStatuses = append(p.Status.NodeAllocatableResourceClaimStatuses, s)
}

// result is what an allocation says of a device.
func (m *maker) result(l *listed, request string) resourcev1.DeviceRequestAllocationResult {
	r := resourcev1.DeviceRequestAllocationResult{Request: request, Driver: l.driver.name, Pool: l.pool, Device: l.spec.Name}
	if multi(l.spec) {
		r.ShareID = ptr.To(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", m.IntN(1<<30))))
		r.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{memory: pick(m, quantity("1Gi"), quantity("2Gi"), quantity("5Gi"), quantity("5Gi"))}
	}
	return r
}

func exactly(class string, count int) *resourcev1.ExactDeviceRequest {
	return &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(count)}
}

// refer lets a pod use a claim, and one of its containers or more refer to it.
func (m *maker) refer(p *corev1.Pod, c *resourcev1.ResourceClaim) {
	name := fmt.Sprintf("claim-%d", len(p.Spec.ResourceClaims))
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &c.Name})
	if m.has(unreferred, 60) {
		return
	}
	containers := p.Spec.Containers
	if len(p.Spec.InitContainers) > 0 && m.chance(20) {
		containers = p.Spec.InitContainers
	}
	first := m.IntN(len(containers))
	for i := range containers {
		if i == first || m.chance(30) {
			containers[i].Resources.Claims = append(containers[i].Resources.Claims, corev1.ResourceClaim{Name: name})
		}
	}
}

// makeClaim makes a claim that the pod asks for.
func (m *maker) makeClaim(name string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: m.spaced("claim", name)}
	d := pick(m, m.drivers...)
	for i := range pick(m, 1, 1, 1, 2) {
		if m.chance(25) {
			d = pick(m, m.drivers...)
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, m.makeRequest(d, fmt.Sprintf("r%d", i)))
	}
	if m.has(constrained, 70) {
		attribute := resourcev1.FullyQualifiedName(pick(m, pcieRoot, d.name+"/"+model, d.name+"/"+zone))
		constraint := resourcev1.DeviceConstraint{MatchAttribute: &attribute}
		if m.chance(30) {
			constraint = resourcev1.DeviceConstraint{DistinctAttribute: &attribute}
		}
		if m.chance(25) {
			constraint.Requests = []string{"r0"}
		}
		c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, constraint)
	}
	m.w.Claims = append(m.w.Claims, c)
	return c
}

// counted is how many devices to ask of a driver: about as many as there may be.
func (m *maker) counted(d *driver) int {
	free := 0
	for _, l := range d.devices {
		if l.near && l.current && !l.held {
			free++
		}
	}
	if m.chance(15) {
		return min(4, max(1, free-m.IntN(2))) // more than that can take ages
	}
	return pick(m, 1, 1, 1, 1, 1, 2)
}

func (m *maker) makeRequest(d *driver, name string) resourcev1.DeviceRequest {
	class := d.name[:3]
	if d == m.drivers[0] && m.chance(12) {
		class = "model-a"
	}
	if m.has(prioritized, 50) {
		r := resourcev1.DeviceRequest{Name: name}
		for i := range m.between(2, 3) {
			e := m.makeExact(d, class)
			r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{
				Name: fmt.Sprintf("s%d", i), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode,
				Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity,
			})
		}
		return r
	}
	e := m.makeExact(d, class)
	if m.has(admin, 40) {
		e.AdminAccess = ptr.To(true)
	}
	return resourcev1.DeviceRequest{Name: name, Exactly: e}
}

func (m *maker) makeExact(d *driver, class string) *resourcev1.ExactDeviceRequest {
	e := exactly(class, m.counted(d))
	if m.has(everything, 50) {
		e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	if m.chance(20) {
		e.Selectors = []resourcev1.DeviceSelector{selector(fmt.Sprintf(pick(m,
			`device.attributes["%[1]s"].model == "a"`, `device.attributes["%[1]s"].numa == 0`,
			`device.capacity["%[1]s"].memory.compareTo(quantity("10Gi")) > 0`,
			`has(device.attributes["%[1]s"].extra) && device.attributes["%[1]s"].extra`,
		), d.name))}
	}
	if m.chance(2) { // an error where a device has no such attribute
		e.Selectors = []resourcev1.DeviceSelector{selector(fmt.Sprintf(`device.attributes["%[1]s"].extra`, d.name))}
	}
	if (m.themes[tainted] || m.themes[rules]) && m.chance(40) {
		e.Tolerations = []resourcev1.DeviceToleration{{
			Key: pick(m, "", "health", "reserved"), Operator: resourcev1.DeviceTolerationOpExists,
			Effect: pick(m, "", resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute),
		}}
		if t := &e.Tolerations[0]; t.Key != "" && m.chance(30) {
			t.Operator, t.Value = resourcev1.DeviceTolerationOpEqual, pick(m, "", "bad")
		}
	}
	if m.has(odd, 15) {
		e.DeviceClassName = pick(m, "none", d.name[:3])
		e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{bandwidth: quantity("5")}}
	} else if d.multiple && m.chance(50) {
		e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
			memory: pick(m, quantity("1Gi"), quantity("2Gi"), quantity("1536Mi"), quantity("4Gi"), quantity("9Gi")),
		}}
		if m.chance(20) {
			e.Capacity.Requests[bandwidth] = quantity("5")
		}
	}
	return e
}

// allocate makes a claim one that was allocated before, for others or for nobody yet.
func (m *maker) allocate(c *resourcev1.ResourceClaim, p *corev1.Pod) {
	var l *listed
	for range 8 {
		l = pick(m, pick(m, m.drivers...).devices...)
		if l.near && l.current && !l.held {
			break
		}
	}
	l.held = true
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r0", Exactly: exactly(l.driver.name[:3], 1)}}
	c.Spec.Devices.Constraints = nil
	c.Finalizers = []string{resourcev1.Finalizer}
	a := &resourcev1.AllocationResult{}
	a.Devices.Results = []resourcev1.DeviceRequestAllocationResult{m.result(l, "r0")}
	if m.chance(60) {
		a.NodeSelector = onNode(pick(m, m.target, m.target, m.other))
	}
	if m.has(binding, 40) {
		r := &a.Devices.Results[0]
		r.BindingConditions, r.BindingFailureConditions = []string{"example.com/attached"}, []string{"example.com/failed"}
		met := metav1.Condition{Type: pick(m, "example.com/attached", "example.com/failed"), Status: metav1.ConditionTrue, Reason: "Told", LastTransitionTime: metav1.Unix(1_800_000_000, 0)}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []metav1.Condition{met}}}
	}
	c.Status.Allocation = a
	for i := range pick(m, 0, 1, 2, resourcev1.ResourceClaimReservedForMaxSize) {
		user := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: fmt.Sprintf("user-%d", i), UID: types.UID(fmt.Sprintf("user-%d", i))}
		c.Status.ReservedFor = append(c.Status.ReservedFor, user)
	}
	if len(c.Status.ReservedFor) > 0 && m.chance(25) {
		c.Status.ReservedFor[0] = resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}
	}
	if len(c.Status.ReservedFor) == 0 || len(m.w.Pods) == 0 || m.chance(40) {
		return
	}
	other := pick(m, m.w.Pods...)
	m.refer(other, c)
	c.Status.ReservedFor[len(c.Status.ReservedFor)-1] = resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: other.Name, UID: other.UID}
	if len(l.spec.NodeAllocatableResourceMappings) > 0 && m.chance(85) {
		m.note(other, c, l)
	}
}

func onNode(n *corev1.Node) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{n.Name},
	}}}}}
}
