package release

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// TestSlotsArePlacedAnewOnTheAccountsAsTheyAre: where what a decision touches changes before it is written, it is not.
func TestSlotsArePlacedAnewOnTheAccountsAsTheyAre(t *testing.T) {
	b := newBench(t, map[string]int{"a": 1, "b": 1, "c": 1}, 1, "a")
	b.stolen(gpu("a", 0))
	late := uint64(0)
	taken := func(node string) {
		late++
		b.Book.Apply(ledger.Observation{
			Ref:   ledger.Ref{Kind: ledger.KindClaim, UID: types.UID("thief of " + node), ResourceVersion: 1000 + late},
			Claim: &ledger.Claim{Namespace: ns, Name: node, Allocated: []ledger.DeviceID{gpu(node, 0)}},
		})
	}
	b.pod("p", nil)
	full, why, err := b.find(context.Background(), b.get("p"))
	if err != nil || full == nil {
		t.Fatalf("the pod is not served: %q, %v", why, err)
	}
	l, _, err := b.look(context.Background(), full)
	b.must(err)
	b.must(l.see(context.Background()))
	lost := l.all[0]
	dec := l.decide(context.Background(), lost, l.all)
	if l.conflicts(context.Background(), l.all, dec) {
		t.Fatal("a decision on the newest accounts conflicts")
	}
	taken(ledger.NodesOf(dec.PodSets)[0])
	if !l.conflicts(context.Background(), l.all, dec) {
		t.Error("its device was taken meanwhile, and it would be written")
	}
	if got := valueOf(t, b.Metrics.Conflicts.WithLabelValues("Replacement")); got != 1 {
		t.Errorf("%v conflicts are counted, want 1", got)
	}
	b.reconcile("p")
	b.reconcile("p")
	b.expectNotEvicted()
	if got := b.places(); len(got) != 1 || got[0] == "a gpu-0" || got[0] == ledger.NodesOf(dec.PodSets)[0]+" gpu-0" {
		t.Errorf("promised is %q, want the one that is left", got)
	}
}

func valueOf(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 1 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	return families[0].Metric[0].GetCounter().GetValue()
}
