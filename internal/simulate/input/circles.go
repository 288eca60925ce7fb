package input

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// circles refuses Cohorts that are, at some time, above themselves: Kueue's controllers would go around them for ever.
func (r *reader) circles() {
	parents, since := map[string]string{}, map[string]*entry{}
	said := map[string]bool{}
	for _, at := range r.cohortTimes() {
		for name, e := range since {
			if e.deleteAt != nil && *e.deleteAt <= at {
				delete(parents, name)
				delete(since, name)
			}
		}
		for _, e := range r.entries {
			if c, ok := e.object.(*kueue.Cohort); ok && e.at == at {
				parents[e.name], since[e.name] = string(c.Spec.ParentName), e
			}
		}
		for _, name := range slices.Sorted(maps.Keys(parents)) {
			circle := circleOf(parents, name)
			if len(circle) == 0 || said[circle[0]] {
				continue
			}
			for _, c := range circle {
				said[c] = true
			}
			e := since[name]
			r.fault(e.wrong("spec.parentName", "the Cohort is above itself: "+shown(append(circle, name))))
		}
	}
}

// cohortTimes are the times at which Cohorts change.
func (r *reader) cohortTimes() []time.Duration {
	var out []time.Duration
	for _, e := range r.entries {
		if _, ok := e.object.(*kueue.Cohort); ok {
			out = append(out, e.at)
			if e.deleteAt != nil {
				out = append(out, *e.deleteAt)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// circleOf returns the cohorts from one up to itself; nil where there is no such way.
func circleOf(parents map[string]string, name string) []string {
	way := []string{name}
	for at := parents[name]; at != name; at = parents[at] {
		if at == "" || len(way) > len(parents) {
			return nil
		}
		way = append(way, at)
	}
	return way
}

// shown is a way from cohort to cohort, shortened.
func shown(way []string) string {
	const most = 10
	if n := len(way); n > most {
		way = append(append(slices.Clone(way[:most-1]), fmt.Sprintf("%d more", n-most)), way[n-1])
	}
	out := make([]string, len(way))
	for i, name := range way {
		out[i] = short(name)
	}
	return strings.Join(out, ", then ")
}
