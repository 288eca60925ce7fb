// Package planted is a test of the tests: accounting rules of pkg/ledger that are broken on purpose, each of which the property
// tests, and most of which the comparison with kube-scheduler in test/oracle, must notice.
package planted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Fault is a change of one place of an accounting rule.
type Fault struct {
	Name string
	// Test is that of pkg/ledger which notices.
	Test string
	// File is the source by its path in the repository; From stands in it once, and To instead.
	File, From, To string
	// Scheduler says that kube-scheduler would decide otherwise on such accounts.
	Scheduler bool
}

// Faults are the rules that are broken.
var Faults = []Fault{
	{
		Name: "devices draw on no counters", Test: "TestWorlds/NothingIsDrawnOnBeyondItsTotal",
		File: "pkg/ledger/totals.go",
		From: "list[j].Used.Add(c.Value)", To: "_, _ = j, c",
	},
	{
		Name: "what shares of a device take is forgotten", Test: "TestWorlds/NothingIsFreeTwice",
		File: "pkg/ledger/apply.go",
		From: "all = append(all, c.Shares[i].Device)", To: "_ = i",
		Scheduler: true,
	},
	{
		Name: "taint rules taint nothing", Test: "TestWorlds/EveryRuleTaintsWhatItSelects",
		File: "pkg/ledger/view.go",
		From: "all = append(all, r.Taint)", To: "_ = r",
		Scheduler: true,
	},
	{
		Name: "a pod that is ending has given back what it asked for", Test: "TestWhatEndsIsWaitedForAMinutePastItsGrace",
		File: "pkg/ledger/view.go",
		From: "n.use(Use{Workload: w, Requests: p.Requests, Times: 1, Freeing: freeing, Until: until}, managed)",
		To:   "if !p.Terminating { n.use(Use{Workload: w, Requests: p.Requests, Times: 1, Freeing: freeing, Until: until}, managed) }",

		Scheduler: true,
	},
	{
		Name: "of several devices of a claim that map the last alone counts", Test: "TestMappedBy",
		File: "pkg/ledger/mapping.go",
		From: "\t\tsum.Add(q)\n", To: "\t\tsum = q\n",
		Scheduler: true,
	},
	{
		Name: "a slot whose pod is there is counted beside it", Test: "TestAHandOverTakesNothingTwice",
		File: "pkg/ledger/view.go",
		From: "open := max(0, pn.Slots-taken[slotKey{p.Spec.Key.WorkloadUID, ps.Name}])", To: "open := pn.Slots",
	},
	{
		Name: "what promised devices map to is forgotten", Test: "TestAHandOverTakesNothingTwice",
		File: "pkg/ledger/mapped.go",
		From: "if h.at != n.Name || h.bound {", To: "if h.at != n.Name || h.bound || h.Kind == HolderPlacement {",
	},
	{
		Name: "what a zone's devices map to counts for the node as well", Test: "TestWorlds/ZonesAddUpToTheirNode",
		File: "pkg/ledger/totals.go",
		From: "none.Allocatable.Add(whole, -1)", To: "",
	},
}

// Overlay writes what `go -overlay` needs to build the repository at root with the fault into a folder, and returns its path.
// A fault that the code has outgrown is an error.
func (f *Fault) Overlay(root, folder string) (string, error) {
	path := filepath.Join(root, f.File)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", f.Name, err)
	}
	if n := bytes.Count(source, []byte(f.From)); n != 1 {
		return "", fmt.Errorf("plant %q: %s has %d times, not once: %s", f.Name, f.File, n, f.From)
	}
	changed := filepath.Join(folder, "planted.go")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(f.From), []byte(f.To), 1), 0o600); err != nil {
		return "", fmt.Errorf("plant %q: %w", f.Name, err)
	}
	overlay, err := json.Marshal(struct{ Replace map[string]string }{map[string]string{path: changed}})
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", f.Name, err)
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", fmt.Errorf("plant %q: %w", f.Name, err)
	}
	return file, nil
}
