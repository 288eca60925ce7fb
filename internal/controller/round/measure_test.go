package round

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// valueOf returns a counter's or gauge's value, or how often a histogram was observed.
func valueOf(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 1 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	m := families[0].Metric[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

func TestOffersPromisesAndFallbacksAreCounted(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100", "a": "a100"}, nil)
	b.waits("first", nil)
	b.waits("second", nil)
	b.settle(0)
	counts := func(want map[string]float64) {
		t.Helper()
		got := map[string]float64{
			"made": valueOf(t, b.Metrics.Offers.WithLabelValues("Made")), "nudged": valueOf(t, b.Metrics.Offers.WithLabelValues("Nudged")),
			"closed": valueOf(t, b.Metrics.Offers.WithLabelValues("Closed")), "h100": valueOf(t, b.Metrics.Promises.WithLabelValues("h100")),
			"a100": valueOf(t, b.Metrics.Promises.WithLabelValues("a100")), "fallbacks": valueOf(t, b.Metrics.Fallbacks.WithLabelValues("h100", "a100", "DevicesInUse")),
			"offered": valueOf(t, b.Metrics.Waiting.WithLabelValues("")), "waiting": valueOf(t, b.Metrics.Waiting.WithLabelValues("DevicesInUse")),
		}
		for name, n := range got {
			if n != want[name] {
				t.Errorf("%s are %v, want %v", name, n, want[name])
			}
		}
	}
	counts(map[string]float64{"made": 1, "offered": 1, "waiting": 1})
	b.reserve("first", "h100")
	b.settle(1)
	counts(map[string]float64{"made": 1, "h100": 1, "waiting": 1})
	b.settle(60)
	b.settle(70)
	b.settle(80)
	counts(map[string]float64{"made": 3, "nudged": 1, "closed": 1, "h100": 1}) // made, nudged and made again
	b.settle(90)
	b.reserve("second", "a100")
	b.settle(91)
	counts(map[string]float64{"made": 4, "nudged": 1, "closed": 1, "h100": 1, "a100": 1, "fallbacks": 1})
	if n := valueOf(t, b.Metrics.WaitSeconds); n != 2 {
		t.Errorf("%v waits were timed", n)
	}
}

func TestWhatLowerPriorityHoldsIsSaidAndCounted(t *testing.T) {
	says := func(priority int32) (bool, float64) {
		b := newBench(t, map[string]string{"h": "h100"}, nil)
		b.waits("low", nil)
		b.settle(0)
		b.reserve("low", "h100")
		b.settle(1)
		b.waits("wl", func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To(priority) })
		b.settle(2)
		r := b.placement("wl").Status.Record
		if r == nil || r.Reason != v1alpha1.ReasonDevicesInUse || len(r.Standings) == 0 {
			t.Fatalf("it says %+v", r)
		}
		return slices.ContainsFunc(r.Standings[0].Reasons, func(x v1alpha1.StandingReason) bool { return x.Reason == v1alpha1.ReasonPriorityInverted }),
			valueOf(t, b.Metrics.PriorityInverted)
	}
	if said, n := says(101); !said || n != 1 {
		t.Errorf("higher priority: said %v, counted %v", said, n)
	}
	if said, n := says(100); said || n != 0 {
		t.Errorf("the same priority: said %v, counted %v", said, n)
	}
}
