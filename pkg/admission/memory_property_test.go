package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// happenings are what may befall a drawn market between two decisions.
func happenings(d drawn) []func(*rapid.T, *market) {
	node := rapid.SampledFrom([]string{"n0", "n1", "n2", "n3"})
	out := []func(*rapid.T, *market){
		func(t *rapid.T, m *market) { m.loses(node.Draw(t, "loses")) },
		func(t *rapid.T, m *market) { m.node(node.Draw(t, "comes"), "h100:3", nil) },
		func(t *rapid.T, m *market) { m.node(node.Draw(t, "comes unready"), "a100:2", notReady(0)) },
		func(t *rapid.T, m *market) { m.node(node.Draw(t, "comes incomplete"), "h100:2", fresh) },
		func(t *rapid.T, m *market) {
			at := node.Draw(t, "its driver runs on")
			m.drives(at, rapid.SampledFrom([]string{"first-", "second-"}).Draw(t, "pod")+at, rapid.IntRange(0, 2).Draw(t, "not Ready") > 0)
		},
		func(t *rapid.T, m *market) { m.stops("first-" + node.Draw(t, "its driver stops on")) },
		func(t *rapid.T, m *market) {
			uid := types.UID(node.Draw(t, "goes"))
			m.see(ledger.KindNode, uid, func(o *ledger.Observation) { o.Ref.Deleted = true })
		},
		func(t *rapid.T, m *market) {
			class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "class"}}
			if rapid.Bool().Draw(t, "class takes none") {
				class.Spec.Selectors = cels([]string{`device.driver == "none.example.com"`})
			}
			m.see(ledger.KindDeviceClass, class.UID, func(o *ledger.Observation) { o.Class = class })
		},
		func(t *rapid.T, m *market) {
			m.ends(node.Draw(t, "ends on"), rapid.IntRange(0, 1).Draw(t, "ends"), rapid.IntRange(0, 100).Draw(t, "grace"))
		},
		func(t *rapid.T, m *market) {
			m.promisedElsewhere(node.Draw(t, "promised on"), rapid.IntRange(0, 2).Draw(t, "promised"))
		},
	}
	for _, step := range slices.Concat(d.nodes, d.holders, d.nodes, d.holders) {
		out = append(out, func(_ *rapid.T, m *market) { step(m) })
	}
	return out
}

// drawRequest draws what a decision may be asked for beside what a waiter asks.
func drawRequest(t *rapid.T, w *Waiter, p *flavors.Policy) *Request {
	r := *w.Request
	r.PodSets = slices.Clone(r.PodSets)
	r.Coming, r.EveryFlavor = rapid.Bool().Draw(t, "coming"), rapid.Bool().Draw(t, "every flavor")
	if rapid.Bool().Draw(t, "others") {
		r.Others = map[types.UID]bool{"wl-holder-n0-0": true}
	}
	for i := range r.PodSets {
		if flavor := rapid.SampledFrom([]string{"", "h100", "a100"}).Draw(t, "assigned"); flavor != "" {
			assignedTo(flavor)(&r.PodSets[i])
		}
		r.PodSets[i].Count = rapid.Int32Range(1, 3).Draw(t, "count")
	}
	return &r
}

// TestWhatIsRememberedMakesNoDifference holds a Decider that has seen a whole history against new ones: neither nodes that
// come, go and change, nor time, nor what else was asked meanwhile is to be seen in its decisions.
func TestWhatIsRememberedMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := choicePolicy(t, func(s *v1alpha1.DevicePolicySpec) {
			s.Ordering = rapid.SampledFrom([]v1alpha1.Ordering{v1alpha1.OrderingPack, v1alpha1.OrderingSpread}).Draw(rt, "ordering")
		})
		if rapid.Bool().Draw(rt, "drivers") {
			p = withDrivers(t, p)
		}
		d := drawMarket(rt)
		m := newMarket(t, d.nominal).queue("next", d.next)
		old, may := &Decider{Matcher: flavors.NewMatcher()}, happenings(d)
		var asks []*Waiter
		for _, ask := range d.asks {
			asks = append(asks, ask(m, p))
		}
		for range rapid.IntRange(2, 12).Draw(rt, "steps") {
			if rapid.IntRange(0, 2).Draw(rt, "time passes") == 0 {
				d.now += rapid.SampledFrom([]int{1, 20, 70, 4000}).Draw(rt, "seconds")
			}
			m.at(d.now)
			if rapid.IntRange(0, 3).Draw(rt, "nothing happens") > 0 {
				rapid.SampledFrom(may).Draw(rt, "happens")(rt, m)
			}
			w := rapid.SampledFrom(asks).Draw(rt, "asks")
			w.Request.Now = after(d.now)
			w.Request.Heard = Heard{"Node", after(d.now - rapid.SampledFrom([]int{0, 0, 100, 200}).Draw(rt, "silent"))}
			snapshot := m.book.Snapshot()
			if rapid.IntRange(0, 3).Draw(rt, "beside") == 0 {
				snapshot = snapshot.With(ledger.Holder{Kind: ledger.HolderPlacement, Managed: true, UID: "offer", Workload: "offer"}, []ledger.PodSetClaim{{
					Node: "n0", Slots: 1, Requests: ledger.Amounts{"cpu": 1000}, Devices: []ledger.DeviceID{{Driver: "gpu.example.com", Pool: "n0", Device: "gpu-0"}}}})
			}
			same(rt, old.Choose(t.Context(), snapshot, m.snap(t), w), anew().Choose(t.Context(), snapshot, m.snap(t), w))
			r := drawRequest(rt, w, p)
			same(rt, old.Decide(t.Context(), snapshot, r), anew().Decide(t.Context(), snapshot, r))
		}
	})
}

// withDrivers returns a policy that says how to find the driver's pods.
func withDrivers(t *testing.T, p *flavors.Policy) *flavors.Policy {
	out := *p
	out.Drivers, out.Revision = testPolicy(t, finds).Drivers, p.Revision+" with drivers"
	return &out
}

func anew() *Decider { return &Decider{Matcher: flavors.NewMatcher()} }

func same(t *rapid.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(quota.Answer{}), cmpopts.EquateApproxTime(0*time.Second)); diff != "" {
		t.Fatalf("what is remembered made a difference (-anew +remembered):\n%s", diff)
	}
}

// TestMemoryIsBounded asks about more than may be remembered.
func TestMemoryIsBounded(t *testing.T) {
	m := &memory{questions: map[string]*question{}}
	for i := range 10 {
		q := &question{asked: int64(i), kept: true}
		q.here.fits = make([]*nodeFit, maxRemembered/4)
		m.questions[nodeName(i)] = q
		m.held += len(q.here.fits)
		m.bound(q)
	}
	if m.held > maxRemembered || len(m.questions) != 4 {
		t.Errorf("%d looks of %d questions are remembered", m.held, len(m.questions))
	}
	for i := range 10 {
		if _, kept := m.questions[nodeName(i)]; kept != (i >= 6) {
			t.Errorf("question %d is remembered: %t", i, kept)
		}
	}
}

// TestAlikeWaitersChooseAsIfAlone holds the choices of a pass that remembers against those of one that does not: of waiters many
// of which ask for the same, each with its own times.
func TestAlikeWaitersChooseAsIfAlone(t *testing.T) {
	p := choicePolicy(t, nil)
	shared := 0
	rapid.Check(t, func(rt *rapid.T) {
		d := drawMarket(rt)
		m := d.build(t, false)
		if rapid.Bool().Draw(rt, "ages matter") {
			m.queue("cq", d.nominal, func(q *kueue.ClusterQueue) {
				q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerOrNewerEqualPriority}
			})
		}
		devices, one, other := m.book.Snapshot(), m.snap(t), m.snap(t)
		old, among := anew(), &Choices{}
		for i := range rapid.IntRange(2, 10).Draw(rt, "waiters") {
			w := rapid.SampledFrom(d.asks).Draw(rt, "asks")(m, p)
			if w.ClusterQueue.Name == "cq" {
				w.ClusterQueue = m.cq
			}
			w.Workload.Name, w.Workload.UID = nodeName(i), types.UID(nodeName(i))
			w.Workload.CreationTimestamp = metav1.NewTime(after(rapid.SampledFrom([]int{-50, 50}).Draw(rt, "created")))
			*w.Workload.Spec.Priority = rapid.SampledFrom([]int32{100, 100, 0, 200}).Draw(rt, "priority")
			w.Since = timesOf([]any{rapid.SampledFrom([]string{"h100", "a100"}).Draw(rt, "waited for"), rapid.SampledFrom([]int{9, 0, -51, -100}).Draw(rt, "since")})
			w.Closed = timesOf([]any{rapid.SampledFrom([]string{"h100", "a100", "gone"}).Draw(rt, "closed"), rapid.SampledFrom([]int{5, 11, 30}).Draw(rt, "until")})
			if rapid.IntRange(0, 4).Draw(rt, "has victims") == 0 {
				w.Victims = map[types.UID]bool{"wl-holder-n0-0": true}
			}
			w.Like = w.Likeness()
			before := len(among.known)
			got, want := old.ChooseAmong(t.Context(), devices, one, w, among), anew().Choose(t.Context(), devices, other, w)
			same(rt, got, want)
			if want.Offer == nil {
				if before > 0 && len(among.known) == before {
					shared++
				}
				continue
			}
			for _, promised := range want.Decision.PodSets {
				devices = devices.With(ledger.Holder{Kind: ledger.HolderPlacement, Managed: true, Name: w.Workload.Name, Workload: w.Workload.UID},
					Claims(promised, w.Request.podSet(promised.Name)))
			}
			one.Take(*got.Offer)
			other.Take(*want.Offer)
			among.Forget()
		}
	})
	if shared == 0 {
		t.Error("no two waiters were alike")
	}
}
