package admission

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// nicDriver lists devices beside those of gpu.example.com.
const nicDriver = "nic.example.com"

// plenty is what a world and what is asked of it have: of everything some, so that little of it turns each pod down.
type plenty struct {
	*rapid.T
	*world
	has map[string]bool
	// byRules137 says that devices map as Kubernetes 1.37 has it.
	byRules137 bool
	nodes      int
}

// rarely is true once in so many times, and not in the smallest of cases.
func (p *plenty) rarely(label string, of int) bool {
	return p.upTo(label, of-1) == of-1
}

// upTo draws a number, each as likely as another, the smallest first.
func (p *plenty) upTo(label string, n int) int {
	return rapid.SampledFrom(slices.Collect(indices(n+1))).Draw(p.T, label)
}

// themes are what a world may have, each one once in so many worlds.
var themes = map[string]int{
	"mapped": 2, "several": 3, "counters": 4, "taints": 4, "rules": 5, "huge": 3, "wide": 4, "twins": 8, "binding": 8, "whole": 5, "init": 3,
	"extended": 5, "older": 6, "regressed": 8, "incomplete": 12, "unreferred": 8, "guarded": 12, "parts": 10, "node taints": 10, "natives": 10,
}

// drawPlenty draws a world of up to so many nodes.
func drawPlenty(t *rapid.T, most int) *plenty {
	p := &plenty{T: t, world: newWorld().at(-1000), has: map[string]bool{}}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range themes {
			if !yield(name) {
				return
			}
		}
	}) {
		p.has[name] = p.rarely(name, themes[name])
	}
	p.byRules137 = p.has["mapped"] && p.rarely("1.37", 5)
	p.nodes = 1 + p.upTo("nodes", most-1)
	p.classes()
	for i := range p.nodes {
		p.drawNode(fmt.Sprintf("n%d", i))
	}
	if p.has["wide"] {
		p.drawSlice("gpu.example.com", "fabric", "", 1)
	}
	if p.has["rules"] {
		p.see(ledger.KindTaintRule, "rule", func(o *ledger.Observation) {
			o.TaintRule = &ledger.TaintRule{Name: "rule", Driver: rapid.SampledFrom([]string{"", "gpu.example.com", nicDriver}).Draw(t, "rule's driver"),
				Device: rapid.SampledFrom([]string{"", "gpu-0", "gpu-1"}).Draw(t, "rule's device"), Taint: resourcev1.DeviceTaint{Key: "worn", Effect: resourcev1.DeviceTaintEffectNoExecute}}
		})
	}
	for i := range p.nodes {
		p.drawUse(fmt.Sprintf("n%d", i))
	}
	return p
}

// classes are gpu, nic and, where a world has it, one whose selector fails on devices without the attribute that it is about.
func (p *plenty) classes() {
	class := func(name string, expressions ...string) *resourcev1.DeviceClass {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("class-" + name), CreationTimestamp: metav1.NewTime(noon)}}
		c.Spec.Selectors = cels(expressions)
		return c
	}
	list := []*resourcev1.DeviceClass{class("gpu", `device.driver == "gpu.example.com"`), class("nic", `device.driver == "nic.example.com"`)}
	if p.has["guarded"] {
		list = append(list, class("fast", `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].fast`))
	}
	if p.has["extended"] {
		list[0].Spec.ExtendedResourceName = ptr.To(string(plainGPU))
		if p.rarely("two classes of one name", 4) {
			list[1].Spec.ExtendedResourceName = ptr.To(string(plainGPU))
			list[1].CreationTimestamp = metav1.NewTime(after(rapid.SampledFrom([]int{-1, 1}).Draw(p.T, "its age")))
		}
	}
	for _, c := range list {
		if c.Name == "gpu" {
			c.UID = "class"
		}
		p.see(ledger.KindDeviceClass, c.UID, func(o *ledger.Observation) { o.Class = c })
	}
}

func (p *plenty) quantity(label string, of ...string) resource.Quantity {
	return resource.MustParse(rapid.SampledFrom(of).Draw(p.T, label))
}

func (p *plenty) drawNode(name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name, "flavor-any": "true"}}}
	for _, f := range []string{"h100", "a100"} {
		n.Labels["flavor-"+f] = "true"
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": p.quantity("cpu", "8", "4", "2", "3500m"), "memory": p.quantity("memory", "16Gi", "8Gi", "4Gi"),
		"ephemeral-storage": p.quantity("storage", "20Gi", "2Gi"), "pods": p.quantity("pods", "110", "110", "4", "2"),
	}
	if p.has["huge"] {
		n.Status.Allocatable["hugepages-2Mi"] = p.quantity("pages", "64Mi", "8Mi", "0")
	}
	if p.has["extended"] && p.rarely("plugin", 4) {
		n.Status.Allocatable[plainGPU] = p.quantity("plugin lists", "0", "1", "3")
	}
	if p.has["node taints"] && p.rarely("node taint", 2) {
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	}
	p.see(ledger.KindNode, n.UID, func(o *ledger.Observation) { o.Node = n })
	generation := int64(1)
	if p.has["older"] && p.rarely("older", 2) {
		p.drawSlice("gpu.example.com", name, name, 1)
		generation = 2
	}
	if p.has["regressed"] && p.rarely("regressed", 2) { // a pool beside it, which went back
		p.drawSlice("gpu.example.com", name+"-b", name, 2)
		p.drawSlice("gpu.example.com", name+"-b", name, 1)
		p.see(ledger.KindSlice, types.UID(fmt.Sprintf("gpu-%s-b-%s-2", name, name)), func(o *ledger.Observation) { o.Ref.Deleted = true })
	}
	p.drawSlice("gpu.example.com", name, name, generation)
	if p.rarely("nics", 2) {
		p.drawSlice(nicDriver, name, name, 1)
	}
}

// drawSlice lists a pool of a driver, on a node or for all of them.
func (p *plenty) drawSlice(driver, pool, node string, generation int64) {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%s-%d", driver[:3], pool, node, generation), ResourceVersion: fmt.Sprint(p.version)}}
	s.UID = types.UID(s.Name)
	s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: 1}}
	if s.Spec.NodeName = &node; node == "" {
		s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true)
	}
	counters := p.has["counters"] && driver == "gpu.example.com" && p.rarely("draws on counters", 2)
	mappings := map[string]ledger.Mappings{}
	for i := range rapid.SampledFrom([]int{4, 3, 6, 2, 1}).Draw(p.T, "devices") {
		d := p.drawDevice(driver, pool, i, counters)
		if p.byRules137 && len(d.NodeAllocatableResourceMappings) > 0 {
			d.NodeAllocatableResourceMappings = nil
			mappings[d.Name] = *ledger.Mappings137(&d, p.drawMapping137())
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	if p.has["parts"] && driver == "gpu.example.com" && p.rarely("parts", 2) && len(s.Spec.Devices) > 1 {
		for i := range s.Spec.Devices[1:] {
			s.Spec.Devices[i+1].Attributes["parentUUID"] = s.Spec.Devices[0].Attributes["uuid"]
		}
	}
	if p.has["incomplete"] && p.rarely("incomplete", 3) {
		s.Spec.Pool.ResourceSliceCount++
	}
	if counters {
		s.Spec.Pool.ResourceSliceCount++
		of := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-counters", UID: s.UID + "-counters", ResourceVersion: "1"}, Spec: s.Spec}
		of.Spec.Devices = nil
		of.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: p.quantity("halves", "2", "3", "4")}}}}
		p.see(ledger.KindSlice, of.UID, func(o *ledger.Observation) { o.Slice = of })
	}
	p.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice, o.Mappings = s, mappings })
}

func (p *plenty) drawDevice(driver, pool string, i int, counters bool) resourcev1.Device {
	prefix := driver[:3]
	if p.has["twins"] {
		prefix = "gpu"
	}
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	d := resourcev1.Device{Name: fmt.Sprintf("%s-%d", prefix, i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"uuid": text(fmt.Sprintf("%s-%d", pool, i)), "model": text(rapid.SampledFrom([]string{"h100", "h100", "a100"}).Draw(p.T, "model")),
		"kind": text(rapid.SampledFrom([]string{"x", "y"}).Draw(p.T, "kind")),
	}}
	if p.has["regressed"] {
		d.Attributes["uuid"] = text(fmt.Sprintf("%s-%d", driver, i)) // the same cards under another pool's name
	}
	if z := rapid.SampledFrom([]int{1, 1, 2, 0}).Draw(p.T, "zone"); z > 0 {
		d.Attributes["zone"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(z))}
	}
	if p.has["guarded"] && p.rarely("fast", 2) {
		d.Attributes["fast"] = resourcev1.DeviceAttribute{BoolValue: ptr.To(true)}
	}
	if p.has["several"] && p.rarely("several", 2) {
		d.AllowMultipleAllocations = ptr.To(true)
		c := resourcev1.DeviceCapacity{Value: resource.MustParse("8Gi")}
		if p.rarely("policy", 2) {
			c.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: ptr.To(p.quantity("default", "1Gi", "3Gi", "8Gi"))}
		}
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": c}
	}
	if p.has["mapped"] && p.rarely("maps", 2) {
		d.NodeAllocatableResourceMappings = p.drawMapping(d.AllowMultipleAllocations != nil)
	}
	if p.has["taints"] && p.rarely("tainted", 4) {
		d.Taints = []resourcev1.DeviceTaint{{Key: "worn", Effect: rapid.SampledFrom([]resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}).Draw(p.T, "effect")}}
	}
	if p.has["binding"] && p.rarely("binds", 2) {
		d.BindingConditions, d.BindingFailureConditions, d.BindsToNode = []string{"attached"}, []string{"failed"}, ptr.To(true)
	}
	if counters && p.rarely("draws", 2) {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: p.quantity("draws", "1", "2")}}}}
	}
	return d
}

func (p *plenty) drawMapping(multiple bool) map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping {
	if multiple && p.rarely("by capacity", 2) {
		return map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{"memory": {CapacityKey: ptr.To(resourcev1.QualifiedName("memory")), AllocationMultiplier: ptr.To(p.quantity("multiplier", "1", "500m"))}}
	}
	out := map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
		"cpu": {AllocationMultiplier: ptr.To(p.quantity("maps", "1", "2", "500m", "0.3333"))},
	}
	if p.rarely("maps memory", 3) {
		out["memory"] = resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: ptr.To(p.quantity("maps memory", "2Gi", "6Gi"))}
	}
	if p.has["huge"] && p.rarely("maps pages", 3) {
		out["hugepages-2Mi"] = resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: ptr.To(p.quantity("maps pages", "4Mi", "32Mi"))}
	}
	return out
}

func (p *plenty) drawMapping137() map[corev1.ResourceName]ledger.NodeAllocatable137 {
	e := ledger.NodeAllocatable137{}
	if p.rarely("maps", 2) {
		e.Mapping = &ledger.NodeAllocatableMapping137{DeviceMultiplier: ptr.To(p.quantity("maps", "1", "2"))}
	}
	if e.Mapping == nil || p.rarely("overhead", 2) {
		e.Overhead = &ledger.NodeAllocatableOverhead137{PerPod: ptr.To(p.quantity("per pod", "0", "1", "250m")), PerContainer: ptr.To(p.quantity("per container", "500m", "1"))}
	}
	return map[corev1.ResourceName]ledger.NodeAllocatable137{"cpu": e}
}

// drawUse has others use some of a node, devices among them.
func (p *plenty) drawUse(node string) {
	if p.rarely("runs", 2) {
		uid := types.UID("runs-" + node)
		p.see(ledger.KindPod, uid, func(o *ledger.Observation) {
			o.Pod = &ledger.Pod{Namespace: "elsewhere", Name: string(uid), Node: node,
				Requests: ledger.Amounts{"cpu": int64(p.upTo("uses", 3)) * 500, "memory": int64(p.upTo("uses memory", 2)) << 31, "pods": 1}}
		})
	}
	n := p.book.Snapshot().Node(node)
	for i := range n.Devices {
		dev := &n.Devices[i]
		if !p.rarely("held", 5) || !dev.Free() {
			continue
		}
		uid := types.UID(fmt.Sprintf("holder-%s-%d", node, i))
		p.see(ledger.KindPod, uid, func(o *ledger.Observation) {
			o.Pod = &ledger.Pod{Namespace: "elsewhere", Name: string(uid), Node: node, Owner: "job-elsewhere", Requests: ledger.Amounts{"cpu": 500, "pods": 1}}
		})
		c := &ledger.Claim{Namespace: "elsewhere", Name: string(uid), Pod: uid, Pods: []types.UID{uid}, Allocated: []ledger.DeviceID{dev.ID}}
		if dev.Multiple() && !p.rarely("as a whole", 6) {
			c.Allocated, c.Shares = []ledger.DeviceID{}, []ledger.Share{{Device: dev.ID, ID: uid, Consumed: ledger.Consumption{"memory": p.quantity("consumes", "1Gi", "4Gi", "7Gi")}}}
		}
		p.see(ledger.KindClaim, "claim-"+uid, func(o *ledger.Observation) { o.Claim = c })
	}
}

// drawPolicy draws the policy that is decided by: of one flavor that all devices belong to, or of several.
func (p *plenty) drawPolicy(t *testing.T, one bool) *flavors.Policy {
	return testPolicy(t, func(s *v1alpha1.DevicePolicySpec) {
		if p.has["extended"] {
			s.QuotaResource = string(plainGPU)
		}
		if s.Ordering = v1alpha1.OrderingPack; p.rarely("spread", 2) {
			s.Ordering = v1alpha1.OrderingSpread
		}
		if one || p.rarely("one flavor", 2) {
			s.Flavors = []v1alpha1.PolicyFlavor{{Name: "any", Selectors: cels([]string{`device.driver.endsWith(".example.com")`})}}
		}
	})
}

// drawGang draws podsets of up to so many pods each.
func (p *plenty) drawGang(podSets int, most int32) []PodSet {
	var out []PodSet
	for i := range 1 + p.upTo("podsets", podSets-1) {
		var claims []resourcev1.ResourceClaimSpec
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 0}).Draw(p.T, "claims") {
			claims = append(claims, p.drawAsk())
		}
		ps := shaped(fmt.Sprintf("p%d", i), 1+int32(p.upTo("more pods", int(most)-1)), claims...)
		p.drawSpec(&ps)
		shape, refusal := flavors.ShapeOf(&corev1.PodSpec{Containers: ps.Spec.Containers, InitContainers: ps.Spec.InitContainers}, nil)
		if refusal != nil {
			p.Fatalf("%s", refusal.Message)
		}
		ps.Shape.Plain = shape.Plain
		ps.Requests = ledger.RequestsOf(&corev1.Pod{Spec: *ps.Spec}, false)
		out = append(out, ps)
	}
	return out
}

// drawAsk draws a claim, most often of one device that any will do for.
func (p *plenty) drawAsk() resourcev1.ResourceClaimSpec {
	spec := claiming()
	for i := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(p.T, "requests") {
		r := resourcev1.DeviceRequest{Name: string(rune('a' + i))}
		draw := func() resourcev1.DeviceSubRequest {
			sub := resourcev1.DeviceSubRequest{DeviceClassName: "gpu", Count: rapid.SampledFrom([]int64{1, 1, 1, 2}).Draw(p.T, "count")}
			if p.rarely("class nic", 5) {
				sub.DeviceClassName = "nic"
			}
			if p.has["guarded"] && p.rarely("class fast", 2) {
				sub.DeviceClassName = "fast"
			}
			if p.rarely("selects a kind", 4) {
				sub.Selectors = cels([]string{is("kind", rapid.SampledFrom([]string{"x", "y"}).Draw(p.T, "kind"))})
			}
			if p.rarely("tolerates", 3) {
				sub.Tolerations = []resourcev1.DeviceToleration{{Key: "worn", Operator: resourcev1.DeviceTolerationOpExists}}
			}
			return sub
		}
		if p.rarely("prioritized", 4) {
			for j := range 2 {
				sub := draw()
				sub.Name = fmt.Sprintf("s%d", j)
				r.FirstAvailable = append(r.FirstAvailable, sub)
			}
		} else {
			of := draw()
			r.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: of.DeviceClassName, Count: of.Count, Selectors: of.Selectors, Tolerations: of.Tolerations}
		}
		spec.Devices.Requests = append(spec.Devices.Requests, r)
	}
	switch {
	case p.rarely("in one zone", 5):
		spec = matching(spec, zone)
	case p.rarely("in several zones", 8) && single(spec):
		spec.Devices.Constraints = append(spec.Devices.Constraints, resourcev1.DeviceConstraint{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(zone))})
	}
	return spec
}

// drawSpec draws the containers of a podset.
func (p *plenty) drawSpec(ps *PodSet) {
	spec := ps.Spec
	container := func(name string) corev1.Container {
		c := corev1.Container{Name: name}
		c.Resources.Requests = corev1.ResourceList{"cpu": p.quantity("asks cpu", "500m", "250m", "0", "1"), "memory": p.quantity("asks memory", "1Gi", "0", "512Mi", "3Gi")}
		if p.has["huge"] && p.rarely("asks pages", 3) {
			c.Resources.Requests["hugepages-2Mi"] = p.quantity("asks pages", "4Mi", "16Mi")
		}
		if p.rarely("asks storage", 5) {
			c.Resources.Requests["ephemeral-storage"] = resource.MustParse("1Gi")
		}
		if p.has["extended"] && p.rarely("asks plain", 2) {
			c.Resources.Requests[plainGPU] = p.quantity("plain", "1", "2", "0")
		}
		if p.has["natives"] && p.rarely("asks for what nobody counts", 3) {
			c.Resources.Requests["quibbles"] = resource.MustParse("1")
		}
		return c
	}
	for i := range 1 + p.upTo("containers", 1) {
		spec.Containers = append(spec.Containers, container(fmt.Sprintf("c%d", i)))
	}
	if p.has["init"] {
		c := container("first")
		if p.rarely("sidecar", 2) {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	if p.rarely("overhead", 8) {
		spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("250m")}
	}
	if p.has["whole"] {
		of := ledger.RequestsOf(&corev1.Pod{Spec: *spec}, false)
		spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu": *resource.NewMilliQuantity(of["cpu"]+int64(p.upTo("more as a whole", 4))*500, resource.DecimalSI),
		}}
	}
	if p.has["node taints"] && p.rarely("tolerates", 2) {
		spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	for _, c := range spec.ResourceClaims {
		if p.has["unreferred"] && p.rarely("no container refers to it", 3) {
			continue
		}
		for i := range spec.Containers {
			if i == 0 || p.rarely("another refers to it", 3) {
				r := &spec.Containers[i].Resources
				r.Claims = append(r.Claims, corev1.ResourceClaim{Name: c.Name})
			}
		}
	}
}
