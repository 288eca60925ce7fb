package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// apart is how far two things must be apart, on the lab and simulated, for their order to count: the lab takes time where the
// simulation takes none. Where the machine has so much to do that it takes longer, they must be as far apart as that.
const apart = 2 * time.Second

// slowest is how long the lab took at most, from a Job's arrival to its admission, where it was simulated in no time.
func slowest(sim, lab course) time.Duration {
	first := func(c course) map[occasion]time.Duration {
		out := map[occasion]time.Duration{}
		for _, e := range c.events {
			if o := (occasion{job: e.Workload, kind: e.Kind}); e.Kind == simulate.EventArrived || e.Kind == simulate.EventAdmitted {
				if _, is := out[o]; !is {
					out[o] = e.At
				}
			}
		}
		return out
	}
	s, l := first(sim), first(lab)
	var out time.Duration
	for _, key := range sim.keys() {
		came, went := occasion{job: key, kind: simulate.EventArrived}, occasion{job: key, kind: simulate.EventAdmitted}
		if at, admitted := s[went]; admitted && at-s[came] < time.Millisecond {
			out = max(out, l[went]-l[came])
		}
	}
	return out
}

// course is what became of Jobs: on the lab or simulated.
type course struct {
	entries map[simulate.Key]report.Entry
	events  []simulate.Event
	// ran are the nodes of the pods of Jobs that have finished, by podset; only of the lab.
	ran map[simulate.Key]map[string]int
	// waves are Jobs that run more pods than at once. Of these only the nodes count, not how many pods were there last.
	waves map[simulate.Key]bool
}

// simulated is the course of a result's Jobs.
func simulated(r *simulate.Result) course {
	out := course{entries: map[simulate.Key]report.Entry{}, events: r.Log}
	for i := range r.Workloads {
		out.entries[r.Workloads[i].Key()] = r.Workloads[i].Entry
	}
	return out
}

// keys returns whom a course is about, sorted.
func (c course) keys() []simulate.Key {
	return slices.SortedFunc(maps.Keys(c.entries), func(a, b simulate.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// occasion is the nth admission or end of a Job.
type occasion struct {
	job  simulate.Key
	kind simulate.EventKind
	nth  int
}

func (o occasion) String() string {
	if o.nth == 0 {
		return fmt.Sprintf("%s %s", o.job.Name, o.kind)
	}
	return fmt.Sprintf("%s %s (%d)", o.job.Name, o.kind, o.nth+1)
}

// occasions returns when Jobs were admitted and ended.
func occasions(events []simulate.Event) map[occasion]time.Duration {
	out := map[occasion]time.Duration{}
	for _, e := range events {
		if e.Kind != simulate.EventAdmitted && e.Kind != simulate.EventFinished {
			continue
		}
		o := occasion{job: e.Workload, kind: e.Kind}
		for _, taken := out[o]; taken; _, taken = out[o] {
			o.nth++
		}
		out[o] = e.At
	}
	return out
}

// nodesOf returns on which node a podset has how many pods.
func nodesOf(e report.Entry) map[string]int {
	out := map[string]int{}
	for _, p := range e.Pods {
		out[podsOn(p.PodSet, p.Node)]++
	}
	return out
}

func podsOn(podSet, node string) string { return podSet + " on " + node }

// differences returns in what two courses of the same Jobs are not one: what they came to, with which flavors and on which
// nodes; how often they were admitted and ended; and the order of what is apart in both.
func differences(sim, lab course) []string {
	var out []string
	differ := func(what string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			out = append(out, fmt.Sprintf("%s: simulated %s, on the lab %s", what, x, y))
		}
	}
	for _, key := range sim.keys() {
		s, l := sim.entries[key], lab.entries[key]
		differ(key.Name+"'s outcome", s.Outcome, l.Outcome)
		if s.Outcome != report.OutcomeRunning && s.Outcome != report.OutcomeFinished { // the lab does not keep what it had before
			continue
		}
		differ(key.Name+"'s flavors", s.Flavors, l.Flavors)
		if s.Outcome == report.OutcomeFinished { // its promise is gone, and its pods tell
			ran, was := lab.ran[key], nodesOf(s)
			if lab.waves[key] {
				for _, of := range []map[string]int{ran, was} {
					for k := range of {
						of[k] = 1
					}
				}
			}
			differ(key.Name+"'s nodes", was, ran)
			continue
		}
		differ(key.Name+"'s nodes", nodesOf(s), nodesOf(l))
	}
	s, l, apart := occasions(sim.events), occasions(lab.events), max(apart, slowest(sim, lab))
	all := maps.Clone(s)
	maps.Copy(all, l)
	sorted := slices.SortedFunc(maps.Keys(all), func(a, b occasion) int { return strings.Compare(a.String(), b.String()) })
	for i, a := range sorted {
		_, inSim := s[a]
		_, inLab := l[a]
		differ(a.String(), inSim, inLab)
		for _, b := range sorted[i+1:] {
			_, bothSim := s[b]
			_, bothLab := l[b]
			if !inSim || !inLab || !bothSim || !bothLab {
				continue
			}
			x, y := s[b]-s[a], l[b]-l[a]
			if x.Abs() >= apart && y.Abs() >= apart && (x > 0) != (y > 0) {
				out = append(out, fmt.Sprintf("the order of %s and %s: simulated %s and %s, on the lab %s and %s", a, b, s[a], s[b], l[a], l[b]))
			}
		}
	}
	return out
}

// beside tells two courses side by side.
func beside(sim, lab course) string {
	tell := func(c course) []string {
		events := slices.Clone(c.events)
		slices.SortStableFunc(events, func(a, b simulate.Event) int { return cmp.Compare(a.At, b.At) })
		var lines []string
		for _, e := range events {
			lines = append(lines, fmt.Sprintf("%8.2fs %s %s", e.At.Seconds(), e.Workload.Name, e.Kind))
		}
		for _, key := range c.keys() {
			e := c.entries[key]
			lines = append(lines, fmt.Sprintf("= %s %s %v", key.Name, e.Outcome, e.Flavors), fmt.Sprintf("  %v", nodesOf(e)))
			if e.Reason != nil {
				lines = append(lines, fmt.Sprintf("  %s", *e.Reason))
			}
		}
		return lines
	}
	left, right := tell(sim), tell(lab)
	width := len("simulated")
	for _, l := range left {
		width = max(width, len(l))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s | on the lab\n", width, "simulated")
	for i := range max(len(left), len(right)) {
		var l, r string
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		fmt.Fprintf(&b, "%-*s | %s\n", width, l, r)
	}
	return b.String()
}
