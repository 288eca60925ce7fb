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
	// Conflicts counts decisions that were not written because what they touch had changed since their snapshot, by what would
	// have been written: Promise or Replacement.
	Conflicts *prometheus.CounterVec
	// Overlaps counts promises that were withdrawn because another has the same device.
	Overlaps prometheus.Counter
	// Evictions counts Workloads that Plimsoll evicted, by reason.
	Evictions *prometheus.CounterVec
	// Divergences counts differences between what the ledger counts, or a Placement promises, and what the cluster says, by kind.
	Divergences *prometheus.CounterVec
	// Differences is how many of them there are now, by kind; Flags how much else is odd about nodes, by reason.
	Differences, Flags *prometheus.GaugeVec
	// Offers counts what Kueue was let try, by outcome: Made; Nudged or Closed where Kueue did not take it.
	Offers *prometheus.CounterVec
	// Promises counts podsets with devices that were promised a place, by flavor.
	Promises *prometheus.CounterVec
	// Fallbacks counts those of Promises that are not of the first flavor that was looked at, by both and by why not that:
	// its first reason, or QuotaExhausted where its devices were there.
	Fallbacks *prometheus.CounterVec
	// WaitSeconds is how long Workloads waited from their creation to a promise; after an eviction they wait on.
	WaitSeconds prometheus.Histogram
	// Waiting is how many steered Workloads wait for quota or devices, by the reason of their last decision ("" for an offer).
	Waiting *prometheus.GaugeVec
	// PriorityInverted is how many Workloads wait with quota free for devices that lower priority holds.
	PriorityInverted prometheus.Gauge
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
		Conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_reservation_conflicts_total",
			Help: "Decisions made anew because what they touch had changed since their snapshot, by what would have been written: Promise, Replacement."}, []string{"write"}),
		Overlaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plimsoll_overlapping_promises_total", Help: "Promises that were withdrawn because another has the same device."}),
		Evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_evictions_total", Help: "Workloads that Plimsoll evicted, by reason."}, []string{"reason"}),
		Divergences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_divergences_total",
			Help: "Differences found between what the ledger counts, or promised, and what the cluster says, by kind: Devices, Node, Listing, PodStatus, Accounts."}, []string{"kind"}),
		Differences: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_ledger_differences", Help: "Differences between what the ledger counts, or promised, and what the cluster says, by kind."}, []string{"kind"}),
		Flags: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_ledger_flags", Help: "What is odd about nodes, pools and devices and was settled by a rule, by reason."}, []string{"reason"}),
		Offers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_offers_total", Help: "Flavors opened to Workloads for Kueue to take at once, by outcome: Made, Nudged, Closed."}, []string{"outcome"}),
		Promises: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_promises_total", Help: "Podsets with devices that were promised a place, by flavor."}, []string{"flavor"}),
		Fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plimsoll_fallbacks_total", Help: "Podsets promised another flavor than the first that was looked at, by both and why not the first."}, []string{"from", "to", "reason"}),
		WaitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plimsoll_wait_seconds", Help: "Time from a Workload's creation to a promise, in seconds.", Buckets: prometheus.ExponentialBuckets(0.1, 3, 14)}),
		Waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plimsoll_waiting_workloads", Help: "Steered Workloads that wait for quota or devices, by reason; empty for an offer that stands."}, []string{"reason"}),
		PriorityInverted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_priority_inverted_workloads", Help: "Workloads that wait, with quota free, for devices that lower priority holds."}),
		ManagedWorkloads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_managed_workloads", Help: "Unfinished Workloads that carry what Plimsoll wrote."}),
		LedgerVersion: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plimsoll_ledger_version", Help: "Version of the ledger, counted since the process started."}),
	}
	r.MustRegister(m.Decisions, m.Rounds, m.RoundSeconds, m.Observations, m.Releases, m.Replacements, m.Conflicts, m.Overlaps, m.Evictions,
		m.Divergences, m.Differences, m.Flags, m.Offers, m.Promises, m.Fallbacks, m.WaitSeconds, m.Waiting, m.PriorityInverted, m.ManagedWorkloads, m.LedgerVersion)
	return m
}
