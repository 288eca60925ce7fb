package world

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestASeedMakesOneWorld: what disagrees is found again by its seed.
func TestASeedMakesOneWorld(t *testing.T) {
	for seed := uint64(1); seed <= 200; seed++ {
		if diff := cmp.Diff(Make(seed), Make(seed)); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
		w, g := MakeGang(seed)
		again, g2 := MakeGang(seed)
		if diff := cmp.Diff([]any{w, g}, []any{again, g2}); diff != "" {
			t.Errorf("gang of seed %d: %s", seed, diff)
		}
	}
}
