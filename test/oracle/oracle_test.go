package oracle

import (
	"iter"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// number reads a number that may be given from outside.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// seeded makes the worlds of as many seeds, one after another.
func seeded(first, count uint64) iter.Seq[*world.World] {
	return func(yield func(*world.World) bool) {
		for i := range count {
			if !yield(world.Make(first + i)) {
				return
			}
		}
	}
}

// TestAgreement is the oracle: worlds from seeds 1 to 500, or as ORACLE_SEED and ORACLE_CASES say.
func TestAgreement(t *testing.T) {
	first, cases := number(t, "ORACLE_SEED", 1), number(t, "ORACLE_CASES", 500)
	t.Logf("seeds %d to %d", first, first+cases-1)
	began, fit, wrong, seed := time.Now(), 0, 0, first
	for r, err := range Compare(t.Context(), seeded(first, cases)) {
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if r.Scheduler.Fits {
			fit++
		}
		if r.Disagreement != "" {
			wrong++
			t.Errorf("seed %d: %s", seed, r.Disagreement)
			if cases == 1 {
				t.Log(r.World)
			}
		}
		seed++
	}
	asked := int(seed - first)
	t.Logf("%d worlds in %.1fs: %d pods fit (%d %%), %d disagreements", asked, time.Since(began).Seconds(), fit, 100*fit/max(1, asked), wrong)
	if uint64(asked) != cases {
		t.Errorf("%d of %d worlds were answered", asked, cases)
	}
	if cases >= 100 && (fit*100 < 40*asked || fit*100 > 60*asked) {
		t.Errorf("%d of %d pods fit: too few or too many to find the border", fit, asked)
	}
}
