package release

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

func (b *bench) expectPlaces(want ...string) {
	b.t.Helper()
	if got := b.places(); !slices.Equal(got, want) {
		b.t.Errorf("promised is %q, want %q", got, want)
	}
}

func (b *bench) expectNotEvicted() {
	b.t.Helper()
	if reason, message := b.evicted(); reason != "" {
		b.t.Errorf("evicted for %s: %s", reason, message)
	}
}

func lostSince(at time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(at)
	}
}

// TestASlotThatCannotBeUsedIsPlacedAnew, whatever happened to it, and a slot that may come back is waited for.
func TestASlotThatCannotBeUsedIsPlacedAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*bench)
		want    []string
	}{
		"nothing":                        {func(*bench) {}, []string{"a gpu-0 gpu-1"}},
		"its device is taken":            {func(b *bench) { b.stolen(gpu("a", 1)) }, []string{"b gpu-0 gpu-1"}},
		"its node is cordoned":           {func(b *bench) { b.changeNode("a", cordon) }, []string{"b gpu-0 gpu-1"}},
		"its node is lost":               {func(b *bench) { b.changeNode("a", lostSince(began.Add(-time.Minute))) }, []string{"a gpu-0 gpu-1"}},
		"its node is lost for too long":  {func(b *bench) { b.changeNode("a", lostSince(began.Add(-61*time.Second))) }, []string{"b gpu-0 gpu-1"}},
		"its node is gone":               {func(b *bench) { b.goneNode("a") }, []string{"b gpu-0 gpu-1"}},
		"its node loses flavor's labels": {func(b *bench) { b.changeNode("a", func(n *corev1.Node) { delete(n.Labels, "accelerator") }) }, []string{"b gpu-0 gpu-1"}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, restart), func(t *testing.T) {
				b := newBench(t, map[string]int{"a": 2, "b": 3}, 2, "a")
				tc.happens(b)
				b.pod("p", nil)
				b.reconcile("p")
				b.expectPlaces(tc.want...)
				if restart {
					b.start()
				}
				b.reconcile("p")
				b.expectNotEvicted()
				devices, _ := b.cutFor("p")
				node := strings.Fields(tc.want[0])[0]
				if lost := strings.HasSuffix(name, "lost"); lost == (len(devices) > 0) || len(devices) > 0 && !strings.Contains(devices[0], "/"+node+"/") {
					t.Errorf("the pod got %v, want those on %s unless the node may come back", devices, node)
				}
			})
		}
	}
}

func (b *bench) goneNode(name string) {
	b.t.Helper()
	n := &corev1.Node{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Name: name}, n))
	b.gone(n)
}

// TestTakenSlotsStayAsTheyAre: a pod whose template is written keeps its devices and its slot's name when the slot before
// it on its node moves away, and no other gets that name.
func TestTakenSlotsStayAsTheyAre(t *testing.T) {
	for name, tc := range map[string]struct {
		on   map[string]int
		want []string
	}{
		"to another node":   {map[string]int{"a": 4, "b": 4}, []string{"a gpu-2 gpu-3", "b gpu-0 gpu-1"}},
		"on the same node":  {map[string]int{"a": 6}, []string{"a gpu-1 gpu-4", "a gpu-2 gpu-3"}},
		"beside the others": {map[string]int{"a": 5}, []string{"a gpu-1 gpu-4", "a gpu-2 gpu-3"}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, restart), func(t *testing.T) {
				b := newBench(t, tc.on, 2, "a", "a")
				if name == "to another node" {
					b.stolen(gpu("a", 1))
				}
				b.stolen(gpu("a", 0))
				b.pod("taken", nil)
				b.reconcile("taken") // the second slot, since the first cannot be used
				devices, id := b.cutFor("taken")
				if id != "main/a/1" {
					t.Fatalf("the pod took %s with %v", id, devices)
				}
				b.pod("next", nil)
				b.reconcile("next")
				b.expectPlaces(tc.want...)
				if restart {
					b.start()
				}
				b.serve("next")
				b.claim("taken")
				b.reconcile("taken")
				b.expectNotEvicted()
				if observe.Gated(b.get("taken")) {
					t.Error("the pod that had its slot was not released")
				}
				if again, its := b.cutFor("taken"); !slices.Equal(again, devices) || its != id {
					t.Errorf("it had %v as %s, it has %v as %s", devices, id, again, its)
				}
				if got, its := b.cutFor("next"); its == id || slices.Contains(devices, got[0]) {
					t.Errorf("the next has %v as %s", got, its)
				}
			})
		}
	}
}

// TestWhereThereIsNoOtherPlace it is tried again after a while, and in the end the Workload gives its quota back.
func TestWhereThereIsNoOtherPlace(t *testing.T) {
	b := newBench(t, map[string]int{"a": 2}, 2, "a")
	thief := b.stolen(gpu("a", 0))
	b.pod("p", nil)
	for _, step := range []struct {
		at    time.Duration
		tries int32
	}{{0, 1}, {time.Second, 1}, {5*time.Second - 1, 1}, {5 * time.Second, 2}, {15*time.Second - 1, 2}} {
		b.clock.SetTime(began.Add(step.at))
		if after := b.reconcile("p").RequeueAfter; after <= 0 || after > lookEvery {
			t.Errorf("at %s it is looked at again after %s", step.at, after)
		}
		if tries := b.slots.byWorkload["wl"].tries; tries != step.tries {
			t.Errorf("at %s it was tried %d times, want %d", step.at, tries, step.tries)
		}
		b.expectNotEvicted()
	}
	b.clock.SetTime(began.Add(15 * time.Second))
	b.reconcile("p")
	reason, message := b.evicted()
	if want := "node a: a pod that Kueue does not manage has taken device gpu-0; there is no other place: "; reason != v1alpha1.ReasonForeignUse || !strings.HasPrefix(message, want) {
		t.Errorf("evicted for %s: %s", reason, message)
	}
	b.expectPlaces("a gpu-0 gpu-1")
	b.gone(thief)
}

func TestAPlaceThatComesBackInTimeIsTaken(t *testing.T) {
	b := newBench(t, map[string]int{"a": 2}, 2, "a")
	b.changeNode("a", cordon)
	b.pod("p", nil)
	b.reconcile("p")
	b.clock.SetTime(began.Add(5 * time.Second))
	b.reconcile("p")
	b.changeNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	b.serve("p")
	b.expectNotEvicted()
	if tries := b.slots.byWorkload["wl"].tries; tries != 0 {
		t.Errorf("%d failed tries are remembered of a pod that has its slot", tries)
	}
}

// TestAPodIsHeldToItsClaim: the claim cannot be changed and is not ours to delete, so the slot does not move.
func TestAPodIsHeldToItsClaim(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b := newBench(t, map[string]int{"a": 2, "b": 2}, 2, "a")
		b.pod("p", func(p *corev1.Pod) {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "own"})
		})
		b.reconcile("p")
		b.claim("p")
		b.stolen(gpu("a", 1))
		if restart {
			b.start()
		}
		for _, at := range []time.Duration{0, 5 * time.Second} {
			b.expectNotEvicted()
			b.clock.SetTime(began.Add(at))
			b.reconcile("p")
		}
		b.expectPlaces("a gpu-0 gpu-1")
		if reason, message := b.evicted(); reason != v1alpha1.ReasonForeignUse {
			t.Errorf("restart %t: evicted for %q: %s", restart, reason, message)
		}
	}
}

// TestAReleasedPodThatNothingCanBind is not waited for until its time is over, whatever it asks for beside its devices.
func TestAReleasedPodThatNothingCanBind(t *testing.T) {
	for name, tc := range map[string]struct {
		devices int64
		happens func(*bench)
		want    v1alpha1.Reason
	}{
		"nothing":                    {2, func(*bench) {}, ""},
		"its own claim is allocated": {2, func(b *bench) { b.allocate("p") }, ""},
		"a device is taken":          {2, func(b *bench) { b.stolen(gpu("a", 1)) }, v1alpha1.ReasonForeignUse},
		"the node is cordoned":       {2, func(b *bench) { b.changeNode("a", cordon) }, v1alpha1.ReasonNodeUnavailable},
		"the node of a plain pod is": {0, func(b *bench) { b.changeNode("a", cordon) }, v1alpha1.ReasonNodeUnavailable},
		"the node is away":           {2, func(b *bench) { b.changeNode("a", lostSince(began)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, map[string]int{"a": 2, "b": 2}, tc.devices, "a")
			b.pod("p", needs("6")) // twice that is more than the node has
			b.reconcile("p")
			if tc.devices > 0 {
				b.claim("p")
				b.reconcile("p")
			}
			if observe.Gated(b.get("p")) {
				t.Fatal("the pod is still gated")
			}
			b.observe()
			tc.happens(b)
			for _, at := range []time.Duration{2 * time.Second, 7 * time.Second} {
				b.expectNotEvicted()
				b.clock.SetTime(began.Add(at))
				if after := b.reconcile("p").RequeueAfter; after > boundEvery {
					t.Errorf("looked at again after %s", after)
				}
			}
			if reason, message := b.evicted(); reason != tc.want {
				t.Errorf("evicted for %q: %s", reason, message)
			}
		})
	}
}

// needs makes a pod ask for so much cpu as an injected sidecar would make it.
func needs(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}})
	}
}

// TestAPodThatOutgrewItsSlot gets another that it fits, or its Workload is evicted for it.
func TestAPodThatOutgrewItsSlot(t *testing.T) {
	busy := func(b *bench, node string) {
		b.make(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "busy-" + node}, Spec: corev1.PodSpec{NodeName: node,
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("5")}}}}}})
		b.observe()
	}
	b := newBench(t, map[string]int{"a": 2, "b": 2}, 2, "a")
	busy(b, "a")
	b.pod("p", needs("4"))
	b.reconcile("p")
	b.expectPlaces("b gpu-0 gpu-1")
	b.serve("p")

	b = newBench(t, map[string]int{"a": 2, "b": 2}, 2, "a")
	busy(b, "a")
	busy(b, "b")
	b.pod("p", needs("4"))
	for _, at := range []time.Duration{0, 5 * time.Second, 15 * time.Second} {
		b.expectNotEvicted()
		b.clock.SetTime(began.Add(at))
		b.reconcile("p")
	}
	if reason, message := b.evicted(); reason != v1alpha1.ReasonPodChanged || !strings.HasPrefix(message, "pod p asks for more cpu than was promised to its podset, and node a has no more") {
		t.Errorf("evicted for %q: %s", reason, message)
	}
}

// TestSlotsThatNoPodIsHeldToChangePlaces: where a slot alone finds no place, those beside it may move too.
func TestSlotsThatNoPodIsHeldToChangePlaces(t *testing.T) {
	b := newBench(t, map[string]int{"a": 0, "b": 0}, 0, "b", "a")
	own := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "own"})
	}
	b.pod("first", own)
	b.reconcile("first") // takes the slot on a, and nothing is written
	b.pod("second", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a"}; needs("7")(p) })
	b.reconcile("second")
	b.expectPlaces("a", "b")
	b.serve("second")
	if got := b.get("second").Spec.NodeName; got != "a" {
		t.Errorf("the second is on %s", got)
	}
	first := b.get("first")
	first.Spec.SchedulingGates = first.Spec.SchedulingGates[:1]
	b.must(b.Client.Update(context.Background(), first))
	b.serve("first")
	if got := b.get("first").Spec.NodeName; got != "b" {
		t.Errorf("the first is on %s", got)
	}
	b.expectNotEvicted()
}

// TestTheSlotOfADeadNodeGoesToTheNextPod, though the old pod cannot end, and what the old claim has is still counted.
func TestTheSlotOfADeadNodeGoesToTheNextPod(t *testing.T) {
	b := newBench(t, map[string]int{"a": 2, "b": 2}, 2, "a")
	b.pod("old", nil)
	b.serve("old")
	b.deletes("old", began.Add(time.Minute))
	b.pod("next", nil)
	b.reconcile("next")
	b.changeNode("a", lostSince(began))
	b.reconcile("next")
	b.expectPlaces("a gpu-0 gpu-1")
	b.clock.SetTime(began.Add(61 * time.Second))
	b.reconcile("next")
	b.expectPlaces("b gpu-0 gpu-1")
	b.serve("next")
	b.expectNotEvicted()
	for _, d := range []int64{0, 1} {
		if b.Book.Snapshot().Node("a").Device(gpu("a", d)).Free() {
			t.Errorf("gpu-%d of node a counts as free while the old claim has it", d)
		}
	}
}

// TestNothingIsServedByAPlacementThatWasAmended until what was written has come back on the watch.
func TestNothingIsServedByAPlacementThatWasAmended(t *testing.T) {
	b := newBench(t, map[string]int{"a": 4}, 2, "a", "a")
	b.pod("first", nil)
	b.reconcile("first")
	a := b.slots.byWorkload["wl"]
	a.generation = b.placement().Generation + 1
	b.pod("second", nil)
	if after := b.reconcile("second").RequeueAfter; after != retryEvery {
		t.Errorf("looked at again after %s", after)
	}
	if got, _ := b.cutFor("second"); got != nil {
		t.Errorf("the pod got %v by an old Placement", got)
	}
	a.generation--
	b.serve("second")
}

// TestPodsThatRaceForBrokenSlots: however many workers find the same slots broken, each pod gets one slot, and what is
// promised is what the pods have.
func TestPodsThatRaceForBrokenSlots(t *testing.T) {
	b := newBench(t, map[string]int{"a": 8, "b": 4, "c": 4}, 2, "a", "a", "a", "a")
	b.changeNode("a", cordon)
	var all []string
	for i := range 4 {
		all = append(all, b.pod(fmt.Sprintf("p%d", i), nil).Name)
	}
	var group sync.WaitGroup
	for _, name := range all {
		group.Go(func() {
			for range 20 {
				if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	b.expectNotEvicted()
	b.expectPlaces("b gpu-0 gpu-1", "b gpu-2 gpu-3", "c gpu-0 gpu-1", "c gpu-2 gpu-3")
	seen := map[string]bool{}
	for _, name := range all {
		devices, id := b.cutFor(name)
		for _, d := range append(devices, id) {
			if seen[d] {
				t.Errorf("%s is given twice", d)
			}
			seen[d] = true
		}
	}
	if len(seen) != 4*3 {
		t.Errorf("given were %v", seen)
	}
}

// reclaims has Kueue take quota back for so many pods.
func (b *bench) reclaims(n int32) {
	b.t.Helper()
	wl := &kueue.Workload{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "wl"}, wl))
	wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: n}}
	b.must(b.Client.Status().Update(context.Background(), wl))
	b.observe()
}

// TestSlotsAreGivenBackAsKueueReclaims: open ones, of these first what could not be used, and never all.
func TestSlotsAreGivenBackAsKueueReclaims(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b := newBench(t, map[string]int{"a": 4, "b": 2}, 2, "a", "a", "b")
		for _, name := range []string{"p0", "p1", "p2"} {
			b.pod(name, nil)
			b.serve(name)
		}
		b.reclaims(1)
		b.reconcile("p0")
		b.expectPlaces("a gpu-0 gpu-1", "a gpu-2 gpu-3", "b gpu-0 gpu-1") // every slot has its pod still
		b.ends("p0", true)
		if restart {
			b.start()
		}
		if got := b.PodsOf(context.Background(), &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, OwnerReferences: b.placementOwner()},
			Status: kueue.WorkloadStatus{ReclaimablePods: []kueue.ReclaimablePod{{Name: "main", Count: 1}}}}); len(got) != 1 {
			t.Errorf("what Kueue reclaims wakes %v, want one pod", got)
		}
		b.reconcile("p0")
		b.expectPlaces("a gpu-2 gpu-3", "b gpu-0 gpu-1")
		b.ends("p1", true)
		b.ends("p2", true)
		b.changeNode("a", cordon)
		b.reclaims(2)
		b.reconcile("p2")
		b.expectPlaces("b gpu-0 gpu-1")
		b.reclaims(3)
		b.reconcile("p2")
		b.expectPlaces("b gpu-0 gpu-1") // it is about to finish
		b.pod("last", nil)
		b.serve("last")
		b.expectNotEvicted()
	}
}

func (b *bench) placementOwner() []metav1.OwnerReference { return b.get("p1").OwnerReferences }

// TestASlotIsNotTakenFromAPodThatWasNotSeenYet: who waits for the lock has seen the pods as they were before.
func TestASlotIsNotTakenFromAPodThatWasNotSeenYet(t *testing.T) {
	b := newBench(t, map[string]int{"h": 4}, 2, "h", "h")
	full, why, err := b.find(t.Context(), b.pod("first", nil))
	if err != nil || full == nil {
		t.Fatalf("find: %v, %s", err, why)
	}
	l, _, err := b.look(t.Context(), full)
	b.must(err)
	b.pod("second", nil)
	b.reconcile("second")
	has, _ := b.cutFor("second")
	s, o, err := l.next(t.Context())
	b.must(err)
	if !o.ready || len(has) == 0 || slices.Contains(s.devices(), has[0]) {
		t.Errorf("the first pod takes %v (%+v), the second has %v", s.devices(), o, has)
	}
}
