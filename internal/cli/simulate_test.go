package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// fake is a simulator that notes what it was asked. Without anything set, its run has one workload that waits.
type fake struct {
	files    [][]manifest
	strict   []bool
	sets     [][]string
	options  []runOptions
	warnings []string
	readErr  error
	run      func(ctx context.Context, o runOptions) (*simulate.Result, error)
}

func (f *fake) simulator(files []manifest, strict bool, set []string) (*simulation, error) {
	f.files, f.strict, f.sets = append(f.files, files), append(f.strict, strict), append(f.sets, set)
	if f.readErr != nil {
		return nil, f.readErr
	}
	return &simulation{warnings: f.warnings, run: func(ctx context.Context, o runOptions) (*simulate.Result, error) {
		f.options = append(f.options, o)
		if f.run != nil {
			return f.run(ctx, o)
		}
		w := simulate.Workload{Entry: report.Entry{Namespace: "team-a", Name: "train", Kind: "Job", ClusterQueue: "team-a", Outcome: report.OutcomeWaiting}}
		if len(set) > 0 {
			w.Outcome = report.OutcomeRunning
		}
		return &simulate.Result{Workloads: []simulate.Workload{w}}, nil
	}}, nil
}

type ended struct {
	status         int
	stdout, stderr string
}

func (f *fake) do(ctx context.Context, stdin io.Reader, args ...string) ended {
	var stdout, stderr bytes.Buffer
	root := newRoot(f.simulator)
	root.SetArgs(append([]string{"simulate"}, args...))
	root.SetIn(stdin)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	status := execute(ctx, root)
	return ended{status, stdout.String(), stderr.String()}
}

// file writes a file below a folder of the test's own, and returns its path.
func file(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimulatePrints(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "x")
	cases := map[string]struct {
		args []string
		want func(out string) bool
	}{
		"a table, if nothing is said": {nil, func(out string) bool { return strings.Contains(out, "team-a/train") && !json.Valid([]byte(out)) }},
		"JSON": {[]string{"-o", "json"}, func(out string) bool {
			var r simulate.Result
			return json.Unmarshal([]byte(out), &r) == nil && r.Version == 1 && r.Workloads[0].Name == "train"
		}},
		"what is different as a table": {[]string{"--set", "a=b", "--compare"}, func(out string) bool { return strings.Contains(out, "Waiting -> Running") }},
		"what is different as JSON": {[]string{"--set", "a=b", "--compare", "-o", "json"}, func(out string) bool {
			var c struct{ Changed []simulate.Change }
			return json.Unmarshal([]byte(out), &c) == nil && len(c.Changed) == 1 && c.Changed[0].After.Outcome == report.OutcomeRunning
		}},
		"the run with what is set": {[]string{"--set", "a=b", "-o", "json"}, func(out string) bool { return strings.Contains(out, `"Running"`) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := (&fake{}).do(t.Context(), nil, append([]string{"-f", path}, c.args...)...)
			if got.status != 0 || got.stderr != "" || !c.want(got.stdout) {
				t.Errorf("status %d, stderr %q, stdout:\n%s", got.status, got.stderr, got.stdout)
			}
		})
	}
}

func TestSimulatePassesOn(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "kind: Job")
	f := &fake{}
	if got := f.do(t.Context(), nil, path, "--strict", "--until", "1h30m", "--set", "a=b,c", "--set", "d=e", "--compare"); got.status != 0 {
		t.Fatal(got.stderr)
	}
	if !slices.Equal(f.strict, []bool{true, true}) {
		t.Errorf("strict %v, want twice", f.strict)
	}
	if len(f.sets) != 2 || len(f.sets[0]) > 0 || !slices.Equal(f.sets[1], []string{"a=b,c", "d=e"}) {
		t.Errorf("set %q, want nothing and then both", f.sets)
	}
	if len(f.options) != 2 || *f.options[0].until != 90*time.Minute || *f.options[1].until != 90*time.Minute {
		t.Errorf("options %+v, want until 1h30m twice", f.options)
	}
	if len(f.files[0]) != 1 || string(f.files[0][0].data) != "kind: Job" || f.files[0][0].name != path {
		t.Errorf("files %v", f.files)
	}

	f = &fake{}
	if got := f.do(t.Context(), nil, "-f", path); got.status != 0 || f.options[0].until != nil || f.strict[0] {
		t.Errorf("without flags: %+v, until %v, strict %v", got, f.options[0].until, f.strict)
	}
	f.options[0].progress(time.Second, 1, 2) // into no terminal: nothing to see, and no harm
}

func TestSimulateRefusesBadInput(t *testing.T) {
	folder := t.TempDir()
	path := file(t, folder, "a.yaml", "x")
	cases := map[string]struct {
		args    []string
		readErr error
		want    []string
	}{
		"nothing to read":               {nil, nil, []string{"say what to simulate"}},
		"no such file":                  {[]string{"-f", folder + "/none.yaml"}, nil, []string{"/none.yaml: no such file or directory"}},
		"every file that is not there":  {[]string{"-f", folder + "/x", "-f", folder + "/y"}, nil, []string{"/x: no such file", "/y: no such file"}},
		"a folder without manifests":    {[]string{"-f", t.TempDir()}, nil, []string{"no file that ends in .yaml, .yml, .json"}},
		"an unknown format":             {[]string{"-f", path, "-o", "xml"}, nil, []string{"-o xml is not known: use one of table, json"}},
		"an end at the start":           {[]string{"-f", path, "--until", "0s"}, nil, []string{"--until 0s: the run cannot end before it starts"}},
		"an end before the start":       {[]string{"-f", path, "--until=-1h"}, nil, []string{"--until -1h0m0s: the run cannot end before it starts"}},
		"an end that is no duration":    {[]string{"-f", path, "--until", "soon"}, nil, []string{`"soon" for "--until"`}},
		"an unknown flag":               {[]string{"-f", path, "--frob"}, nil, []string{"unknown flag: --frob"}},
		"nothing to compare with":       {[]string{"-f", path, "--compare"}, nil, []string{"say with --set what is different"}},
		"every fault of the input":      {[]string{"-f", path}, errors.New("a.yaml:1: Job x: spec.foo: unknown field\na.yaml:9: kind Foo is not known"), []string{"a.yaml:1: Job x", "a.yaml:9: kind Foo"}},
		"what a terminal would act on":  {[]string{"-f", path}, errors.New("a.yaml: \x1b[2J"), []string{`a.yaml: \x1b[2J`}},
		"nothing from a pipe":           {[]string{"-f", "-"}, nil, []string{"there is nothing in -"}},
		"stdin twice":                   {[]string{"-f", "-", "-f", "-"}, nil, []string{"stdin can be read only once"}},
		"a name with a line break":      {[]string{"-f", folder + "/a\nb"}, nil, []string{`/a\nb: no such file`}},
		"a fault in what is set, which": {[]string{"-f", path, "--set", "x", "--compare"}, errors.New("--set x: no ="), []string{"--set x: no ="}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fake{readErr: c.readErr}
			got := f.do(t.Context(), strings.NewReader(""), c.args...)
			if got.status != 2 || got.stdout != "" || len(f.options) > 0 {
				t.Errorf("status %d, stdout %q, %d runs; want 2, nothing and none", got.status, got.stdout, len(f.options))
			}
			lines := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("%d lines, want %d:\n%s", len(lines), len(c.want), got.stderr)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], "Error: ") || !strings.Contains(lines[i], want) {
					t.Errorf("line %q does not say %q", lines[i], want)
				}
			}
		})
	}
}

func TestARunThatFailsIsOneSentence(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "x")
	cases := map[string]struct {
		run  func(context.Context, runOptions) (*simulate.Result, error)
		want string
	}{
		"an error": {func(context.Context, runOptions) (*simulate.Result, error) {
			return nil, errors.New("goes in a circle")
		}, "Error: simulate: goes in a circle\n"},
		"a panic": {func(context.Context, runOptions) (*simulate.Result, error) { panic("index out of\nrange") },
			`Error: this is a mistake in the program, please report it: index out of\nrange` + "\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := (&fake{run: c.run}).do(t.Context(), nil, "-f", path)
			if got.status != 1 || got.stdout != "" || got.stderr != c.want {
				t.Errorf("got %+v, want status 1 and %q", got, c.want)
			}
		})
	}
}

func TestAnInterruptEndsAtOnce(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "x")
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	cases := map[string]struct {
		run func(ctx context.Context, interrupt func()) error
	}{
		"a run that heeds it": {func(ctx context.Context, interrupt func()) error { interrupt(); return ctx.Err() }},
		"a run that does not": {func(_ context.Context, interrupt func()) error { interrupt(); <-stuck; return nil }},
		"a run that is told late": {func(ctx context.Context, interrupt func()) error {
			interrupt()
			<-ctx.Done()
			return context.Cause(ctx)
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			f := &fake{run: func(ctx context.Context, _ runOptions) (*simulate.Result, error) { return nil, c.run(ctx, interrupt) }}
			got := f.do(ctx, nil, "-f", path)
			if want := (ended{status: 130, stderr: "Error: interrupted\n"}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	t.Run("while it reads stdin", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		got := (&fake{}).do(ctx, reader(func([]byte) (int, error) { interrupt(); <-stuck; return 0, io.EOF }), "-f", "-")
		if got.status != 130 {
			t.Errorf("got %+v, want status 130", got)
		}
	})
}

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

func TestWarningsGoToStderrOnce(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "x")
	f := &fake{warnings: []string{"a.yaml:3: unknown field", "b\x1b"}, run: func(_ context.Context, o runOptions) (*simulate.Result, error) {
		o.warn("a run's")
		return &simulate.Result{}, nil
	}}
	got := f.do(t.Context(), nil, "-f", path, "--set", "a=b", "--compare", "-o", "json")
	if want := "Warning: a.yaml:3: unknown field\nWarning: b\\x1b\nWarning: a run's\n"; got.status != 0 || got.stderr != want || !json.Valid([]byte(got.stdout)) {
		t.Errorf("got %+v, want stderr %q", got, want)
	}
}

func TestWarningsAreNotEndless(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "x")
	f := &fake{}
	for i := range 60 {
		f.warnings = append(f.warnings, fmt.Sprint("field ", i))
	}
	got := f.do(t.Context(), nil, "-f", path)
	if n := strings.Count(got.stderr, "\n"); got.status != 0 || n != 51 || !strings.HasSuffix(got.stderr, "field 49\nWarning: and 10 more like these\n") {
		t.Errorf("%d lines: %+v", n, got)
	}
}

func TestResultsThatCannotBePrintedFail(t *testing.T) {
	path := file(t, t.TempDir(), "a.yaml", "x")
	var stderr bytes.Buffer
	root := newRoot((&fake{}).simulator)
	root.SetArgs([]string{"simulate", "-f", path})
	root.SetOut(full{})
	root.SetErr(&stderr)
	if status := execute(t.Context(), root); status != 1 || !strings.Contains(stderr.String(), "no space") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }
