package planted

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestPropertiesFindEachFault runs with each fault the property that must fail, on worlds that are always the same.
func TestPropertiesFindEachFault(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(Faults, Own) {
		t.Run(f.Name, func(t *testing.T) {
			overlay, err := f.Overlay(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-run", f.Property+"$", "./pkg/ledger",
				"-rapid.checks=100", "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ms")
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Error("no property failed")
			} else if !bytes.Contains(out, []byte("--- FAIL: Test")) {
				t.Errorf("the property tests could not run: %v\n%s", err, out)
			}
		})
	}
}
