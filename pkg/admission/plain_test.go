package admission

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const plainGPU corev1.ResourceName = "nvidia.com/gpu"

// plainPolicy counts plain devices.
func plainPolicy(t *testing.T) *flavors.Policy {
	return testPolicy(t, func(s *v1alpha1.DevicePolicySpec) { s.QuotaResource = string(plainGPU) })
}

// plugin adds a node of a flavor whose devices a device plugin serves; count is what it lists, empty for nothing yet.
func (w *world) plugin(name, flavor, count string) *world {
	n := &corev1.Node{
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	n.Name, n.UID, n.Labels = name, types.UID(name), map[string]string{corev1.LabelHostname: name, "flavor-" + flavor: "true"}
	if count != "" {
		n.Status.Allocatable[plainGPU] = resource.MustParse(count)
	}
	return w.see(ledger.KindNode, n.UID, func(o *ledger.Observation) { o.Node = n })
}

// uses has a pod use so many plain devices of a node.
func (w *world) uses(node string, managed bool, devices int64) *world {
	name := "user-" + node
	w.see(ledger.KindPod, types.UID(name), func(o *ledger.Observation) {
		o.Pod = &ledger.Pod{Namespace: "elsewhere", Name: name, Node: node, Owner: types.UID("job-" + name), Requests: ledger.Amounts{plainGPU: devices, "pods": 1}}
	})
	if managed {
		w.see(ledger.KindWorkload, types.UID("wl-"+name), func(o *ledger.Observation) {
			o.Workload = &ledger.Workload{Namespace: "elsewhere", Name: name, Owner: types.UID("job-" + name), Key: &v1alpha1.PlacementKey{WorkloadUID: types.UID("wl-" + name), Admission: "a"}}
		})
	}
	return w
}

// plainly asks for count pods of so many plain devices.
func plainly(count int32, devices int64) PodSet {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{plainGPU: *resource.NewQuantity(devices, resource.DecimalSI)}}}}}
	shape, _ := flavors.ShapeOf(spec, func(string) *resourcev1.ResourceClaimTemplate { return nil })
	return PodSet{Name: "main", Count: count, Spec: spec, Shape: shape, Requests: ledger.RequestsOf(&corev1.Pod{Spec: *spec}, false)}
}

func TestPlainDevicesOfDevicePlugins(t *testing.T) {
	busy, blocked, impossible := v1alpha1.StandingBusy, v1alpha1.StandingBlocked, v1alpha1.StandingImpossible
	for name, tc := range map[string]struct {
		world  *world
		podSet PodSet
		// flavor is where it is placed; empty where it waits, with the first flavor's standing, reason and message.
		flavor   string
		standing v1alpha1.Standing
		reason   v1alpha1.Reason
		message  string
	}{
		"the preferred flavor is taken":                 {world: newWorld().plugin("h", "h100", "8").plugin("a", "a100", "8"), podSet: plainly(1, 8), flavor: "h100"},
		"the next flavor where the first is in use":     {world: newWorld().plugin("h", "h100", "8").uses("h", true, 1).plugin("a", "a100", "8"), podSet: plainly(1, 8), flavor: "a100"},
		"the flavor that Kueue assigned":                {world: newWorld().plugin("h", "h100", "8").plugin("a", "a100", "8"), podSet: func() PodSet { ps := plainly(1, 8); assignedTo("a100")(&ps); return ps }(), flavor: "a100"},
		"two pods on two nodes":                         {world: newWorld().plugin("h", "h100", "8").plugin("i", "h100", "8"), podSet: plainly(2, 8), flavor: "h100"},
		"devices that managed workloads hold":           {world: newWorld().plugin("h", "h100", "8").uses("h", true, 3), podSet: plainly(1, 8), standing: busy, reason: v1alpha1.ReasonDevicesInUse, message: "node h: 3 of 8 nvidia.com/gpu are in use, a pod asks for 8"},
		"devices that others hold":                      {world: newWorld().plugin("h", "h100", "8").uses("h", false, 3), podSet: plainly(1, 8), standing: blocked, reason: v1alpha1.ReasonForeignUse, message: "node h: 3 of 8 nvidia.com/gpu are held by pods that Kueue does not manage"},
		"more than any node has":                        {world: newWorld().plugin("h", "h100", "8"), podSet: plainly(1, 9), standing: impossible, reason: v1alpha1.ReasonNotEnoughDevices, message: "node h has 8 of nvidia.com/gpu, a pod asks for 9"},
		"more pods than the nodes have devices for":     {world: newWorld().plugin("h", "h100", "8"), podSet: plainly(2, 8), standing: impossible, reason: v1alpha1.ReasonNotEnoughDevices, message: "node h has 8 of nvidia.com/gpu, enough for 1 pod of 8 each"},
		"a node whose device plugin has not registered": {world: newWorld().plugin("h", "h100", ""), podSet: plainly(1, 8), standing: blocked, reason: v1alpha1.ReasonNotEnoughDevices, message: "node h has 0 of nvidia.com/gpu, a pod asks for 8"},
		"a node of no flavor":                           {world: newWorld().plugin("h", "t4", "8"), podSet: plainly(1, 8), standing: impossible, reason: v1alpha1.ReasonNodeUnavailable, message: "no node carries the flavor's labels"},
		"cpu that is short is told as such": {world: newWorld().plugin("h", "h100", "8"), podSet: func() PodSet {
			ps := plainly(1, 8)
			ps.Requests["cpu"] = 65000
			return ps
		}(), standing: impossible, reason: v1alpha1.ReasonNodeResources, message: "a pod asks for 65 of cpu, 64 is free"},
	} {
		t.Run(name, func(t *testing.T) {
			dec := tc.world.decide(t, Request{Policy: plainPolicy(t), PodSets: []PodSet{tc.podSet}})
			if tc.flavor != "" {
				if dec.Verdict != v1alpha1.VerdictAdmit || dec.PodSets[0].Flavor != tc.flavor || dec.PodSets[0].Charge != 0 || len(given(dec)) > 0 {
					t.Errorf("decided %s: %+v", dec.Message, dec.PodSets)
				}
				return
			}
			if dec.Verdict == v1alpha1.VerdictAdmit || dec.Reason != tc.reason || !strings.Contains(dec.Message, tc.message) {
				t.Errorf("decided %s, %s: %s\nwant %s: %s", dec.Verdict, dec.Reason, dec.Message, tc.reason, tc.message)
			}
			if !slices.ContainsFunc(dec.Standings, func(s v1alpha1.FlavorStanding) bool { return s.Flavor == "h100" && s.Standing == tc.standing }) {
				t.Errorf("standings %+v, want h100 %s", dec.Standings, tc.standing)
			}
		})
	}
}

func TestPlainDevicesOfAnotherNameAreNodeResources(t *testing.T) {
	dec := newWorld().plugin("h", "h100", "8").decide(t, Request{PodSets: []PodSet{plainly(1, 9)}})
	if dec.Reason != v1alpha1.ReasonNodeResources || len(dec.Standings) != 1 || dec.Standings[0].Flavor != "" {
		t.Errorf("decided %s with %+v: the policy does not count %s", dec.Reason, dec.Standings, plainGPU)
	}
}
