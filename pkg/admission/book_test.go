package admission

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// at makes what is observed from here on seen at a time, in seconds after noon.
func (w *world) at(seconds int) *world {
	w.now = after(seconds)
	return w
}

// loses takes a node's slice away.
func (w *world) loses(node string) *world {
	return w.see(ledger.KindSlice, types.UID("slice-"+node), func(o *ledger.Observation) { o.Ref.Deleted = true })
}

// fresh has a node come whose pool was never complete.
func fresh(_ *corev1.Node, s *resourcev1.ResourceSlice) { s.Spec.Pool.ResourceSliceCount = 2 }

// ends has the pod of a holder that starts at a device end by itself, with so much time to do so.
func (w *world) ends(node string, device, seconds int) *world {
	uid := types.UID(fmt.Sprintf("holder-%s-%d", node, device))
	p := w.pods[uid]
	p.Terminating, p.EndsUnix = true, after(seconds).Unix()
	return w.see(ledger.KindPod, uid, func(o *ledger.Observation) { o.Pod = &p })
}

// promisedElsewhere has another Workload be promised a device.
func (w *world) promisedElsewhere(node string, device int) *world {
	key := &v1alpha1.PlacementKey{WorkloadUID: "other", Admission: "a"}
	w.see(ledger.KindWorkload, "other", func(o *ledger.Observation) {
		o.Workload = &ledger.Workload{Namespace: "elsewhere", Name: "other", Key: key}
	})
	return w.see(ledger.KindPlacement, "p-other", func(o *ledger.Observation) {
		o.Placement = &ledger.Placement{Namespace: "elsewhere", Name: "other", Spec: &v1alpha1.PlacementSpec{Key: key, PodSets: []v1alpha1.PlacementPodSet{{
			Name: "main", Nodes: []v1alpha1.PlacementNode{{Name: node, Slots: 1, Requests: []v1alpha1.PlacementRequest{{
				Claim: "gpu", Request: "gpu", Devices: []string{ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", device)}.String()}}}}}}}}}
	})
}

func notReady(since int) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(after(since))}
		added := metav1.NewTime(after(since))
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
	}
}

func TestStandingsInTime(t *testing.T) {
	fits, busy, blocked, impossible := v1alpha1.StandingFits, v1alpha1.StandingBusy, v1alpha1.StandingBlocked, v1alpha1.StandingImpossible
	node := func() *world { return newWorld().at(0).node("h", "h100:8", nil) }
	cordoned := func(since int) func(*corev1.Node, *resourcev1.ResourceSlice) {
		return func(n *corev1.Node, s *resourcev1.ResourceSlice) {
			notReady(since)(n, s)
			n.Spec.Unschedulable = true
		}
	}
	cases := map[string]struct {
		world    *world
		gpus     int64
		now      int
		standing v1alpha1.Standing
		reason   v1alpha1.Reason
		coming   bool
		until    int // 0: never
	}{
		"free": {world: node(), gpus: 8, now: 10, standing: fits},
		"held": {world: node().held("h", true, false, 0), gpus: 8, now: 10, standing: busy, reason: v1alpha1.ReasonDevicesInUse},
		"its pool is gone for less than the grace":       {world: node().at(10).loses("h"), gpus: 8, now: 69, standing: busy, reason: v1alpha1.ReasonPoolRebuilding, coming: true, until: 70},
		"its pool is gone for the grace":                 {world: node().at(10).loses("h"), gpus: 8, now: 70, standing: blocked, reason: v1alpha1.ReasonPoolRebuilding, until: 3610},
		"its pool is gone for longer than is remembered": {world: node().node("g", "h100:4", nil).at(10).loses("h"), gpus: 8, now: 3610, standing: blocked},
		"its pool is gone, and had too few":              {world: node().at(10).loses("h"), gpus: 9, now: 20, standing: impossible, reason: v1alpha1.ReasonNotEnoughDevices, until: 70},
		"its node is not Ready for less than the grace":  {world: newWorld().at(0).node("h", "h100:8", notReady(5)), gpus: 8, now: 64, standing: busy, reason: v1alpha1.ReasonNodeUnavailable, coming: true, until: 65},
		"its node is not Ready for the grace":            {world: newWorld().at(0).node("h", "h100:8", notReady(5)), gpus: 8, now: 65, standing: blocked, reason: v1alpha1.ReasonNodeUnavailable},
		"its node is not Ready and cordoned":             {world: newWorld().at(0).node("h", "h100:8", cordoned(5)), gpus: 8, now: 10, standing: blocked, reason: v1alpha1.ReasonNodeUnavailable},
		"its node was deleted": {
			world: node().node("g", "h100:4", nil).at(10).see(ledger.KindNode, "h", func(o *ledger.Observation) { o.Ref.Deleted = true }), gpus: 8, now: 20,
			standing: blocked, reason: v1alpha1.ReasonNotEnoughDevices,
		},
		"its node was deleted longer ago than is remembered": {
			world: node().node("g", "h100:4", nil).at(10).see(ledger.KindNode, "h", func(o *ledger.Observation) { o.Ref.Deleted = true }), gpus: 8, now: 3700,
			standing: impossible, reason: v1alpha1.ReasonNotEnoughDevices,
		},
		"a node that came just now has listed nothing yet":       {world: newWorld().at(0).node("h", "h100:8", fresh), gpus: 8, now: 30, standing: busy, reason: v1alpha1.ReasonPoolIncomplete, until: 60},
		"a node that came a minute ago has listed nothing":       {world: newWorld().at(0).node("h", "h100:8", fresh), gpus: 8, now: 60, standing: blocked, reason: v1alpha1.ReasonPoolIncomplete},
		"what is ending is on its way":                           {world: node().held("h", true, false, 0).ends("h", 0, 30), gpus: 8, now: 10, standing: busy, reason: v1alpha1.ReasonDevicesFreeing, coming: true, until: 90},
		"what is ending is on its way, whoever's it is":          {world: node().held("h", false, false, 0).ends("h", 0, 30), gpus: 8, now: 10, standing: busy, reason: v1alpha1.ReasonDevicesFreeing, coming: true, until: 90},
		"what should have ended a minute ago is waited no more":  {world: node().held("h", true, false, 0).ends("h", 0, 30), gpus: 8, now: 90, standing: blocked, reason: v1alpha1.ReasonDevicesUnhealthy},
		"what is ending beside what runs is not enough":          {world: node().held("h", true, false, 0).ends("h", 0, 30).held("h", true, false, 1), gpus: 8, now: 10, standing: busy, reason: v1alpha1.ReasonDevicesInUse, until: 90},
		"what is ending and promised to another is not for all":  {world: node().held("h", true, false, 0).ends("h", 0, 30).promisedElsewhere("h", 0), gpus: 8, now: 10, standing: busy, reason: v1alpha1.ReasonDevicesInUse, until: 90},
		"what is free beside what is ending is enough by itself": {world: node().held("h", true, false, 0).ends("h", 0, 30), gpus: 7, now: 10, standing: fits, until: 90},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dec := c.world.decide(t, Request{Now: after(c.now), Coming: true, PodSets: []PodSet{pods(1, c.gpus, assignedTo("h100"))}})
			got := dec.Standings[0]
			if got.Standing != c.standing || c.reason != "" && got.Reasons[0].Reason != c.reason {
				t.Errorf("standing is %s with %+v, want %s for %s", got.Standing, got.Reasons, c.standing, c.reason)
			}
			if dec.Coming != c.coming || c.coming && (dec.Verdict != v1alpha1.VerdictWait || len(dec.PodSets) == 0) {
				t.Errorf("coming is %t with %+v, want %t", dec.Coming, dec.PodSets, c.coming)
			}
			want := time.Time{}
			if c.until != 0 {
				want = after(c.until)
			}
			if !dec.Until.Equal(want) {
				t.Errorf("changes by itself at %v, want %v", dec.Until, want)
			}
		})
	}
}

func TestInventoryComesOfAge(t *testing.T) {
	reject := testPolicy(t, func(s *v1alpha1.DevicePolicySpec) { s.OnInfeasible = v1alpha1.OnInfeasibleReject })
	for name, c := range map[string]struct {
		policy *flavors.Policy
		now    int
		until  time.Time
	}{
		"what is known for less than the window is looked at again when it is": {reject, 10, after(180)},
		"what is known for the window is not":                                  {reject, 180, time.Time{}},
		"nor is anything where nobody is rejected":                             {testPolicy(t, nil), 10, time.Time{}},
	} {
		dec := newWorld().at(0).node("h", "h100:8", nil).decide(t, Request{Policy: c.policy, Now: after(c.now), PodSets: []PodSet{pods(1, 9, assignedTo("h100"))}})
		if dec.Standings[0].Standing != v1alpha1.StandingImpossible || !dec.Until.Equal(c.until) {
			t.Errorf("%s: %s until %v, want until %v", name, dec.Standings[0].Standing, dec.Until, c.until)
		}
	}
}
