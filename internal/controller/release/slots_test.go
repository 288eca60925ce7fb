package release

import (
	gocmp "cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// TestRegroupIsTheInverseOfSlotsOf: slots written by node are read as they were.
func TestRegroupIsTheInverseOfSlotsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := map[string]int64{}
		var all []slot
		each := rapid.IntRange(0, 3).Draw(t, "devices")
		for range rapid.IntRange(0, 8).Draw(t, "slots") {
			s := slot{podSet: "main", node: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")}
			if each > 0 {
				s.requests = []admission.Dealt{{Claim: "gpu", Request: "gpu"}, {Claim: "nic", Request: "nic"}}
				for i := range each {
					r := &s.requests[i%2]
					r.Devices = append(r.Devices, gpu(s.node, next[s.node]))
					next[s.node]++
				}
			}
			all = append(all, s)
		}
		nodes, numbered, err := regroup(all)
		if err != nil {
			t.Fatal(err)
		}
		back, err := slotsOf(&v1alpha1.PlacementPodSet{Name: "main", Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(numbered, func(a, b slot) int { return gocmp.Or(gocmp.Compare(a.node, b.node), gocmp.Compare(a.index, b.index)) })
		if diff := cmp.Diff(numbered, back, cmp.AllowUnexported(slot{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("slots (-written +read):\n%s", diff)
		}
		if !slices.IsSortedFunc(nodes, func(x, y v1alpha1.PlacementNode) int { return slices.Compare([]string{x.Name}, []string{y.Name}) }) {
			t.Fatalf("nodes are not sorted: %v", nodes)
		}
	})
}

func TestSlotsOfOneNodeThatAreUnlikeAreNotWritten(t *testing.T) {
	one := slot{podSet: "main", node: "a", requests: []admission.Dealt{{Claim: "gpu", Request: "gpu", Devices: []ledger.DeviceID{gpu("a", 0)}}}}
	two := slot{podSet: "main", node: "a", requests: []admission.Dealt{{Claim: "gpu", Request: "gpu", Devices: []ledger.DeviceID{gpu("a", 1), gpu("a", 2)}}}}
	other := slot{podSet: "main", node: "a", requests: []admission.Dealt{{Claim: "gpu", Request: "gpu/second", Devices: []ledger.DeviceID{gpu("a", 3)}}}}
	for name, all := range map[string][]slot{"counts": {one, two}, "requests": {one, other}, "none": {one, {podSet: "main", node: "a"}}} {
		if _, _, err := regroup(all); err == nil {
			t.Errorf("%s: slots that differ were written as one node's", name)
		}
	}
}

// TestARetryTakesTheSlotOfItsPredecessor, once that has ended and its claim holds nothing any more.
func TestARetryTakesTheSlotOfItsPredecessor(t *testing.T) {
	b := newBench(t, map[string]int{"a": 4}, 2, "a", "a")
	for _, name := range []string{"p0", "p1"} {
		b.pod(name, nil)
		b.serve(name)
	}
	devices, id := b.cutFor("p0")
	b.ends("p0", false)
	b.pod("retry", nil)
	if after := b.reconcile("retry").RequeueAfter; after <= 0 {
		t.Errorf("the retry is not looked at again")
	}
	if got, _ := b.cutFor("retry"); got != nil {
		t.Fatalf("the retry got %v while its predecessor's claim was allocated", got)
	}
	b.freed("p0")
	b.start() // a restart in between changes nothing
	b.serve("retry")
	if got, its := b.cutFor("retry"); !slices.Equal(got, devices) || its != id {
		t.Errorf("the retry got %v as %s, its predecessor had %v as %s", got, its, devices, id)
	}
	if got, want := b.places(), []string{"a gpu-0 gpu-1", "a gpu-2 gpu-3"}; !slices.Equal(got, want) {
		t.Errorf("promised is %v, want %v", got, want)
	}
}

// TestPodsThatRaceForSlots: whatever the number of pods and workers, a slot has one pod.
func TestPodsThatRaceForSlots(t *testing.T) {
	b := newBench(t, map[string]int{"a": 4, "b": 4}, 2, "a", "a", "b")
	var all []string
	for i := range 8 {
		all = append(all, b.pod(fmt.Sprintf("p%d", i), nil).Name)
	}
	var group sync.WaitGroup
	for _, name := range all {
		group.Go(func() {
			for range 3 {
				if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	seen := map[string]string{}
	for _, name := range all {
		devices, id := b.cutFor(name)
		if id == "" {
			continue
		}
		for _, d := range append(devices, id) {
			if seen[d] != "" {
				t.Errorf("%s is %s's and %s's", d, seen[d], name)
			}
			seen[d] = name
		}
	}
	if len(seen) != 3*3 {
		t.Errorf("%d slots and devices were taken, want 3 slots of 2 devices each: %v", len(seen), seen)
	}
}

// TestARestartKnowsWhoHasWhichSlot by what was written, wherever it came.
func TestARestartKnowsWhoHasWhichSlot(t *testing.T) {
	for name, devices := range map[string]int64{"with devices": 2, "without": 0} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, map[string]int{"a": 4, "b": 2}, devices, "a", "a", "b")
			b.pod("p1", nil)
			b.serve("p1")
			b.pod("p2", nil)
			b.reconcile("p2") // its template is written, no claim is there yet
			b.start()
			b.pod("p3", nil)
			for _, p := range []string{"p3", "p2"} {
				if observe.Gated(b.get(p)) {
					b.serve(p)
				}
			}
			got := map[string]int{}
			for _, p := range []string{"p1", "p2", "p3"} {
				got[b.get(p).Spec.NodeSelector[corev1.LabelHostname]]++
			}
			if diff := cmp.Diff(map[string]int{"a": 2, "b": 1}, got); diff != "" {
				t.Errorf("pods by node (-promised +are):\n%s", diff)
			}
			if devices > 0 {
				seen := map[string]bool{}
				for _, p := range []string{"p1", "p2", "p3"} {
					cut, _ := b.cutFor(p)
					for _, d := range cut {
						seen[d] = true
					}
				}
				if len(seen) != 6 {
					t.Errorf("the pods have %d devices, want 6: %v", len(seen), seen)
				}
			}
		})
	}
}

// TestAPodWithoutSlotWaitsSoLong: the time counts from when its predecessor should have ended, and a restart changes nothing.
func TestAPodWithoutSlotWaitsSoLong(t *testing.T) {
	for name, tc := range map[string]struct {
		created, ends time.Duration
		at            time.Duration
		want          v1alpha1.Reason
	}{
		"a pod that has just come":              {created: time.Hour, at: time.Hour + 599*time.Second},
		"one that came ten minutes ago":         {created: time.Hour, at: time.Hour + 601*time.Second, want: v1alpha1.ReasonReleaseTimeout},
		"whose predecessor has time to end":     {created: time.Hour, ends: 2 * time.Hour, at: 2*time.Hour + 599*time.Second},
		"whose predecessor should have ended":   {created: time.Hour, ends: 2 * time.Hour, at: 2*time.Hour + 601*time.Second, want: v1alpha1.ReasonReleaseTimeout},
		"that came after it should have ended":  {created: time.Hour, ends: time.Minute, at: time.Hour + 599*time.Second},
		"and has waited for long since it came": {created: time.Hour, ends: time.Minute, at: time.Hour + 601*time.Second, want: v1alpha1.ReasonReleaseTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, map[string]int{"a": 2}, 2, "a")
			b.pod("old", nil)
			b.serve("old")
			if tc.ends > 0 {
				b.deletes("old", began.Add(tc.ends))
			} else {
				b.ends("old", false)
			}
			b.pod("next", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(began.Add(tc.created)) })
			b.clock.SetTime(began.Add(tc.at))
			b.start()
			b.reconcile("next")
			if got, message := b.evicted(); got != tc.want {
				t.Errorf("evicted for %q (%s), want %q", got, message, tc.want)
			}
		})
	}
}

// TestAReleasedPodIsBoundInTime: the API server keeps when it was released, so a restart changes nothing.
func TestAReleasedPodIsBoundInTime(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for after, want := range map[time.Duration]v1alpha1.Reason{899 * time.Second: "", 902 * time.Second: v1alpha1.ReasonReleaseTimeout} {
			b := newBench(t, map[string]int{"a": 2}, 2, "a")
			at := time.Now() // which is what the fake API server writes down
			b.clock.SetTime(at)
			b.pod("p", nil)
			b.reconcile("p")
			b.claim("p")
			b.reconcile("p")
			if observe.Gated(b.get("p")) {
				t.Fatal("the pod is still gated")
			}
			b.clock.SetTime(at.Add(after))
			if restart {
				b.start()
			}
			b.observe()
			b.reconcile("p")
			if got, message := b.evicted(); got != want {
				t.Errorf("restart %t, after %s: evicted for %q (%s), want %q", restart, after, got, message, want)
			}
		}
	}
}
