package admission

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// writes records what was decided for Workload "own" into the ledger.
func (w *world) writes(dec Decision) Promise {
	key := &v1alpha1.PlacementKey{WorkloadUID: "own", Admission: "a"}
	w.see(ledger.KindWorkload, "own", func(o *ledger.Observation) {
		o.Workload = &ledger.Workload{Namespace: "team", Name: "own", Key: key}
	})
	w.see(ledger.KindPlacement, "p-own", func(o *ledger.Observation) {
		o.Placement = &ledger.Placement{Namespace: "team", Name: "own", Spec: &v1alpha1.PlacementSpec{Key: key, PodSets: dec.PodSets}}
	})
	return Promise{Workload: "own", Placement: "p-own", PodSets: dec.PodSets}
}

func TestHowAPromiseStands(t *testing.T) {
	cases := map[string]struct {
		before, then func(*world)
		now          int
		keeping      Keeping
		reason       v1alpha1.Reason
		until        int // 0: never
	}{
		"all of it is there": {now: 10, keeping: Kept},
		"it counts on what is ending": {before: func(w *world) { w.held("h", true, false, 0).ends("h", 0, 30) },
			now: 20, keeping: Coming, reason: v1alpha1.ReasonDevicesFreeing, until: 90},
		"what was ending has ended": {before: func(w *world) { w.held("h", true, false, 0).ends("h", 0, 30) }, then: func(w *world) { w.gone("h", 0) }, now: 20, keeping: Kept},
		"what was ending should have ended a minute ago": {before: func(w *world) { w.held("h", true, false, 0).ends("h", 0, 30) },
			now: 90, keeping: Broken, reason: v1alpha1.ReasonDevicesUnhealthy},
		"another pod has taken a device":       {then: func(w *world) { w.held("h", true, false, 3) }, now: 10, keeping: Broken, reason: v1alpha1.ReasonDevicesInUse},
		"a stranger has taken a device":        {then: func(w *world) { w.held("h", false, false, 3) }, now: 10, keeping: Broken, reason: v1alpha1.ReasonForeignUse},
		"its pool is gone for less than grace": {then: func(w *world) { w.at(10).loses("h") }, now: 69, keeping: Coming, until: 70},
		"its pool is gone for the grace":       {then: func(w *world) { w.at(10).loses("h") }, now: 70, keeping: Broken, reason: v1alpha1.ReasonDevicesUnhealthy},
		"its node is deleted": {then: func(w *world) {
			w.see(ledger.KindNode, "h", func(o *ledger.Observation) { o.Ref.Deleted = true })
		}, now: 10, keeping: Broken, reason: v1alpha1.ReasonNodeUnavailable},
		"its node is cordoned": {then: func(w *world) { w.node("h", "h100:8", cordon) }, now: 10, keeping: Broken, reason: v1alpha1.ReasonNodeUnavailable},
		"its node has not the cpu any more": {then: func(w *world) {
			p := ledger.Pod{Namespace: "elsewhere", Name: "big", Node: "h", Requests: ledger.Amounts{"cpu": 63500, "pods": 1}}
			w.see(ledger.KindPod, "big", func(o *ledger.Observation) { o.Pod = &p })
		}, now: 10, keeping: Broken, reason: v1alpha1.ReasonNodeResources},
		"the cpu is that of a pod that is ending": {then: func(w *world) {
			p := ledger.Pod{Namespace: "elsewhere", Name: "big", Node: "h", Terminating: true, EndsUnix: after(30).Unix(), Requests: ledger.Amounts{"cpu": 63500, "pods": 1}}
			w.see(ledger.KindPod, "big", func(o *ledger.Observation) { o.Pod = &p })
		}, now: 10, keeping: Coming, reason: v1alpha1.ReasonDevicesFreeing, until: 90},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld().at(0).node("h", "h100:8", nil)
			if c.before != nil {
				c.before(w)
			}
			r := Request{Now: after(1), Policy: testPolicy(t, nil), Coming: true, PodSets: []PodSet{pods(1, 8, assignedTo("h100"))}}
			dec := w.decide(t, r)
			if dec.Verdict != v1alpha1.VerdictAdmit && !dec.Coming {
				t.Fatalf("nothing was promised: %+v", dec)
			}
			p := w.writes(dec)
			if c.then != nil {
				c.then(w)
			}
			r.Now = after(c.now)
			got := Holds(w.book.Snapshot(), &r, p)
			if got.Keeping != c.keeping || c.reason != "" && got.Reason != c.reason || (got.Message == "") != (c.keeping == Kept) {
				t.Errorf("it is %+v, want %s for %s", got, c.keeping, c.reason)
			}
			if c.until == 0 && !got.Until.IsZero() || c.until != 0 && !got.Until.Equal(after(c.until)) {
				t.Errorf("it changes by itself at %v, want %d s after noon", got.Until, c.until)
			}
		})
	}
}

// gone has the pod and the claim of a holder that starts at a device go.
func (w *world) gone(node string, device int) *world {
	uid := types.UID("holder-" + node + "-" + string(rune('0'+device)))
	w.see(ledger.KindClaim, "claim-"+uid, func(o *ledger.Observation) { o.Ref.Deleted = true })
	return w.see(ledger.KindPod, uid, func(o *ledger.Observation) { o.Ref.Deleted = true })
}

func TestAPromiseIsKeptUntilSomebodyElseHasItsDevice(t *testing.T) {
	policy := testPolicy(t, nil)
	taken := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld().at(0)
		sizes := map[string]int{}
		for _, name := range []string{"a", "b"} {
			sizes[name] = rapid.IntRange(1, 4).Draw(rt, name)
			w.node(name, "h100:"+string(rune('0'+sizes[name])), nil)
		}
		if rapid.Bool().Draw(rt, "held") {
			w.held("a", true, false, 0)
			if rapid.Bool().Draw(rt, "ending") {
				w.ends("a", 0, 30)
			}
		}
		r := Request{Now: after(10), Namespace: "team", Policy: policy, Coming: true,
			PodSets: []PodSet{pods(rapid.Int32Range(1, 2).Draw(rt, "pods"), rapid.Int64Range(1, 2).Draw(rt, "gpus"), assignedTo("h100"))}}
		dec := w.decide(t, r)
		if dec.Verdict != v1alpha1.VerdictAdmit && !dec.Coming {
			return
		}
		p := w.writes(dec)
		want := Kept
		if dec.Coming {
			want = Coming
		}
		if got := Holds(w.book.Snapshot(), &r, p); got.Keeping != want {
			rt.Fatalf("right after %+v it is %+v", dec, got)
		}
		id := rapid.SampledFrom(devicesOf(p.PodSets)).Draw(rt, "taken")
		free := len(deviceIn(w.book.Snapshot(), id).Holders) == 1
		if !free {
			return
		}
		taken++
		n := int(id.Device[len(id.Device)-1] - '0')
		managed, ending := rapid.Bool().Draw(rt, "managed"), rapid.Bool().Draw(rt, "then ending")
		if w.held(id.Pool, managed, false, n); ending {
			w.ends(id.Pool, n, 30)
		}
		got := Holds(w.book.Snapshot(), &r, p)
		if wanted := map[bool][]Keeping{true: {Coming}, false: {Broken}}[ending]; !slices.Contains(wanted, got.Keeping) {
			rt.Fatalf("somebody has %s (ending %t), and the promise is %+v", id, ending, got)
		}
	})
	if taken == 0 {
		t.Error("nothing was ever taken")
	}
}
