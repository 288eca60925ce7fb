package admission

import (
	"fmt"
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

func TestPredictClaims(t *testing.T) {
	gpu, both := claiming(exactly("gpu", 1)), claiming(exactly("gpu", 2))
	one := func() *incoming { return asks("cpu=1").claim("a", gpu) }
	templated := func(status *string, owner types.UID) *incoming {
		in := one()
		in.pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "a", ResourceClaimTemplateName: ptr.To("t")}
		in.pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "a", ResourceClaimName: status}}
		if status != nil {
			in.claims["a"].OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: ptr.To(true)}}
		} else {
			delete(in.claims, "a")
		}
		return in
	}
	classOf := func(name string) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.DeviceClassName = name }
	}
	consumers := func(n int, more ...string) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			for i := range n {
				c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: types.UID(fmt.Sprint(i))})
			}
			for _, m := range more {
				c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: types.UID(m)})
			}
		}
	}
	elsewhere := func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchFields[0].Values = []string{"m"}
	}
	missing, unsupported, devices := v1alpha1.ReasonClaimTemplateNotFound, v1alpha1.ReasonClaimUnsupported, v1alpha1.ReasonNotEnoughDevices
	predictions(t, map[string]prediction{
		"a claim that is not made yet":    {world: alone("h100:1"), pod: templated(ptr.To("x"), "pod").on(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = nil }), no: missing, says: "not created yet"},
		"a claim that was made":           {world: alone("h100:1"), pod: templated(ptr.To("claim-a"), "pod"), given: map[string]string{"a": "gpu-0"}},
		"a claim that another pod had":    {world: alone("h100:1"), pod: templated(ptr.To("claim-a"), "other"), no: unsupported, says: "not owner"},
		"a claim that was not to be made": {world: alone("h100:1"), pod: templated(nil, "")},
		"a claim that is missing":         {world: alone("h100:1"), pod: one().on(func(p *corev1.Pod) { p.Spec.ResourceClaims[0].Name = "other" }), no: missing, says: "claim-a does not exist"},
		"a claim that is being deleted":   {world: alone("h100:1"), pod: one().with("a", func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }), no: unsupported, says: "being deleted"},
		"a class that is missing":         {world: alone("h100:1"), pod: one().with("a", classOf("other")), no: v1alpha1.ReasonDeviceClassNotFound, says: "DeviceClass other"},
		"no class":                        {world: alone("h100:1"), pod: one().with("a", classOf("")), no: unsupported, says: "names no DeviceClass"},
		"a request of an unknown kind":    {world: alone("h100:1"), pod: one().with("a", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly = nil }), no: unsupported, says: "not known"},
		"an alternative's class": {world: alone("h100:1"), pod: asks("cpu=1").claim("a", claiming(either("gpu", "a100:1", "h100:1"))).with("a", func(c *resourcev1.ResourceClaim) {
			c.Spec.Devices.Requests[0].FirstAvailable[1].DeviceClassName = "other"
		}), no: v1alpha1.ReasonDeviceClassNotFound},
		"the first alternative there is":   {world: alone("h100:1"), pod: asks("cpu=1").claim("a", claiming(either("gpu", "a100:1", "h100:1"))), given: map[string]string{"a": "gpu-0"}},
		"more devices than there are":      {world: alone("h100:1"), pod: asks("cpu=1").claim("a", both), no: devices},
		"two claims":                       {world: alone("h100:3"), pod: one().claim("b", both), given: map[string]string{"a": "gpu-0", "b": "gpu-1 gpu-2"}},
		"a selector that is no expression": {world: alone("h100:1"), pod: asks("cpu=1").claim("a", claiming(exactly("gpu", 1, "device."))), no: unsupported, says: "CEL", quirk: "gives up such a pod on all nodes"},
		"one that is allocated here":       {world: alone("h100:1").held("n", false, false, 0), pod: one().given("a", "gpu-0")},
		"one that is allocated elsewhere":  {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", elsewhere), no: v1alpha1.ReasonNodeUnavailable, says: "cannot use"},
		"one that is allocated anywhere":   {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", func(c *resourcev1.ResourceClaim) { c.Status.Allocation.NodeSelector = nil })},
		"a node selector of no kind": {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", func(c *resourcev1.ResourceClaim) {
			c.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchFields[0].Operator = "?"
		}), no: unsupported, says: "node selector"},
		"one that is allocated, one that is not":       {world: alone("h100:2").held("n", false, false, 0), pod: one().given("a", "gpu-0").claim("b", gpu), given: map[string]string{"b": "gpu-1"}},
		"255 consumers":                                {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", consumers(255))},
		"256 consumers":                                {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", consumers(256)), no: v1alpha1.ReasonDevicesInUse, says: "256 consumers", quirk: "only when it binds"},
		"256 consumers of which the pod is one":        {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", consumers(255, "pod"))},
		"one under two names":                          {world: alone("h100:2"), pod: one().also("b", "a"), no: unsupported, says: "by another name as well", quirk: "what it wrote itself"},
		"one under two names that the pod has already": {world: alone("h100:1"), pod: one().given("a", "gpu-0").also("b", "a").with("a", consumers(0, "pod"))},
		"administrators see what others have":          {world: alone("h100:1").held("n", false, false, 0), pod: one().with("a", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true) }), given: map[string]string{"a": "gpu-0"}},
		"all devices":                                  {world: alone("h100:2"), pod: one().with("a", everyOne), given: map[string]string{"a": "gpu-0 gpu-1"}},
		"all devices, one of which another has":        {world: alone("h100:2").held("n", false, false, 0), pod: one().with("a", everyOne), no: devices},
		"one that waits for its devices":               {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", binding()), quirk: "not bound yet (Attached)"},
		"one whose devices are bound":                  {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", binding("Attached"))},
		"one whose devices failed to be bound":         {world: alone("h100:1"), pod: one().given("a", "gpu-0").with("a", binding("Attached", "Failed")), no: v1alpha1.ReasonDevicesUnhealthy, says: "Failed"},
		"devices that are yet to be bound": {world: alone("h100:1", sliceOf(func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[0].BindingConditions, s.Spec.Devices[0].BindingFailureConditions = []string{"Attached"}, []string{"Failed"}
		})), pod: one(), given: map[string]string{"a": "gpu-0"}, quirk: "meets its binding conditions"},
	})
}

// also gives a claim a second name in the pod.
func (in *incoming) also(name, claim string) *incoming {
	in.pod.Spec.ResourceClaims = append(in.pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: ptr.To("claim-" + claim)})
	in.claims[name] = in.claims[claim]
	return in
}

func everyOne(c *resourcev1.ResourceClaim) {
	c.Spec.Devices.Requests[0].Exactly.AllocationMode, c.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
}

// binding has a claim's device need Attached and fail by Failed, of which those given are true.
func binding(met ...string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		r := &c.Status.Allocation.Devices.Results[0]
		r.BindingConditions, r.BindingFailureConditions = []string{"Attached"}, []string{"Failed"}
		if len(met) == 0 {
			return
		}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: r.Driver, Pool: r.Pool, Device: r.Device}}
		for _, m := range met {
			c.Status.Devices[0].Conditions = append(c.Status.Devices[0].Conditions, metav1.Condition{Type: m, Status: metav1.ConditionTrue})
		}
	}
}

// TestPredictPools: what the allocator is shown of a node, and of others.
func TestPredictPools(t *testing.T) {
	one := func() *incoming { return asks("cpu=1").claim("a", claiming(exactly("gpu", 1))) }
	all := func() *incoming { return one().with("a", everyOne) }
	// more adds a slice of driver gpu.example.com with a device, gpu-x.
	more := func(w *world, name, pool string, change func(*resourcev1.ResourceSliceSpec)) *world {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-x"}},
		}}
		change(&s.Spec)
		return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
	}
	incomplete := func(s *resourcev1.ResourceSliceSpec) { s.Pool.ResourceSliceCount = 2 }
	newer := func(s *resourcev1.ResourceSliceSpec) { s.Pool.Generation = 2 }
	shared := func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.AllNodes = nil, ptr.To(true) }
	each := func(node string) func(*resourcev1.ResourceSliceSpec) {
		return func(s *resourcev1.ResourceSliceSpec) {
			s.NodeName, s.PerDeviceNodeSelection, s.Devices[0].NodeName = nil, ptr.To(true), ptr.To(node)
		}
	}
	rule := func(w *world, r ledger.TaintRule) *world {
		r.Taint = resourcev1.DeviceTaint{Key: "bad", Effect: resourcev1.DeviceTaintEffectNoSchedule}
		return w.see(ledger.KindTaintRule, "rule", func(o *ledger.Observation) { o.TaintRule = &r })
	}
	tainted := sliceOf(func(s *resourcev1.ResourceSlice) {
		s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "bad", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	})
	tolerating := one().with("a", func(c *resourcev1.ResourceClaim) {
		c.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{Key: "bad", Operator: resourcev1.DeviceTolerationOpExists}}
	})
	holds := func(w *world, driver, pool, device string) *world {
		return w.see(ledger.KindClaim, "other", func(o *ledger.Observation) {
			o.Claim = &ledger.Claim{Namespace: "elsewhere", Name: "other", Allocated: []ledger.DeviceID{{Driver: driver, Pool: pool, Device: device}}}
		})
	}
	// unread is a pool of two slices, one of which cannot be read in full, and so is not looked at.
	unread := func(w *world) *world {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "unread", UID: "unread"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "x", Generation: 1, ResourceSliceCount: 2}, Devices: []resourcev1.Device{{Name: "gpu-y"}},
		}}
		return more(w, "x", "x", incomplete).see(ledger.KindSlice, s.UID, func(o *ledger.Observation) {
			o.Slice, o.Unread = s, "device gpu-y has compatibilityGroups"
		})
	}
	devices, unsupported := v1alpha1.ReasonNotEnoughDevices, v1alpha1.ReasonClaimUnsupported
	two := func() *world { return alone("h100:1").node("m", "h100:1", nil) }
	predictions(t, map[string]prediction{
		"an incomplete pool is passed over":                        {world: more(alone("h100:1").held("n", false, false, 0), "x", "x", incomplete), pod: one(), no: devices},
		"an incomplete pool fails who wants all devices":           {world: more(alone("h100:1"), "x", "x", incomplete), pod: all(), no: unsupported, says: "currently being updated", quirk: "all nodes"},
		"a pool that cannot be read in full lends nothing":         {world: unread(alone("h100:1").held("n", false, false, 0)), pod: one(), no: devices},
		"a pool that cannot be read in full fails who wants all":   {world: unread(alone("h100:1")), pod: all(), no: unsupported, says: "currently being updated", quirk: "all nodes"},
		"a newer generation goes before":                           {world: more(alone("h100:1"), "x", "n", newer), pod: one(), given: map[string]string{"a": "gpu-x"}},
		"a newer generation that is incomplete lends nothing":      {world: more(alone("h100:1"), "x", "n", func(s *resourcev1.ResourceSliceSpec) { newer(s); incomplete(s) }), pod: one(), no: devices},
		"a pool of all nodes":                                      {world: more(alone("h100:1").held("n", false, false, 0), "x", "x", shared), pod: one(), given: map[string]string{"a": "gpu-x"}},
		"a device of all nodes that a claim elsewhere has":         {world: holds(more(alone("h100:1").held("n", false, false, 0), "x", "x", shared), "gpu.example.com", "x", "gpu-x"), pod: one(), no: devices},
		"a device of this node by itself":                          {world: more(alone("h100:1").held("n", false, false, 0), "x", "x", each("n")), pod: one(), given: map[string]string{"a": "gpu-x"}},
		"a device of another node by itself":                       {world: more(alone("h100:1").held("n", false, false, 0), "x", "x", each("m")), pod: one(), no: devices},
		"a device of another node":                                 {world: two().held("n", false, false, 0), pod: one(), no: devices},
		"a device that its slice taints":                           {world: alone("h100:1", tainted), pod: one(), no: devices},
		"a device that its slice taints, and the claim tolerates":  {world: alone("h100:1", tainted), pod: tolerating, given: map[string]string{"a": "gpu-0"}},
		"a device that a rule taints":                              {world: rule(alone("h100:2"), ledger.TaintRule{Device: "gpu-0"}), pod: one(), given: map[string]string{"a": "gpu-1"}},
		"a rule for another pool":                                  {world: rule(alone("h100:1"), ledger.TaintRule{Pool: "m"}), pod: one(), given: map[string]string{"a": "gpu-0"}},
		"a rule without a selector taints all":                     {world: rule(alone("h100:2"), ledger.TaintRule{All: true}), pod: one(), no: devices},
		"a taint of a rule, tolerated":                             {world: rule(alone("h100:1"), ledger.TaintRule{All: true}), pod: tolerating, given: map[string]string{"a": "gpu-0"}},
		"what counters of another node's pool lack fails all":      {world: more(two(), "x", "m", func(s *resourcev1.ResourceSliceSpec) { newer(s); incomplete(s); counters(s) }), pod: all(), no: unsupported, says: "currently being updated", quirk: "all nodes"},
		"what counters of another node's pool lack is nothing new": {world: more(two(), "x", "m", func(s *resourcev1.ResourceSliceSpec) { newer(s); incomplete(s); counters(s) }), pod: one(), given: map[string]string{"a": "gpu-0"}},
	})
}

// counters makes a slice one of node m that lists counters alone.
func counters(s *resourcev1.ResourceSliceSpec) {
	s.NodeName, s.Devices = ptr.To("m"), nil
	s.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse("7")}}}}
}

// TestPredictCounters: devices that draw on one counter exclude each other, whoever has them.
func TestPredictCounters(t *testing.T) {
	draws := func(n string) []resourcev1.DeviceCounterConsumption {
		return []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse(n)}}}}
	}
	split := func(change func(*resourcev1.ResourceSlice)) *world {
		w := alone("h100:3", sliceOf(func(s *resourcev1.ResourceSlice) {
			s.Spec.Pool.ResourceSliceCount = 2
			for i, n := range []string{"7", "4", "3"} {
				s.Spec.Devices[i].ConsumesCounters = draws(n)
			}
			if change != nil {
				change(s)
			}
		}))
		c := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "counters", UID: "counters"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 2}}}
		counters(&c.Spec)
		c.Spec.NodeName = ptr.To("n")
		return w.see(ledger.KindSlice, c.UID, func(o *ledger.Observation) { o.Slice = c })
	}
	// spread has the card's parts on one node each: the first is the whole card's, on both.
	spread := func(s *resourcev1.ResourceSlice) {
		s.Spec.NodeName, s.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
		s.Spec.Devices[0].AllNodes, s.Spec.Devices[1].NodeName, s.Spec.Devices[2].NodeName = ptr.To(true), ptr.To("n"), ptr.To("m")
	}
	gpus := func(n int64) *incoming { return asks("cpu=1").claim("a", claiming(exactly("gpu", n))) }
	devices := v1alpha1.ReasonNotEnoughDevices
	predictions(t, map[string]prediction{
		"the whole card":                             {world: split(nil), pod: gpus(1), given: map[string]string{"a": "gpu-0"}},
		"its parts":                                  {world: split(nil), pod: gpus(2), given: map[string]string{"a": "gpu-1 gpu-2"}},
		"the whole card and a part":                  {world: split(nil), pod: gpus(3), no: devices},
		"what a part leaves":                         {world: split(nil).held("n", false, false, 1), pod: gpus(1), given: map[string]string{"a": "gpu-2"}},
		"what the whole card leaves":                 {world: split(nil).held("n", false, false, 0), pod: gpus(1), no: devices},
		"what a part on another node leaves":         {world: split(spread).node("m", "a100:1", nil).held("n", false, false, 2), pod: gpus(1), given: map[string]string{"a": "gpu-1"}},
		"what the whole card on another node leaves": {world: split(spread).node("m", "a100:1", nil).held("n", false, false, 0), pod: gpus(1), no: devices},
		"a part on another node is not for this one": {world: split(spread).node("m", "a100:1", nil).held("n", false, false, 1), pod: gpus(1), no: devices},
		"a counter that no slice lists is invalid":   {world: split(func(s *resourcev1.ResourceSlice) { s.Spec.Devices[2].ConsumesCounters[0].CounterSet = "other" }), pod: gpus(1), no: devices, says: "invalid"},
	})
}

// TestPredictShares: a device that allows several allocations lends what is left of its capacity.
func TestPredictShares(t *testing.T) {
	w := func(used string) *world {
		w := alone("h100:1", sliceOf(func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true)
			s.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi"), RequestPolicy: &resourcev1.CapacityRequestPolicy{
				Default: ptr.To(resource.MustParse("10Gi")), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("10Gi")), Step: ptr.To(resource.MustParse("5Gi"))}}}}
		}))
		if used == "" {
			return w
		}
		return w.see(ledger.KindClaim, "other", func(o *ledger.Observation) {
			o.Claim = &ledger.Claim{Namespace: "elsewhere", Name: "other", Allocated: []ledger.DeviceID{}, Shares: []ledger.Share{{
				Device: ledger.DeviceID{Driver: "gpu.example.com", Pool: "n", Device: "gpu-0"}, ID: "share", Consumed: ledger.Consumption{"memory": resource.MustParse(used)}}}}
		})
	}
	in := func(memory string) *incoming {
		return asks("cpu=1").claim("a", claiming(exactly("gpu", 1))).with("a", func(c *resourcev1.ResourceClaim) {
			if memory != "" {
				c.Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
			}
		})
	}
	given := map[string]string{"a": "gpu-0"}
	predictions(t, map[string]prediction{
		"all of a free device":                       {world: w(""), pod: in("80Gi"), given: given},
		"what a share leaves":                        {world: w("40Gi"), pod: in("40Gi"), given: given},
		"more than a share leaves, rounded":          {world: w("40Gi"), pod: in("36Gi"), given: given},
		"more than a share leaves, rounded above it": {world: w("41Gi"), pod: in("36Gi"), no: v1alpha1.ReasonNotEnoughDevices},
		"the default, of what a share leaves":        {world: w("70Gi"), pod: in(""), given: given},
		"the default, of less":                       {world: w("71Gi"), pod: in(""), no: v1alpha1.ReasonNotEnoughDevices},
	})
}
