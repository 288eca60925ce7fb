package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planted is one file with at most one breach in it.
type planted struct {
	path string
	text string
	want string // part of the only breach; empty where there is none
}

func (p planted) source(t *testing.T) source {
	t.Helper()
	file, err := parse(p.path, p.text)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func expect(t *testing.T, breaches []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(breaches) > 0:
		t.Errorf("found where nothing is wrong: %q", breaches)
	case want != "" && len(breaches) != 1:
		t.Errorf("found %q, want one breach with %q", breaches, want)
	case want != "" && !strings.Contains(breaches[0], want):
		t.Errorf("found %q, want %q", breaches[0], want)
	}
}

// importing is a file that imports one package.
func importing(imported string) string {
	return "package p\n\nimport _ \"" + imported + "\"\n"
}

func TestPlantedImportsOfOurOwn(t *testing.T) {
	cases := map[string]planted{
		"the api imports the core": {
			"api/v1alpha1/x.go", importing(module + "/pkg/ledger"), "x.go:3: imports pkg/ledger, which api may not",
		},
		"the ledger imports admission": {
			"pkg/ledger/x.go", importing(module + "/pkg/admission"), "which pkg/ledger may not",
		},
		"the flavors read the ledger's types": {
			"pkg/flavors/x.go", importing(module + "/pkg/ledger"), "",
		},
		"fair share reads the ledger": {
			"pkg/fairshare/x.go", importing(module + "/pkg/ledger"), "which pkg/fairshare may not",
		},
		"a package below another keeps to its row": {
			"pkg/ledger/deep/x.go", importing(module + "/internal/observe"), "which pkg/ledger may not",
		},
		"admission imports simulate": {
			"pkg/admission/x.go", importing(module + "/pkg/simulate"), "which pkg/admission may not",
		},
		"the edge imports the core": {
			"internal/observe/x.go", importing(module + "/pkg/ledger"), "",
		},
		"the edge imports a command": {
			"internal/cli/x.go", importing(module + "/cmd/plimsoll"), "which internal may not",
		},
		"a controller knows of simulate": {
			"internal/controller/round/x.go", importing(module + "/internal/simulate/store"), "which internal/controller may not",
		},
		"simulate runs the manager instead of its parts": {
			"internal/simulate/x.go", importing(module + "/internal/manager"), "which internal/simulate may not",
		},
		"the manager knows of simulate": {
			"internal/manager/x.go", importing(module + "/internal/simulate"), "which internal/manager may not",
		},
		"the API server in memory knows of what is below it": {
			"internal/simulate/store/x.go", importing(module + "/pkg/ledger"), "which internal/simulate/store may not",
		},
		"the simulated scheduler knows of controllers": {
			"internal/simulate/kube/x.go", importing(module + "/internal/controller/round"), "which internal/simulate/kube may not",
		},
		"the simulated scheduler asks admission": {
			"internal/simulate/kube/x.go", importing(module + "/pkg/admission"), "",
		},
		"what reads the input looks into the store": {
			"internal/simulate/input/x.go", importing(module + "/internal/simulate/store"), "which internal/simulate/input may not",
		},
		"a command imports test code": {
			"cmd/plimsoll/x.go", importing(module + "/test/lab"), "imports test/lab",
		},
		"a test of the core imports test code": {
			"pkg/ledger/x_test.go", importing(module + "/test/lab"), "imports test/lab",
		},
		"a test of the core uses the edge's test builders": {
			"pkg/ledger/x_test.go", importing(module + "/internal/testing"), "",
		},
		"the core uses the edge's test builders": {
			"pkg/ledger/x.go", importing(module + "/internal/testing"), "which pkg/ledger may not",
		},
		"a package of the core without a row": {
			"pkg/fresh/x.go", "package fresh\n", "folder pkg/fresh has no row",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			expect(t, importBreaches(table, []source{test.source(t)}), test.want)
		})
	}
}

func TestPlantedImportsFromElsewhere(t *testing.T) {
	cases := map[string]struct{ path, imports, want string }{
		"the core reads files":              {"pkg/ledger/x.go", "os", "imports os"},
		"the core opens connections":        {"pkg/flavors/x.go", "net/http", "imports net/http"},
		"the core logs":                     {"pkg/admission/x.go", "log/slog", "imports log/slog"},
		"the core draws random numbers":     {"pkg/admission/x.go", "math/rand/v2", "imports math/rand/v2"},
		"the core parses JSON":              {"pkg/ledger/x.go", "encoding/json", ""},
		"a test of the core reads files":    {"pkg/ledger/x_test.go", "os", ""},
		"the edge opens connections":        {"internal/dashboard/x.go", "net/http", ""},
		"the core makes itself a logger":    {"pkg/admission/x.go", "k8s.io/klog/v2", "imports k8s.io/klog/v2"},
		"the core counts for Prometheus":    {"pkg/quota/x.go", "github.com/prometheus/client_golang/prometheus", "prometheus"},
		"the core has a live client":        {"pkg/ledger/x.go", "k8s.io/client-go/kubernetes", "k8s.io/client-go/kubernetes"},
		"simulate draws random numbers":     {"internal/simulate/x.go", "crypto/rand", "does the same each time"},
		"the edge draws random numbers":     {"internal/steering/x.go", "crypto/rand", ""},
		"quota has a live client":           {"pkg/quota/x.go", "k8s.io/client-go/rest", "k8s.io/client-go/rest"},
		"simulate has a manager":            {"pkg/simulate/x.go", "sigs.k8s.io/controller-runtime/pkg/manager", "pkg/manager"},
		"quota reads through a client":      {"pkg/quota/x.go", "sigs.k8s.io/controller-runtime/pkg/client", ""},
		"the ledger reads through a client": {"pkg/ledger/x.go", "sigs.k8s.io/controller-runtime/pkg/client", "pkg/client"},
		"quota runs Kueue's scheduler":      {"pkg/quota/x.go", "sigs.k8s.io/kueue/pkg/scheduler/preemption", ""},
		"admission runs Kueue's scheduler":  {"pkg/admission/x.go", "sigs.k8s.io/kueue/pkg/scheduler", "kueue/pkg/scheduler"},
		"the api imports component helpers": {"api/v1alpha1/x.go", "k8s.io/component-helpers/resource", "component-helpers"},
		"a test imports Kubernetes itself":  {"test/e2e/x_test.go", "k8s.io/kubernetes/pkg/scheduler", "belongs in a nested module"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			file := planted{path: test.path, text: importing(test.imports)}.source(t)
			expect(t, importBreaches(table, []source{file}), test.want)
		})
	}
}

func TestPlantedImpurity(t *testing.T) {
	cases := map[string]planted{
		"the core reads the clock": {
			"pkg/ledger/x.go", "package p\n\nimport \"time\"\n\nfunc f() time.Time { return time.Now() }\n", "x.go:5: uses time.Now",
		},
		"the core keeps the clock for later": {
			"pkg/ledger/x.go", "package p\n\nimport \"time\"\n\nvar now = time.Now\n", "uses time.Now",
		},
		"the clock under another name": {
			"pkg/ledger/x.go", "package p\n\nimport clock \"time\"\n\nvar d = clock.Since\n", "uses clock.Since",
		},
		"the clock by way of the API machinery": {
			"pkg/ledger/x.go", "package p\n\nimport metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n\nvar now = metav1.Now()\n", "uses metav1.Now",
		},
		"a search that gives up by the clock": {
			"pkg/admission/x.go", "package p\n\nimport \"context\"\n\nvar f = context.WithTimeout\n", "uses context.WithTimeout",
		},
		"the core prints": {
			"pkg/admission/x.go", "package p\n\nimport \"fmt\"\n\nfunc f() { fmt.Println() }\n", "uses fmt.Println",
		},
		"the core prints with a built-in": {
			"pkg/admission/x.go", "package p\n\nfunc f() { println(1) }\n", "built-in println",
		},
		"durations and formatting are data": {
			"pkg/ledger/x.go", "package p\n\nimport (\n\t\"fmt\"\n\t\"time\"\n)\n\nvar d = fmt.Sprint(time.Second, time.Unix(0, 0))\n", "",
		},
		"a method of the same name is none of the clock's": {
			"pkg/ledger/x.go", "package p\n\ntype c struct{}\n\nfunc (c) Now() int { return 0 }\n\nfunc f(time c) int { return time.Now() }\n", "",
		},
		"a simulated kubelet reads the clock": {
			"internal/simulate/kube/x.go", "package p\n\nimport \"time\"\n\nvar now = time.Now()\n", "x.go:5: uses time.Now",
		},
		"the edge reads the clock": {
			"internal/observe/x.go", "package p\n\nimport \"time\"\n\nvar now = time.Now()\n", "",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			expect(t, purityBreaches(table, []source{test.source(t)}), test.want)
		})
	}
}

func TestPlantedTests(t *testing.T) {
	cases := map[string]planted{
		"a test sleeps": {
			"pkg/ledger/x_test.go", "package p\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", "uses time.Sleep",
		},
		"a test skips itself": {
			"pkg/ledger/x_test.go", "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Skip() }\n", "calls Skip",
		},
		"a spec skips itself": {
			"test/e2e/x_test.go", "package p\n\nfunc f() { Skip(\"not today\") }\n", "calls Skip",
		},
		"a spec is pending": {
			"test/e2e/x_test.go", "package p\n\nvar _ = PIt(\"works\", func() {})\n", "calls PIt",
		},
		"a focus leaves all others out": {
			"test/e2e/x_test.go", "package p\n\nvar _ = FDescribe(\"it\", func() {})\n", "calls FDescribe",
		},
		"code that is no test sleeps": {
			"test/lab/x.go", "package p\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", "",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			expect(t, testBreaches([]source{test.source(t)}), test.want)
		})
	}
}

func TestPlantedFunctions(t *testing.T) {
	long := func(lines int, line string) string {
		return "package p\n\nfunc f() {\n" + strings.Repeat("\t"+line+"\n", lines) + "}\n"
	}
	cases := map[string]planted{
		"a function of 80 lines":  {"test/oracle/x.go", long(80, "g()"), ""},
		"a function of 81":        {"test/oracle/x.go", long(81, "g()"), "test/oracle/x.go:3: f has 81 lines"},
		"of comments":             {"test/oracle/x.go", long(100, "// why"), ""},
		"with a word beside each": {"test/oracle/x.go", long(81, "g() // why"), "f has 81 lines"},
		"of a test":               {"test/oracle/x_test.go", long(200, "g()"), ""},
		"that nobody wrote":       {"test/oracle/x.go", "// Code generated by x. DO NOT EDIT.\n\n" + long(200, "g()"), ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) { expect(t, functionBreaches([]source{test.source(t)}), test.want) })
	}
}

// TestNestedModulesAreRead finds a sleep in a module below another, and none where the go command does not look.
func TestNestedModulesAreRead(t *testing.T) {
	root := t.TempDir()
	sleeps := "package p\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	for name, text := range map[string]string{
		"go.mod": "module a\n", "x_test.go": sleeps, "nested/go.mod": "module b\n", "nested/deep/x_test.go": sleeps,
		"nested/testdata/x_test.go": sleeps, "bin/other/go.mod": "module c\n", "bin/other/x_test.go": sleeps,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := readNested(root)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, testBreaches(files), "nested/deep/x_test.go:5: uses time.Sleep")
}

func TestPlantedDocs(t *testing.T) {
	documented := planted{path: "pkg/a/a.go", text: "// Package a is one letter.\npackage a\n"}
	bare := planted{path: "pkg/a/b.go", text: "package a\n"}
	tagged := planted{path: "pkg/a/b.go", text: "//go:build linux\n\npackage a\n"}
	testOnly := planted{path: "pkg/a/a_test.go", text: "// Package a is tested here.\npackage a\n"}
	cases := map[string]struct {
		files []planted
		want  string
	}{
		"one documented file is enough":             {[]planted{bare, documented}, ""},
		"no file is documented":                     {[]planted{bare}, "pkg/a: no file has a package comment"},
		"a build tag is no documentation":           {[]planted{tagged}, "pkg/a: no file has"},
		"a test's comment does not speak for code":  {[]planted{testOnly, bare}, "pkg/a: no file has"},
		"a folder of tests alone says it in a test": {[]planted{testOnly}, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var files []source
			for _, p := range test.files {
				files = append(files, p.source(t))
			}
			expect(t, docBreaches(files), test.want)
		})
	}
}

func TestPlantedFiles(t *testing.T) {
	const home = "/" + "home/me/x" // in two pieces, since this file is looked at too
	long := strings.Repeat("line\n", maxLines+1)
	cases := map[string]struct {
		check func([]document) []string
		planted
	}{
		"a folder named after nothing": {nameBreaches, planted{"internal/utils/pods.go", "", "internal/utils: the name says nothing"}},
		"a test file named after nothing": {
			nameBreaches, planted{"internal/pods/helpers_test.go", "", "internal/pods/helpers_test.go: the name says nothing"},
		},
		"a name that only contains such a word": {nameBreaches, planted{"internal/utilisation/commonality.go", "", ""}},

		"a path on one machine":     {pathBreaches, planted{"docs/x.md", "see\n" + home, "docs/x.md:2: names the path " + home[:8]}},
		"a path in quotes":          {pathBreaches, planted{"x.go", `const x = "` + home + `"`, "names the path"}},
		"a path in a URL":           {pathBreaches, planted{"x.yaml", "url: file://" + home, "names the path"}},
		"a folder of the same name": {pathBreaches, planted{"x.md", "pages at example.org" + home + " and in net" + home, ""}},
		"a binary file":             {pathBreaches, planted{"x.bin", "\x00 " + home, ""}},

		"a long file":           {lengthBreaches, planted{"internal/x.go", long, "has 501 lines"}},
		"a long generated file": {lengthBreaches, planted{"api/x.go", "// Code generated by x. DO NOT EDIT.\n" + long, ""}},
		"a long CRD":            {lengthBreaches, planted{"config/crd/bases/x.yaml", long, ""}},
		"a long example":        {lengthBreaches, planted{"examples/x/slices.yaml", long, ""}},
		"a long golden file":    {lengthBreaches, planted{"pkg/a/testdata/x.txt", long, ""}},
		"a file just short":     {lengthBreaches, planted{"internal/x.go", strings.Repeat("line\n", maxLines), ""}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			expect(t, test.check([]document{{path: test.path, text: []byte(test.text)}}), test.want)
		})
	}
}

func TestPlantedReplace(t *testing.T) {
	expect(t, installBreaches("module x\n\nreplace a => ../a\n"), "go.mod:3: replace")
	expect(t, installBreaches("module x\n\nrequire replace.example.org v1.0.0\n"), "")
}
