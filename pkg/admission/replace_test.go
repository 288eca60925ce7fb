package admission

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// gpus names devices of a node.
func gpus(node string, which ...int) []ledger.DeviceID {
	var out []ledger.DeviceID
	for _, i := range which {
		out = append(out, ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)})
	}
	return out
}

// promised has a live Placement of Workload wl hold a slot of so many devices, from the first on, on each of some nodes.
func (w *world) promised(devices int, nodes ...string) *world {
	key := &v1alpha1.PlacementKey{WorkloadUID: "wl", ReservedAt: metav1.NewTime(time.Unix(900, 0)), Admission: "a"}
	spec := &v1alpha1.PlacementSpec{Key: key, PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Flavor: "h100", Charge: int64(devices)}}}
	for _, name := range nodes {
		r := v1alpha1.PlacementRequest{Claim: "gpu", Request: "gpu"}
		for i := range devices {
			r.Devices = append(r.Devices, gpus(name, i)[0].String())
		}
		spec.PodSets[0].Nodes = append(spec.PodSets[0].Nodes, v1alpha1.PlacementNode{Name: name, Slots: 1, Requests: []v1alpha1.PlacementRequest{r}})
	}
	w.see(ledger.KindWorkload, "wl", func(o *ledger.Observation) {
		o.Workload = &ledger.Workload{Namespace: "team", Name: "wl", Owner: "job", Key: key, Requests: map[string]ledger.Amounts{"main": {"cpu": 1000, "pods": 1}}}
	})
	w.see(ledger.KindPlacement, "placement", func(o *ledger.Observation) {
		o.Placement = &ledger.Placement{Namespace: "team", Name: "wl", Spec: spec}
	})
	return w
}

// claimed has a claim hold a device of a node; owner is the uid of its pod's controller, and empty for a claim without pod.
func (w *world) claimed(name, node string, i int, owner types.UID, ending bool) *world {
	c := &ledger.Claim{Namespace: "team", Name: name, Allocated: gpus(node, i)}
	if owner != "" {
		c.Pod = types.UID("pod-" + name)
		w.see(ledger.KindPod, c.Pod, func(o *ledger.Observation) {
			o.Pod = &ledger.Pod{Namespace: "team", Name: name, Node: node, Owner: owner, PodSet: "main", CreatedUnix: 950, Terminating: ending, Requests: ledger.Amounts{"cpu": 1000, "pods": 1}}
		})
	}
	w.see(ledger.KindClaim, types.UID(name), func(o *ledger.Observation) { o.Claim = c })
	return w
}

func TestTroubleOfASlot(t *testing.T) {
	notReady := func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(time.Unix(500, 0))
	}
	tainted := func(key string) func(*corev1.Node, *resourcev1.ResourceSlice) {
		return func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
			n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(500, 0))
		}
	}
	sick := func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "xid", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	}
	one := func() *world { return newWorld().node("h", "h100:2", nil).promised(1, "h") }
	for name, tc := range map[string]struct {
		world *world
		want  *Trouble
	}{
		"a slot as it was promised can be used": {one(), nil},
		"a node that is gone does not come back": {newWorld().promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: "node h is gone", NodeGone: true}},
		"a node that is not Ready may come back": {newWorld().node("h", "h100:2", notReady).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: "node h is not Ready", Lost: true, Since: time.Unix(500, 0)}},
		"so may one that has only the taint left by which that is said": {newWorld().node("h", "h100:2", tainted(corev1.TaintNodeNotReady)).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: "node h has taint node.kubernetes.io/not-ready:NoSchedule, which the pod does not tolerate", Lost: true, Since: time.Unix(500, 0)}},
		"a taint that somebody set is meant": {newWorld().node("h", "h100:2", tainted("repair")).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: "node h has taint repair:NoSchedule, which the pod does not tolerate", Since: time.Unix(500, 0)}},
		"a cordon is meant": {newWorld().node("h", "h100:2", cordon).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: "node h is cordoned"}},
		"a node that left its flavor is of no use": {newWorld().node("h", "h100:2", func(n *corev1.Node, _ *resourcev1.ResourceSlice) { delete(n.Labels, "flavor-h100") }).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: "node h does not carry the labels of flavor h100 any more"}},
		"a device with a taint is unhealthy": {newWorld().node("h", "h100:2", sick).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: "node h: device gpu-0 has taint xid:NoExecute"}},
		"a device that its complete pool does not list is gone": {newWorld().node("h", "h100:2", func(_ *corev1.Node, s *resourcev1.ResourceSlice) { s.Spec.Devices = s.Spec.Devices[1:] }).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: "node h: device gpu-0 is gone"}},
		"one whose pool is incomplete may come back": {newWorld().node("h", "h100:2", func(_ *corev1.Node, s *resourcev1.ResourceSlice) { s.Spec.Pool.ResourceSliceCount = 2 }).promised(1, "h"),
			&Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: "node h: device gpu-0 is gone", Lost: true}},
		"a claim that nobody manages is foreign": {one().claimed("user", "h", 0, "", false),
			&Trouble{Reason: v1alpha1.ReasonForeignUse, Message: "node h: a pod that Kueue does not manage has taken device gpu-0"}},
		"the predecessor's claim comes free": {one().claimed("before", "h", 0, "job", false),
			&Trouble{Reason: v1alpha1.ReasonDevicesFreeing, Message: "node h: device gpu-0 is held by a pod that is ending", Freeing: true}},
		"so does that of any pod that is ending": {one().claimed("other", "h", 0, "else", true),
			&Trouble{Reason: v1alpha1.ReasonDevicesFreeing, Message: "node h: device gpu-0 is held by a pod that is ending", Freeing: true}},
		"another device of the node does not matter": {one().claimed("user", "h", 1, "", false), nil},
	} {
		t.Run(name, func(t *testing.T) {
			ps := pods(1, 1, assignedTo("h100"))
			got := Slot{Node: "h", Devices: gpus("h", 0)}.Trouble(tc.world.book.Snapshot(), &ps, Ours{Workload: "wl", Placement: "placement", Now: time.Unix(1000, 0)})
			if got != nil && tc.want != nil && tc.want.Since.IsZero() {
				got.Since = time.Time{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("trouble (-want +got):\n%s", diff)
			}
		})
	}
	ps := pods(1, 2, assignedTo("h100"))
	w := newWorld().node("h", "h100:2", nil).promised(2, "h").claimed("user", "h", 0, "", false).claimed("before", "h", 1, "job", false)
	if got := (Slot{Node: "h", Devices: gpus("h", 0, 1)}).Trouble(w.book.Snapshot(), &ps, Ours{Workload: "wl", Placement: "placement", Now: time.Unix(1000, 0)}); got == nil || got.Freeing {
		t.Errorf("trouble %+v: one device that comes free does not help where another does not", got)
	}
}

func TestDeadNodes(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		trouble *Trouble
		want    bool
	}{
		"no trouble":                     {nil, false},
		"deleted":                        {&Trouble{NodeGone: true}, true},
		"away within the grace":          {&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Lost: true, Since: now.Add(-time.Minute)}, false},
		"away for longer":                {&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Lost: true, Since: now.Add(-61 * time.Second)}, true},
		"its pods may run on: cordoned":  {&Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Since: now.Add(-time.Hour)}, false},
		"its pods may run on: pool away": {&Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Lost: true}, false},
	} {
		if got := tc.trouble.Dead(now, time.Minute); got != tc.want {
			t.Errorf("%s: dead is %t", name, got)
		}
	}
}

func TestReplace(t *testing.T) {
	a100s := func(s *v1alpha1.DevicePolicySpec) { s.Flavors[0].ChargePerDevice, s.Flavors[1].ChargePerDevice = 2, 1 }
	for name, tc := range map[string]struct {
		world   *world
		devices int64
		charge  int64
		back    []string
		change  func(*PodSet)
		policy  func(*v1alpha1.DevicePolicySpec)
		want    string // the node, or the reason why not
	}{
		"another node of the flavor is taken":              {newWorld().node("h1", "h100:2", cordon).node("h2", "h100:2", nil).promised(2, "h1"), 2, 2, []string{"h1"}, nil, nil, "h2"},
		"what is given back can be taken again":            {newWorld().node("h1", "h100:2", nil).promised(2, "h1"), 2, 2, []string{"h1"}, nil, nil, "h1"},
		"what is not given back stays promised":            {newWorld().node("h1", "h100:2", cordon).node("h2", "h100:2", nil).promised(2, "h1", "h2"), 2, 2, []string{"h1"}, nil, nil, "DevicesInUse"},
		"what somebody else holds is not given":            {newWorld().node("h1", "h100:2", nil).promised(1, "h1").claimed("user", "h1", 0, "", false), 2, 2, []string{"h1"}, nil, nil, "ForeignUse"},
		"a device beside the one that was taken is found":  {newWorld().node("h1", "h100:2", nil).promised(1, "h1").claimed("user", "h1", 0, "", false), 1, 1, []string{"h1"}, nil, nil, "h1"},
		"no other flavor is taken":                         {newWorld().node("h1", "h100:2", cordon).node("a1", "a100:2", nil).promised(2, "h1"), 2, 2, []string{"h1"}, nil, nil, "NodeUnavailable"},
		"nothing is taken that costs more than is charged": {newWorld().node("h1", "h100:2", nil).promised(2, "h1"), 2, 2, []string{"h1"}, nil, a100s, "QuotaMismatch"},
		"the pod's own wishes count":                       {newWorld().node("h1", "h100:2", nil).node("h2", "h100:2", nil).promised(2, "h1"), 2, 2, []string{"h1"}, func(ps *PodSet) { ps.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "h2"} }, nil, "h2"},
	} {
		t.Run(name, func(t *testing.T) {
			ps := pods(1, tc.devices, assignedTo("h100"))
			if tc.change != nil {
				tc.change(&ps)
			}
			r := &Request{Policy: testPolicy(t, tc.policy), Namespace: "team", Now: time.Unix(1000, 0), PodSets: []PodSet{ps}}
			var back []ledger.PodSetClaim
			for _, n := range tc.back {
				back = append(back, ledger.PodSetClaim{Node: n, Slots: 1, Requests: ps.Requests, Devices: gpus(n, 0, 1)})
			}
			dec := (&Decider{Matcher: flavors.NewMatcher()}).Replace(context.Background(), tc.world.book.Snapshot(), r, Return{Placement: "placement", Claims: back, Charge: tc.charge})
			got := string(dec.Reason)
			if dec.Verdict == v1alpha1.VerdictAdmit {
				got = dec.PodSets[0].Nodes[0].Name
			}
			if got != tc.want {
				t.Errorf("got %s (%s), want %s", got, dec.Message, tc.want)
			}
		})
	}
}
