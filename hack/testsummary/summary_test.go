package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// line writes an event of package example.org/m/p as go test does.
func line(action, test, output string) string {
	data, err := json.Marshal(event{Action: action, Package: "example.org/m/p", Test: test, Output: output, Elapsed: 0.5})
	if err != nil {
		panic(err)
	}
	return string(data) + "\n"
}

func TestCounts(t *testing.T) {
	cases := map[string]struct {
		input string
		want  counts
		says  []string
		never []string
	}{
		"a test without subtests counts once": {
			input: line("run", "TestA", "") + line("pass", "TestA", "") + line("pass", "", ""),
			want:  counts{Passed: 1, Packages: 1},
			says:  []string{"ok   p: 1 passed, 0 failed"},
		},
		"subtests count, their parent does not": {
			input: line("run", "TestA", "") + line("run", "TestA/x", "") + line("pass", "TestA/x", "") +
				line("run", "TestA/y/z", "") + line("pass", "TestA/y/z", "") + line("pass", "TestA", "") + line("pass", "", ""),
			want: counts{Passed: 2, Packages: 1},
		},
		"a failed subtest counts once and its output is printed under its name": {
			input: line("run", "TestA", "") + line("run", "TestA/x", "") + line("output", "TestA/x", "    a_test.go:7: want 1, got 2\n") +
				line("fail", "TestA/x", "") + line("fail", "TestA", "") + line("fail", "", ""),
			want: counts{Failed: 1, Packages: 1},
			says: []string{"FAIL p: 0 passed, 1 failed", "--- TestA/x\n", "a_test.go:7: want 1, got 2"},
		},
		"a parent that fails after its subtests passed counts as failed": {
			input: line("run", "TestA", "") + line("run", "TestA/x", "") + line("pass", "TestA/x", "") +
				line("fail", "TestA", "") + line("fail", "", ""),
			want: counts{Passed: 1, Failed: 1, Packages: 1},
		},
		"a passed test's output is not printed": {
			input: line("run", "TestA", "") + line("output", "TestA", "chatter\n") + line("pass", "TestA", "") + line("pass", "", ""),
			want:  counts{Passed: 1, Packages: 1},
			never: []string{"chatter"},
		},
		"a skipped test is no passed one": {
			input: line("run", "TestA", "") + line("skip", "TestA", "") + line("pass", "", ""),
			want:  counts{Skipped: 1, Packages: 1},
		},
		"a package that does not build is a failure with the compiler's words": {
			input: `{"Action":"build-output","ImportPath":"example.org/m/p [p.test]","Output":"p.go:3:1: undefined: x\n"}` + "\n" +
				`{"Action":"build-fail","ImportPath":"example.org/m/p [p.test]"}` + "\n" +
				`{"Action":"fail","Package":"example.org/m/p","FailedBuild":"example.org/m/p [p.test]"}` + "\n",
			want: counts{Failed: 1, Packages: 1},
			says: []string{"undefined: x"},
		},
		"a test under which the package ran out of time has failed": {
			input: line("run", "TestA", "") + line("pass", "TestA", "") + line("run", "TestB", "") +
				line("output", "", "panic: test timed out after 1s\n") + line("fail", "", ""),
			want: counts{Passed: 1, Failed: 1, Packages: 1},
			says: []string{"--- TestB", "panic: test timed out after 1s"},
		},
		"input that ends early is a failure": {
			input: line("run", "TestA", "") + line("pass", "TestA", ""),
			want:  counts{Passed: 1, Failed: 1, Packages: 1},
			says:  []string{"the input ended before this package did"},
		},
		"a package without tests is not named": {
			input: line("start", "", "") + line("output", "", "? \t[no test files]\n") + line("skip", "", ""),
			says:  []string{"no test ran"},
			never: []string{"ok   p"},
		},
		"a Ginkgo suite counts as its specs": {
			input: line("run", "TestE2E", "") +
				line("output", "TestE2E", "\x1b[32mSUCCESS!\x1b[0m -- \x1b[32m12 Passed\x1b[0m | \x1b[31m0 Failed\x1b[0m | 1 Pending | 2 Skipped\n") +
				line("pass", "TestE2E", "") + line("pass", "", ""),
			want: counts{Passed: 12, Skipped: 3, Packages: 1},
		},
		"a line that is no event is shown as it is": {
			input: "go: downloading example.org/x v1.0.0\n" + line("run", "TestA", "") + line("pass", "TestA", "") + line("pass", "", ""),
			want:  counts{Passed: 1, Packages: 1},
			says:  []string{"go: downloading example.org/x v1.0.0\n"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			got, err := run(strings.NewReader(test.input), &out, options{trim: "example.org/m"})
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("counts are %+v, want %+v; printed:\n%s", got, test.want, &out)
			}
			for _, part := range test.says {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is not in:\n%s", part, &out)
				}
			}
			for _, part := range test.never {
				if strings.Contains(out.String(), part) {
					t.Errorf("%q is in:\n%s", part, &out)
				}
			}
		})
	}
}

func TestNothingRanIsNotGood(t *testing.T) {
	for _, n := range []counts{{}, {Skipped: 3}, {Passed: 4, Failed: 1}} {
		if n.good() {
			t.Errorf("%s is taken for a success", n)
		}
	}
	if n := (counts{Passed: 1}); !n.good() {
		t.Errorf("%s is taken for a failure", n)
	}
}

func TestTotalAddsFiles(t *testing.T) {
	folder := t.TempDir()
	files := []string{filepath.Join(folder, "deep", "a.json"), filepath.Join(folder, "b.json")}
	if err := writeCounts(files[0], counts{Suite: "a", Passed: 2, Packages: 1}); err != nil {
		t.Fatal(err)
	}
	if err := writeCounts(files[1], counts{Suite: "b", Passed: 3, Failed: 1, Skipped: 4, Packages: 2}); err != nil {
		t.Fatal(err)
	}
	n, err := readTotal(files)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := n.String(), "5 passed, 1 failed, 4 skipped"; got != want {
		t.Errorf("closing line is %q, want %q", got, want)
	}
	if err := os.WriteFile(files[1], []byte("not counts"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTotal(files); err == nil {
		t.Error("a broken count file was read without an error")
	}
}

func TestRunningNamesTheOldestFirst(t *testing.T) {
	var out bytes.Buffer
	s := newSummary(&out)
	s.trim = "example.org/m"
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, name := range []string{"d", "c", "b", "a"} {
		s.add(event{Action: "run", Package: "example.org/m/" + name, Test: "TestX", Time: start.Add(time.Duration(i) * time.Second)})
	}
	got := s.running(start.Add(time.Minute))
	if want := "d TestX (1m0s), c TestX (59s), b TestX (58s) and 1 more packages"; got != want {
		t.Errorf("running says %q, want %q", got, want)
	}
}
