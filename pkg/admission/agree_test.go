package admission

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// changed makes several changes of a node and its slice one.
func changed(changes ...func(*corev1.Node, *resourcev1.ResourceSlice)) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(n *corev1.Node, s *resourcev1.ResourceSlice) {
		for _, change := range changes {
			change(n, s)
		}
	}
}

// slice adds a slice of gpu.example.com with so many h100 devices in a pool; change says more.
func (w *world) slice(pool, node string, generation int64, devices int, change func(*resourcev1.ResourceSlice)) *world {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: pool + "-of-" + node, ResourceVersion: "1"}}
	s.UID = types.UID(s.Name)
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: ptr.To(node), Pool: resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: 1}}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: nodeName(i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model": {StringValue: ptr.To("h100")}, "uuid": {StringValue: ptr.To(pool + node + nodeName(i))},
		}})
	}
	if change != nil {
		change(s)
	}
	return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
}

// asksAsWhole has the podset's pods ask for so many cpus as a whole.
func asksAsWhole(ps PodSet, cpus string) PodSet {
	ps.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=" + cpus)}
	ps.Requests = ledger.RequestsOf(&corev1.Pod{Spec: *ps.Spec}, false)
	return ps
}

// distinct asks for one request of so many devices in distinct zones, and another of one.
func distinct(count int64) resourcev1.ResourceClaimSpec {
	spec := claiming(exactly("a", count), exactly("b", 1))
	spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(zone))}}
	return spec
}

// TestAgreed: on each of these Decide and kube-scheduler came to something else once.
func TestAgreed(t *testing.T) {
	one := func() PodSet { return pods(1, 1, referring(1)) }
	fast := func(w *world) *world {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "fast"}}
		c.Spec.Selectors = cels([]string{`device.attributes["gpu.example.com"].fast`})
		return w.see(ledger.KindDeviceClass, c.UID, func(o *ledger.Observation) { o.Class = c })
	}
	quickAt := func(i int) func(*corev1.Node, *resourcev1.ResourceSlice) {
		return sliceOf(func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[i].Attributes["fast"] = resourcev1.DeviceAttribute{BoolValue: ptr.To(true)}
		})
	}
	wholly := func(w *world) *world {
		return w.held("n", false, false, 0)
	}
	bothWays := func(count int32) PodSet {
		ps := shaped("main", count, claiming(exactly("gpu", 1)))
		of := plainly(count, 1)
		ps.Spec.Containers, ps.Shape.Plain, ps.Requests = of.Spec.Containers, of.Shape.Plain, of.Requests
		return ps
	}
	counters := func(s *resourcev1.ResourceSlice) {
		s.Spec.NodeName, s.Spec.AllNodes, s.Spec.Devices = nil, ptr.To(true), nil
		s.Spec.Pool.ResourceSliceCount = 2
		s.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: resource.MustParse("2")}}}}
	}
	draws := func(s *resourcev1.ResourceSlice) {
		s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true)
		s.Spec.Pool.ResourceSliceCount = 2
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: resource.MustParse("2")}}}}
		}
	}
	onePod := nodeOf(func(n *corev1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("1") })
	maps := func(cpus string) func(*resourcev1.ResourceSlice) {
		return func(s *resourcev1.ResourceSlice) { mapping(cpus)(nil, s) }
	}
	by137 := func(entry ledger.NodeAllocatable137) *world {
		w := newWorld().node("n", "h100:1", listing("cpu=4"))
		s := w.book.Snapshot().Node("n").Devices[0].Slice.DeepCopy()
		s.ResourceVersion = "again"
		return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) {
			o.Slice, o.Mappings = s, map[string]ledger.Mappings{"gpu-0": *ledger.Mappings137(&s.Spec.Devices[0], map[corev1.ResourceName]ledger.NodeAllocatable137{"cpu": entry})}
		})
	}
	overhead := ledger.NodeAllocatable137{Overhead: &ledger.NodeAllocatableOverhead137{PerContainer: ptr.To(resource.MustParse("2"))}}
	twice := one()
	twice.Spec.Containers = append(twice.Spec.Containers, *twice.Spec.Containers[0].DeepCopy())
	quibbling := one()
	quibbling.Requests = quibbling.Requests.Clone()
	quibbling.Requests["quibbles"] = 1
	// cut lists a card that is held, a half of it, and a device that draws on no counters.
	cut := func() *world {
		return newWorld().node("n", "h100:3,a100:1", changed(halved, sliceOf(func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[2].ConsumesCounters, s.Spec.Devices[3].ConsumesCounters = nil, nil
		}))).counters("n").held("n", false, false, 0)
	}
	halves := sliceOf(func(s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].ConsumesCounters = nil
			if i != 1 {
				s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: resource.MustParse("1")}}}}
			}
		}
		s.Spec.Pool.ResourceSliceCount = 2
	})
	referringOnce := func(ps PodSet) PodSet {
		ps.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "c0"}}}}}
		return ps
	}
	quickly := exactly("gpu", 1)
	quickly.Exactly.DeviceClassName = "fast"
	first := func(devices int64, change func(*PodSet)) []PodSet {
		ps := pods(1, devices, change)
		ps.Name = "first"
		return []PodSet{ps}
	}
	unsupported, busy := v1alpha1.ReasonClaimUnsupported, v1alpha1.ReasonForeignUse
	for name, tc := range map[string]struct {
		world  *world
		podSet PodSet
		// beside are podsets that are placed with it, and come before it.
		beside []PodSet
		plain  bool
		// reason is why it waits; empty where it is placed, and then kube-scheduler agrees.
		reason v1alpha1.Reason
	}{
		"what a pod asks for as a whole has to cover what its devices map to":            {world: newWorld().node("n", "h100:1", mapping("4")), podSet: asksAsWhole(one(), "3"), reason: unsupported},
		"of its devices those are given that it covers":                                  {world: newWorld().node("n", "h100:3", mapping("4", "4", "1")), podSet: asksAsWhole(one(), "3")},
		"a device that was given as a whole before it was shared has nothing left":       {world: wholly(newWorld().node("n", "h100:1", several)), podSet: one(), reason: busy},
		"what is left of a shared device counts where the allocator has to search":       {world: newWorld().node("n", "h100:3", changed(several, halved)).counters("n").shared("n", 2), podSet: pods(3, 1, referring(1)), reason: v1alpha1.ReasonConstraintUnsatisfied},
		"a class that fails on a device of another flavor keeps pods away":               {world: fast(newWorld()).node("n", "a100:1,h100:1", quickAt(1)), podSet: pods(1, 1, askingClass("fast")), reason: unsupported},
		"but not where kube-scheduler comes to it later":                                 {world: fast(newWorld()).node("n", "h100:1,a100:1", quickAt(0)), podSet: pods(1, 1, askingClass("fast"))},
		"of pods that ask for the same devices by claim and by number a node takes one":  {world: newWorld().served("").node("n", "h100:4", nil), podSet: bothWays(2), plain: true, reason: unsupported},
		"one of them it does take":                                                       {world: newWorld().served("").node("n", "h100:4", nil), podSet: bothWays(1), plain: true},
		"it takes none while another is about to be given its own":                       {world: newWorld().served("").node("n", "h100:4", nil).promisesBoth("n", 0, 1), podSet: bothWays(1), plain: true, reason: v1alpha1.ReasonDevicesInUse},
		"devices that a pool which went back lists too are not told apart":               {world: newWorld().node("n", "h100:1", nil).slice("old", "n", 2, 1, asUUID("n-0")).slice("old", "n", 1, 1, asUUID("n-0")), podSet: one(), reason: unsupported},
		"two nodes that list a device of one pool by one name give it once":              {world: newWorld().node("m", "h100:0", nil).node("n", "h100:0", nil).slice("parts", "m", 1, 1, nil).slice("parts", "n", 2, 1, nil), podSet: pods(2, 1, referring(1)), reason: v1alpha1.ReasonUndecided},
		"where it maps otherwise on another node it is not given":                        {world: newWorld().node("m", "h100:0", nil).node("n", "h100:0", onePod).slice("parts", "m", 1, 1, maps("2")).slice("parts", "n", 2, 1, maps("1")), podSet: one(), reason: v1alpha1.ReasonDevicesUnhealthy},
		"what one node draws on the counters of a pool of several is gone on the others": {world: newWorld().node("m", "h100:0", nil).node("n", "h100:0", nil).slice("fabric", "of", 1, 2, draws).slice("fabric", "counters", 1, 0, counters), podSet: pods(2, 1, referring(1)), reason: v1alpha1.ReasonConstraintUnsatisfied},
		"values are distinct within one request as well":                                 {world: newWorld().node("n", "h100:4", zones(2)), podSet: shaped("main", 1, distinct(2)), reason: v1alpha1.ReasonConstraintUnsatisfied},
		"where there are as many distinct values they are found":                         {world: newWorld().node("n", "h100:6", zones(3)), podSet: shaped("main", 1, distinct(2))},
		"by the rules of 1.37 each container that refers to a claim counts":              {world: by137(overhead), podSet: twice, reason: v1alpha1.ReasonNodeResources},
		"one container alone has room":                                                   {world: by137(overhead), podSet: one()},
		"by the rules of 1.37 a claim that no container refers to may map":               {world: by137(ledger.NodeAllocatable137{Mapping: &ledger.NodeAllocatableMapping137{DeviceMultiplier: ptr.To(resource.MustParse("1"))}}), podSet: pods(1, 1, nil)},
		"what is drawn on counters counts beside pods that have no devices":              {world: cut(), beside: first(0, nil), podSet: one()},
		"what is drawn on counters counts beside pods whose devices draw on none":        {world: cut(), beside: first(1, assignedTo("a100")), podSet: pods(1, 1, assignedTo("h100"))},
		"a search gives none that maps to a claim that no container refers to":           {world: newWorld().node("n", "h100:3", changed(halves, mappingOf("cpu", "", "1", 2))).counters("n").held("n", false, false, 1), podSet: referringOnce(shaped("main", 1, claiming(exactly("gpu", 1)), claiming(exactly("gpu", 1))))},
		"nor one that kube-scheduler fails before it comes to":                           {world: fast(newWorld()).node("n", "h100:1,a100:1,h100:1", changed(halves, quickAt(0), quickAt(2))).counters("n"), podSet: shaped("main", 1, claiming(exactly("gpu", 1)), claiming(quickly))},
		"what kube-scheduler does not count need not be there":                           {world: newWorld().node("n", "h100:1", nil), podSet: quibbling},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Request{Policy: testPolicy(t, nil), Namespace: "team", Now: noon, PodSets: append(slices.Clone(tc.beside), tc.podSet)}
			if tc.plain {
				r.Policy = plainPolicy(t)
			}
			dec := anew().Decide(background, tc.world.book.Snapshot(), r)
			if dec.Reason != tc.reason || (dec.Verdict == v1alpha1.VerdictAdmit) != (tc.reason == "") {
				t.Fatalf("%s: %s: %s", dec.Verdict, dec.Reason, dec.Message)
			}
			if tc.reason == "" {
				agrees(t, tc.world, r, dec, func(list []*releasing) []*releasing { return list })
			}
		})
	}
}

// asUUID gives the devices of a slice a uuid that others have.
func asUUID(uuid string) func(*resourcev1.ResourceSlice) {
	return func(s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: &uuid}
		}
	}
}

// promisesBoth has another Workload be promised a device of a node by name and one by number.
func (w *world) promisesBoth(node string, named, numbered int) *world {
	key := &v1alpha1.PlacementKey{WorkloadUID: "other", Admission: "a"}
	id := func(i int) []string {
		return []string{ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: w.book.Snapshot().Node(node).Devices[i].ID.Device}.String()}
	}
	w.see(ledger.KindWorkload, "other", func(o *ledger.Observation) {
		o.Workload = &ledger.Workload{Namespace: "elsewhere", Name: "other", Key: key}
	})
	return w.see(ledger.KindPlacement, "p-other", func(o *ledger.Observation) {
		o.Placement = &ledger.Placement{Namespace: "elsewhere", Name: "other", Spec: &v1alpha1.PlacementSpec{Key: key, PodSets: []v1alpha1.PlacementPodSet{{
			Name: "main", Nodes: []v1alpha1.PlacementNode{{Name: node, Slots: 1, Requests: []v1alpha1.PlacementRequest{
				{Claim: "c0", Request: "gpu", Devices: id(named)}, {Claim: v1alpha1.ExtendedResourcesClaim, Request: string(plainGPU), Devices: id(numbered)},
			}}}}}}}
	})
}

// askingClass has the podset's claim ask for devices of a class.
func askingClass(name string) func(*PodSet) {
	return func(ps *PodSet) {
		ps.Shape.Claims[0].Requests[0].Alternatives[0].Class = name
		ps.Shape.Claims[0].Spec.Devices.Requests[0].Exactly.DeviceClassName = name
	}
}
