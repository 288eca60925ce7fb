package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// outcomes are the columns of the summary.
var outcomes = []report.Outcome{
	report.OutcomeFinished, report.OutcomeRunning, report.OutcomeWaiting,
	report.OutcomeRejected, report.OutcomeDeleted, report.OutcomeNotSubmitted,
}

// maxNodes is how many nodes of a workload the table names.
const maxNodes = 2

// Table prints the result for people, in lines of at most 110 characters: how many workloads of each ClusterQueue came
// to which outcome, then each workload with what it got, how long it waited for its first admission (until the end of
// the run where there was none and it waits), and why it waits. Times are since the start of the run. It fails only
// where w does.
func (r *Result) Table(w io.Writer) error {
	sorted := r.sorted()
	if _, err := fmt.Fprintf(w, "Simulated %s: %s.\n", report.Clock(r.Ended/time.Second), report.Plural(len(r.Workloads), "workload")); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	summary, workloads := sorted.summary(), sorted.workloads()
	for _, g := range []*grid{summary, workloads} {
		if len(g.rows) == 0 {
			continue
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return fmt.Errorf("print the table: %w", err)
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	return nil
}

// summary counts outcomes by ClusterQueue. Outcomes that no workload came to have no column.
func (r *Result) summary() *grid {
	counts, total := map[string]map[report.Outcome]int{}, map[report.Outcome]int{}
	shares := map[string]Share{}
	for _, s := range r.Shares {
		if s.Kind == clusterQueueKind {
			counts[s.Name], shares[s.Name] = map[report.Outcome]int{}, s
		}
	}
	for i := range r.Workloads {
		wl := &r.Workloads[i]
		if counts[wl.ClusterQueue] == nil {
			counts[wl.ClusterQueue] = map[report.Outcome]int{}
		}
		counts[wl.ClusterQueue][wl.Outcome]++
		total[wl.Outcome]++
	}
	g := &grid{head: []string{"CLUSTERQUEUE", "WEIGHT", "SHARE"}}
	var shown []report.Outcome
	for _, o := range outcomes {
		if total[o] > 0 {
			shown = append(shown, o)
			g.head = append(g.head, strings.ToUpper(string(o)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		cells := []string{name, "", ""}
		if s, ok := shares[name]; ok {
			cells[1], cells[2] = s.Weight, shareText(s.Share)
		}
		for _, o := range shown {
			cells = append(cells, strconv.Itoa(counts[name][o]))
		}
		g.row(cells...)
	}
	return g
}

func (r *Result) workloads() *grid {
	g := &grid{head: []string{"WORKLOAD", "QUEUE", "OUTCOME", "FLAVOR", "NODES", "SUBMITTED", "WAITED", "ENDED"}}
	for i := range r.Workloads {
		wl := &r.Workloads[i]
		name := wl.Namespace + "/" + wl.Name
		queue := wl.ClusterQueue
		if queue == "" {
			queue = wl.Queue
		}
		outcome := string(wl.Outcome)
		if n := len(wl.Admissions); n > 1 {
			outcome += fmt.Sprintf(" (%d starts)", n)
		}
		waited := ""
		if wait, ok := r.wait(wl); ok {
			waited = wait.String()
		}
		g.row(name, queue, outcome, flavorText(wl.Flavors), nodeText(nodesOf(wl)), clockText(wl.SubmittedAt), waited, clockText(wl.FinishedAt))
		if wl.Outcome == report.OutcomeWaiting || wl.Outcome == report.OutcomeRejected {
			g.note(why(wl))
		}
	}
	return g
}

func why(wl *Workload) string {
	switch {
	case wl.Reason == nil:
		return wl.Message
	case wl.Message == "":
		return string(*wl.Reason)
	}
	return string(*wl.Reason) + ": " + wl.Message
}

// flavorText lists the flavors of all podsets, each once.
func flavorText(flavors map[string]string) string {
	names := slices.Sorted(maps.Values(flavors))
	return strings.Join(slices.Compact(names), " ")
}

// nodesOf returns the nodes of the last admission, each once, sorted. It is not nil.
func nodesOf(wl *Workload) []string {
	nodes := []string{}
	for _, p := range wl.Pods {
		nodes = append(nodes, p.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func nodeText(nodes []string) string {
	if len(nodes) > maxNodes {
		return strings.Join(nodes[:maxNodes], " ") + fmt.Sprintf(" +%d", len(nodes)-maxNodes)
	}
	return strings.Join(nodes, " ")
}

func clockText(c *report.Clock) string {
	if c == nil {
		return ""
	}
	return c.String()
}

// shareText writes the share of what borrows with weight 0 in a word: Kueue's number for it only means "most of all".
func shareText(share int64) string {
	if share == unlimited {
		return "unlimited"
	}
	return strconv.FormatInt(share, 10)
}
