package simulate

import (
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const (
	clusterQueueKind = "ClusterQueue"
	// unlimited is Kueue's share of what borrows with weight 0.
	unlimited = math.MaxInt64
	permille  = 1000
)

// DeviceSeconds is an amount of device time; it is written as hours with two digits: "12.50".
type DeviceSeconds int64

// String returns the hours, rounded half away from zero.
func (d DeviceSeconds) String() string {
	sign, n := "", int64(d)
	if n < 0 {
		sign, n = "-", -n
	}
	n = (n + 18) / 36 // hundredths of an hour
	if n == 0 {
		sign = ""
	}
	rest := strconv.FormatInt(permille+n%100, 10)
	return sign + strconv.FormatInt(n/100, 10) + "." + rest[2:]
}

// MarshalText writes what String returns.
func (d DeviceSeconds) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Figures are what one tenant, which is a ClusterQueue, came to in a run: on one flavor, or over all of them. A workload
// counts on every flavor that it was admitted on. Null is what there is nothing to count from.
type Figures struct {
	// Admitted counts the workloads that were admitted at least once.
	Admitted int64 `json:"admitted"`
	// Waiting counts those that wait when the run ends, also those that were admitted before and then evicted. On a
	// flavor, it counts those that would rather have it than any other: the first one tried in the last decision. What
	// waits without a decision counts over all flavors only.
	Waiting int64 `json:"waiting"`

	// The waits are from submission to first admission, on a flavor of those whose first admission was on it. What was
	// never admitted and is counted in Waiting has a wait until the end of the run, so that a figure is not the better
	// for starting nobody; what was rejected, or deleted before it started, has none.

	// MeanWait is their sum divided by their number, rounded half up.
	MeanWait *report.Clock `json:"meanWait"`
	// P95Wait is the nearest-rank percentile: of n waits in ascending order, number ceil(0.95 × n).
	P95Wait *report.Clock `json:"p95Wait"`
	// LongestWait is the largest.
	LongestWait *report.Clock `json:"longestWait"`

	// DeviceHours is the sum, over admissions and podsets, of devices × time from the admission to its end or the end of
	// the run. What was before the start of the run does not count.
	DeviceHours DeviceSeconds `json:"deviceHours"`
	// DeviceShare is DeviceHours divided by those of all ClusterQueues of the run, on the same flavor or over all, in
	// permille.
	DeviceShare *int64 `json:"deviceShare"`
	// Weight is the ClusterQueue's weight of fair sharing.
	Weight *resource.Quantity `json:"weight"`
	// DeviceSharePerWeight is DeviceShare divided by Weight: ClusterQueues of one cohort that always want more are served
	// fairly when it is equal, as in weighted dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.3). Null
	// with weight 0.
	DeviceSharePerWeight *int64 `json:"deviceSharePerWeight"`
	// Share is Kueue's weighted share at the end of the run, which is divided by the weight already; see Share. It is
	// about a ClusterQueue over all its flavors, and null on one.
	Share *int64 `json:"share"`

	// FallbackRate is, in permille, how many admissions have a podset with devices that is not on the first flavor of the
	// ClusterQueue's policy, of all admissions with such podsets. A workload whose user named another flavor counts as
	// any other. Null where the ClusterQueue has no policy.
	FallbackRate *int64 `json:"fallbackRate"`
}

// row names what Figures are about: flavor "" is all of them.
type row struct{ clusterQueue, flavor string }

// tally counts one row.
type tally struct {
	admitted, waiting     int64
	waits                 []report.Clock
	devices               DeviceSeconds
	admissions, fallbacks int64
}

// count goes once over a result and counts every row that something is in.
func (r *Result) count() map[row]*tally {
	rows := map[row]*tally{}
	for _, s := range r.Shares {
		if s.Kind == clusterQueueKind {
			rows[row{s.Name, ""}] = &tally{}
		}
	}
	for i := range r.Workloads {
		r.countWorkload(rows, &r.Workloads[i])
	}
	return rows
}

func (r *Result) countWorkload(rows map[row]*tally, wl *Workload) {
	at := func(flavor string) *tally {
		key := row{wl.ClusterQueue, flavor}
		if rows[key] == nil {
			rows[key] = &tally{}
		}
		return rows[key]
	}
	on := map[string]bool{}
	for i := range wl.Admissions {
		on[""] = true
		for _, f := range wl.Admissions[i].Flavors {
			on[f] = true
		}
		r.countHeld(at, wl, i)
	}
	for f := range on {
		at(f).admitted++
	}

	first := map[string]bool{"": true} // where the wait counts
	if len(wl.Admissions) > 0 {
		for _, f := range wl.Admissions[0].Flavors {
			first[f] = true
		}
	} else if len(wl.Standings) > 0 {
		first[wl.Standings[0].Flavor] = true
	}
	if wait, ok := r.wait(wl); ok {
		for f := range first {
			at(f).waits = append(at(f).waits, wait)
		}
	}
	if wl.Outcome == report.OutcomeWaiting {
		at("").waiting++
		if len(wl.Standings) > 0 && wl.Standings[0].Flavor != "" {
			at(wl.Standings[0].Flavor).waiting++
		}
	}
}

// countHeld counts the devices of one admission, and whether it is a fallback.
func (r *Result) countHeld(at func(flavor string) *tally, wl *Workload, admission int) {
	on, devices, fallback := map[string]bool{}, false, false
	policy, managed := r.FirstFlavors[wl.ClusterQueue]
	for _, h := range wl.Held {
		if h.Admission != admission || h.Devices <= 0 {
			continue
		}
		held := DeviceSeconds(h.Devices * r.lasted(&wl.Admissions[admission]))
		at("").devices += held
		at(h.Flavor).devices += held
		devices, fallback = true, fallback || h.Flavor != policy
		on[h.Flavor] = true
	}
	if !devices || !managed {
		return
	}
	on[""] = true
	for f := range on {
		at(f).admissions++
		if f == "" && fallback || f != "" && f != policy {
			at(f).fallbacks++
		}
	}
}

// lasted returns how many seconds of an admission lie in the run.
func (r *Result) lasted(a *report.Admission) int64 {
	end := r.end()
	if a.EndedAt != nil {
		end = min(end, *a.EndedAt)
	}
	return max(0, int64(end-max(0, a.At)))
}

// end is the end of the run as a clock.
func (r *Result) end() report.Clock { return report.Clock(r.Ended / time.Second) }

// wait returns the time from submission to the first admission, or to the end of the run for what waits and was never
// admitted; false for what has no wait.
func (r *Result) wait(wl *Workload) (report.Clock, bool) {
	switch {
	case wl.SubmittedAt == nil:
		return 0, false
	case len(wl.Admissions) > 0:
		return wl.Admissions[0].At - *wl.SubmittedAt, true
	case wl.Outcome == report.OutcomeWaiting:
		return r.end() - *wl.SubmittedAt, true
	}
	return 0, false
}

// figures makes the figures of one row from all rows.
func (r *Result) figures(rows map[row]*tally, key row) Figures {
	t := rows[key]
	if t == nil {
		t = &tally{}
	}
	f := Figures{Admitted: t.admitted, Waiting: t.waiting, DeviceHours: t.devices}
	if n := len(t.waits); n > 0 {
		slices.Sort(t.waits)
		sum := report.Clock(0)
		for _, w := range t.waits {
			sum += w
		}
		f.MeanWait = ptr.To(report.Clock(ratio(int64(sum), 1, int64(n))))
		f.P95Wait = ptr.To(t.waits[(95*n+99)/100-1])
		f.LongestWait = ptr.To(t.waits[n-1])
	}
	all := DeviceSeconds(0)
	for other, t := range rows {
		if other.flavor == key.flavor {
			all += t.devices
		}
	}
	if all > 0 {
		f.DeviceShare = ptr.To(ratio(int64(t.devices), permille, int64(all)))
	}
	if _, managed := r.FirstFlavors[key.clusterQueue]; managed && t.admissions > 0 {
		f.FallbackRate = ptr.To(ratio(t.fallbacks, permille, t.admissions))
	}
	r.weigh(&f, key)
	return f
}

// weigh fills in what depends on the weight.
func (r *Result) weigh(f *Figures, key row) {
	for _, s := range r.Shares {
		if s.Kind != clusterQueueKind || s.Name != key.clusterQueue {
			continue
		}
		if key.flavor == "" {
			f.Share = ptr.To(s.Share)
		}
		weight, err := resource.ParseQuantity(s.Weight)
		if err != nil {
			return // a weight that is none weighs nothing
		}
		f.Weight = &weight
		if f.DeviceShare != nil && weight.Sign() > 0 {
			// a display figure: a quotient of small numbers, exact enough as a float
			per := math.Round(float64(*f.DeviceShare) / weight.AsApproximateFloat64())
			f.DeviceSharePerWeight = ptr.To(int64(min(per, math.MaxInt32)))
		}
		return
	}
}

// ratio returns a × scale ÷ b, rounded half up. b is above 0.
func ratio(a, scale, b int64) int64 {
	q := math.Floor(float64(a)*float64(scale)/float64(b) + 0.5)
	return int64(q)
}
