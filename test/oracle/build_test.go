package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// change adds something to a small world.
type change func(*world.World)

// with returns a world of one node with 4 cpus, 16Gi of memory and 64Mi of small hugepages, a class for each of two drivers,
// and a pod of one container that asks for one cpu; and what the changes make of it.
func with(changes ...change) *world.World {
	w := &world.World{Node: "node-a", Pod: pod("pod", "")}
	w.Nodes = []*corev1.Node{node("node-a")}
	for _, driver := range []string{"gpu", "nic"} {
		c := &resourcev1.DeviceClass{ObjectMeta: meta(driver)}
		c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + driver + `.example.com"`}}}
		w.Classes = append(w.Classes, c)
	}
	for _, change := range changes {
		change(w)
	}
	return w
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "7"}
}

func node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta(name)}
	n.Labels = map[string]string{corev1.LabelHostname: name}
	n.Status.Allocatable = resources("cpu=4", "memory=16Gi", "hugepages-2Mi=64Mi", "pods=10")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// resources reads "name=quantity".
func resources(list ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, s := range list {
		name, q := cut(s)
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func cut(s string) (before, after string) {
	for i := range s {
		if s[i] == '=' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func pod(name, on string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Namespace = "team"
	p.Spec = corev1.PodSpec{
		SchedulerName: corev1.DefaultSchedulerName, NodeName: on, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{container("main", "cpu=1")},
	}
	return p
}

func container(name string, asks ...string) corev1.Container {
	return corev1.Container{Name: name, Image: "image", Resources: corev1.ResourceRequirements{Requests: resources(asks...)}}
}

// allocatable makes the node list other resources than it did.
func allocatable(list ...string) change {
	return func(w *world.World) {
		for name, q := range resources(list...) {
			w.Nodes[0].Status.Allocatable[name] = q
		}
	}
}

// asks makes the pod's only container ask for that instead.
func asks(list ...string) change {
	return func(w *world.World) { w.Pod.Spec.Containers[0].Resources.Requests = resources(list...) }
}

// limited is asks for resources that must be limited as well.
func limited(list ...string) change {
	return func(w *world.World) {
		r := &w.Pod.Spec.Containers[0].Resources
		r.Limits = resources(list...)
		for name, q := range r.Limits {
			r.Requests[name] = q
		}
	}
}

// first gives the pod an init container, first of those it has; a sidecar goes on while others run.
func first(sidecar bool, list ...string) change {
	return func(w *world.World) {
		c := container(fmt.Sprintf("init-%d", len(w.Pod.Spec.InitContainers)), list...)
		if sidecar {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		w.Pod.Spec.InitContainers = append([]corev1.Container{c}, w.Pod.Spec.InitContainers...)
	}
}

// there puts a pod on the node that asks for that.
func there(name string, list ...string) change {
	return func(w *world.World) {
		p := pod(name, w.Node)
		p.Spec.Containers[0].Resources.Requests = resources(list...)
		w.Pods = append(w.Pods, p)
	}
}

// device makes one; what follows its name is changed in turn.
func device(name string, changes ...func(*resourcev1.Device)) resourcev1.Device {
	d := resourcev1.Device{Name: name, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("16Gi")}}}
	for _, change := range changes {
		change(&d)
	}
	return d
}

// many makes so many devices.
func many(n int) []resourcev1.Device {
	var out []resourcev1.Device
	for i := range n {
		out = append(out, device(fmt.Sprintf("d%02d", i)))
	}
	return out
}

// mapping makes a device map to the node's resources, so much a device.
func mapping(list ...string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{}
		for name, q := range resources(list...) {
			d.NodeAllocatableResourceMappings[name] = resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: &q}
		}
	}
}

// mapsMemory makes a device map to so many times what is consumed of its memory.
func mapsMemory(multiplier string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		key := resourcev1.QualifiedName("memory")
		d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
			corev1.ResourceMemory: {CapacityKey: &key, AllocationMultiplier: ptr.To(resource.MustParse(multiplier))},
		}
	}
}

func several(d *resourcev1.Device) { d.AllowMultipleAllocations = ptr.To(true) }

func numbered(n int64) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"number": {IntValue: &n}}
	}
}

func draws(counters string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{
			"memory": {Value: resource.MustParse(counters)},
		}}}
	}
}

// lists makes a driver list devices in a slice of the node's pool, of generation 2 and alone in it.
func lists(driver string, devices ...resourcev1.Device) change {
	return func(w *world.World) {
		s := &resourcev1.ResourceSlice{ObjectMeta: meta(fmt.Sprintf("slice-%d", len(w.Slices)))}
		s.Spec = resourcev1.ResourceSliceSpec{
			Driver: driver + ".example.com", NodeName: &w.Node, Devices: devices,
			Pool: resourcev1.ResourcePool{Name: w.Node, Generation: 2, ResourceSliceCount: 1},
		}
		w.Slices = append(w.Slices, s)
	}
}

// last changes the slice that was added last.
func last(change func(*resourcev1.ResourceSlice)) change {
	return func(w *world.World) { change(w.Slices[len(w.Slices)-1]) }
}

// counts makes a driver list a counter set of so much memory in a slice of its own, the second one of its pool.
func counts(driver, total string) change {
	return func(w *world.World) {
		for _, s := range w.Slices {
			if s.Spec.Driver == driver+".example.com" {
				s.Spec.Pool.ResourceSliceCount = 2
			}
		}
		lists(driver)(w)
		s := w.Slices[len(w.Slices)-1]
		s.Spec.Pool.ResourceSliceCount = 2
		s.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(total)}}}}
	}
}

func request(class string, count int64) *resourcev1.ExactDeviceRequest {
	return &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
}

func claim(name string, r *resourcev1.ExactDeviceRequest) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: meta(name)}
	c.Namespace = "team"
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: r}}
	return c
}

// claims lets the pod use a claim that its container refers to.
func claims(c *resourcev1.ResourceClaim) change {
	return func(w *world.World) {
		w.Claims = append(w.Claims, c)
		use(w.Pod, c.Name)
	}
}

func use(p *corev1.Pod, claim string) {
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	r := &p.Spec.Containers[0].Resources
	r.Claims = append(r.Claims, corev1.ResourceClaim{Name: claim})
}

// given makes a claim one that has a device already, and so many consumers.
func given(c *resourcev1.ResourceClaim, driver, device string, consumers int) *resourcev1.ResourceClaim {
	c.Finalizers = []string{resourcev1.Finalizer}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		{Request: "r", Driver: driver + ".example.com", Pool: "node-a", Device: device},
	}
	for i := range consumers {
		name := fmt.Sprintf("consumer-%d", i)
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)})
	}
	return c
}

// extended makes a class serve an extended resource.
func extended(class, name string) change {
	return func(w *world.World) {
		for _, c := range w.Classes {
			if c.Name == class {
				c.Spec.ExtendedResourceName = &name
			}
		}
	}
}

// changed is any other change.
func changed(change func(*world.World)) change { return change }
