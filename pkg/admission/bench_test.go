package admission

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// benchNodes is how large the cluster of the benchmarks is; each node has eight devices.
const benchNodes = 1000

// crowded fills a market of benchNodes nodes up to a percentage, node by node, and returns two snapshots of it that
// differ in one node: a cluster changes little between two decisions.
func crowded(b *testing.B, percent int) (*market, [2]*ledger.Snapshot) {
	b.Helper()
	m := newMarket(b, "h100=100000 a100=100000 other=100000")
	for i := range benchNodes {
		m.node(nodeName(i), "h100:8", nil)
	}
	for i := range benchNodes {
		switch full := i*37%100 < percent; {
		case full && i%2 == 0:
			m.held(nodeName(i), true, false, 0, 1, 2, 3, 4, 5, 6, 7)
		case full:
			m.held(nodeName(i), true, false, 0, 1, 2, 3)
			m.held(nodeName(i), true, false, 4, 5, 6, 7)
		}
	}
	before := m.book.Snapshot()
	m.held(nodeName(527), true, false, 0, 1, 2, 3, 4, 5, 6, 7)
	return m, [2]*ledger.Snapshot{before, m.book.Snapshot()}
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// benchShapes are what is asked for: single pods, and a gang of eight.
var benchShapes = []struct {
	name    string
	pods    int32
	devices int64
}{{"1x1", 1, 1}, {"1x4", 1, 4}, {"1x8", 1, 8}, {"8x8", 8, 8}}

// overAll runs a benchmark for every shape and use.
func overAll(b *testing.B, run func(b *testing.B, percent int, ps PodSet)) {
	for _, percent := range []int{0, 50, 90, 99} {
		for _, shape := range benchShapes {
			b.Run(fmt.Sprintf("use=%d/%s", percent, shape.name), func(b *testing.B) { run(b, percent, pods(shape.pods, shape.devices, nil)) })
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	overAll(b, func(b *testing.B, percent int, ps PodSet) {
		_, snapshots := crowded(b, percent)
		d := &Decider{Matcher: flavors.NewMatcher()}
		assignedTo("h100")(&ps)
		r := Request{Now: after(0), Policy: choicePolicy(b, nil), Namespace: "team", PodSets: []PodSet{ps}, Coming: true}
		d.Decide(b.Context(), snapshots[0], &r)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Decide(b.Context(), snapshots[i%2], &r)
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	overAll(b, func(b *testing.B, percent int, ps PodSet) {
		m, snapshots := crowded(b, percent)
		d := &Decider{Matcher: flavors.NewMatcher()}
		w := m.waiter(choicePolicy(b, nil), "w", 0, ps)
		k := m.snap(b)
		d.Choose(b.Context(), snapshots[0], k, w)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Choose(b.Context(), snapshots[i%2], k, w)
		}
	})
}

// BenchmarkHolds holds a promise of eight nodes against the accounts.
func BenchmarkHolds(b *testing.B) {
	_, snapshots := crowded(b, 50)
	ps := pods(8, 8, assignedTo("h100"))
	d := &Decider{Matcher: flavors.NewMatcher()}
	r := Request{Now: after(0), Policy: choicePolicy(b, nil), Namespace: "team", PodSets: []PodSet{ps}}
	dec := d.Decide(b.Context(), snapshots[0], &r)
	if dec.Verdict != v1alpha1.VerdictAdmit {
		b.Fatal(dec.Message)
	}
	p := Promise{Workload: types.UID("w"), Placement: types.UID("p"), PodSets: dec.PodSets}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Holds(snapshots[i%2], &r, p)
	}
}
