package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// referring has the podset's only container refer to its claim, and ask for so many cpus.
func referring(cpus int64) func(*PodSet) {
	return func(ps *PodSet) {
		ps.Spec = &corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}}
		ps.Requests = ledger.Amounts{"cpu": 1000 * cpus, "pods": 1}
	}
}

// asAWhole is referring for pods that as a whole ask for so many cpus, and have a limit of so many; empty for none.
func asAWhole(asks, limit string) func(*PodSet) {
	return func(ps *PodSet) {
		referring(1)(ps)
		ps.Spec.Resources = &corev1.ResourceRequirements{}
		if asks != "" {
			ps.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(asks)}
		}
		if limit != "" {
			ps.Spec.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse(limit)}
		}
	}
}

// mapping has each of a node's devices take so many of its cpus.
func mapping(cpus ...string) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			q := resource.MustParse(cpus[min(i, len(cpus)-1)])
			s.Spec.Devices[i].NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{corev1.ResourceCPU: {AllocationMultiplier: &q}}
		}
	}
}

// several has each of a node's devices allow several allocations of 30Gi each of their 80.
func several(_ *corev1.Node, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		d.AllowMultipleAllocations = ptr.To(true)
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {
			Value: resource.MustParse("80Gi"), RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("30Gi")),
				ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1Gi"))}}}}
	}
}

// halved makes a node's first device a card, and the two after it its halves, told apart by counters.
func halved(_ *corev1.Node, s *resourcev1.ResourceSlice) {
	for i, draws := range []string{"2", "1", "1"} {
		s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: resource.MustParse(draws)}}}}
	}
	s.Spec.Pool.ResourceSliceCount = 2
}

// counters adds the slice with the counters of halved.
func (w *world) counters(node string) *world {
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: ptr.To(node),
		Pool:           resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 2},
		SharedCounters: []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"halves": {Value: resource.MustParse("2")}}}}}}
	s.Name, s.UID, s.ResourceVersion = node+"-counters", types.UID(node+"-counters"), "1"
	return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
}

// parts makes a node's devices after the first parts of it, without counters.
func parts(taint bool) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices[1:] {
			s.Spec.Devices[i+1].Attributes["parentUUID"] = s.Spec.Devices[0].Attributes["uuid"]
		}
		if taint {
			s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "gpu.example.com/lost", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
	}
}

// everywhere makes a node's devices those of all nodes.
func everywhere(_ *corev1.Node, s *resourcev1.ResourceSlice) {
	s.Spec.NodeName, s.Spec.AllNodes, s.Spec.Pool.Name = nil, ptr.To(true), "fabric"
}

func (w *world) tainted(driver, device string) *world {
	return w.see(ledger.KindTaintRule, "rule", func(o *ledger.Observation) {
		o.TaintRule = &ledger.TaintRule{Name: "rule", Driver: driver, Device: device,
			Taint: resourcev1.DeviceTaint{Key: "example.com/sick", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	})
}

// shared has a pod of another tenant hold one of several allocations of a device.
func (w *world) shared(node string, times int) *world {
	for i := range times {
		uid := types.UID(fmt.Sprintf("share-%s-%d", node, i))
		w.see(ledger.KindPod, uid, func(o *ledger.Observation) {
			o.Pod = &ledger.Pod{Namespace: "elsewhere", Name: string(uid), Node: node, Requests: ledger.Amounts{"cpu": 1000, "pods": 1}}
		})
		w.see(ledger.KindClaim, "claim-"+uid, func(o *ledger.Observation) {
			o.Claim = &ledger.Claim{Namespace: "elsewhere", Name: string(uid), Pod: uid, Allocated: []ledger.DeviceID{}, Shares: []ledger.Share{{
				Device: ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: "gpu-0"}, ID: uid, Consumed: ledger.Consumption{"memory": resource.MustParse("30Gi")}}}}
		})
	}
	return w
}

// namesake lists, for another driver, a device by a pool and name that are there, which takes a cpu.
func (w *world) namesake(node, device string) *world {
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "other.example.com", NodeName: ptr.To(node),
		Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: device}}}}
	mappingSlice(s)
	s.Name, s.UID, s.ResourceVersion = "other-"+node, types.UID("other-"+node), "1"
	return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
}

func TestDevicesThatAreNotOneEach(t *testing.T) {
	for name, c := range map[string]struct {
		world  *world
		podSet PodSet
		// wants is the message of an admission, or the reason and a part of the message.
		wants  string
		reason v1alpha1.Reason
	}{
		"a node of 64 cpus with a claim that maps 40 and a spec that asks 30 does not fit": {
			newWorld().node("n", "h100:1", mapping("40")), pods(1, 1, referring(30)), "70 of cpu, 64 is free", v1alpha1.ReasonNodeResources},
		"what a claim maps and what the spec asks may use all of a node": {
			newWorld().node("n", "h100:1", mapping("40")), pods(1, 1, referring(24)), "main: 1 pod of h100 on n", ""},
		"each pod of a gang takes what its devices map": {
			newWorld().node("n", "h100:8", mapping("10")), pods(4, 2, referring(1)), "3 of 4 pods placeable", v1alpha1.ReasonNodeResources},
		"of devices that map unlike amounts those that take least are given where the others have no room": {
			newWorld().node("n", "h100:2", mapping("80", "8")), pods(1, 1, referring(50)), "main: 1 pod of h100 on n", ""},
		"a device that maps is not given to a claim that no container refers to": {
			newWorld().node("n", "h100:1", mapping("4")), pods(1, 1, nil), "no container refers to", v1alpha1.ReasonDevicesUnhealthy},
		"a device that takes more than the pod as a whole asks for is not given to it": {
			newWorld().node("n", "h100:1", mapping("4")), pods(1, 1, asAWhole("3", "")), "as a whole", v1alpha1.ReasonClaimUnsupported},
		"nor one that takes more than the pod as a whole has a limit of": {
			newWorld().node("n", "h100:1", mapping("4")), pods(1, 1, asAWhole("", "3")), "as a whole", v1alpha1.ReasonClaimUnsupported},
		"one is given that takes no more": {
			newWorld().node("n", "h100:1", mapping("4")), pods(1, 1, asAWhole("", "5")), "main: 1 pod of h100 on n", ""},
		"the halves of a card are lent while the card is not": {
			newWorld().node("n", "h100:3", halved).counters("n"), pods(2, 1, nil), "main: 2 pods of h100 on n", ""},
		"a card and its halves are never lent together": {
			newWorld().node("n", "h100:3", halved).counters("n"), pods(3, 1, nil), "2 of 3 pods placeable", v1alpha1.ReasonConstraintUnsatisfied},
		"of a card one of whose halves is held the other is lent": {
			newWorld().node("n", "h100:3", halved).counters("n").held("n", true, false, 1), pods(2, 1, nil), "1 of 2 pods placeable", v1alpha1.ReasonConstraintUnsatisfied},
		"a card that is held leaves nothing of its halves": {
			newWorld().node("n", "h100:3", halved).counters("n").held("n", false, false, 0), pods(1, 1, nil), "", v1alpha1.ReasonConstraintUnsatisfied},
		"a device that allows several allocations is lent beside another's": {
			newWorld().node("n", "h100:1", several).shared("n", 1), pods(1, 1, nil), "main: 1 pod of h100 on n", ""},
		"a device is lent no further than its capacity": {
			newWorld().node("n", "h100:1", several).shared("n", 2), pods(1, 1, nil), "1 of 1 devices", v1alpha1.ReasonForeignUse},
		"a device of several nodes is lent once": {
			newWorld().node("n", "h100:1", everywhere).node("m", "h100:1", func(n *corev1.Node, s *resourcev1.ResourceSlice) {
				everywhere(n, s)
				s.Spec.Pool.Name, s.Spec.Devices = "none", nil
			}), pods(2, 1, nil), "the nodes share devices", v1alpha1.ReasonUndecided},
		"a card that is listed in parts without counters lends its parts": {
			newWorld().node("n", "h100:3", parts(false)), pods(2, 1, nil), "main: 2 pods of h100 on n", ""},
		"a card that is listed in parts without counters is not lent beside them": {
			newWorld().node("n", "h100:3", parts(false)), pods(3, 1, nil), "2 of 3 pods placeable", v1alpha1.ReasonDevicesUnhealthy},
		"the parts of a card that is held whole are not lent": {
			newWorld().node("n", "h100:3", parts(false)).held("n", true, false, 0), pods(1, 1, nil), "", v1alpha1.ReasonDevicesInUse},
		"the parts of a tainted card are not lent": {
			newWorld().node("n", "h100:3", parts(true)), pods(1, 1, nil), "has taint gpu.example.com/lost", v1alpha1.ReasonDevicesUnhealthy},
		"a device that a rule taints is not lent": {
			newWorld().node("n", "h100:1", nil).tainted("gpu.example.com", ""), pods(1, 1, nil), "has taint example.com/sick", v1alpha1.ReasonDevicesUnhealthy},
		"a rule taints the devices that it selects alone": {
			newWorld().node("n", "h100:2", nil).tainted("gpu.example.com", "gpu-1"), pods(1, 1, nil), "main: 1 pod of h100 on n", ""},
		"a device that kube-scheduler may take for another that maps is not lent, while others are": {
			newWorld().node("n", "h100:2", nil).namesake("n", "gpu-0"), pods(2, 1, nil), "another is listed by these", v1alpha1.ReasonDevicesUnhealthy},
		"a device of a name of its own is lent beside one that may be taken for another": {
			newWorld().node("n", "h100:2", nil).namesake("n", "gpu-0"), pods(1, 1, nil), "main: 1 pod of h100 on n", ""},
		"a node whose plugin serves what a class serves as well takes no pod that has claims besides": {
			newWorld().node("n", "h100:1", func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
				n.Status.Allocatable["example.com/nic"] = resource.MustParse("4")
			}).serves("nic", "example.com/nic", "none", 1), pods(1, 1, func(ps *PodSet) { ps.Requests["example.com/nic"] = 1 }), "never binds a pod", v1alpha1.ReasonClaimUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			dec := c.world.decide(t, Request{PodSets: []PodSet{c.podSet}})
			if dec.Reason != c.reason || !strings.Contains(dec.Message, c.wants) {
				t.Fatalf("got %s %s: %s\nwant %s: …%s…", dec.Verdict, dec.Reason, dec.Message, c.reason, c.wants)
			}
			if c.reason != "" {
				return
			}
			devices := devicesOf(dec.PodSets)
			if got := len(devices); int64(got) != int64(c.podSet.Count)*c.podSet.Shape.Claims[0].Requests[0].Alternatives[0].Count {
				t.Fatalf("%d devices are promised: %v", got, devices)
			}
		})
	}
}

// TestWhoRefersToAClaimIsPartOfTheQuestion: what was worked out for a claim that no container refers to says nothing about one
// that some container does, alike as they may be.
func TestWhoRefersToAClaimIsPartOfTheQuestion(t *testing.T) {
	d, s, policy := &Decider{Matcher: flavors.NewMatcher()}, newWorld().node("n", "h100:1", mapping("4")).book.Snapshot(), testPolicy(t, nil)
	for _, referred := range []bool{false, true, false} {
		ps := pods(1, 1, referring(1))
		if !referred {
			ps.Spec.Containers[0].Resources.Claims = nil
		}
		dec := d.Decide(t.Context(), s, &Request{Policy: policy, Namespace: "team", Now: after(0), PodSets: []PodSet{ps}})
		if admitted := dec.Verdict == v1alpha1.VerdictAdmit; admitted != referred {
			t.Errorf("referred to: %v, and it is %s: %s", referred, dec.Verdict, dec.Message)
		}
	}
}
