package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// demoTimeout is for one run of the demo, builds aside.
const demoTimeout = 3 * time.Minute

// runDemo runs the lab's demo command as a person would, and returns its exit status and what it printed.
func runDemo(t *testing.T, root string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "lab"), append([]string{"demo", "--release", string(release())}, args...)...)
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func builtRoot(t *testing.T) string {
	t.Helper()
	root, err := lab.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestDemoComesOutAsExpected(t *testing.T) {
	status, out := runDemo(t, builtRoot(t))
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, out)
	}
	for _, want := range []string{"All 14 Jobs came to what expected.yaml says.", "h100-0 h100-1 h100-2 h100-3", "NotEnoughDevices"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not say %q:\n%s", want, out)
		}
	}
}

func TestDemoFailsOnAPlantedDifference(t *testing.T) {
	root := builtRoot(t)
	folder := t.TempDir()
	for _, part := range []string{"cluster", "queues"} {
		if err := os.CopyFS(filepath.Join(folder, part), os.DirFS(filepath.Join(root, lab.DemoCluster, part))); err != nil {
			t.Fatal(err)
		}
	}
	job, err := os.ReadFile(filepath.Join(root, lab.DemoCluster, "jobs", "single.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const planted = "jobs:\n- {job: team-b/single, outcome: Finished, flavor: a100, nodes: [mixed-0]}\n"
	for name, content := range map[string]string{"single.yaml": string(job), "expected.yaml": planted} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, out := runDemo(t, root, "--cluster", folder)
	if status != 1 {
		t.Fatalf("exit status %d, want 1\n%s", status, out)
	}
	const want = "Differences from expected.yaml:\n  team-b/single: flavor: want a100, got h100\nError: "
	if !strings.Contains(out, want) {
		t.Errorf("the demo does not say %q:\n%s", want, out)
	}
}
