package round

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// measure sets the gauges of who waits.
func (t *turns) measure() {
	t.Metrics.Waiting.Reset()
	for reason, n := range t.waiting {
		t.Metrics.Waiting.WithLabelValues(string(reason)).Set(float64(n))
	}
	t.Metrics.PriorityInverted.Set(float64(t.inverted))
}

// measurePromise counts a promise that was made: which flavors it is of, whether the first would have been another, and how
// long it was waited for.
func (r *round) measurePromise(wl *kueue.Workload, p *flavors.Policy, dec *admission.Decision) {
	r.Metrics.WaitSeconds.Observe(max(0, r.now.Sub(wl.CreationTimestamp.Time)).Seconds())
	for i := range dec.PodSets {
		ps := &dec.PodSets[i]
		if p.Flavor(ps.Flavor) < 0 {
			continue
		}
		first := slices.IndexFunc(dec.Standings, func(s v1alpha1.FlavorStanding) bool { return s.PodSet == ps.Name })
		if first < 0 { // it asks for no devices, and was decided where Kueue put it
			continue
		}
		r.Metrics.Promises.WithLabelValues(ps.Flavor).Inc()
		s := &dec.Standings[first]
		if s.Flavor == ps.Flavor {
			continue
		}
		reason := v1alpha1.ReasonQuotaExhausted
		if len(s.Reasons) > 0 {
			reason = cmp.Or(s.Reasons[0].Reason, reason)
		}
		r.Metrics.Fallbacks.WithLabelValues(s.Flavor, ps.Flavor, string(reason)).Inc()
	}
}
