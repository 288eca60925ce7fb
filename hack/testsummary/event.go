package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// event is one line of `go test -json`; see `go doc test2json`. Build output comes with ImportPath and no Package.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	ImportPath  string
	FailedBuild string
}

// parseEvent reads one line. A line that is not an event, as when a program writes to the same pipe, is reported
// as not ok and is meant to be shown as it is.
func parseEvent(line []byte) (e event, ok bool) {
	if len(line) == 0 || line[0] != '{' {
		return event{}, false
	}
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		return event{}, false
	}
	return e, true
}

func (e event) took() time.Duration {
	return time.Duration(e.Elapsed * float64(time.Second))
}

// counts are numbers of tests, and of packages that had any.
type counts struct {
	Suite    string `json:"suite"`
	Passed   int    `json:"passed"`
	Failed   int    `json:"failed"`
	Skipped  int    `json:"skipped"`
	Packages int    `json:"packages"`
}

func (c *counts) add(other counts) {
	c.Passed += other.Passed
	c.Failed += other.Failed
	c.Skipped += other.Skipped
	c.Packages += other.Packages
}

func (c counts) ran() int { return c.Passed + c.Failed }

func (c counts) good() bool { return c.Failed == 0 && c.ran() > 0 }

// String is the closing line. Skipped tests are named only where there are any.
func (c counts) String() string {
	line := fmt.Sprintf("%d passed, %d failed", c.Passed, c.Failed)
	if c.Skipped > 0 {
		line += fmt.Sprintf(", %d skipped", c.Skipped)
	}
	return line
}

var (
	colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	specs   = regexp.MustCompile(`(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped`)
)

// specCounts finds the closing line of a Ginkgo suite. Pending specs count as skipped.
func specCounts(output string) (counts, bool) {
	output = colours.ReplaceAllString(output, "")
	if !strings.Contains(output, " Passed | ") {
		return counts{}, false
	}
	found := specs.FindStringSubmatch(output)
	if found == nil {
		return counts{}, false
	}
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(found[i+1]) // the expression takes digits only
	}
	return counts{Passed: n[0], Failed: n[1], Skipped: n[2] + n[3]}, true
}
