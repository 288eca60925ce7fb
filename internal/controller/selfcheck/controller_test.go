package selfcheck

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// bench is a node whose device maps 16 cpus, a Workload that was promised it and its pod, and the controller under test.
type bench struct {
	*Controller
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	recorder *events.FakeRecorder
	version  uint64
	reads    int
	registry *prometheus.Registry
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakePassiveClock(began)}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Placement{}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			b.reads++
			return w.Get(ctx, key, o, opts...)
		},
	}).WithObjects(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "w", UID: "p"}, Spec: v1alpha1.PlacementSpec{Key: key(), PodSets: podSets()}}).Build()
	b.start(c)
	return b
}

// start makes the controller anew, as a process that starts does.
func (b *bench) start(c client.Client) {
	b.recorder, b.registry = events.NewFakeRecorder(1000), prometheus.NewRegistry()
	b.Controller = &Controller{
		Client: c, Book: ledger.New(), Decider: &admission.Decider{Matcher: flavors.NewMatcher()}, Store: &placements.Store{Client: c, Live: c}, Events: b.recorder,
		Metrics: metrics.New(b.registry), Clock: b.clock, Synced: func() bool { return true },
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "pods": resource.MustParse("110")}}}
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: "a"}, Node: node})
	b.slice(func(*resourcev1.ResourceSliceSpec) {})
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindWorkload, UID: "w"}, Workload: &ledger.Workload{Namespace: "team", Name: "w", Owner: "job", Key: key()}})
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindPlacement, UID: "p"}, Placement: &ledger.Placement{Namespace: "team", Name: "w", Spec: &v1alpha1.PlacementSpec{Key: key(), PodSets: podSets()}}})
	b.claim("gpu-0")
	b.pod(16)
}

func key() *v1alpha1.PlacementKey {
	return &v1alpha1.PlacementKey{WorkloadUID: "w", Admission: "a", ReservedAt: metav1.NewTime(began)}
}

func podSets() []v1alpha1.PlacementPodSet {
	return []v1alpha1.PlacementPodSet{{Name: "main", Nodes: []v1alpha1.PlacementNode{{Name: "a", Slots: 1}}}}
}

func (b *bench) see(o ledger.Observation) {
	b.version++
	o.Ref.ResourceVersion = b.version
	b.Book.Apply(o)
}

func (b *bench) slice(change func(*resourcev1.ResourceSliceSpec)) {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "slice"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: ptr.To("a"), Pool: resourcev1.ResourcePool{Name: "a", Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range 2 {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", i), NodeAllocatableResourceMappings: map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
			"cpu": {AllocationMultiplier: ptr.To(resource.MustParse("16"))},
		}})
	}
	change(&s.Spec)
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindSlice, UID: "slice"}, Slice: s})
}

func (b *bench) claim(device string) {
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindClaim, UID: "claim"}, Claim: &ledger.Claim{
		Namespace: "team", Name: "c", Pod: "pod",
		Promised:  []ledger.DeviceID{{Driver: "gpu.example.com", Pool: "a", Device: "gpu-0"}},
		Allocated: []ledger.DeviceID{{Driver: "gpu.example.com", Pool: "a", Device: device}},
	}})
}

// pod has a status that says so many cpus.
func (b *bench) pod(cpus int64) {
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindPod, UID: "pod"}, Pod: &ledger.Pod{
		Namespace: "team", Name: "w-0", Node: "a", Owner: "job", PodSet: "main", CreatedUnix: began.Unix() + 1, Claims: []string{"c"}, Referring: []int{1},
		Requests: ledger.Amounts{"cpu": 1000 + 1000*cpus, "pods": 1}, Mapped: []ledger.ClaimStatus{{Claim: "c", Amounts: ledger.Amounts{"cpu": 1000 * cpus}}},
	}})
}

// run checks until nothing is due before a time from now, on the clock of the requeues.
func (b *bench) run(d time.Duration) {
	b.t.Helper()
	for end := b.clock.Now().Add(d); ; {
		result, err := b.Reconcile(context.Background(), reconcile.Request{})
		if err != nil {
			b.t.Fatal(err)
		}
		next := b.clock.Now().Add(result.RequeueAfter)
		if result.RequeueAfter == 0 || next.After(end) {
			b.clock.SetTime(end)
			return
		}
		b.clock.SetTime(next)
	}
}

func (b *bench) condition() *metav1.Condition {
	b.t.Helper()
	p := &v1alpha1.Placement{}
	if err := b.Client.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: "w"}, p); err != nil {
		b.t.Fatal(err)
	}
	return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementDiverged)
}

// events returns what was written since they were last asked for.
func (b *bench) events() []string {
	var list []string
	for {
		select {
		case e := <-b.recorder.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func (b *bench) wantEvents(want ...string) {
	b.t.Helper()
	got := b.events()
	if len(got) != len(want) {
		b.t.Fatalf("events %q, want %d", got, len(want))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			b.t.Errorf("event %q, want %q in it", got[i], want[i])
		}
	}
}

// metric returns the value of a metric with one label; 0 where it was never set.
func (b *bench) metric(name, label string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func (b *bench) wantFigures(kind ledger.DivergenceKind, now, ever float64) {
	b.t.Helper()
	if got := b.metric("plimsoll_ledger_differences", string(kind)); got != now {
		b.t.Errorf("%v differences now, want %v", got, now)
	}
	if got := b.metric("plimsoll_divergences_total", string(kind)); got != ever {
		b.t.Errorf("%v differences ever, want %v", got, ever)
	}
}

const differs = "pod w-0: by its devices claim c takes cpu 16 of node a, by the pod's status cpu 4"

func TestADifferenceThatStandsIsSaidOnceUntilItIsMended(t *testing.T) {
	b := newBench(t)
	b.run(time.Minute)
	b.wantEvents()
	b.pod(4)
	b.run(stands - time.Second)
	if b.wantEvents(); b.condition() != nil {
		t.Fatal("said too early")
	}
	b.run(3 * time.Second)
	b.wantEvents("Warning Diverged " + differs)
	if c := b.condition(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.DivergedNotAsCounted || c.Message != differs {
		t.Fatalf("condition %+v, want true: %s", c, differs)
	}
	b.wantFigures(ledger.DivergedStatus, 1, 1)
	for range 3 { // others change the ledger
		b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindWorkload, UID: types.UID(fmt.Sprint(b.version))}, Workload: &ledger.Workload{Namespace: "team", Name: "x"}})
		b.run(time.Minute)
	}
	b.wantEvents()
	b.pod(16)
	b.run(stands)
	if c := b.condition(); c.Status != metav1.ConditionFalse || c.Reason != "Agrees" {
		t.Errorf("condition %+v, want false", c)
	}
	b.wantFigures(ledger.DivergedStatus, 0, 1)
	b.wantEvents()
}

func TestADifferenceInPassingIsNotSaid(t *testing.T) {
	b := newBench(t)
	b.run(time.Second)
	for range 5 {
		b.pod(0)
		b.run(stands / 2)
		b.pod(16)
		b.run(stands)
	}
	b.wantEvents()
	b.wantFigures(ledger.DivergedStatus, 0, 0)
	if c := b.condition(); c != nil {
		t.Errorf("condition %+v, want none", c)
	}
}

func TestNothingIsReadAtRest(t *testing.T) {
	b := newBench(t)
	b.pod(4)
	b.run(time.Minute)
	b.reads = 0
	for range 10 {
		result, err := b.Reconcile(context.Background(), reconcile.Request{})
		if err != nil || result.RequeueAfter != 0 {
			t.Fatalf("%+v, %v, want nothing to be due", result, err)
		}
		b.clock.SetTime(b.clock.Now().Add(time.Minute))
	}
	if b.reads != 0 {
		t.Errorf("%d reads, want none", b.reads)
	}
}

func TestChecksAreASecondApart(t *testing.T) {
	b := newBench(t)
	checks := 0
	for range 100 {
		b.pod(int64(b.version % 16))
		if _, err := b.Reconcile(context.Background(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if b.last.Equal(b.clock.Now()) {
			checks++
		}
		b.clock.SetTime(b.clock.Now().Add(100 * time.Millisecond))
	}
	if checks != 10 {
		t.Errorf("%d checks in ten seconds, want 10", checks)
	}
}

func TestWhatAnEarlierProcessSaidIsNotSaidAgain(t *testing.T) {
	b := newBench(t)
	b.pod(4)
	b.run(time.Minute)
	b.events()
	b.start(b.Client)
	b.pod(4)
	b.run(time.Minute)
	b.wantEvents()
	b.wantFigures(ledger.DivergedStatus, 1, 0)
	b.start(b.Client) // now it was mended while nobody looked
	b.run(time.Minute)
	if c := b.condition(); c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v, want false", c)
	}
}

func TestWhatWasSaidWhenThePodWasBoundIsNotSaidAgain(t *testing.T) {
	b := newBench(t)
	const early = "pod w-0 was promised gpu.example.com/a/gpu-0 and got gpu.example.com/a/gpu-1"
	err := b.Store.UpdateStatus(context.Background(), types.NamespacedName{Namespace: "team", Name: "w"}, func(s *v1alpha1.PlacementStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.PlacementDiverged, Status: metav1.ConditionTrue, Reason: v1alpha1.DivergedNotAsPromised, Message: early,
			LastTransitionTime: metav1.NewTime(b.clock.Now())})
	})
	if err != nil {
		t.Fatal(err)
	}
	b.claim("gpu-1")
	b.run(time.Minute)
	b.wantEvents()
	b.wantFigures(ledger.DivergedDevices, 1, 0)
	if c := b.condition(); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.DivergedNotAsPromised || c.Message != early {
		t.Errorf("condition %+v, want it as it was", c)
	}
	b.claim("gpu-0")
	b.run(time.Minute)
	if c := b.condition(); c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v, want false", c)
	}
}

func TestAnotherWorkloadsPlacementIsLeft(t *testing.T) {
	b := newBench(t)
	p := &v1alpha1.Placement{}
	if err := b.Client.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: "w"}, p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Key.WorkloadUID = "w2"
	if err := b.Client.Update(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	b.pod(4)
	b.run(time.Minute)
	if b.wantEvents(); b.condition() != nil {
		t.Errorf("condition %+v, want none", b.condition())
	}
}

func TestWhatCannotBeIsSaidAtOnceAndOnce(t *testing.T) {
	b := newBench(t)
	b.run(time.Second)
	flags := func() float64 {
		return b.metric("plimsoll_ledger_flags", string(ledger.FlagImpossible))
	}
	b.slice(func(s *resourcev1.ResourceSliceSpec) { s.Devices[1].Name = "gpu-0" })
	b.run(time.Second)
	b.wantEvents("Warning Impossible pool a of gpu.example.com is kept out: device gpu-0 is listed twice")
	if flags() != 1 {
		t.Errorf("%v flags, want 1", flags())
	}
	b.pod(17)
	b.pod(16)
	b.run(time.Minute)
	b.wantEvents()
	b.slice(func(*resourcev1.ResourceSliceSpec) {})
	b.run(time.Minute)
	if b.wantEvents(); flags() != 0 {
		t.Errorf("%v flags, want none", flags())
	}
}

func TestWhatIsOverdrawnInPassingIsNotSaid(t *testing.T) {
	b := newBench(t)
	node := func(cpus string) {
		b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: "a"}, Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpus), "pods": resource.MustParse("110")}},
		}})
	}
	node("16")
	b.run(stands / 2)
	node("17")
	b.run(stands)
	b.wantEvents()
	node("16")
	b.run(stands + time.Second)
	b.wantEvents("Warning Overdrawn cpu: ")
}

func TestManyFindingsAreSaidByAndBy(t *testing.T) {
	b := newBench(t)
	b.slice(func(s *resourcev1.ResourceSliceSpec) {
		for i := range 3*maxEvents - 1 {
			s.Devices = append(s.Devices, resourcev1.Device{Name: fmt.Sprintf("bad-%02d-%s", i, strings.Repeat("x", 40)), Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"memory": {Value: resource.MustParse("-1")},
			}})
		}
	})
	b.run(0)
	if n := len(b.events()); n != maxEvents {
		t.Fatalf("%d events at once, want %d", n, maxEvents)
	}
	b.run(5 * time.Second)
	if n := len(b.events()); n != 2*maxEvents-1 {
		t.Errorf("%d events later, want %d", n, 2*maxEvents-1)
	}
}

func TestANoteIsCutWhereARuneEnds(t *testing.T) {
	got := cut(strings.Repeat("ä", 600), maxNote)
	if len(got) > maxNote || !strings.HasSuffix(got, "ä …") {
		t.Errorf("%d bytes that end in %q", len(got), got[len(got)-8:])
	}
}

// TestASelectorThatCannotBeReadIsSaidOnce: every node has it, and one event says so.
func TestASelectorThatCannotBeReadIsSaidOnce(t *testing.T) {
	b := newBench(t)
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: "another"}, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another", UID: "another"}}})
	b.run(time.Second)
	b.wantEvents()
	odd := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "odd", UID: "odd"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "nic.example.com", Pool: resourcev1.ResourcePool{Name: "odd", Generation: 1, ResourceSliceCount: 1},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "cards", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}},
		}}}},
	}}
	b.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindSlice, UID: "odd"}, Slice: odd})
	b.run(time.Second)
	said := b.events()
	if len(said) != 1 || !strings.HasPrefix(said[0], "Warning Impossible slice odd has a node selector that cannot be read") || !strings.HasSuffix(said[0], "kube-scheduler gives up every pod with claims while it is there") {
		t.Errorf("events %q, want one that says it", said)
	}
	b.run(time.Minute)
	b.wantEvents()
}
