package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Ages shows how long each of our own watches has been silent, whenever it is asked.
type Ages struct {
	of   func() map[string]time.Duration
	desc *prometheus.Desc
}

// NewAges registers the metric. of returns the ages by kind; it must be safe for concurrent use.
func NewAges(r prometheus.Registerer, of func() map[string]time.Duration) *Ages {
	a := &Ages{of: of, desc: prometheus.NewDesc("plimsoll_watch_age_seconds",
		"Time since anything, bookmarks included, came last from our own watch of a kind, in seconds.", []string{"kind"}, nil)}
	r.MustRegister(a)
	return a
}

// Describe tells the metric, for Prometheus.
func (a *Ages) Describe(out chan<- *prometheus.Desc) { out <- a.desc }

// Collect tells the ages, for Prometheus.
func (a *Ages) Collect(out chan<- prometheus.Metric) {
	for kind, age := range a.of() {
		out <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, age.Seconds(), kind)
	}
}
