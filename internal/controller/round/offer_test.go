package round

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

func TestOneFreeNodeIsOfferedToOneOfEight(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprintf("wl-%d", i))
		b.waits(names[i], nil)
	}
	b.settle(0)
	if got := b.open(names...); got != "wl-0=h100" {
		t.Errorf("open are %s", got)
	}
	if got := b.round(1); len(got) > 0 {
		t.Errorf("a round on the same inputs wrote %v", got)
	}
	for _, name := range names[1:] {
		if r := b.placement(name).Status.Record; r == nil || r.Reason != v1alpha1.ReasonDevicesInUse {
			t.Errorf("%s says %+v", name, r)
		}
	}
}

func TestARecordThatChangesALittleIsWrittenLater(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.pod("stranger", "h", 0, 1, 2, 3)
	b.waits("wl", nil)
	b.settle(0)
	before := b.placement("wl").Status.Record
	b.pod("another", "h", 4)
	if got := b.round(3); len(got) > 0 {
		t.Errorf("%v is written within ten seconds", got)
	}
	if got := b.round(10); !slices.Equal(got, []string{"patch status of Placement wl"}) {
		t.Errorf("%v is written when it may be", got)
	}
	if after := b.placement("wl").Status.Record; before == nil || after.Reason != before.Reason || after.Message == before.Message {
		t.Errorf("the record was %+v, and is %+v", before, after)
	}
}

func TestTwoFreeNodesOfTwoFlavorsAreOfferedToTwo(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100", "a": "a100"}, nil)
	b.waits("first", nil)
	b.waits("second", nil)
	b.settle(0)
	if got := b.open("first", "second"); got != "first=h100" {
		t.Errorf("open are %s: the second waits for an h100 first", got)
	}
	b.reserve("first", "h100")
	b.settle(1)
	b.settle(59)
	if got := b.open("second"); got != "" {
		t.Errorf("open are %s before the second has waited long enough", got)
	}
	if _, next := b.roundThen(59); next <= 0 || next > 1 {
		t.Errorf("the round is to be woken in %v s, to end the wait", next)
	}
	b.settle(60)
	if got := b.open("second"); got != "second=a100" {
		t.Errorf("open are %s", got)
	}
	if waits := b.placement("second").Status.Waits; len(waits) != 1 || !waits[0].Since.Time.Equal(noon) {
		t.Errorf("its waits are %+v", waits)
	}
}

func TestAnOfferThatIsNotTakenIsNudgedOnceAndClosedThen(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	if got := b.round(9); len(got) > 0 || b.open("wl") != "wl=h100" {
		t.Errorf("%s after %v, before it is nudged", b.open("wl"), got)
	}
	if got := b.round(10); !slices.Equal(got, []string{"patch Workload wl"}) || b.open("wl") != "" {
		t.Errorf("nudged: %s after %v", b.open("wl"), got)
	}
	if got := b.round(10); !slices.Equal(got, []string{"patch Workload wl"}) || b.open("wl") != "wl=h100" {
		t.Errorf("and open again: %s after %v", b.open("wl"), got)
	}
	if got := b.round(19); len(got) > 0 {
		t.Errorf("%v is written while it is open", got)
	}
	b.settle(20)
	if got := b.open("wl"); got != "" {
		t.Errorf("open is %s although Kueue did not take it", got)
	}
	status := b.placement("wl").Status
	if len(status.Closed) != 1 || !status.Closed[0].Until.Time.Equal(noon.Add(25e9)) || status.Retry == nil || status.Retry.Count != 1 {
		t.Errorf("closed are %+v, after %+v", status.Closed, status.Retry)
	}
	if _, next := b.roundThen(21); next != 4 {
		t.Errorf("the round is to be woken in %v s, to open it again", next)
	}
	if b.settle(25); b.open("wl") != "wl=h100" {
		t.Error("it is not open again after the backoff")
	}
	b.settle(36)
	b.settle(47)
	if status := b.placement("wl").Status; b.open("wl") != "" || status.Closed[0].Until.Unix() != noon.Unix()+57 {
		t.Errorf("the second time it is closed for twice as long: %+v", status.Closed)
	}
}

func TestAnOfferThatStoodNoMoreIsANewOne(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	b.pod("stranger", "h", 0)
	b.settle(1)
	if got := b.open("wl"); got != "" {
		t.Fatalf("open is %s on devices that a stranger has", got)
	}
	b.gone(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger"}})
	b.gone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger"}})
	b.settle(100)
	if got := b.open("wl"); got != "wl=h100" {
		t.Errorf("open is %q: the new offer is as old as the last", got)
	}
	if got := b.round(109); len(got) > 0 || b.open("wl") != "wl=h100" {
		t.Errorf("%v was written of an offer of 9 s", got)
	}
}

func TestOnlyTheHeadOfAStrictQueueIsOffered(t *testing.T) {
	b := newBench(t, map[string]string{"h1": "h100", "h2": "h100"}, func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	})
	b.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-b"}})
	b.make(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "gpus"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "shared"}})
	b.waits("head", nil)
	b.waits("mate", nil)
	b.waits("stranger", func(wl *kueue.Workload) { wl.Namespace = "team-b" })
	b.settle(0)
	if got := b.open("head", "mate"); got != "head=h100" {
		t.Errorf("open are %s", got)
	}
	mate := b.placement("mate").Status.Record
	if mate == nil || mate.Reason != v1alpha1.ReasonBehindQueueHead || !strings.Contains(mate.Message, "head") {
		t.Errorf("the next of the same namespace says %+v", mate)
	}
	p := &v1alpha1.Placement{}
	b.must(b.Client.Get(t.Context(), types.NamespacedName{Namespace: "team-b", Name: "stranger"}, p))
	if r := p.Status.Record; r == nil || r.Reason != v1alpha1.ReasonBehindQueueHead || strings.Contains(r.Message, ": ") {
		t.Errorf("a head of another namespace is named: %+v", r)
	}
}

func TestAHeadThatRestsIsTheHead(t *testing.T) {
	b := newBench(t, map[string]string{"h1": "h100", "h2": "h100"}, func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	})
	b.waits("head", nil)
	b.waits("next", nil)
	b.remembers("head", func(s *v1alpha1.PlacementStatus) {
		s.Retry = &v1alpha1.PlacementRetry{Count: 1, NotBefore: ptr.To(metav1.NewTime(noon.Add(30e9)))}
	})
	b.settle(0)
	if got := b.open("head", "next"); got != "" {
		t.Errorf("open are %s while the head rests", got)
	}
	b.settle(30)
	if got := b.open("head", "next"); got != "head=h100" {
		t.Errorf("open are %s", got)
	}
}

func TestVictimsAreRememberedBeforeTheSetIsOpened(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("8")
		cq.Spec.ResourceGroups[0].Flavors[1].Resources[0].NominalQuota = resource.MustParse("0")
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	})
	b.waits("low", func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To(int32(0)) })
	b.settle(0)
	b.reserve("low", "h100")
	b.settle(1)
	if !slices.Equal(b.placement("low").Spec.PodSets[0].Nodes[0].Requests[0].Devices[:1], []string{"gpu.example.com/h/gpu-0"}) {
		t.Fatal("low has no place")
	}
	b.waits("high", nil)
	var writes []string
	for range 3 {
		writes = append(writes, b.round(2)...)
	}
	remembered, opened := slices.Index(writes, "patch status of Placement high"), slices.Index(writes, "patch Workload high")
	if b.open("high") != "high=h100" || remembered < 0 || opened < remembered {
		t.Errorf("%q is open, after %v", b.open("high"), writes)
	}
	if got := b.placement("high").Status.Victims; !slices.Equal(got, []string{"low"}) {
		t.Errorf("its victims are %v", got)
	}
	if got := b.round(3); len(got) > 0 {
		t.Errorf("a round on the same inputs wrote %v", got)
	}
	if b.settle(500); b.open("high") != "high=h100" {
		t.Error("victims may take their time")
	}
	if b.settle(700); b.open("high") != "" {
		t.Error("an offer of victims that never end is open for ever")
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	p := &flavors.Policy{Flavors: []flavors.Flavor{{Name: "h100"}}}
	turn := &turns{round: &round{now: noon}}
	s := v1alpha1.PlacementStatus{}
	for i := range 16 {
		s.Waits = append(s.Waits, v1alpha1.FlavorWait{Flavor: fmt.Sprintf("renamed-%d", i), Since: metav1.NewTime(noon)})
	}
	c := &admission.Choice{Waits: []string{"h100"}}
	for i := range 300 {
		c.Victims = append(c.Victims, quota.Victim{UID: types.UID(fmt.Sprintf("v-%d", i))})
		s.Victims = append(s.Victims[:min(i, 255)], fmt.Sprintf("old-%d", i))
	}
	w := &waiting{managed: &policies.Managed{Policy: p}, placement: &v1alpha1.Placement{Status: s}}
	change := turn.remember(w, c)
	if change == nil {
		t.Fatal("nothing is news")
	}
	change(&w.placement.Status)
	if got := w.placement.Status; len(got.Waits) != 1 || len(got.Victims) != maxVictims || !slices.Contains(got.Victims, "v-0") {
		t.Errorf("%d waits and %d victims are remembered, the first %v", len(got.Waits), len(got.Victims), got.Victims[:1])
	}
	if turn.remember(w, c) != nil {
		t.Error("the same choice is news again")
	}
	for i := range 40 {
		eviction.Close(&w.placement.Status, []string{fmt.Sprintf("f-%02d", i)}, noon, noon.Add(300e9))
	}
	if n := len(w.placement.Status.Closed); n != 16 {
		t.Errorf("%d flavors are closed", n)
	}
}

func TestWhoComesFirstLeavesWhatKueueMayBeTaking(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	b.waits("second", nil)
	b.settle(0)
	if got := b.open("second"); got != "second=h100" {
		t.Fatalf("open are %s", got)
	}
	b.waits("first", func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To[int32](200) }) // it stands before the other
	b.settle(1)
	if got := b.open("first", "second"); got != "second=h100" {
		t.Errorf("open are %s: Kueue may have given the other its quota already", got)
	}
	b.settle(int(nudgeAfter.Seconds()))
	b.settle(int(closeAfter.Seconds()))
	if got := b.open("first", "second"); got != "first=h100" {
		t.Errorf("open are %s, once Kueue has not taken the other's offer", got)
	}
}

func TestWhatAVictimGaveBackIsForItsPreemptor(t *testing.T) {
	quotas := func(of string) func(*kueue.ClusterQueue, *v1alpha1.DevicePolicySpec) {
		return func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
			cq.Spec.CohortName = "all"
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse(of)
			cq.Spec.ResourceGroups[0].Flavors[1].Resources[0].NominalQuota = resource.MustParse("0")
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
		}
	}
	b := newBench(t, map[string]string{"h": "h100"}, quotas("0"))
	for _, o := range queueOf(quotas("8")) {
		if cq, ok := o.(*kueue.ClusterQueue); ok {
			cq.Name = "owners"
			b.make(cq)
		}
	}
	b.make(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owners"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "owners"}})
	b.waits("borrower", nil)
	b.settle(0)
	b.reserve("borrower", "h100")
	b.settle(1)
	b.waits("owner", func(wl *kueue.Workload) { wl.Spec.QueueName = "owners" })
	b.settle(2)
	if got := b.placement("owner").Status.Victims; b.open("owner") != "owner=h100" || !slices.Equal(got, []string{"borrower"}) {
		t.Fatalf("open is %q, for which %v may end", b.open("owner"), got)
	}
	b.change("borrower", func(wl *kueue.Workload) {
		wl.Status.Admission, wl.Status.AdmissionChecks = nil, nil
		meta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending"})
		meta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPreemption})
	})
	b.settle(3)
	if got := b.open("borrower", "owner"); got != "owner=h100" { // the victim came first, and stands before the other
		t.Errorf("open are %q", got)
	}
}
