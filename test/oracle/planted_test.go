package oracle

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/test/planted"
)

// TestPlanted breaks accounting rules, one after another, and expects to be told by either comparison. There are three of them at
// least.
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
			for only, cases := range map[string]string{"pods": "500", "gangs": "2000"} {
				out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, "./agree", "-only", only, "-cases", cases, "-stop").CombinedOutput()
				if err == nil || !strings.Contains(string(out), " 1 disagreements") {
					t.Errorf("%s do not find it (%v):\n%s", only, err, out)
				}
				t.Logf("%s", out)
			}
		})
	}
}
