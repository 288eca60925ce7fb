package main

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

func TestWorlds(t *testing.T) {
	if err := setGates(); err != nil {
		t.Fatal(err)
	}
	const all = 500
	fit := 0
	whys := map[string]int{}
	for seed := range uint64(all) {
		w := world.Make(seed)
		if err := validate(w); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		a, err := schedule(t.Context(), w)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if a.Fits {
			fit++
		}
		whys[a.Why]++
	}
	t.Log(fit)
	for why, n := range whys {
		t.Log(n, why)
	}
}
