package expect

import (
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// Job is what one Job should come to. A field that is empty is not compared.
type Job struct {
	// Job is the Job's namespace/name.
	Job string `json:"job"`
	// After is the Job that must be admitted before this one is submitted; empty means at once.
	After string `json:"after,omitempty"`
	// Outcome is never empty.
	Outcome report.Outcome `json:"outcome"`
	// Flavor is that of every podset.
	Flavor string `json:"flavor,omitempty"`
	// Nodes are those on which pods may be, and NodeCount on how many of them they are.
	Nodes     []string `json:"nodes,omitempty"`
	NodeCount int      `json:"nodeCount,omitempty"`
	// Reason is why it waits at the end; for a Job that does not, one for which it waited.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Standings are, by flavor, those of the last decision; of a podset or alternative each flavor's best counts.
	Standings map[string]v1alpha1.Standing `json:"standings,omitempty"`
}

// Load reads a file of expectations.
func Load(path string) ([]Job, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read expectations: %w", err)
	}
	var file struct {
		Jobs []Job `json:"jobs"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("read expectations %s: %w", path, err)
	}
	if err := check(file.Jobs); err != nil {
		return nil, fmt.Errorf("read expectations %s: %w", path, err)
	}
	return file.Jobs, nil
}

// attainable are the outcomes that a Job can come to in a lab.
var attainable = []report.Outcome{report.OutcomeFinished, report.OutcomeRunning, report.OutcomeWaiting, report.OutcomeRejected}

func check(jobs []Job) error {
	after := map[string]string{}
	for _, j := range jobs {
		if _, twice := after[j.Job]; twice {
			return fmt.Errorf("job %q stands there twice", j.Job)
		}
		if !slices.Contains(attainable, j.Outcome) {
			return fmt.Errorf("job %q: outcome %q is not one of %v", j.Job, j.Outcome, attainable)
		}
		after[j.Job] = j.After
	}
	for _, j := range jobs {
		seen := map[string]bool{}
		for name := j.Job; name != ""; name = after[name] {
			if _, known := after[name]; !known {
				return fmt.Errorf("job %q is after %q, which does not stand there", j.Job, name)
			}
			if seen[name] {
				return fmt.Errorf("job %q is after itself", j.Job)
			}
			seen[name] = true
		}
	}
	return nil
}
