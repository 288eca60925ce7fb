package main

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// TestWorlds holds worlds against what an API server takes, and kube-scheduler's answers against those to the same worlds once
// more.
func TestWorlds(t *testing.T) {
	if err := setGates(); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(150) {
		w := world.Make(seed)
		if err := validate(w); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if _, err := schedule(t.Context(), w); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
