// Package metrics holds the manager's metrics. Labels are taken from bounded sets; no workload, pod or user is named.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics is every metric of the manager. It is safe for concurrent use.
type Metrics struct {
	// Decisions counts decisions by verdict and reason ("" for Admit).
	Decisions *prometheus.CounterVec
	// Rounds counts rounds.
	Rounds prometheus.Counter
	// RoundSeconds is how long rounds took.
	RoundSeconds prometheus.Histogram
	// Observations counts what the ledger was given, by kind and outcome.
	Observations *prometheus.CounterVec
	// Releases counts pods whose gate was removed.
	Releases prometheus.Counter
	// Replacements counts slots that were placed anew before their pod was released, by reason.
	Replacements *prometheus.CounterVec
	// Evictions counts Workloads that Plimsoll evicted, by reason.
	Evictions *prometheus.CounterVec
	// Divergences counts pods that got other devices or another node than promised.
	Divergences prometheus.Counter
	// ManagedWorkloads is how many unfinished Workloads carry what Plimsoll wrote.
	ManagedWorkloads prometheus.Gauge
	// LedgerVersion is the ledger's version.
	LedgerVersion prometheus.Gauge
}

// New registers the metrics.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_decisions_total", Help: "Decisions on Workloads, by verdict and reason."}, []string{"verdict", "reason"}),
		Rounds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_rounds_total", Help: "Rounds over all managed Workloads."}),
		RoundSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plimsoll_round_duration_seconds", Help: "Duration of a round in seconds.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		Observations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_observations_total", Help: "Observations given to the ledger, by kind and outcome."}, []string{"kind", "outcome"}),
		Releases: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_releases_total", Help: "Pods whose placement gate was removed."}),
		Replacements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_replaced_slots_total", Help: "Slots that were placed anew before their pod was released, by reason."}, []string{"reason"}),
		Evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_evictions_total", Help: "Workloads that Plimsoll evicted, by reason."}, []string{"reason"}),
		Divergences: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_divergences_total", Help: "Pods that got other devices or another node than promised."}),
		ManagedWorkloads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_managed_workloads", Help: "Unfinished Workloads that carry what Plimsoll wrote."}),
		LedgerVersion: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_ledger_version", Help: "Version of the ledger, counted since the process started."}),
	}
	r.MustRegister(m.Decisions, m.Rounds, m.RoundSeconds, m.Observations, m.Releases, m.Replacements, m.Evictions,
		m.Divergences, m.ManagedWorkloads, m.LedgerVersion)
	return m
}
