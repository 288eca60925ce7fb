package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// summary is the state of one suite, fed event by event. It is not safe for concurrent use.
type summary struct {
	out  io.Writer
	each bool   // print every finished top-level test
	trim string // prefix of import paths that is left out of what is printed

	total    counts
	said     int // lines printed so far
	packages map[string]*packageRun
	builds   map[string][]string // output of failed builds by import path
}

type packageRun struct {
	name   string
	began  time.Time
	output []string // what no test wrote
	tests  map[string]*testRun
	order  []*testRun
}

type testRun struct {
	name        string
	began       time.Time
	took        time.Duration
	action      string // "" while it runs, then pass, fail or skip
	output      []string
	hasSubtests bool
	childFailed bool
	specs       *counts
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, packages: map[string]*packageRun{}, builds: map[string][]string{}}
}

func (s *summary) say(format string, arguments ...any) {
	s.said++
	fmt.Fprintf(s.out, format, arguments...)
}

func (s *summary) add(e event) {
	switch e.Action {
	case "build-output":
		s.builds[e.ImportPath] = append(s.builds[e.ImportPath], e.Output)
		return
	case "build-fail":
		return // the package's own fail event names it
	}
	p := s.packageRun(e)
	if e.Test != "" {
		s.addToTest(p, e)
		return
	}
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		s.endPackage(p, e)
	}
}

func (s *summary) packageRun(e event) *packageRun {
	p := s.packages[e.Package]
	if p == nil {
		p = &packageRun{name: e.Package, began: e.Time, tests: map[string]*testRun{}}
		s.packages[e.Package] = p
	}
	return p
}

func (s *summary) addToTest(p *packageRun, e event) {
	t := p.tests[e.Test]
	if t == nil {
		t = &testRun{name: e.Test, began: e.Time}
		p.tests[e.Test] = t
		p.order = append(p.order, t)
		if parent := p.parent(t); parent != nil {
			parent.hasSubtests = true
		}
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
		if found, ok := specCounts(e.Output); ok {
			t.specs = &found
		}
	case "pass", "fail", "skip":
		t.action, t.took = e.Action, e.took()
		if parent := p.parent(t); parent != nil && e.Action == "fail" {
			parent.childFailed = true
		}
		if s.each && !strings.Contains(t.name, "/") {
			s.say("  %-4s %s (%s)\n", t.action, t.name, short(t.took))
		}
	}
}

func (p *packageRun) parent(t *testRun) *testRun {
	cut := strings.LastIndexByte(t.name, '/')
	for cut > 0 {
		if parent := p.tests[t.name[:cut]]; parent != nil {
			return parent
		}
		// A subtest's own name may contain slashes.
		cut = strings.LastIndexByte(t.name[:cut], '/')
	}
	return nil
}

// endPackage counts the package's tests, prints its line, and prints what failed in it.
func (s *summary) endPackage(p *packageRun, e event) {
	delete(s.packages, p.name)
	n := counts{Packages: 1}
	var failed []*testRun
	for _, t := range p.order {
		if t.action == "" { // a panic, os.Exit or a time-out ended the package under it
			t.action = "fail"
			if parent := p.parent(t); parent != nil {
				parent.childFailed = true
			}
		}
	}
	for _, t := range p.order {
		n.add(t.count())
		if t.action == "fail" {
			failed = append(failed, t)
		}
	}
	if n.ran()+n.Skipped == 0 && e.Action != "fail" {
		return // nothing to test here
	}
	if e.Action == "fail" && n.Failed == 0 {
		n.Failed = 1
	}
	s.total.add(n)

	mark := "ok  "
	if n.Failed > 0 {
		mark = "FAIL"
	}
	s.say("%s %s: %s (%s)\n", mark, s.trimmed(p.name), n, short(e.took()))
	if n.Failed > 0 {
		s.printFailure(p, e, failed)
	}
}

// count is what the test adds to the total; a parent of subtests adds only what they do not explain.
func (t *testRun) count() counts {
	switch {
	case t.specs != nil:
		n := *t.specs
		if t.action == "fail" && n.Failed == 0 {
			n.Failed = 1
		}
		return n
	case t.hasSubtests && (t.action != "fail" || t.childFailed):
		return counts{}
	case t.action == "fail":
		return counts{Failed: 1}
	case t.action == "skip":
		return counts{Skipped: 1}
	}
	return counts{Passed: 1}
}

func (s *summary) printFailure(p *packageRun, e event, failed []*testRun) {
	if e.FailedBuild != "" {
		s.printIndented(s.builds[e.FailedBuild])
	}
	for _, t := range failed {
		s.say("  --- %s\n", t.name)
		s.printIndented(t.output)
	}
	// With failed tests the package's own output only repeats that it failed, unless it died.
	if len(failed) == 0 || slices.ContainsFunc(p.output, func(line string) bool { return strings.HasPrefix(line, "panic:") }) {
		s.printIndented(p.output)
	}
}

// printIndented leaves out the lines by which the testing package announces what the summary says anyway.
func (s *summary) printIndented(lines []string) {
	for _, line := range strings.Split(strings.TrimRight(strings.Join(lines, ""), "\n"), "\n") {
		trimmed := strings.TrimLeft(line, " ")
		if strings.HasPrefix(trimmed, "=== ") || strings.HasPrefix(trimmed, "--- FAIL: ") || trimmed == "" {
			continue
		}
		s.say("      %s\n", strings.TrimPrefix(line, "    "))
	}
}

// running names what has begun and not ended, longest first, at most three.
func (s *summary) running(now time.Time) string {
	type entry struct {
		name  string
		began time.Time
	}
	var entries []entry
	for _, p := range s.packages {
		current := entry{s.trimmed(p.name), p.began}
		for _, t := range p.order {
			if t.action == "" {
				current = entry{s.trimmed(p.name) + " " + t.name, t.began}
			}
		}
		entries = append(entries, current)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.name, b.name))
	})
	more := ""
	if len(entries) > 3 {
		more = fmt.Sprintf(" and %d more packages", len(entries)-3)
		entries = entries[:3]
	}
	var names []string
	for _, entry := range entries {
		names = append(names, fmt.Sprintf("%s (%s)", entry.name, short(now.Sub(entry.began))))
	}
	return strings.Join(names, ", ") + more
}

// finish is called when the input ends. Packages that never ended count as failed.
func (s *summary) finish() counts {
	var open []string
	for name := range s.packages {
		open = append(open, name)
	}
	slices.Sort(open)
	for _, name := range open {
		s.packages[name].output = append(s.packages[name].output, "the input ended before this package did\n")
		s.endPackage(s.packages[name], event{Action: "fail"})
	}
	return s.total
}

func (s *summary) trimmed(importPath string) string {
	if s.trim == "" || importPath == s.trim {
		return importPath
	}
	return strings.TrimPrefix(importPath, s.trim+"/")
}

func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
