package round

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// byHand makes a Placement that promises a Workload the eight devices of a node, created so many seconds after noon.
func (b *bench) byHand(name, node string, created int) {
	b.t.Helper()
	wl := b.workload(name)
	key, err := admission.KeyOf(wl)
	b.must(err)
	r := v1alpha1.PlacementRequest{Claim: "gpu", Request: "gpu"}
	for i := range 8 {
		r.Devices = append(r.Devices, "gpu.example.com/"+node+"/gpu-"+string(rune('0'+i)))
	}
	b.make(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("placement of " + name), CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(created) * time.Second)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Name: name, UID: wl.UID, Controller: ptr.To(true)}}},
		Spec: v1alpha1.PlacementSpec{Key: key, Policy: "gpu", PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Flavor: "h100", Charge: 8,
			Nodes: []v1alpha1.PlacementNode{{Name: node, Slots: 1, Requests: []v1alpha1.PlacementRequest{r}}}}}},
	})
}

// overlapping is a cluster in which two Workloads, older and younger, are promised the same devices of node a.
func overlapping(t *testing.T, nodes map[string]string) *bench {
	b := newBench(t, nodes, nil)
	b.waits("younger", nil) // it comes first in a round, and has the later Placement
	b.waits("older", nil)
	b.reserve("younger", "h100")
	b.reserve("older", "h100")
	b.byHand("younger", "a", 9)
	b.byHand("older", "a", 8)
	return b
}

func TestOfTwoPromisesOfOneDeviceTheLaterIsPlacedAnew(t *testing.T) {
	b := overlapping(t, map[string]string{"a": "h100", "b": "h100"})
	b.round(10)
	if p := b.placement("younger"); p.Spec.Key != nil || b.placement("older").Spec.Key == nil {
		t.Fatalf("after one round the younger has %v, the older %v", p.Spec.Key, b.placement("older").Spec.Key)
	}
	c := meta.FindStatusCondition(b.placement("younger").Status.Conditions, v1alpha1.PlacementReserved)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != string(v1alpha1.ReasonPromiseOverlap) || strings.Contains(c.Message, "older") {
		t.Errorf("the condition is %+v, want why, and not whose the other is", c)
	}
	if got := <-b.Events.(*events.FakeRecorder).Events; !strings.Contains(got, "PromiseOverlap") {
		t.Errorf("the event is %q", got)
	}
	if got := valueOf(t, b.Metrics.Overlaps); got != 1 {
		t.Errorf("%v overlaps are counted, want 1", got)
	}
	b.settle(10)
	for name, node := range map[string]string{"older": "a", "younger": "b"} {
		if got := b.promisedNodes(name); !slices.Equal(got, []string{node}) || !strings.HasPrefix(b.check(name), "Ready") {
			t.Errorf("%s is promised %v and its check is %q", name, got, b.check(name))
		}
	}
}

func TestWithoutAnotherPlaceTheLaterGivesItsQuotaBack(t *testing.T) {
	b := overlapping(t, map[string]string{"a": "h100"})
	b.settle(10)
	if got := b.promisedNodes("older"); !slices.Equal(got, []string{"a"}) || !strings.HasPrefix(b.check("older"), "Ready") {
		t.Errorf("the older is promised %v and its check is %q", got, b.check("older"))
	}
	if p := b.placement("younger"); p.Spec.Key != nil || ptr.Deref(b.workload("younger").Spec.Active, true) {
		t.Errorf("the younger keeps its promise (%v) or its quota", p.Spec.Key)
	}
}

// TestAnAdmittedWorkloadYieldsSlotBySlot: its pods may be on their way, so its promise stays as it is here.
func TestAnAdmittedWorkloadYieldsSlotBySlot(t *testing.T) {
	b := overlapping(t, map[string]string{"a": "h100", "b": "h100"})
	b.change("younger", func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		meta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted"})
	})
	b.observe()
	b.expectOverlap(t)
	b.settle(10)
	if got := b.promisedNodes("older"); !slices.Equal(got, []string{"a"}) || !strings.HasPrefix(b.check("older"), "Ready") {
		t.Errorf("the older is promised %v and its check is %q: it has the device", got, b.check("older"))
	}
	if got := b.promisedNodes("younger"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the younger is promised %v", got)
	}
}

// expectOverlap holds the fixture against what it is for.
func (b *bench) expectOverlap(t *testing.T) {
	t.Helper()
	o := b.Book.Snapshot().Overlaps()
	if len(o) != 1 || o[0].Winner.Workload != "older" || o[0].Loser.Workload != "younger" {
		t.Fatalf("the overlaps are %+v", o)
	}
}
