package round

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

func (b *bench) check(name string) string {
	b.t.Helper()
	c := steering.CheckState(b.workload(name), "plimsoll")
	if c == nil {
		return ""
	}
	return string(c.State) + " " + c.Message
}

func TestAHolderWithAPlaceIsReadyOnceItsPromiseIsSeen(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	b.reserve("wl", "h100")
	if got := b.round(1); slices.Contains(got, "apply status") {
		t.Errorf("the check is said before the promise has come back: %v", got)
	}
	b.settle(1)
	p := b.placement("wl")
	if b.check("wl") != "Ready every pod has a place that is kept for it" || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PlacementReserved) {
		t.Errorf("the check is %q, the conditions %+v", b.check("wl"), p.Status.Conditions)
	}
}

func TestAHolderWithoutAPlaceGivesItsQuotaBack(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100", "a": "a100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	b.pod("stranger", "h", 0)
	b.reserve("wl", "h100")
	b.settle(1)
	wl := b.workload("wl")
	if !steering.Deactivated(wl) {
		t.Fatalf("it keeps its quota; its check is %q", b.check("wl"))
	}
	s := b.placement("wl").Status
	if len(s.Closed) != 1 || s.Closed[0].Flavor != "h100" || !s.Closed[0].Until.Time.Equal(noon.Add(6e9)) || s.Retry.Count != 1 {
		t.Errorf("closed are %+v, after %+v", s.Closed, s.Retry)
	}
	b.change("wl", func(wl *kueue.Workload) { // Kueue takes the quota back
		wl.Status.Admission, wl.Status.Conditions = nil, nil
	})
	b.settle(2)
	if wl := b.workload("wl"); !ptr.Deref(wl.Spec.Active, true) || b.open("wl") != "wl=a100" {
		t.Errorf("open is %q, active %v", b.open("wl"), wl.Spec.Active)
	}
	b.gone(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger"}})
	b.gone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger"}})
	b.settle(5)
	if got := b.open("wl"); got != "wl=a100" {
		t.Errorf("open is %q before the backoff is over", got)
	}
	b.settle(6)
	if got := b.open("wl"); got != "wl=h100" {
		t.Errorf("open is %q after the backoff", got)
	}
}

// promisedOnWhatEnds gives wl a promise of devices that the pod of Workload old holds, which is ending.
func promisedOnWhatEnds(t *testing.T) *bench {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.pod("old", "h", 0, 1, 2, 3, 4, 5, 6, 7)
	b.ends("old", 30)
	b.waits("wl", nil)
	b.reserve("wl", "h100")
	b.settle(1)
	if len(b.placement("wl").Spec.PodSets) == 0 {
		t.Fatalf("nothing is promised: %+v", b.placement("wl").Status.Record)
	}
	return b
}

func TestAPromiseThatCountsOnWhatEndsIsWaitedFor(t *testing.T) {
	b := promisedOnWhatEnds(t)
	if got := b.check("wl"); len(got) < 8 || got[:8] != "Pending " {
		t.Errorf("the check is %q while the devices are not there", got)
	}
	if _, next := b.roundThen(2); next <= 0 || next > 88 {
		t.Errorf("the round is to be woken in %v s, when the pod should have ended", next)
	}
	b.goes("old")
	b.settle(20)
	if got := b.check("wl"); got != "Ready every pod has a place that is kept for it" {
		t.Errorf("the check is %q when the devices are there", got)
	}
}

func TestAPromiseThatCannotBeKeptIsWithdrawn(t *testing.T) {
	b := promisedOnWhatEnds(t)
	b.settle(91) // the pod has not ended within its minute
	if p := b.placement("wl"); p.Spec.Key != nil {
		t.Errorf("it is kept: %+v", p.Spec)
	}
	if !steering.Deactivated(b.workload("wl")) {
		t.Error("and it keeps its quota")
	}
}

func TestAPromiseIsWaitedForNoLongerThanThePolicySays(t *testing.T) {
	b := promisedOnWhatEnds(t)
	b.policy(func(s *v1alpha1.DevicePolicySpec) { s.Release.WaitSeconds = ptr.To(int32(40)) })
	b.settle(39)
	if steering.Deactivated(b.workload("wl")) {
		t.Error("it is evicted too early")
	}
	b.settle(41)
	if s := b.placement("wl").Status; !steering.Deactivated(b.workload("wl")) || s.Retry == nil || s.Retry.Reason != v1alpha1.ReasonReleaseTimeout {
		t.Errorf("it holds quota without a place: %+v", s.Retry)
	}
}

func TestTheClockStandsStillOnlyWhileAPromiseIsWaitedFor(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.pod("old", "h", 0, 1, 2, 3, 4, 5, 6, 7)
	b.ends("old", 30)
	b.waits("wl", nil)
	b.remembers("wl", func(s *v1alpha1.PlacementStatus) {
		s.Waits = []v1alpha1.FlavorWait{{Flavor: "h100", Since: metav1.NewTime(noon.Add(-50 * time.Second))}}
		s.Conditions = []metav1.Condition{{Type: v1alpha1.PlacementReserved, Status: metav1.ConditionFalse, Reason: "DevicesInUse", LastTransitionTime: metav1.NewTime(noon.Add(-50 * time.Second))}}
	})
	b.reserve("wl", "h100")
	b.settle(1)
	b.settle(91) // the pod has not ended within its minute
	if got := b.placement("wl").Status.Waits; len(got) != 1 || !got[0].Since.Time.Equal(noon.Add(40*time.Second)) {
		t.Errorf("of 141 s it held quota for 90, and its waits are %+v", got)
	}
}

func TestWhatEndsOfAVictimIsForWhomItWasPreempted(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.waits("low", func(wl *kueue.Workload) { // it has lost its quota, and its pod is ending
		wl.Spec.Active = ptr.To(false)
		wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "low", UID: "job-low", Controller: ptr.To(true)}}
	})
	b.podOf("job-low", "low", "h", 0, 1, 2, 3, 4, 5, 6, 7)
	b.waits("high", nil)
	b.remembers("high", func(s *v1alpha1.PlacementStatus) { s.Victims = []string{"low"} })
	b.waits("other", nil)
	b.reserve("other", "h100")
	b.settle(1)
	if !steering.Deactivated(b.workload("other")) {
		t.Errorf("another holds quota for what is ending for high: its check is %q", b.check("other"))
	}
	if got := b.open("high"); got != "high=h100" {
		t.Errorf("open to high is %q", got)
	}
	b.reserve("high", "h100")
	b.settle(2)
	if p := b.placement("high"); len(p.Spec.PodSets) != 1 || p.Status.Record.Reason != v1alpha1.ReasonDevicesFreeing {
		t.Errorf("high is promised %+v: %+v", p.Spec.PodSets, p.Status.Record)
	}
	b.goes("low")
	b.settle(3)
	if p := b.placement("high"); b.check("high") != "Ready every pod has a place that is kept for it" || len(p.Status.Victims) > 0 {
		t.Errorf("the check is %q, its victims are %v", b.check("high"), p.Status.Victims)
	}
}

// ends has a pod be terminating, with so many seconds after noon to do so.
func (b *bench) ends(name string, seconds int) {
	b.t.Helper()
	p := &corev1.Pod{}
	b.must(b.Client.Get(b.t.Context(), client.ObjectKey{Namespace: ns, Name: name}, p))
	b.observe()
	p.Labels = map[string]string{"ends": "true"}
	b.must(b.Client.Update(b.t.Context(), p))
	p.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))) // a fake API server lets nobody choose it
	seen, _ := observe.Of(p, false)
	b.Book.Apply(seen)
}

// goes has a pod and its claim be gone.
func (b *bench) goes(name string) {
	b.t.Helper()
	b.gone(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	b.gone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

// policy changes the DevicePolicy.
func (b *bench) policy(change func(*v1alpha1.DevicePolicySpec)) {
	b.t.Helper()
	dp := &v1alpha1.DevicePolicy{}
	b.must(b.Client.Get(b.t.Context(), client.ObjectKey{Name: "gpu"}, dp))
	change(&dp.Spec)
	b.must(b.Client.Update(b.t.Context(), dp))
	b.InputChanged()
}

func TestWhatIsRejectedEndsWithItsReason(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	r := &round{Engine: b.Engine, now: b.clock.Now()}
	wl := b.workload("wl")
	m, err := b.Policies.ForQueue(t.Context(), ns, "gpus")
	b.must(err)
	c := &admission.Choice{Decision: admission.Decision{Verdict: v1alpha1.VerdictReject, Reason: v1alpha1.ReasonNotEnoughDevices, Message: "no node ever has nine"}}
	b.must((&turns{round: r}).write(t.Context(), &waiting{workload: wl, managed: m}, c))
	wl = b.workload("wl")
	record := b.placement("wl").Status.Record
	if ptr.Deref(wl.Spec.Active, true) || wl.Annotations[v1alpha1.RejectedAnnotation] != string(v1alpha1.ReasonNotEnoughDevices) || record == nil || record.Verdict != v1alpha1.VerdictReject {
		t.Errorf("%+v, with %+v", wl.Annotations, record)
	}
	b.settle(1)
	if steering.Deactivated(b.workload("wl")) || ptr.Deref(b.workload("wl").Spec.Active, true) {
		t.Error("it comes back by itself")
	}
	active := b.workload("wl")
	active.Spec.Active = ptr.To(true)
	b.must(b.Client.Update(t.Context(), active))
	b.settle(2)
	if got := b.open("wl"); got != "wl=h100" || b.workload("wl").Annotations[v1alpha1.RejectedAnnotation] != "" {
		t.Errorf("made active again it is tried anew: open is %q", got)
	}
}

func TestAHolderOfQuotaForFewerPodsIsPromisedThose(t *testing.T) {
	b := newBench(t, map[string]string{"h1": "h100", "h2": "h100"}, func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("16")
	})
	b.waits("wl", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count, wl.Spec.PodSets[0].MinCount = 6, ptr.To(int32(1)) })
	b.settle(0)
	if got := b.open("wl"); got != "wl=h100" {
		t.Fatalf("open is %q", got)
	}
	b.reserve("wl", "h100")
	b.change("wl", func(wl *kueue.Workload) {
		a := &wl.Status.Admission.PodSetAssignments[0]
		a.Count, a.ResourceUsage = ptr.To(int32(2)), corev1.ResourceList{"gpus": resource.MustParse("16")}
	})
	b.settle(1)
	var slots int32
	for _, n := range b.placement("wl").Spec.PodSets[0].Nodes {
		slots += n.Slots
	}
	if slots != 2 || b.check("wl") != "Ready every pod has a place that is kept for it" {
		t.Errorf("%d places are promised, the check is %q", slots, b.check("wl"))
	}
}
