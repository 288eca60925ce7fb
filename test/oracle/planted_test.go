package oracle

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/test/planted"
)

// TestPlanted breaks accounting rules, one after another, and expects to be told. There are three of them at least.
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(planted.Faults) < 3 {
		t.Errorf("%d rules are broken, want three at least", len(planted.Faults))
	}
	for i := range planted.Faults {
		f := &planted.Faults[i]
		t.Run(f.Name, func(t *testing.T) {
			overlay, err := f.Overlay(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, "./agree", "-cases", "500", "-stop").CombinedOutput()
			if err == nil || !strings.Contains(string(out), " 1 disagreements") {
				t.Errorf("it is not found (%v):\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
