package expect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

func result(outcome report.Outcome, edit ...func(*Result)) Result {
	r := Result{Job: "a/train", Entry: report.Entry{Outcome: outcome}}
	for _, f := range edit {
		f(&r)
	}
	return r
}

func on(flavor string, nodes ...string) func(*Result) {
	return func(r *Result) {
		r.Entry.Flavors = map[string]string{"main": flavor}
		for i, n := range nodes {
			r.Entry.Pods = append(r.Entry.Pods, report.Pod{PodSet: "main", Index: i, Node: n})
		}
	}
}

func waits(reason v1alpha1.Reason) func(*Result) {
	return func(r *Result) { r.Entry.Reason, r.Entry.Message = &reason, "because" }
}

func waited(reasons ...v1alpha1.Reason) func(*Result) {
	return func(r *Result) { r.Waited = reasons }
}

func TestCompare(t *testing.T) {
	finished := result(report.OutcomeFinished, on("h100", "n1", "n1", "n2"), waited("Undecided", "DevicesInUse"))
	cases := map[string]struct {
		want   []Job
		got    []Result
		differ []string
	}{
		"what comes out as expected does not differ": {
			want: []Job{{Job: "a/train", Outcome: "Finished", Flavor: "h100", Nodes: []string{"n1", "n2", "n3"}, NodeCount: 2, Reason: "DevicesInUse"}},
			got:  []Result{finished},
		},
		"fields that are not there are not compared": {
			want: []Job{{Job: "a/train", Outcome: "Finished"}},
			got:  []Result{finished},
		},
		"each field that differs is a sentence": {
			want: []Job{{Job: "a/train", Outcome: "Waiting", Flavor: "a100", Nodes: []string{"n1"}, NodeCount: 3, Reason: "Held"}},
			got:  []Result{finished},
			differ: []string{
				"a/train: flavor: want a100, got h100",
				"a/train: nodes: want only n1, got n1, n2",
				"a/train: number of nodes: want 3, got 2",
				"a/train: outcome: want Waiting, got Finished",
				"a/train: reason: want Held, got Undecided, DevicesInUse",
			},
		},
		"a flavor is expected and none was given": {
			want: []Job{{Job: "a/train", Outcome: "Finished", Flavor: "a100", Nodes: []string{"n1"}}},
			got:  []Result{result(report.OutcomeWaiting, waits("DevicesInUse"))},
			differ: []string{
				"a/train: flavor: want a100, got none",
				"a/train: nodes: want only n1, got none",
				"a/train: outcome: want Finished, got Waiting (DevicesInUse: because)",
			},
		},
		"podsets on several flavors are not on the one": {
			want: []Job{{Job: "a/train", Outcome: "Finished", Flavor: "h100"}},
			got: []Result{result(report.OutcomeFinished, func(r *Result) {
				r.Entry.Flavors = map[string]string{"launcher": "h100", "worker": "a100"}
			})},
			differ: []string{"a/train: flavor: want h100, got a100, h100"},
		},
		"what waits is compared by its last reason, not by earlier ones": {
			want:   []Job{{Job: "a/train", Outcome: "Waiting", Reason: "Undecided"}},
			got:    []Result{result(report.OutcomeWaiting, waits("DevicesInUse"), waited("Undecided", "DevicesInUse"))},
			differ: []string{"a/train: reason: want Undecided, got DevicesInUse"},
		},
		"a Job too few and a Job too many": {
			want: []Job{{Job: "a/gone", Outcome: "Finished"}},
			got:  []Result{finished},
			differ: []string{
				"a/gone: it is expected, but there is no such Job",
				"a/train: nothing says what it should come to",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.differ, Compare(c.want, c.got)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOver(t *testing.T) {
	cases := map[string]struct {
		want Job
		got  Result
		over bool
	}{
		"what has finished is over, whatever was expected": {Job{Outcome: "Waiting"}, result(report.OutcomeFinished), true},
		"what runs and should finish is not":               {Job{Outcome: "Finished"}, result(report.OutcomeRunning), false},
		"what waits and should, without a reason asked":    {Job{Outcome: "Waiting"}, result(report.OutcomeWaiting), true},
		"what waits for another reason yet":                {Job{Outcome: "Waiting", Reason: "Held"}, result(report.OutcomeWaiting, waits("Undecided")), false},
		"what waits for the reason":                        {Job{Outcome: "Waiting", Reason: "Held"}, result(report.OutcomeWaiting, waits("Held")), true},
		"what is not there yet":                            {Job{Outcome: "Waiting"}, result(report.OutcomeNotSubmitted), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.want.Over(c.got); got != c.over {
				t.Errorf("got %t, want %t", got, c.over)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	cases := map[string]struct{ file, want string }{
		"an unknown field":         {"jobs: [{job: a/b, outcome: Finished, flavour: x}]", `unknown field`},
		"an unknown outcome":       {"jobs: [{job: a/b, outcome: Done}]", `outcome "Done" is not one of`},
		"a Job twice":              {"jobs: [{job: a/b, outcome: Finished}, {job: a/b, outcome: Waiting}]", "twice"},
		"an order without a start": {"jobs: [{job: a/b, outcome: Finished, after: a/c}, {job: a/c, outcome: Finished, after: a/b}]", "after itself"},
		"an order after nothing":   {"jobs: [{job: a/b, outcome: Finished, after: a/c}]", `"a/c", which does not stand there`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "expected.yaml")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}
