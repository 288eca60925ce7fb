package world

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// wants is what a pod is to ask for in all, in whole numbers, cpu in thousandths.
type wants map[corev1.ResourceName]int64

// asked are the resources that pods ask for, in the order in which they are looked at.
var asked = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, pages2, pages1G, plugin}

func quantityOf(name corev1.ResourceName, n int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	case plugin:
		return *resource.NewQuantity(n, resource.DecimalSI)
	}
	return *resource.NewQuantity(n, resource.BinarySI)
}

// unit is what a resource is asked for in.
func unit(name corev1.ResourceName) int64 {
	switch name {
	case pages2:
		return 2 << 20
	case pages1G:
		return 1 << 30
	}
	return 1
}

// makeUser makes a pod that asks for some of what the target has.
func (m *maker) makeUser(name string) *corev1.Pod {
	w := wants{}
	for _, r := range asked {
		if total, ok := m.target.Status.Allocatable[r]; ok && m.chance(60) {
			n := total.Value()
			if r == corev1.ResourceCPU {
				n = total.MilliValue()
			}
			w[r] = n * int64(m.IntN(25)) / 100 / unit(r) * unit(r)
		}
	}
	return m.shape(name, w)
}

// shape makes a pod that asks for so much in all, by its containers, its init containers or as a whole.
func (m *maker) shape(name string, w wants) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: m.spaced("pod", name)}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	container := func(name string) corev1.Container {
		return corev1.Container{Name: name, Image: "image", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}}
	}
	for i := range m.between(1, 2) {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprintf("c%d", i)))
	}
	sidecar := -1
	for i := range pick(m, 0, 0, 1, 2) {
		c := container(fmt.Sprintf("i%d", i))
		if sidecar < 0 && m.chance(50) {
			sidecar = i
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if m.chance(15) {
		p.Spec.Overhead = corev1.ResourceList{}
	}
	whole := m.has(podLevel, 50)
	for _, r := range asked {
		if w[r] > 0 {
			m.spread(p, r, w[r], sidecar, whole)
		}
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			beside(containers[i].Resources.Requests)
		}
	}
	return p
}

// beside adds what API servers want to see beside hugepages.
func beside(requests corev1.ResourceList) {
	_, small := requests[pages2]
	_, large := requests[pages1G]
	_, cpu := requests[corev1.ResourceCPU]
	_, memory := requests[corev1.ResourceMemory]
	if (small || large) && !cpu && !memory {
		requests[corev1.ResourceCPU] = quantity("1m")
	}
}

// spread asks for so much of one resource, in one of the ways that come to it.
func (m *maker) spread(p *corev1.Pod, r corev1.ResourceName, n int64, sidecar int, whole bool) {
	part := func(of int64) int64 { return of * int64(m.IntN(4)) / 4 / unit(r) * unit(r) }
	ask := func(c *corev1.Container, n int64) {
		if n == 0 {
			return
		}
		c.Resources.Requests[r] = quantityOf(r, n)
		if unit(r) > 1 || r == plugin || m.chance(20) {
			c.Resources.Limits[r] = quantityOf(r, n)
		}
	}
	if p.Spec.Overhead != nil && r != plugin && unit(r) == 1 {
		o := part(n) / 2
		p.Spec.Overhead[r] = quantityOf(r, o)
		n -= o
	}
	if whole && r == corev1.ResourceCPU { // the first that is looked at
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
		n += 4 // for what stands beside hugepages
	}
	if p.Spec.Resources != nil && (r == corev1.ResourceCPU || r == corev1.ResourceMemory || unit(r) > 1) {
		p.Spec.Resources.Requests[r] = quantityOf(r, n)
		if unit(r) > 1 {
			p.Spec.Resources.Limits[r] = quantityOf(r, n)
		}
		if n = part(n); r == corev1.ResourceCPU {
			n = max(0, n-4)
		}
	}
	left := n
	if sidecar >= 0 {
		running := part(n)
		ask(&p.Spec.InitContainers[sidecar], running)
		left -= running
	}
	for i := range p.Spec.InitContainers {
		switch {
		case i == sidecar:
		case i < sidecar && m.chance(30): // before the sidecar starts it may have all
			ask(&p.Spec.InitContainers[i], n)
			left = part(left)
		case m.chance(30):
			ask(&p.Spec.InitContainers[i], left)
			left = part(left)
		}
	}
	for i := range p.Spec.Containers {
		mine := left
		if i+1 < len(p.Spec.Containers) {
			mine = part(left)
		}
		ask(&p.Spec.Containers[i], mine)
		left -= mine
	}
}

// resize gives a pod's containers other resources than they have now, or had.
func (m *maker) resize(p *corev1.Pod) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		status := corev1.ContainerStatus{Name: c.Name}
		had := func() corev1.ResourceList {
			list := c.Resources.Requests.DeepCopy()
			for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q, ok := list[r]; ok {
					list[r] = quantityOf(r, q.MilliValue()*int64(m.between(1, 8))/4/pick[int64](m, 1, 2)/map[bool]int64{true: 1, false: 1000}[r == corev1.ResourceCPU])
				}
			}
			return list
		}
		if m.chance(80) {
			status.Resources = &corev1.ResourceRequirements{Requests: had()}
		}
		if m.chance(70) {
			status.AllocatedResources = had()
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
	}
	if m.chance(30) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: pick(m, corev1.PodReasonInfeasible, corev1.PodReasonDeferred),
		}}
	}
	if p.Spec.Resources != nil && m.chance(50) {
		p.Status.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("250m")}}
		p.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceCPU: quantity("300m")}
	}
}

// makePod makes the pod that is asked about: it asks for about as much as is left.
func (m *maker) makePod() {
	p := m.shape("pod", m.border())
	for i := range pick(m, 0, 1, 1, 1, 2, 3) {
		m.makeUse(p, i)
	}
	if m.themes[extended] && len(m.extendedNames) > 0 && m.chance(70) {
		m.extend(p)
	}
	if m.has(extended, 4) {
		m.leave(p)
	}
	if m.themes[odd] {
		m.oddly(p)
	}
	terms := onNode(m.target)
	if m.themes[avoided] {
		m.choosy(p, &terms.NodeSelectorTerms[0])
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	m.w.Pod = p
}

// makeUse gives the pod a claim: its own, one that is there, or one that has users.
func (m *maker) makeUse(p *corev1.Pod, i int) {
	c := m.makeClaim(fmt.Sprintf("wanted-%d", i))
	if m.has(allocated, 50) {
		m.allocate(c, p)
	}
	m.refer(p, c)
	if m.chance(60) || c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0 {
		return
	}
	if m.has(amiss, 50) {
		c.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1_800_001_000, 0).Time}
		c.Finalizers = []string{resourcev1.Finalizer}
	}
	use := &p.Spec.ResourceClaims[len(p.Spec.ResourceClaims)-1]
	use.ResourceClaimName, use.ResourceClaimTemplateName = nil, ptr.To("template")
	status := corev1.PodResourceClaimStatus{Name: use.Name, ResourceClaimName: &c.Name}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}
	if m.has(amiss, 30) {
		c.OwnerReferences[0].UID = "other" // a claim of an earlier pod of that name
	}
	if m.has(amiss, 30) {
		status.ResourceClaimName = nil // it needs none
	}
	if m.has(amiss, 20) {
		return // it has none yet
	}
	p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, status)
}

// extend lets containers ask for an extended resource that a class is for.
func (m *maker) extend(p *corev1.Pod) {
	name := pick(m, m.extendedNames...)
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if m.chance(55) {
				list[i].Resources.Requests[name] = amount("%d", m.between(1, 2))
				list[i].Resources.Limits[name] = list[i].Resources.Requests[name]
			}
		}
	}
}

// oddly lets the pod ask for nothing of something, for what nobody has, or for a claim twice.
func (m *maker) oddly(p *corev1.Pod) {
	r := &pick(m, &p.Spec.Containers[0], &p.Spec.Containers[len(p.Spec.Containers)-1]).Resources
	nothing := append([]corev1.ResourceName{plugin, "unknown.example.com/card"}, m.extendedNames...)
	if name := pick(m, nothing...); m.chance(70) {
		q := pick(m, quantity("0"), quantity("0"), quantity("1"))
		r.Requests[name], r.Limits[name] = q, q
	}
	if m.chance(15) {
		r.Requests[pages1G], r.Limits[pages1G] = quantity("1Gi"), quantity("1Gi")
		beside(r.Requests)
	}
	if n := len(p.Spec.ResourceClaims); n > 0 && m.chance(15) {
		again := p.Spec.ResourceClaims[n-1]
		if again.ResourceClaimName != nil {
			again.Name = "again"
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, again)
			r.Claims = append(r.Claims, corev1.ResourceClaim{Name: again.Name})
		}
	}
}

// leave leaves behind the claim for extended resources of an earlier attempt.
func (m *maker) leave(p *corev1.Pod) {
	c := &resourcev1.ResourceClaim{ObjectMeta: m.spaced("claim", "earlier")}
	c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "container-0-request-0", Exactly: exactly(m.drivers[0].name[:3], 1)}}
	m.w.Claims = append(m.w.Claims, c)
}

// border returns what is about as much as is left on the target.
func (m *maker) border() wants {
	out := wants{}
	for _, r := range asked {
		total, ok := m.target.Status.Allocatable[r]
		if !ok {
			continue
		}
		for _, p := range m.w.Pods {
			if p.Spec.NodeName != m.target.Name || p.Status.Phase != "" {
				continue
			}
			used := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{
				UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true, UseDRANodeAllocatableResourceClaimStatus: true,
			})[r]
			total.Sub(used)
		}
		free := total.Value()
		if r == corev1.ResourceCPU {
			free = total.MilliValue()
		}
		switch {
		case free <= 0 || m.chance(35):
		case m.chance(6):
			out[r] = free + unit(r)
		case m.chance(12):
			out[r] = free / unit(r) * unit(r)
		case m.chance(30):
			out[r] = max(0, free-m.aboutMapped(r)) / unit(r) * unit(r)
		default:
			out[r] = free * int64(m.between(5, 60)) / 100 / unit(r) * unit(r)
		}
	}
	return out
}

// aboutMapped is what some devices may map to, once or twice.
func (m *maker) aboutMapped(r corev1.ResourceName) int64 {
	for _, d := range m.drivers {
		mapping, ok := d.mapping[r]
		if !ok {
			continue
		}
		q := quantity("2Gi")
		if mapping.AllocationMultiplier != nil && mapping.CapacityKey == nil {
			q = *mapping.AllocationMultiplier
		}
		n := q.Value()
		if r == corev1.ResourceCPU {
			n = q.MilliValue()
		}
		return n * int64(m.between(1, 2))
	}
	return 0
}

// choosy lets the pod tolerate and choose nodes.
func (m *maker) choosy(p *corev1.Pod, term *corev1.NodeSelectorTerm) {
	for _, t := range m.target.Spec.Taints {
		if m.chance(65) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
				Key: t.Key, Operator: pick(m, corev1.TolerationOpExists, corev1.TolerationOpEqual), Effect: pick(m, "", t.Effect),
			})
			last := &p.Spec.Tolerations[len(p.Spec.Tolerations)-1]
			if last.Operator == corev1.TolerationOpEqual {
				last.Value = t.Value
			}
		}
	}
	if m.chance(25) {
		p.Spec.NodeSelector = map[string]string{"disk": pick(m, m.target.Labels["disk"], "fast")}
	}
	if m.chance(25) {
		term.MatchExpressions = []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelTopologyZone, Operator: pick(m, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn),
			Values: []string{pick(m, m.target.Labels[corev1.LabelTopologyZone], "two")},
		}}
		if slices.Equal(term.MatchExpressions[0].Values, []string{m.target.Labels[corev1.LabelTopologyZone]}) && m.chance(70) {
			term.MatchExpressions[0].Operator = corev1.NodeSelectorOpIn
		}
	}
}
