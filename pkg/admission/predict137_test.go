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

// TestPredict137: devices that map to the node's own resources as Kubernetes 1.37 has it.
func TestPredict137(t *testing.T) {
	// w is node n with two devices, each of which takes so much cpu and adds so much memory to each pod and container.
	w := func(cpu, memory string, more ...ledger.MappingRules) *world {
		w := newWorld()
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}},
		}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}, Status: corev1.NodeStatus{Allocatable: amounts("cpu=8", "memory=100", "pods=10")}}
		w.see(ledger.KindNode, "n", func(o *ledger.Observation) { o.Node = node })
		entry := map[corev1.ResourceName]ledger.NodeAllocatable137{}
		if cpu != "" {
			entry["cpu"] = ledger.NodeAllocatable137{Mapping: &ledger.NodeAllocatableMapping137{DeviceMultiplier: ptr.To(resource.MustParse(cpu))}}
		}
		if memory != "" {
			q := ptr.To(resource.MustParse(memory))
			entry["memory"] = ledger.NodeAllocatable137{Overhead: &ledger.NodeAllocatableOverhead137{PerPod: q, PerContainer: q}}
		}
		return w.see(ledger.KindSlice, "s", func(o *ledger.Observation) {
			o.Slice, o.Mappings = slice, map[string]ledger.Mappings{}
			for i := range slice.Spec.Devices {
				o.Mappings[slice.Spec.Devices[i].Name] = *ledger.Mappings137(&slice.Spec.Devices[i], entry)
			}
		})
	}
	byCapacity := func() *world {
		w := w("1", "")
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 2, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}}}}
		return w.see(ledger.KindSlice, "s", func(o *ledger.Observation) {
			o.Slice = s
			o.Mappings = map[string]ledger.Mappings{"gpu-0": *ledger.Mappings137(&s.Spec.Devices[0], map[corev1.ResourceName]ledger.NodeAllocatable137{"cpu": {
				Mapping: &ledger.NodeAllocatableMapping137{CapacityKey: ptr.To(resourcev1.QualifiedName("cores")), CapacityMultiplier: ptr.To(resource.MustParse("1"))}}})}
		})
	}
	one, two := claiming(exactly("gpu", 1)), claiming(exactly("gpu", 2))
	used := func(by types.UID) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", UID: by}}
		}
	}
	whole := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=3")}
		p.Spec.Overhead = amounts("cpu=1")
	}
	node, given, both := v1alpha1.ReasonNodeResources, map[string]string{"a": "gpu-0"}, map[string]string{"a": "gpu-0 gpu-1"}
	predictions(t, map[string]prediction{
		"so much a device":                             {world: w("3", ""), pod: asks("cpu=2").claim("a", two), given: both, mapped: ledger.Amounts{"cpu": 6000}},
		"more than is left":                            {world: w("3", ""), pod: asks("cpu=3").claim("a", two), no: node, says: "insufficient cpu", quirk: "tries no other devices"},
		"overhead for the pod and a container":         {world: w("", "25"), pod: asks("memory=50").claim("a", one), given: given, mapped: ledger.Amounts{"memory": 50}},
		"overhead that is not there":                   {world: w("", "25"), pod: asks("memory=51").claim("a", one), no: node, quirk: "tries no other devices"},
		"a claim to which no container refers":         {world: w("3", "25"), pod: asks("memory=75").unreferred("a", one), given: given, mapped: ledger.Amounts{"cpu": 3000, "memory": 25}},
		"a claim that is allocated counts":             {world: w("9", ""), pod: asks("cpu=1").claim("a", one).given("a", "gpu-0"), no: node, quirk: "tries no other devices"},
		"an allocated claim of another pod":            {world: w("1", ""), pod: asks("cpu=1").claim("a", one).given("a", "gpu-0").with("a", used("other")), no: v1alpha1.ReasonDevicesInUse, quirk: "no two pods"},
		"an allocated claim of the pod":                {world: w("1", ""), pod: asks("cpu=1").claim("a", one).given("a", "gpu-0").with("a", used("pod")), mapped: ledger.Amounts{"cpu": 1000}},
		"overhead of an allocated claim of others":     {world: w("", "25"), pod: asks("memory=1").claim("a", one).given("a", "gpu-0").with("a", used("other")), mapped: ledger.Amounts{"memory": 50}},
		"overhead of a claim that a pod has there":     {world: w("", "25").mapping("other", "claim-a"), pod: asks("memory=1").claim("a", one).given("a", "gpu-0").with("a", used("other")), mapped: ledger.Amounts{"memory": 50}},
		"a device of an allocated claim that is gone":  {world: w("1", ""), pod: asks("cpu=1").claim("a", one).given("a", "gpu-0", "gpu-9"), no: v1alpha1.ReasonDevicesUnhealthy, says: "not listed any more"},
		"devices of which all are gone":                {world: w("1", ""), pod: asks("cpu=1").claim("a", one).given("a", "gpu-9")},
		"a capacity of which nothing is consumed":      {world: byCapacity(), pod: asks("cpu=1").claim("a", one), no: v1alpha1.ReasonClaimUnsupported, says: "consumes nothing"},
		"what a pod as a whole asks for covers both":   {world: w("2", ""), pod: asks("cpu=1").claim("a", one).on(whole), given: given, mapped: ledger.Amounts{"cpu": 2000}},
		"what a pod as a whole asks for is too little": {world: w("2", ""), pod: asks("cpu=1001m").claim("a", one).on(whole), no: node, says: "as a whole asks for less cpu"},
	})
}
