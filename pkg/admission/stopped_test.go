package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// misread has some driver publish a slice whose node selector nobody can read.
func (w *world) misread() *world {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "odd", UID: "odd"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "nic.example.com", Pool: resourcev1.ResourcePool{Name: "odd", Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "nic-0"}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "cards", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}},
		}}}},
	}}
	return w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
}

func (w *world) mended() *world {
	return w.see(ledger.KindSlice, types.UID("odd"), func(o *ledger.Observation) { o.Ref.Deleted = true })
}

// TestNobodyIsReleasedToASchedulerThatRefusesEveryone: while a node selector cannot be read kube-scheduler gives up all pods with
// claims, whatever they ask for.
func TestNobodyIsReleasedToASchedulerThatRefusesEveryone(t *testing.T) {
	for name, c := range map[string]struct {
		world    *world
		now      int
		standing v1alpha1.Standing
	}{
		"nothing is odd":                         {node8(), 4000, v1alpha1.StandingFits},
		"a selector cannot be read for a moment": {node8().at(10).misread(), 69, v1alpha1.StandingBusy},
		"it cannot be read for longer":           {node8().at(10).misread(), 9000, v1alpha1.StandingBlocked},
		"it is mended":                           {node8().at(10).misread().at(20).mended(), 21, v1alpha1.StandingFits},
	} {
		t.Run(name, func(t *testing.T) {
			dec := c.world.decide(t, Request{Now: after(c.now), Policy: testPolicy(t, nil), PodSets: []PodSet{pods(1, 8, assignedTo("h100"))}})
			got := dec.Standings[0]
			if got.Standing != c.standing {
				t.Fatalf("standing is %s with %+v, want %s", got.Standing, got.Reasons, c.standing)
			}
			if want := "kube-scheduler gives up every pod with claims"; c.standing != v1alpha1.StandingFits &&
				(got.Reasons[0].Reason != v1alpha1.ReasonDevicesUnhealthy || !strings.Contains(got.Reasons[0].Message, want) || dec.Verdict == v1alpha1.VerdictAdmit) {
				t.Errorf("%s for %+v, want %s saying %q", dec.Verdict, got.Reasons, v1alpha1.ReasonDevicesUnhealthy, want)
			}
		})
	}
}

// TestAPromiseToASchedulerThatRefusesEveryone is kept for the grace, and not used.
func TestAPromiseToASchedulerThatRefusesEveryone(t *testing.T) {
	w := node8()
	r := Request{Now: after(0), Policy: testPolicy(t, nil), PodSets: []PodSet{pods(1, 8, assignedTo("h100"))}}
	promise := w.writes(w.decide(t, r))
	w.at(10).misread()
	for _, c := range []struct {
		now     int
		keeping Keeping
	}{{69, Coming}, {70, Broken}} {
		r.Now = after(c.now)
		if got := Holds(w.book.Snapshot(), &r, promise); got.Keeping != c.keeping || got.Reason != v1alpha1.ReasonDevicesUnhealthy {
			t.Errorf("at %d s it is %+v, want %v", c.now, got, c.keeping)
		}
	}
	slot := Slot{Node: "h", Devices: []ledger.DeviceID{{Driver: "gpu.example.com", Pool: "h", Device: "gpu-0"}}}
	trouble := slot.Trouble(w.book.Snapshot(), &r.PodSets[0], Ours{Workload: "wl", Placement: "p", Policy: r.Policy, Now: after(20)})
	if trouble == nil || !trouble.Lost || !trouble.Since.Equal(after(10)) || trouble.Dead(after(4000), 60) {
		t.Errorf("a slot's trouble is %+v, want one that may pass", trouble)
	}
}

func node8() *world { return newWorld().at(0).node("h", "h100:8", nil) }
