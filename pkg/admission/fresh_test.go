package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// finds tells a policy how to find the pods of the driver that lists all devices.
func finds(s *v1alpha1.DevicePolicySpec) {
	s.Drivers = []v1alpha1.PolicyDriver{{Name: "gpu.example.com", PodNamespace: "gpu-driver", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "dra"}}}}
}

// drives has a driver's pod be on a node, Ready or not.
func (w *world) drives(node, name string, serving bool) *world {
	return w.agent(node, name, func(p *ledger.Pod) { p.Serving = serving })
}

func (w *world) agent(node, name string, change func(*ledger.Pod)) *world {
	p := &ledger.Pod{Namespace: "gpu-driver", Name: name, Node: node, Requests: ledger.Amounts{"pods": 1}, Labels: map[string]string{"app": "dra"}, Serving: true}
	change(p)
	return w.see(ledger.KindPod, types.UID("agent-"+name), func(o *ledger.Observation) { o.Pod = p })
}

func (w *world) stops(name string) *world {
	return w.see(ledger.KindPod, types.UID("agent-"+name), func(o *ledger.Observation) { o.Ref.Deleted = true })
}

func TestDriversThatDoNotServe(t *testing.T) {
	fits, busy, blocked, impossible := v1alpha1.StandingFits, v1alpha1.StandingBusy, v1alpha1.StandingBlocked, v1alpha1.StandingImpossible
	node := func() *world { return newWorld().at(0).node("h", "h100:8", nil) }
	served := func() *world { return node().drives("h", "a", true) }
	cases := map[string]struct {
		world    *world
		gpus     int64
		now      int
		change   func(*v1alpha1.DevicePolicySpec)
		standing v1alpha1.Standing
		reason   v1alpha1.Reason
		coming   bool
		until    int // 0: never
	}{
		"its pod is Ready":                              {world: served(), now: 4000, standing: fits},
		"one of two pods is Ready":                      {world: served().drives("h", "b", false), now: 4000, standing: fits},
		"its pod is gone for less than the grace":       {world: served().at(10).stops("a"), now: 69, standing: busy, reason: v1alpha1.ReasonDriverNotServing, coming: true, until: 70},
		"its pod is gone for the grace":                 {world: served().at(10).stops("a"), now: 70, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3610},
		"its pod is gone for longer than is remembered": {world: served().at(10).stops("a"), now: 9000, standing: blocked, reason: v1alpha1.ReasonDriverNotServing},
		"its pod is gone, and it had too few":           {world: served().at(10).stops("a"), gpus: 9, now: 20, standing: impossible, reason: v1alpha1.ReasonNotEnoughDevices, until: 70},
		"its pod is not Ready for less than the grace":  {world: served().at(10).drives("h", "a", false), now: 69, standing: busy, reason: v1alpha1.ReasonDriverNotServing, coming: true, until: 70},
		"its pod is not Ready for the grace":            {world: served().at(10).drives("h", "a", false), now: 70, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3610},
		"its pod is Ready, and about to end": {world: served().at(10).agent("h", "a", func(p *ledger.Pod) { p.Terminating = true }), now: 20,
			standing: busy, reason: v1alpha1.ReasonDriverNotServing, coming: true, until: 70},
		"its pod came back":                           {world: served().at(10).stops("a").at(20).drives("h", "b", true), now: 21, standing: fits},
		"its next pod is not Ready yet":               {world: served().at(10).stops("a").at(20).drives("h", "b", false), now: 71, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3610},
		"pods that never become Ready add no time":    {world: served().at(10).stops("a").at(20).drives("h", "b", false).at(60).stops("b"), now: 71, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3610},
		"a pod that was not Ready any more adds none": {world: served().at(10).drives("h", "a", false).at(60).stops("a"), now: 71, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3610},
		"it never had a pod since the node was seen":  {world: node(), now: 59, standing: busy, reason: v1alpha1.ReasonDriverNotServing, coming: true, until: 60},
		"it never had a pod":                          {world: node(), now: 60, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3600},
		"another node's pod serves that node":         {world: node().node("g", "a100:8", nil).drives("g", "a", true), now: 60, standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3600},
		"a pod of another namespace is none of its": {world: node().agent("h", "a", func(p *ledger.Pod) { p.Namespace = "team" }), now: 60,
			standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3600},
		"a pod of other labels is none of its": {world: node().agent("h", "a", func(p *ledger.Pod) { p.Labels = map[string]string{"app": "logs"} }), now: 60,
			standing: blocked, reason: v1alpha1.ReasonDriverNotServing, until: 3600},
		"nobody says how to find its pods": {world: node(), now: 60, change: func(s *v1alpha1.DevicePolicySpec) { s.Drivers = nil }, standing: fits},
		"another driver has no pod":        {world: served(), now: 60, change: func(s *v1alpha1.DevicePolicySpec) { finds(s); s.Drivers[0].Name = "nic.example.com" }, standing: fits},
		"what is held there does not come with it": {world: served().held("h", true, false, 0).at(10).stops("a"), now: 20,
			standing: busy, reason: v1alpha1.ReasonDriverNotServing, until: 70},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = finds
			}
			gpus := c.gpus
			if gpus == 0 {
				gpus = 8
			}
			dec := c.world.decide(t, Request{Now: after(c.now), Policy: testPolicy(t, change), Coming: true, PodSets: []PodSet{pods(1, gpus, assignedTo("h100"))}})
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

func TestWhatADriverDoesNotServeIsSaid(t *testing.T) {
	w := newWorld().at(0).node("h", "h100:8", nil)
	dec := w.decide(t, Request{Now: after(60), Policy: testPolicy(t, finds), PodSets: []PodSet{pods(1, 8, nil)}})
	if want := "node h: no pod of driver gpu.example.com is Ready there, which has 8 of 8 devices"; !strings.Contains(dec.Message, want) {
		t.Errorf("the message is %q, want %q in it", dec.Message, want)
	}
}

// TestPodSetsShareWhatADriverWillServe has two podsets take devices of one node that is expected back.
func TestPodSetsShareWhatADriverWillServe(t *testing.T) {
	w := newWorld().at(0).node("h", "h100:8", nil).drives("h", "a", true).at(10).stops("a")
	two := []PodSet{pods(1, 4, named("first")), pods(2, 2, named("second"))}
	r := Request{Now: after(20), Policy: testPolicy(t, finds), Coming: true, PodSets: two}
	dec := w.decide(t, r)
	if devices := devicesOf(dec.PodSets); !dec.Coming || len(devices) != 8 {
		t.Fatalf("coming is %t with %v: %s", dec.Coming, devices, dec.Message)
	}
	seen := map[ledger.DeviceID]bool{}
	for _, d := range devicesOf(dec.PodSets) {
		if seen[d] {
			t.Errorf("device %s is promised twice", d)
		}
		seen[d] = true
	}
}

func TestAPromiseWhoseDriverDoesNotServe(t *testing.T) {
	for name, c := range map[string]struct {
		now     int
		keeping Keeping
		reason  v1alpha1.Reason
		until   time.Time
	}{
		"is waited for within the grace": {69, Coming, v1alpha1.ReasonDriverNotServing, after(70)},
		"and is broken after it":         {70, Broken, v1alpha1.ReasonDriverNotServing, time.Time{}},
	} {
		w := newWorld().at(0).node("h", "h100:8", nil).drives("h", "a", true)
		r := Request{Now: after(0), Policy: testPolicy(t, finds), PodSets: []PodSet{pods(1, 8, assignedTo("h100"))}}
		promise := w.writes(w.decide(t, r))
		w.at(10).stops("a")
		r.Now = after(c.now)
		if got := Holds(w.book.Snapshot(), &r, promise); got.Keeping != c.keeping || got.Reason != c.reason || !got.Until.Equal(c.until) {
			t.Errorf("%s: it is %+v, want %s for %s until %v", name, got, c.keeping, c.reason, c.until)
		}
	}
}

// TestADriverThatDoesNotServeIsLikeAPoolThatIsGone holds the one against the other, whatever else there is: only the reasons
// differ.
func TestADriverThatDoesNotServeIsLikeAPoolThatIsGone(t *testing.T) {
	plain, finding := testPolicy(t, nil), testPolicy(t, finds)
	rapid.Check(t, func(rt *rapid.T) {
		gone, stopped := newWorld().at(0), newWorld().at(0)
		both := []*world{gone, stopped}
		for _, name := range []string{"n0", "n1", "n2"}[:rapid.IntRange(1, 3).Draw(rt, "nodes")] {
			models := rapid.SampledFrom([]string{"h100:4", "h100:2,a100:2", "a100:4"}).Draw(rt, "models")
			held, managed, ending := rapid.IntRange(0, 2).Draw(rt, "held"), rapid.Bool().Draw(rt, "managed"), rapid.Bool().Draw(rt, "ending")
			lost := rapid.IntRange(0, 2).Draw(rt, "lost") == 0
			for _, w := range both {
				w.at(0).node(name, models, nil).drives(name, name, true)
				if held == 0 {
					w.held(name, managed, ending, 0)
				}
			}
			if at := rapid.IntRange(1, 20).Draw(rt, "lost at"); lost {
				gone.at(at).loses(name)
				stopped.at(at).stops(name)
			}
		}
		r := Request{Now: after(rapid.SampledFrom([]int{21, 65, 70, 90, 3000}).Draw(rt, "now")), Coming: rapid.Bool().Draw(rt, "coming"), EveryFlavor: true}
		for i := range rapid.IntRange(1, 2).Draw(rt, "podsets") {
			r.PodSets = append(r.PodSets, pods(rapid.Int32Range(1, 3).Draw(rt, "count"), rapid.Int64Range(1, 5).Draw(rt, "gpus"), named([]string{"first", "second"}[i])))
		}
		said := func(w *world, r Request) Decision {
			dec := w.decide(t, r)
			dec.Message, dec.Reason, dec.LedgerVersion = "", "", 0
			for i := range dec.Standings {
				dec.Standings[i].Reasons = nil
			}
			return dec
		}
		a, b := r, r
		a.Policy, b.Policy = plain, finding
		if diff := cmp.Diff(said(gone, a), said(stopped, b)); diff != "" {
			rt.Fatalf("-the pool is gone, +the driver's pod is:\n%s", diff)
		}
	})
}

// TestADeafManagerLendsNothing asks while a watch is silent.
func TestADeafManagerLendsNothing(t *testing.T) {
	w := newWorld().at(0).node("h", "h100:8", nil)
	decide := func(silent int, devices int64, policy func(*v1alpha1.DevicePolicySpec)) Decision {
		return w.decide(t, Request{
			Now: after(1000), Heard: Heard{"ResourceSlice", after(1000 - silent)}, Policy: testPolicy(t, policy), Coming: true, PodSets: []PodSet{pods(1, devices, nil)}})
	}
	short := func(s *v1alpha1.DevicePolicySpec) { s.Freshness.WindowSeconds = ptr.To[int32](90) }
	for name, c := range map[string]struct {
		silent  int
		devices int64
		policy  func(*v1alpha1.DevicePolicySpec)
		stale   bool
	}{
		"for the window":                                         {silent: 180, devices: 8},
		"for longer than the window":                             {silent: 181, devices: 8, stale: true},
		"for a short window":                                     {silent: 90, devices: 8, policy: short},
		"for longer than a short one":                            {silent: 91, devices: 8, policy: short, stale: true},
		"and no devices are asked for":                           {silent: 181, stale: true},
		"and more is asked for than was there when it was heard": {silent: 181, devices: 9, stale: true},
		"and it could not be served anyway": {silent: 181, devices: 9, stale: true,
			policy: func(s *v1alpha1.DevicePolicySpec) { s.OnInfeasible = v1alpha1.OnInfeasibleReject }},
	} {
		t.Run(name, func(t *testing.T) {
			dec := decide(c.silent, c.devices, c.policy)
			if !c.stale {
				if dec.Verdict != v1alpha1.VerdictAdmit {
					t.Errorf("the decision is %s, %s: %s", dec.Verdict, dec.Reason, dec.Message)
				}
				return
			}
			if dec.Verdict != v1alpha1.VerdictWait || dec.Reason != v1alpha1.ReasonPoolStale || len(dec.PodSets) > 0 || dec.Coming || !dec.Until.IsZero() {
				t.Errorf("the decision is %+v", dec)
			}
			for _, s := range dec.Standings {
				if s.Standing != v1alpha1.StandingBlocked || s.Reasons[0].Reason != v1alpha1.ReasonPoolStale {
					t.Errorf("the standing is %+v", s)
				}
			}
			if want := "nothing was heard of ResourceSlices since 2026-03-01T12:1"; !strings.Contains(dec.Message, want) {
				t.Errorf("the message is %q", dec.Message)
			}
		})
	}
	if dec := w.decide(t, Request{Now: after(1e6), PodSets: []PodSet{pods(1, 8, nil)}}); dec.Verdict != v1alpha1.VerdictAdmit {
		t.Errorf("watches that are always alive: %s", dec.Message)
	}
}

func TestADeafManagerOpensNothing(t *testing.T) {
	m := newMarket(t, "h100=8 a100=8").with(map[string]string{"h": "h100:8"})
	w := m.waiter(choicePolicy(t, nil), "w", 1000, pods(1, 8, nil))
	d := anew()
	for _, c := range []struct {
		silent int
		open   bool
	}{{0, true}, {181, false}, {182, false}, {1, true}} {
		w.Request.Heard = Heard{"Node", after(1000 - c.silent)}
		got := d.Choose(t.Context(), m.book.Snapshot(), m.snap(t), w)
		if got.Open() != c.open || got.Open() != (got.Offer != nil) || !c.open && got.Decision.Reason != v1alpha1.ReasonPoolStale {
			t.Errorf("silent for %d s: %s", c.silent, wordsOf(got))
		}
	}
}

func TestPoolsThatLendNothing(t *testing.T) {
	slice := func(w *world, name string, generation, count int64) {
		w.see(ledger.KindSlice, types.UID(name), func(o *ledger.Observation) {
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}, Spec: resourcev1.ResourceSliceSpec{
				Driver: "gpu.example.com", NodeName: ptr.To("h"), Pool: resourcev1.ResourcePool{Name: "h", Generation: generation, ResourceSliceCount: count}}}
			for _, d := range []string{name + "-0", name + "-1"} {
				s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: d, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"model": {StringValue: ptr.To("h100")}, "uuid": {StringValue: ptr.To(d)}}})
			}
			o.Slice = s
		})
	}
	gone := func(w *world, name string) {
		w.see(ledger.KindSlice, types.UID(name), func(o *ledger.Observation) { o.Ref.Deleted = true })
	}
	for name, c := range map[string]struct {
		then     func(*world)
		verdict  v1alpha1.Verdict
		standing v1alpha1.Standing
		reason   v1alpha1.Reason
	}{
		"generation 7": {then: func(*world) {}, verdict: v1alpha1.VerdictAdmit, standing: v1alpha1.StandingFits},
		"generation 7 and then 6 while it is left": {then: func(w *world) { slice(w, "b", 6, 1); gone(w, "a") },
			verdict: v1alpha1.VerdictWait, standing: v1alpha1.StandingBlocked, reason: v1alpha1.ReasonPoolRegressed},
		"generation 7 overwritten by 6": {then: func(w *world) { slice(w, "a", 6, 1) },
			verdict: v1alpha1.VerdictWait, standing: v1alpha1.StandingBlocked, reason: v1alpha1.ReasonPoolRegressed},
		"generation 7 overwritten by 6 and then 8": {then: func(w *world) { slice(w, "a", 6, 1); slice(w, "a", 8, 1) },
			verdict: v1alpha1.VerdictAdmit, standing: v1alpha1.StandingFits},
		"generation 7 beside what is left of 6": {then: func(w *world) { slice(w, "b", 6, 1) }, verdict: v1alpha1.VerdictAdmit, standing: v1alpha1.StandingFits},
		"generation 7 and then none": {then: func(w *world) { gone(w, "a") },
			verdict: v1alpha1.VerdictWait, standing: v1alpha1.StandingBlocked, reason: v1alpha1.ReasonPoolRebuilding},
		"generation 7, none, and then 1": {then: func(w *world) { gone(w, "a"); slice(w, "b", 1, 1) }, verdict: v1alpha1.VerdictAdmit, standing: v1alpha1.StandingFits},
		"generation 8 with one slice of two": {then: func(w *world) { slice(w, "b", 8, 2) },
			verdict: v1alpha1.VerdictWait, standing: v1alpha1.StandingBlocked, reason: v1alpha1.ReasonPoolIncomplete},
		"generation 8 with both slices of two": {then: func(w *world) { slice(w, "b", 8, 2); slice(w, "c", 8, 2) }, verdict: v1alpha1.VerdictAdmit, standing: v1alpha1.StandingFits},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld().at(0).see(ledger.KindNode, "h", func(o *ledger.Observation) {
				o.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "h", UID: "h", Labels: map[string]string{corev1.LabelHostname: "h", "flavor-h100": "true"}},
					Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
			})
			slice(w, "a", 7, 1)
			c.then(w.at(10))
			ask := pods(1, 2, assignedTo("h100"))
			ask.Requests = ledger.Amounts{}
			dec := w.decide(t, Request{Now: after(100), PodSets: []PodSet{ask}})
			if dec.Verdict != c.verdict || dec.Reason != c.reason || dec.Standings[0].Standing != c.standing {
				t.Errorf("it is %s, %s, %s: %s", dec.Verdict, dec.Standings[0].Standing, dec.Reason, dec.Message)
			}
		})
	}
}
