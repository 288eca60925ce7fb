package simulate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// Version is the version of the JSON of results and comparisons.
const Version = 1

// Result is what a run came to. Clocks count from the run's start. The lists may be in any order and nil: JSON and
// Table sort a copy. A Result is not changed by its methods, which may be called at the same time.
type Result struct {
	Version   int        `json:"version"`
	Workloads []Workload `json:"workloads"`
	Shares    []Share    `json:"shares"`
	Ledger    Ledger     `json:"ledger"`

	// Ended is when the run ended: what still waits or runs has done so until then.
	Ended time.Duration `json:"-"`
	// FirstFlavors holds, by ClusterQueue, the first flavor of the DevicePolicy that its check names. A ClusterQueue
	// without such a check has none.
	FirstFlavors map[string]string `json:"-"`
	// Log tells what happened to the Workloads, in the order in which it did.
	Log []Event `json:"-"`
}

// Workload is one Job, or one Workload without one.
type Workload struct {
	report.Entry

	// Held says what each of Admissions held, a podset each.
	Held []Held `json:"-"`
}

// Held is what one podset held during one admission.
type Held struct {
	// Admission is the index into Admissions.
	Admission int
	PodSet    string
	Flavor    string
	// Devices counts the devices of all pods of the podset together; 0 for a podset that asks for none.
	Devices int64
}

// Share is what a ClusterQueue or a Cohort borrows, at the end of the run.
type Share struct {
	Name string `json:"name"`
	// Kind is ClusterQueue or Cohort.
	Kind string `json:"kind"`
	// Weight is the weight of fair sharing as a quantity, 1 where none is set.
	Weight string `json:"weight"`
	// Share is Kueue's weighted share (KEP-1714): the largest ratio, in permille and over all resources, of what is used
	// above the nominal quota to what the cohort can lend, divided by the weight. 9223372036854775807 is what borrows
	// with weight 0.
	Share int64 `json:"share"`
}

// Ledger identifies the accounts at the end of the run.
type Ledger struct {
	// Digest covers the ledger's accounts; equal accounts have equal digests.
	Digest string `json:"digest"`
}

// EventKind says what happened to a Workload.
type EventKind string

// The kinds of event.
const (
	// EventArrived: the Job, or the Workload without one, was created.
	EventArrived EventKind = "Arrived"
	// EventAdmitted: Kueue admitted it.
	EventAdmitted EventKind = "Admitted"
	// EventEvicted: it lost its admission.
	EventEvicted EventKind = "Evicted"
	// EventFinished: it ended, well or not.
	EventFinished EventKind = "Finished"
	// EventDeleted: it was deleted.
	EventDeleted EventKind = "Deleted"
)

// Event is one thing that happened to one Workload.
type Event struct {
	// At is the exact time since the run's start.
	At   time.Duration
	Kind EventKind
	// Workload is whom it happened to.
	Workload Key
}

// Key names a Job, or a Workload without one.
type Key struct{ Namespace, Kind, Name string }

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}

// Key names the workload.
func (w *Workload) Key() Key { return Key{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name} }

// JSON returns the result as indented JSON that ends in a line break: equal results give the same bytes, whatever the
// order of their lists, and no list or map in it is null.
func (r *Result) JSON() []byte {
	sorted := r.sorted()
	data, err := report.JSON(sorted)
	if err != nil {
		panic(err) // nothing in a result can fail to be written
	}
	return data
}

// sorted returns a copy in the order of the JSON, with version, and with no list or map nil.
func (r *Result) sorted() *Result {
	out := *r
	out.Version = Version
	out.Workloads = make([]Workload, len(r.Workloads))
	for i := range r.Workloads {
		out.Workloads[i] = r.Workloads[i].sorted()
	}
	slices.SortStableFunc(out.Workloads, func(a, b Workload) int {
		return cmp.Or(compareKeys(a.Key(), b.Key()), compareClocks(a.SubmittedAt, b.SubmittedAt))
	})
	out.Shares = sortedCopy(r.Shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return &out
}

// sorted returns a copy with its lists in order. Standings keep theirs: it is the order in which flavors were tried.
func (w *Workload) sorted() Workload {
	out := *w
	out.Admissions = sortedCopy(w.Admissions, func(a, b report.Admission) int { return cmp.Compare(a.At, b.At) })
	for i := range out.Admissions {
		out.Admissions[i].Flavors = notNil(out.Admissions[i].Flavors)
	}
	out.Flavors, out.Charged = notNil(w.Flavors), notNil(w.Charged)
	out.Pods = sortedCopy(w.Pods, func(a, b report.Pod) int {
		return cmp.Or(cmp.Compare(a.PodSet, b.PodSet), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Node, b.Node))
	})
	for i := range out.Pods {
		out.Pods[i].Devices = sortedCopy(out.Pods[i].Devices, cmp.Compare[string])
	}
	out.Standings = append([]report.Standing{}, w.Standings...)
	for i := range out.Standings {
		out.Standings[i].Reasons = append([]report.StandingReason{}, out.Standings[i].Reasons...)
	}
	return out
}

// sortedCopy returns a sorted copy that is not nil; what is equal keeps its order.
func sortedCopy[T any](list []T, compare func(a, b T) int) []T {
	out := append([]T{}, list...)
	slices.SortStableFunc(out, compare)
	return out
}

// notNil returns a copy that is not nil.
func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// compareClocks puts what did not happen first.
func compareClocks(a, b *report.Clock) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}
