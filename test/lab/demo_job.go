package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/test/lab/internal/expect"
)

// maxWhy is how much of a message the table shows.
const maxWhy = 100

// demoJob is one Job of a demo.
type demoJob struct {
	object    *unstructured.Unstructured
	expected  expect.Job
	submitted bool
	result    expect.Result
	asked     string
	waited    string
	// seen says of each reason how often the Job was seen waiting for it, and in which words last.
	seen map[v1alpha1.Reason]*sighting
}

type sighting struct {
	times int
	words string
}

// newDemoJob finds what is expected of a Job; of one that nobody mentions, that it finishes.
func newDemoJob(object *unstructured.Unstructured, expected []expect.Job) *demoJob {
	j := &demoJob{object: object, expected: expect.Job{Outcome: report.OutcomeFinished}, seen: map[v1alpha1.Reason]*sighting{}}
	for _, e := range expected {
		if e.Job == j.name() {
			j.expected = e
		}
	}
	j.result = expect.Result{Job: j.name(), Entry: report.Entry{
		Namespace: object.GetNamespace(), Name: object.GetName(), Kind: object.GetKind(), Outcome: report.OutcomeNotSubmitted,
	}}
	return j
}

func (j *demoJob) name() string { return j.object.GetNamespace() + "/" + j.object.GetName() }

// look takes down what has become of the Job since the last look.
func (j *demoJob) look(ctx context.Context, d *demo) {
	if !j.submitted || j.result.Entry.Outcome == report.OutcomeFinished {
		return
	}
	now := time.Now()
	target := explain.Target{Kind: explain.KindJob, Namespace: j.object.GetNamespace(), Name: j.object.GetName()}
	subject, err := explain.Gather(ctx, d.reader, target, now)
	if err != nil {
		j.result.Entry.Message = err.Error()
		return
	}
	before, entry := j.result.Entry, report.Workload(subject.Input)
	j.result.Entry = entry
	j.asked = asked(subject.Workload, subject.Input)
	j.waited = waited(entry, subject.Workload, now)
	j.sight(entry)
	if before.Outcome != entry.Outcome {
		d.lab.timeline.step("%s is %s", j.name(), entry.Outcome)
	}
}

// sight takes down why the Job waits, if it does.
func (j *demoJob) sight(e report.Entry) {
	if e.Reason == nil {
		return
	}
	if j.seen[*e.Reason] == nil {
		j.seen[*e.Reason] = &sighting{}
		j.result.Waited = append(j.result.Waited, *e.Reason)
	}
	s := j.seen[*e.Reason]
	s.times++
	s.words = e.Message
	for _, standing := range e.Standings {
		for _, r := range standing.Reasons {
			if r.Reason == *e.Reason { // the example says it in fewer words than the message
				s.words = standing.Flavor + ": " + r.Message
				return
			}
		}
	}
}

// why returns what the Job waited for most of the time. The moment before its first decision does not count.
func (j *demoJob) why() string {
	if e := j.result.Entry; e.Outcome == report.OutcomeNotSubmitted {
		return e.Message
	}
	most, why := 0, ""
	for _, reason := range j.result.Waited {
		s := j.seen[reason]
		if s.times > most && (reason != v1alpha1.ReasonUndecided || j.result.Entry.AdmittedAt == nil) {
			most, why = s.times, fmt.Sprintf("%s: %s", reason, s.words)
		}
	}
	return why
}

// asked says in a few words what a Workload wants: pods, and what each is charged.
func asked(wl *kueue.Workload, in report.Input) string {
	var parts []string
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		part := strconv.Itoa(int(ps.Count)) + " x "
		if q, ok := ps.Template.Spec.Overhead[in.QuotaResource()]; ok {
			part += fmt.Sprintf("%s %s", q.String(), in.QuotaResource())
		} else {
			part += "no device"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func waited(e report.Entry, wl *kueue.Workload, now time.Time) string {
	if e.AdmittedAt != nil {
		return (*e.AdmittedAt - *e.SubmittedAt).String()
	}
	return strconv.Itoa(int(now.Sub(wl.CreationTimestamp.Time)/time.Second)) + "s"
}

// show prints the table and the differences.
func (d *demo) show() error {
	out := d.options.Out
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tQUEUE\tASKED\tOUTCOME\tGOT\tNODES\tWAITED\tWHY IT WAITED")
	var results []expect.Result
	for _, j := range d.jobs {
		results = append(results, j.result)
		row := []string{j.name(), j.result.Entry.ClusterQueue, j.asked, string(j.result.Entry.Outcome), j.got(), j.nodes(), j.waited, short(j.why())}
		for i, cell := range row {
			if row[i] = explain.Printable(cell); cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	fmt.Fprintf(out, "\n%.0f s in all.\n", time.Since(d.began).Seconds())
	if !d.compared {
		return nil
	}
	differences := expect.Compare(d.expected, results)
	if len(differences) == 0 {
		fmt.Fprintf(out, "All %d Jobs came to what %s says.\n", len(d.jobs), expectations)
		return nil
	}
	fmt.Fprintf(out, "Differences from %s:\n", expectations)
	for _, line := range differences {
		fmt.Fprintln(out, "  "+explain.Printable(line))
	}
	return ErrDemoDiffers
}

// got says flavor and charge.
func (j *demoJob) got() string {
	var parts []string
	for _, f := range j.result.Entry.Flavors {
		if !slices.Contains(parts, f) {
			parts = append(parts, f)
		}
	}
	slices.Sort(parts)
	for name, q := range j.result.Entry.Charged { // at most one
		parts = append(parts, q+" "+name)
	}
	return strings.Join(parts, ", ")
}

// nodes names each node, with how many pods it has if that is more than one.
func (j *demoJob) nodes() string {
	var parts []string
	for _, n := range expect.Nodes(j.result.Entry) {
		pods := 0
		for _, p := range j.result.Entry.Pods {
			if p.Node == n {
				pods++
			}
		}
		if pods > 1 {
			n += fmt.Sprintf(" (%d)", pods)
		}
		parts = append(parts, n)
	}
	return strings.Join(parts, " ")
}

func short(text string) string {
	if runes := []rune(text); len(runes) > maxWhy {
		return string(runes[:maxWhy]) + "..."
	}
	return text
}
