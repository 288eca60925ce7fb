package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAgesAreThoseOfTheMomentAtWhichTheyAreAskedFor(t *testing.T) {
	r := prometheus.NewRegistry()
	ages := map[string]time.Duration{"Node": 1500 * time.Millisecond, "Pod": 0}
	NewAges(r, func() map[string]time.Duration { return ages })
	for _, want := range []string{"kind Node 1.5 kind Pod 0 ", "kind Node 60 kind Pod 0 "} {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range families {
			for _, m := range f.GetMetric() {
				got += fmt.Sprintf("%s %s %g ", m.GetLabel()[0].GetName(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
			}
		}
		if got != want || families[0].GetName() != "plimsoll_watch_age_seconds" {
			t.Errorf("it says %q, want %q", got, want)
		}
		ages["Node"] = time.Minute
	}
}
