package expect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// Result is what one Job came to.
type Result struct {
	// Job is the Job's namespace/name.
	Job   string
	Entry report.Entry
	// Waited holds every reason for which it was seen waiting.
	Waited []v1alpha1.Reason
}

// Over says that a Job has come to what is expected, or to its end, so that waiting for it longer changes nothing.
func (j Job) Over(r Result) bool {
	switch r.Entry.Outcome {
	case report.OutcomeFinished, report.OutcomeRejected:
		return true
	case j.Outcome:
		return j.Reason == "" || slices.Contains(r.reasons(), j.Reason)
	}
	return false
}

// reasons are those that an expected one may be.
func (r Result) reasons() []v1alpha1.Reason {
	if r.Entry.Outcome == report.OutcomeWaiting {
		if r.Entry.Reason == nil {
			return nil
		}
		return []v1alpha1.Reason{*r.Entry.Reason}
	}
	return r.Waited
}

// Compare returns a sentence for each difference between what was expected and what came out, sorted.
func Compare(expected []Job, results []Result) []string {
	var differences []string
	left := map[string]Result{}
	for _, r := range results {
		left[r.Job] = r
	}
	for _, j := range expected {
		r, ok := left[j.Job]
		if !ok {
			differences = append(differences, j.Job+": it is expected, but there is no such Job")
			continue
		}
		delete(left, j.Job)
		differences = append(differences, j.compare(r)...)
	}
	for name := range left {
		differences = append(differences, name+": nothing says what it should come to")
	}
	slices.Sort(differences)
	return differences
}

func (j Job) compare(r Result) []string {
	var differences []string
	differ := func(what, want, got string) {
		if got == "" {
			got = "none"
		}
		differences = append(differences, fmt.Sprintf("%s: %s: want %s, got %s", j.Job, what, want, got))
	}
	if r.Entry.Outcome != j.Outcome {
		got := string(r.Entry.Outcome)
		if r.Entry.Message != "" {
			got += fmt.Sprintf(" (%s: %s)", ptr.Deref(r.Entry.Reason, "no reason"), r.Entry.Message)
		}
		differ("outcome", string(j.Outcome), got)
	}
	flavors := slices.Sorted(maps.Values(r.Entry.Flavors))
	if flavors = slices.Compact(flavors); j.Flavor != "" && !slices.Equal(flavors, []string{j.Flavor}) {
		differ("flavor", j.Flavor, strings.Join(flavors, ", "))
	}
	nodes := Nodes(r.Entry)
	stray := func(n string) bool { return !slices.Contains(j.Nodes, n) }
	if len(j.Nodes) > 0 && (len(nodes) == 0 || slices.ContainsFunc(nodes, stray)) {
		differ("nodes", "only "+strings.Join(j.Nodes, ", "), strings.Join(nodes, ", "))
	}
	if j.NodeCount > 0 && len(nodes) != j.NodeCount {
		differ("number of nodes", fmt.Sprint(j.NodeCount), fmt.Sprint(len(nodes)))
	}
	if j.Reason != "" && !slices.Contains(r.reasons(), j.Reason) {
		var got []string
		for _, reason := range r.reasons() {
			got = append(got, string(reason))
		}
		differ("reason", string(j.Reason), strings.Join(got, ", "))
	}
	for _, flavor := range slices.Sorted(maps.Keys(j.Standings)) {
		if want, got := j.Standings[flavor], standing(r.Entry, flavor); got != want {
			differ("standing of "+flavor, string(want), string(got))
		}
	}
	return differences
}

// standing returns the best that was said of a flavor; empty where nothing was.
func standing(e report.Entry, flavor string) v1alpha1.Standing {
	order := []v1alpha1.Standing{v1alpha1.StandingFits, v1alpha1.StandingBusy, v1alpha1.StandingBlocked, v1alpha1.StandingProvisionable, v1alpha1.StandingImpossible}
	best := v1alpha1.Standing("")
	for _, s := range e.Standings {
		if s.Flavor == flavor && (best == "" || slices.Index(order, s.Standing) < slices.Index(order, best)) {
			best = s.Standing
		}
	}
	return best
}

// Nodes returns the nodes on which an entry's pods are, sorted, each once.
func Nodes(e report.Entry) []string {
	var nodes []string
	for _, p := range e.Pods {
		nodes = append(nodes, p.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
