package admission

import (
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

// mappingOf makes devices of a slice take so much of a resource, by a capacity if one is named.
func mappingOf(name corev1.ResourceName, capacity, multiplier string, devices ...int) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return sliceOf(func(s *resourcev1.ResourceSlice) {
		for _, i := range devices {
			d := &s.Spec.Devices[i]
			m := resourcev1.NodeAllocatableResourceMapping{AllocationMultiplier: ptr.To(resource.MustParse(multiplier))}
			if capacity != "" {
				m.CapacityKey = ptr.To(resourcev1.QualifiedName(capacity))
			}
			if d.NodeAllocatableResourceMappings == nil {
				d.NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{}
			}
			d.NodeAllocatableResourceMappings[name] = m
		}
	})
}

// capacious gives devices a capacity of memory, which several claims may share.
func capacious(multiple bool, devices ...int) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return sliceOf(func(s *resourcev1.ResourceSlice) {
		for _, i := range devices {
			s.Spec.Devices[i].AllowMultipleAllocations = ptr.To(multiple)
			s.Spec.Devices[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
		}
	})
}

// sameName adds a slice of another driver with a device gpu-0 in a pool n, on node m or where change says.
func (w *world) sameName(change func(*resourcev1.ResourceSlice)) *world {
	w.node("m", "a100:1", nil)
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "same", UID: "same"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "other.example.com", NodeName: ptr.To("m"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}}
	if change != nil {
		change(s)
	}
	return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
}

// mapping puts a pod on node n for which something is counted for a claim.
func (w *world) mapping(pod, claim string) *world {
	return w.see(ledger.KindPod, types.UID(pod), func(o *ledger.Observation) {
		o.Pod = &ledger.Pod{Namespace: "team", Name: pod, Node: "n", Requests: ledger.Amounts{"cpu": 1000, "pods": 1}, Claims: []string{claim}, Referring: []int{1},
			Mapped: []ledger.ClaimStatus{{Claim: claim, Amounts: ledger.Amounts{"cpu": 1}}}}
	})
}

func TestPredictMapped(t *testing.T) {
	one, two := claiming(exactly("gpu", 1)), claiming(exactly("gpu", 2))
	in := func(cpu string) *incoming { return asks("cpu="+cpu).claim("a", one) }
	whole := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=" + cpu)} }
	}
	admin := func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true) }
	given, both := map[string]string{"a": "gpu-0"}, map[string]string{"a": "gpu-0 gpu-1"}
	node, unsupported := v1alpha1.ReasonNodeResources, v1alpha1.ReasonClaimUnsupported
	const noOthers, unreferred, fails, ignored = "tries no other devices", "no container refers to", "fails for a pod", "is allocated: what device"
	predictions(t, map[string]prediction{
		"a node of 64 cpus has 40 for a claim and 24 for the pod":    {world: alone("h100:1", mappingOf("cpu", "", "40", 0)), pod: in("24"), given: given, mapped: ledger.Amounts{"cpu": 40000}},
		"a node of 64 cpus has no 40 for a claim and 30 for the pod": {world: alone("h100:1", mappingOf("cpu", "", "40", 0)), pod: in("30"), no: node, says: "insufficient cpu: 70000 asked for, 64000 free", quirk: noOthers},
		"other devices are not tried":                                {world: alone("h100:2", mappingOf("cpu", "", "70", 0)), pod: in("1"), no: node, quirk: noOthers},
		"a device that maps nothing comes first":                     {world: alone("h100:2", mappingOf("cpu", "", "70", 1)), pod: in("1"), given: given},
		"so much for each device":                                    {world: alone("h100:2", mappingOf("memory", "", "100Gi", 0, 1)), pod: asks("memory=312Gi").claim("a", two), given: both, mapped: ledger.Amounts{"memory": 200 << 30}},
		"the sum is rounded up once, with what the pod asks for":     {world: alone("h100:2", mappingOf("hugepages-2Mi", "", "500m", 0, 1), listing("hugepages-2Mi=2")), pod: asks("hugepages-2Mi=1").claim("a", two), given: both, mapped: ledger.Amounts{"hugepages-2Mi": 1}},
		"hugepages that are not there":                               {world: alone("h100:1", mappingOf("hugepages-2Mi", "", "2Mi", 0)), pod: in("1"), no: node, says: "insufficient hugepages-2Mi", quirk: noOthers},
		"ephemeral storage that is not there":                        {world: alone("h100:1", mappingOf("ephemeral-storage", "", "1", 0)), pod: in("1"), no: node, says: "insufficient ephemeral-storage", quirk: noOthers},
		"other resources of a node are not looked at":                {world: alone("h100:1", mappingOf("pods", "", "1000", 0)), pod: in("1"), given: given, mapped: ledger.Amounts{"pods": 1000}},
		"so much for each unit of a capacity that is consumed": {world: alone("h100:1", capacious(true, 0), mappingOf("memory", "memory", "2", 0)), pod: in("1").with("a", func(c *resourcev1.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")}}
		}), given: given, mapped: ledger.Amounts{"memory": 20 << 30}},
		"a capacity of which nothing is consumed":                    {world: alone("h100:1", capacious(false, 0), mappingOf("memory", "memory", "2", 0)), pod: in("1"), no: unsupported, says: "consumes nothing", quirk: fails},
		"what administrators see counts":                             {world: alone("h100:1", mappingOf("cpu", "", "40", 0)), pod: in("30").with("a", admin), no: node, quirk: noOthers},
		"a claim to which no container refers":                       {world: alone("h100:1", mappingOf("cpu", "", "1", 0)), pod: asks("cpu=1").unreferred("a", one), no: unsupported, says: "no container refers to it", quirk: unreferred},
		"a claim to which no container refers and that maps nothing": {world: alone("h100:1"), pod: asks("cpu=1").unreferred("a", one), given: given},
		"a claim to which an init container refers": {world: alone("h100:1", mappingOf("cpu", "", "1", 0)), pod: asks("cpu=1").unreferred("a", one).on(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "a"}}}}}
		}), given: given, mapped: ledger.Amounts{"cpu": 1000}},
		"a claim that is allocated counts nothing":                     {world: alone("h100:1", mappingOf("cpu", "", "100", 0)), pod: in("1").given("a", "gpu-0"), quirk: ignored},
		"a claim that is allocated counts nothing, another does":       {world: alone("h100:2", mappingOf("cpu", "", "40", 0, 1)).held("n", false, false, 0), pod: in("23").given("a", "gpu-0").claim("b", one), given: map[string]string{"b": "gpu-1"}, mapped: ledger.Amounts{"cpu": 40000}, quirk: ignored},
		"what a pod as a whole asks for covers both":                   {world: alone("h100:1", mappingOf("cpu", "", "2", 0)), pod: in("1").on(whole("3")), given: given, mapped: ledger.Amounts{"cpu": 2000}},
		"what a pod as a whole asks for is too little for both":        {world: alone("h100:1", mappingOf("cpu", "", "2", 0)), pod: in("1").on(whole("2")), no: node, says: "as a whole asks for less cpu"},
		"a claim that another pod on the node has":                     {world: alone("h100:1").mapping("other", "claim-a"), pod: in("1").given("a", "gpu-0"), no: v1alpha1.ReasonDevicesInUse, says: "used by another pod", quirk: "no two pods"},
		"a claim of its own that it has already":                       {world: alone("h100:1").mapping("pod", "claim-a"), pod: in("1").given("a", "gpu-0")},
		"a claim that two pods on the node have":                       {world: alone("h100:1").mapping("other", "claim-a").mapping("pod", "claim-a"), pod: in("1").given("a", "gpu-0"), no: v1alpha1.ReasonDevicesInUse, quirk: "no two pods"},
		"a claim of another namespace with the same name":              {world: alone("h100:1").mapping("other", "claim-b"), pod: in("1").given("a", "gpu-0")},
		"another device of the name maps nothing: one way it fits":     {world: alone("h100:1", mappingOf("cpu", "", "70", 0)).sameName(nil), pod: in("1"), no: node, quirk: "by pool and name alone", unsure: true},
		"another device of the name maps more: one way it does not":    {world: alone("h100:1").sameName(func(s *resourcev1.ResourceSlice) { mappingOf("cpu", "", "70", 0)(nil, s) }), pod: in("1"), no: node, quirk: "by pool and name alone", unsure: true},
		"another device of the name maps otherwise: both ways it fits": {world: alone("h100:1", mappingOf("cpu", "", "2", 0)).sameName(nil), pod: in("1"), given: given, mapped: ledger.Amounts{"cpu": 2000}, quirk: "by pool and name alone", unsure: true},
		"another device of the name maps otherwise: no way it fits":    {world: alone("h100:1", mappingOf("cpu", "", "70", 0)).sameName(func(s *resourcev1.ResourceSlice) { mappingOf("cpu", "", "80", 0)(nil, s) }), pod: in("1"), no: node, quirk: "by pool and name alone"},
		"another device of the name maps the same":                     {world: alone("h100:1", mappingOf("cpu", "", "2", 0)).sameName(func(s *resourcev1.ResourceSlice) { mappingOf("cpu", "", "2", 0)(nil, s) }), pod: in("1"), given: given, mapped: ledger.Amounts{"cpu": 2000}},
		"an older generation of the device maps otherwise":             {world: alone("h100:1", mappingOf("cpu", "", "70", 0), sliceOf(func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Generation = 2 })).sameName(func(s *resourcev1.ResourceSlice) { s.Spec.Driver, s.Spec.NodeName = "gpu.example.com", ptr.To("n") }), pod: in("1"), no: node, quirk: "by pool and name alone", unsure: true},
	})
}

// TestPredictManyNames: where more devices can be taken for others than are looked at, nothing is said.
func TestPredictManyNames(t *testing.T) {
	w := alone("h100:7", mappingOf("cpu", "", "1", 0, 1, 2, 3, 4, 5, 6)).sameName(func(s *resourcev1.ResourceSlice) {
		s.Spec.Devices = nil
		for _, name := range []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6"} {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name})
		}
	})
	six, seven := w.predict(t, asks("cpu=1").claim("a", claiming(exactly("gpu", 6)))), w.predict(t, asks("cpu=1").claim("a", claiming(exactly("gpu", 7))))
	if !six.Fits || !six.Unsure || six.Mapped["cpu"] != 6000 || seven.Fits || !seven.Unsure || seven.Reason != v1alpha1.ReasonUndecided {
		t.Errorf("six devices: %+v; seven: %+v", six, seven)
	}
}
