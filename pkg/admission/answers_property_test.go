package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// TestAnswersThatAreRememberedAreKueuesOwn holds the choices of a Decider that has seen many passes against those of new ones, while
// devices and quota come and go, and offers are taken.
func TestAnswersThatAreRememberedAreKueuesOwn(t *testing.T) {
	p := choicePolicy(t, nil)
	remembered := 0
	rapid.Check(t, func(rt *rapid.T) {
		d := drawMarket(rt)
		m := d.build(t, false)
		old, may := anew(), happenings(d)
		for range rapid.IntRange(2, 6).Draw(rt, "passes") {
			switch rapid.IntRange(0, 2).Draw(rt, "changes") {
			case 0:
				rapid.SampledFrom(may).Draw(rt, "happens")(rt, m)
			case 1:
				queue, flavor := rapid.SampledFrom([]string{"cq", "next"}).Draw(rt, "queue"), rapid.SampledFrom([]string{"h100", "a100"}).Draw(rt, "flavor")
				gone := rapid.Bool().Draw(rt, "gone")
				m.kueue.Apply(reservation("holder", queue, flavor, rapid.SampledFrom([]int32{0, 100}).Draw(rt, "priority"), 2), gone)
			}
			devices, one, other := m.book.Snapshot(), m.snap(t), m.snap(t)
			for i := range rapid.IntRange(1, 4).Draw(rt, "waiters") {
				w := rapid.SampledFrom(d.asks).Draw(rt, "asks")(m, p)
				w.Workload.Name, w.Workload.UID = nodeName(i), types.UID(nodeName(i))
				w.Like = w.Likeness()
				before := len(old.memory.answers)
				got, want := old.ChooseAmong(t.Context(), devices, one, w, &Choices{}), anew().Choose(t.Context(), devices, other, w)
				same(rt, got, want)
				if w.Like != "" && before > 0 && len(old.memory.answers) == before {
					remembered++
				}
				if want.Offer == nil {
					continue
				}
				for _, promised := range want.Decision.PodSets {
					devices = devices.With(ledger.Holder{Kind: ledger.HolderPlacement, Managed: true, Name: w.Workload.Name, Workload: w.Workload.UID},
						Claims(promised, w.Request.podSet(promised.Name)))
				}
				one.Take(*got.Offer)
				other.Take(*want.Offer)
				if !one.Holds(w.Workload.UID) {
					rt.Fatalf("%s was offered something that could not be taken", w.Workload.Name)
				}
			}
		}
	})
	if remembered == 0 {
		t.Error("nothing was remembered")
	}
}
