package simulate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// Comparison sets two runs beside each other.
type Comparison struct {
	Version int `json:"version"`
	// Ended is when each run ended. The figures of both are until the later of the two: a run that ended before, ended
	// because nothing changed any more.
	Ended Ends `json:"ended"`
	// Tenants are sorted by ClusterQueue and flavor; the row over all flavors comes first.
	Tenants []Tenant `json:"tenants"`
	// Changed are the workloads that came to something else, by namespace, name and kind.
	Changed []Change `json:"changed"`
}

// Ends are the ends of two runs.
type Ends struct {
	Before report.Clock `json:"before"`
	After  report.Clock `json:"after"`
}

// Tenant is one ClusterQueue on one flavor, or over all flavors where Flavor is "".
type Tenant struct {
	ClusterQueue string  `json:"clusterQueue"`
	Flavor       string  `json:"flavor"`
	Before       Figures `json:"before"`
	After        Figures `json:"after"`
	// Difference is After less Before, figure by figure; null where one of them is.
	Difference Figures `json:"difference"`
}

// Change is a workload whose outcome, flavors, nodes, last admission or end is not the same in both runs.
type Change struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	// Before and After are null where the run had no such workload.
	Before *Got `json:"before"`
	After  *Got `json:"after"`
}

// Got is what a workload came to.
type Got struct {
	ClusterQueue string            `json:"clusterQueue"`
	Outcome      report.Outcome    `json:"outcome"`
	Flavors      map[string]string `json:"flavors"`
	// Nodes are those of the last admission, each once, sorted.
	Nodes       []string         `json:"nodes"`
	SubmittedAt *report.Clock    `json:"submittedAt"`
	AdmittedAt  *report.Clock    `json:"admittedAt"`
	FinishedAt  *report.Clock    `json:"finishedAt"`
	Reason      *v1alpha1.Reason `json:"reason"`
}

// Compare sets the runs before and after a change beside each other, for all ClusterQueues or for those that are named.
// The figures say how they are counted. Nothing is changed or kept.
func Compare(before, after *Result, tenants ...string) *Comparison {
	wanted := func(clusterQueue string) bool { return len(tenants) == 0 || slices.Contains(tenants, clusterQueue) }
	c := &Comparison{Version: Version, Ended: Ends{before.end(), after.end()}, Tenants: []Tenant{}, Changed: []Change{}}

	before, after = before.until(max(before.Ended, after.Ended)), after.until(max(before.Ended, after.Ended))
	old, now := before.count(), after.count()
	all := maps.Clone(old)
	maps.Copy(all, now)
	for _, key := range slices.SortedFunc(maps.Keys(all), compareRows) {
		if !wanted(key.clusterQueue) {
			continue
		}
		t := Tenant{ClusterQueue: key.clusterQueue, Flavor: key.flavor, Before: before.figures(old, key), After: after.figures(now, key)}
		t.Difference = difference(&t.Before, &t.After)
		c.Tenants = append(c.Tenants, t)
	}
	c.changes(before, after, wanted)
	return c
}

// until returns the result as if the run had gone on, without anything that changed.
func (r *Result) until(end time.Duration) *Result {
	out := *r
	out.Ended = end
	return &out
}

// JSON returns the comparison as indented JSON that ends in a line break.
func (c *Comparison) JSON() []byte {
	data, err := report.JSON(c)
	if err != nil {
		panic(err) // nothing in a comparison can fail to be written
	}
	return data
}

func compareRows(a, b row) int {
	return cmp.Or(cmp.Compare(a.clusterQueue, b.clusterQueue), cmp.Compare(a.flavor, b.flavor))
}

// difference returns b less a.
func difference(a, b *Figures) Figures {
	d := Figures{
		Admitted: b.Admitted - a.Admitted, Waiting: b.Waiting - a.Waiting, DeviceHours: b.DeviceHours - a.DeviceHours,
		MeanWait: less(a.MeanWait, b.MeanWait), P95Wait: less(a.P95Wait, b.P95Wait), LongestWait: less(a.LongestWait, b.LongestWait),
		DeviceShare: less(a.DeviceShare, b.DeviceShare), DeviceSharePerWeight: less(a.DeviceSharePerWeight, b.DeviceSharePerWeight),
		FallbackRate: less(a.FallbackRate, b.FallbackRate), Weight: lighter(a.Weight, b.Weight),
	}
	if a.Share != nil && b.Share != nil && *a.Share != unlimited && *b.Share != unlimited {
		d.Share = less(a.Share, b.Share)
	}
	return d
}

// less returns b less a, nil where one of them is.
func less[T ~int64](a, b *T) *T {
	if a == nil || b == nil {
		return nil
	}
	return ptr.To(*b - *a)
}

func lighter(a, b *resource.Quantity) *resource.Quantity {
	if a == nil || b == nil {
		return nil
	}
	d := b.DeepCopy()
	d.Sub(*a)
	return &d
}

// occurrence tells apart the workloads of one name, which was deleted and made anew, by their order.
type occurrence struct {
	Key
	nth int
}

func (r *Result) occurrences() map[occurrence]*Workload {
	found := map[occurrence]*Workload{}
	for i, seen := 0, map[Key]int{}; i < len(r.Workloads); i++ {
		key := r.Workloads[i].Key()
		found[occurrence{key, seen[key]}] = &r.Workloads[i]
		seen[key]++
	}
	return found
}

func (c *Comparison) changes(before, after *Result, wanted func(clusterQueue string) bool) {
	old, now := before.sorted().occurrences(), after.sorted().occurrences()
	all := maps.Clone(old)
	maps.Copy(all, now)
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b occurrence) int {
		return cmp.Or(compareKeys(a.Key, b.Key), cmp.Compare(a.nth, b.nth))
	}) {
		a, b := got(old[key]), got(now[key])
		if same(a, b) || (a == nil || !wanted(a.ClusterQueue)) && (b == nil || !wanted(b.ClusterQueue)) {
			continue
		}
		c.Changed = append(c.Changed, Change{Namespace: key.Namespace, Name: key.Name, Kind: key.Kind, Before: a, After: b})
	}
}

func got(w *Workload) *Got {
	if w == nil {
		return nil
	}
	return &Got{
		ClusterQueue: w.ClusterQueue, Outcome: w.Outcome, Flavors: w.Flavors, Nodes: nodesOf(w),
		SubmittedAt: w.SubmittedAt, AdmittedAt: w.AdmittedAt, FinishedAt: w.FinishedAt, Reason: w.Reason,
	}
}

// same says whether a workload came to the same. What waits for another reason still waits.
func same(a, b *Got) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Outcome == b.Outcome && maps.Equal(a.Flavors, b.Flavors) && slices.Equal(a.Nodes, b.Nodes) &&
		compareClocks(a.AdmittedAt, b.AdmittedAt) == 0 && compareClocks(a.FinishedAt, b.FinishedAt) == 0
}
