// Package planted has accounting rules of the ledger broken on purpose, as a build overlay has them, for tests of the tests: what
// is to find a wrong account has to find each of these. The repository stays as it is.
package planted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Fault is one rule that is broken, by one change of one file.
type Fault struct {
	Name string
	// Property is the property test of pkg/ledger that finds it.
	Property string
	// File is the file's path within the repository; From is in it once, and To stands there instead.
	File, From, To string
}

// Faults are accounting rules that are broken so that kube-scheduler decides otherwise.
var Faults = []Fault{
	{
		Name:     "a pod that is ending has given back what it asked for",
		Property: "TestWorlds/WhatPodsAskForIsTaken",
		File:     "pkg/ledger/view.go",
		From:     "n.use(Use{Workload: w, Requests: p.Requests, Times: 1, Freeing: freeing, Until: until}, managed)",
		To:       "if !p.Terminating {\n\t\t\tn.use(Use{Workload: w, Requests: p.Requests, Times: 1, Freeing: freeing, Until: until}, managed)\n\t\t}",
	},
	{
		Name:     "a share of a device takes nothing of its capacity",
		Property: "TestWorlds/SharesTakeWhatTheyConsume",
		File:     "pkg/ledger/view.go",
		From:     "h.Share, h.Consumed = s.ID, s.Consumed",
		To:       "h.Share = s.ID",
	},
	{
		Name:     "of several devices of a claim that map, the last alone counts",
		Property: "TestWhatSeveralDevicesMapToIsTheirSum",
		File:     "pkg/ledger/mapping.go",
		From:     "\t\tsum.Add(q)\n",
		To:       "\t\tsum = q\n",
	},
	{
		Name:     "taint rules taint nothing",
		Property: "TestWorlds/EveryRuleTaintsWhatItSelects",
		File:     "pkg/ledger/view.go",
		From:     "all = append(all, r.Taint)",
		To:       "_ = r",
	},
}

// Own are others, most of them of accounts that kube-scheduler does not have: of promises and zones.
var Own = []Fault{
	{
		Name:     "devices draw on no counters",
		Property: "TestWorlds/NothingIsDrawnOnBeyondItsTotal",
		File:     "pkg/ledger/totals.go",
		From:     "list[j].Used.Add(c.Value)", To: "_, _ = j, c",
	},
	{
		Name:     "a device of several nodes that is promised on one is not held on the others",
		Property: "TestWorlds/NothingIsFreeTwice",
		File:     "pkg/ledger/view.go",
		From:     "promise(promised, holder, pn.Requests, w.Referring[ps.Name], pools)", To: "_ = pools",
	},
	{
		Name:     "a slot whose pod is there is counted beside it",
		Property: "TestAHandOverTakesNothingTwice",
		File:     "pkg/ledger/view.go",
		From:     "open := max(0, pn.Slots-taken[slotKey{p.Spec.Key.WorkloadUID, ps.Name}])", To: "open := pn.Slots",
	},
	{
		Name:     "what promised devices map to is forgotten",
		Property: "TestAHandOverTakesNothingTwice",
		File:     "pkg/ledger/mapped.go",
		From:     "if h.at != node || h.bound {", To: "if h.at != node || h.bound || h.Kind == HolderPlacement {",
	},
	{
		Name:     "what a device takes for each container counts once",
		Property: "TestEveryContainerThatRefersToAClaimCounts",
		File:     "pkg/ledger/device.go",
		From:     "max(1, h.referring)", To: "min(1, max(1, h.referring))",
	},
	{
		Name:     "what a zone's devices map to counts for the node as well",
		Property: "TestWorlds/ZonesAddUpToTheirNode",
		File:     "pkg/ledger/totals.go",
		From:     "none.Allocatable.Add(whole, -1)", To: "",
	},
}

// Overlay writes an overlay with the fault, for the flag of that name of go build, go run and go test, into a folder that is
// there, and returns its path. root is the repository, as an absolute path. A fault that the code has outgrown is an error.
func (f *Fault) Overlay(root, folder string) (string, error) {
	file := filepath.Join(root, filepath.FromSlash(f.File))
	source, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("plant: %w", err)
	}
	if n := bytes.Count(source, []byte(f.From)); n != 1 {
		return "", fmt.Errorf("plant: %s has this %d times: %s", f.File, n, f.From)
	}
	changed := filepath.Join(folder, "changed.go")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(f.From), []byte(f.To), 1), 0o600); err != nil {
		return "", fmt.Errorf("plant: %w", err)
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", fmt.Errorf("plant: %w", err)
	}
	overlay := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return "", fmt.Errorf("plant: %w", err)
	}
	return overlay, nil
}
