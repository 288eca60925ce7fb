package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// world is a small cluster over time: several versions of each object, some of which are deleted, and come again.
type world struct {
	choices
	version uint64
	// all holds every version of every object, object by object.
	all  []Observation
	last map[seenKey]Observation
	// ids are devices that slices listed once, each once.
	ids []DeviceID
}

const (
	gpus = "gpu.example.com"
	cpus = "cpu.example.com"
)

// worldOf makes a world, smaller things first.
func worldOf(c choices) *world {
	w := &world{choices: c, last: map[seenKey]Observation{}}
	for _, n := range []string{"a", "b", "c"} {
		w.node(n)
	}
	for _, p := range []pool{{gpus, "a"}, {gpus, "b"}, {cpus, "a"}, {gpus, "fabric"}} {
		w.pool(p)
	}
	w.ids = append(w.ids, DeviceID{Driver: gpus, Pool: "nowhere", Device: "gpu-0-0"})
	w.taintRules()
	w.classes()
	w.load()
	w.additions()
	return w
}

// rarely is true once in so many times.
func (w *world) rarely(label string, of int) bool { return w.upTo(label, of-1) == of-1 }

func (w *world) see(o Observation) {
	w.version++
	o.Ref.ResourceVersion, o.At = w.version, noon.Add(time.Duration(w.version)*time.Second)
	w.all = append(w.all, o)
	w.last[seenKey{o.Ref.Kind, o.Ref.UID}] = o
}

// versions sees an object up to three times, and at times how it goes.
func (w *world) versions(make func() Observation, goes int) (left bool) {
	var o Observation
	for range 1 + w.upTo("versions", 2) {
		o = make()
		w.see(o)
	}
	if goes > 0 && w.rarely("goes", goes) {
		w.see(gone(o))
		return false
	}
	return true
}

// cold returns what a process that starts now sees: the last version of everything that is left.
func (w *world) cold() []Observation {
	var out []Observation
	for _, o := range w.all {
		if l := w.last[seenKey{o.Ref.Kind, o.Ref.UID}]; !l.Ref.Deleted && l.Ref.ResourceVersion == o.Ref.ResourceVersion {
			out = append(out, o)
		}
	}
	return out
}

// live returns the observations as a live book sees them: every object's versions in their order, the objects in any.
func (w *world) live() []Observation {
	r := w.order()
	queues := map[seenKey][]Observation{}
	var turn []seenKey
	for _, o := range w.all {
		key := seenKey{o.Ref.Kind, o.Ref.UID}
		queues[key] = append(queues[key], o)
		turn = append(turn, key)
	}
	r.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
	out := make([]Observation, 0, len(turn))
	for _, key := range turn {
		out = append(out, queues[key][0])
		queues[key] = queues[key][1:]
	}
	return out
}

func (w *world) node(name string) {
	uid := name
	see := func() Observation {
		o := seeNode(name, 0, func(n *corev1.Node) {
			n.UID = types.UID(uid)
			n.Labels = map[string]string{corev1.LabelHostname: []string{name, name, name, "same"}[w.upTo("hostname", 3)], "color": []string{"red", "blue"}[w.upTo("color", 1)]}
			n.Spec.Unschedulable = w.rarely("cordoned", 4)
			if w.rarely("unready", 4) {
				n.Status.Conditions[0].Status = corev1.ConditionFalse
			}
			n.Status.Allocatable["cpu"] = *resource.NewQuantity(int64(64-8*w.upTo("cpu", 1)), resource.DecimalSI)
			n.Status.Allocatable["hugepages-1Gi"] = *resource.NewQuantity(int64(w.upTo("hugepages", 2))<<34, resource.BinarySI)
			if w.rarely("plugin", 4) {
				n.Status.Allocatable["example.com/gpu"] = resource.MustParse("2")
			}
		})
		o.Ref.UID = types.UID(uid)
		return o
	}
	if !w.versions(see, 6) && w.upTo("node again", 1) == 1 {
		uid = name + "-again"
		w.versions(see, 6)
	}
}

// pool makes some generations of a pool. Older ones mostly go; after the last the pool may start again from the first.
func (w *world) pool(id pool) {
	last := 1 + w.upTo("generations", 1)
	for g := range last {
		goes := 8
		if g < last-1 {
			goes = 2
		}
		w.generation(id, int64(g+1), fmt.Sprint(g+1), goes)
	}
	if w.rarely("starts again", 4) {
		w.generation(id, 1, "again", 8)
	}
}

func (w *world) generation(id pool, generation int64, name string, goes int) {
	parts, counters := 1+w.upTo("slices", 1), w.rarely("counters", 3)
	count := parts
	if counters {
		count++
	}
	if w.rarely("declared", 6) {
		count++
	}
	slice := func(part int, fill func(o *Observation)) {
		w.versions(func() Observation {
			uid := fmt.Sprintf("%s-%s-%s-%d", id.driver[:3], id.name, name, part)
			o := Observation{Ref: Ref{Kind: KindSlice, UID: types.UID(uid)}, Slice: &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
				Spec: resourcev1.ResourceSliceSpec{
					Driver: id.driver, Pool: resourcev1.ResourcePool{Name: id.name, Generation: generation, ResourceSliceCount: int64(count)},
				},
			}}
			w.selects(&o.Slice.Spec, id.name)
			fill(&o)
			return o
		}, goes)
	}
	for part := range parts {
		slice(part, func(o *Observation) {
			for i := range w.upTo("devices", 3) {
				w.addDevice(o, part, i, counters)
			}
		})
	}
	if counters {
		slice(parts, func(o *Observation) {
			o.Slice.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{
				"slots": {Value: *resource.NewQuantity(int64(4-w.upTo("fewer", 2)), resource.DecimalSI)},
			}}}
		})
	}
}

var blue = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
	{Key: "color", Operator: corev1.NodeSelectorOpIn, Values: []string{"blue"}},
}}}}

// notA selects by name, as slices do that name their nodes.
var notA = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
	{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}},
}}}}

// selects says which nodes a slice is for.
func (w *world) selects(s *resourcev1.ResourceSliceSpec, poolName string) {
	if poolName != "fabric" {
		s.NodeName = ptr.To(poolName)
		return
	}
	switch w.upTo("selects", 5) {
	case 0:
		s.AllNodes = ptr.To(true)
	case 1:
		s.NodeSelector = blue
	case 2:
		s.NodeSelector = notA
	case 3:
		s.PerDeviceNodeSelection = ptr.To(true)
	case 4:
		s.NodeSelector = gtOf("many")
	default:
		s.NodeName = ptr.To("b")
	}
}

func (w *world) addDevice(o *Observation, part, i int, counters bool) {
	s := &o.Slice.Spec
	d := resourcev1.Device{
		Name: fmt.Sprintf("gpu-%d-%d", part, i),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: ptr.To(fmt.Sprintf("GPU-%s-%d-%d", s.Pool.Name, part, i))}, "type": {StringValue: ptr.To("gpu")},
		},
	}
	if zone := w.upTo("zone", 2); zone > 0 {
		d.Attributes["resource.kubernetes.io/numaNode"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(zone - 1))}
	}
	if ptr.Deref(s.PerDeviceNodeSelection, false) {
		switch w.upTo("device selects", 2) {
		case 0:
			d.AllNodes = ptr.To(true)
		case 1:
			d.NodeSelector = blue
		default:
			d.NodeName = ptr.To("c")
		}
	}
	w.shape(o, &d, part, counters)
	s.Devices = append(s.Devices, d)
	if id := (DeviceID{s.Driver, s.Pool.Name, d.Name}); !slices.Contains(w.ids, id) {
		w.ids = append(w.ids, id)
	}
}

// shape makes more of a device than a card that one claim has.
func (w *world) shape(o *Observation, d *resourcev1.Device, part int, counters bool) {
	mapped := map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
		"cpu": {AllocationMultiplier: resource.NewQuantity(int64(4+4*w.upTo("mapped", 1)), resource.DecimalSI)},
	}
	switch w.upTo("shape", 8) {
	case 1:
		d.NodeAllocatableResourceMappings = mapped
	case 2:
		o.mapped137(d.Name, Mappings{Rules: Rules137, List: []Mapping{{
			Resource: "cpu", Multiplier: *resource.NewQuantity(int64(w.upTo("mapped", 2)), resource.DecimalSI),
			PerPod: resource.MustParse("1"), PerContainer: resource.MustParse("500m"),
		}}})
	case 3:
		d.AllowMultipleAllocations = ptr.To(true)
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"size": {Value: resource.MustParse("8Gi")}}
		if w.upTo("policy", 1) == 1 {
			d.Capacity["size"] = resourcev1.DeviceCapacity{Value: resource.MustParse("8Gi"), RequestPolicy: &resourcev1.CapacityRequestPolicy{
				Default: ptr.To(resource.MustParse("1Gi")), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1Gi")), Step: ptr.To(resource.MustParse("1Gi"))},
			}}
		}
		d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{"hugepages-1Gi": {CapacityKey: ptr.To(resourcev1.QualifiedName("size"))}}
	case 4:
		d.Attributes["type"] = resourcev1.DeviceAttribute{StringValue: ptr.To("mig")}
		d.Attributes["parentUUID"] = resourcev1.DeviceAttribute{StringValue: ptr.To(fmt.Sprintf("GPU-%s-%d-0", o.Slice.Spec.Pool.Name, part))}
	case 5:
		d.Taints = []resourcev1.DeviceTaint{{Key: "lost", Effect: []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}[w.upTo("effect", 1)]}}
	case 6:
		d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
	case 7:
		w.impossible(o, d)
	}
	if counters && w.upTo("draws", 1) == 1 {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourcev1.Counter{
			"slots": {Value: *resource.NewQuantity(int64(1+w.upTo("drawn", 2)), resource.DecimalSI)},
		}}}
	}
}

func (w *world) impossible(o *Observation, d *resourcev1.Device) {
	switch w.upTo("impossible", 4) {
	case 1:
		if list := o.Slice.Spec.Devices; len(list) > 0 {
			d.Name = list[0].Name
		}
	case 2:
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"size": {Value: resource.MustParse("-1")}}
	case 3:
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "unknown", Counters: map[string]resourcev1.Counter{"slots": {Value: resource.MustParse("1")}}}}
	case 4:
		o.mapped137(d.Name, Mappings{Rules: Rules137, Problem: "it cannot be read"})
	}
}

func (o *Observation) mapped137(device string, m Mappings) {
	o.Mappings = maps.Clone(o.Mappings)
	if o.Mappings == nil {
		o.Mappings = map[string]Mappings{}
	}
	o.Mappings[device] = m
}

func (w *world) taintRules() {
	for i := range w.upTo("taint rules", 2) {
		w.versions(func() Observation {
			r := TaintRule{Name: fmt.Sprintf("rule-%d", i), Taint: resourcev1.DeviceTaint{Key: fmt.Sprintf("rule-%d", i), Effect: resourcev1.DeviceTaintEffectNoSchedule}}
			switch w.upTo("rule", 4) {
			case 0:
				r.Driver = gpus
			case 1:
				r.Pool = []string{"a", "fabric"}[w.upTo("rule's pool", 1)]
			case 2:
				r.Driver, r.Pool, r.Device = gpus, "a", "gpu-0-0"
			case 3:
				r.All = true
			default:
				r.None = true
			}
			return Observation{Ref: Ref{Kind: KindTaintRule, UID: types.UID(r.Name)}, TaintRule: &r}
		}, 4)
	}
}

func (w *world) classes() {
	for _, uid := range []string{"gpu", "gpu-again"} {
		if !w.versions(func() Observation {
			c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: types.UID(uid)}}
			if w.upTo("extended", 1) == 1 {
				c.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
			}
			return Observation{Ref: Ref{Kind: KindDeviceClass, UID: c.UID}, Class: c}
		}, 3) {
			continue
		}
		return
	}
}
