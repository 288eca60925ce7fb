package oracle

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// Seeds are the worlds to compare.
type Seeds struct {
	// First is the first seed; the others follow it.
	First, Count uint64
	// Stop says to stop at the first disagreement.
	Stop bool
}

// Summary is what came of them.
type Summary struct {
	// Worlds is how many were compared, Fit on how many the pod fits.
	Worlds, Fit, Undecided, Disagreements int
}

// String returns it as a line.
func (s Summary) String() string {
	return fmt.Sprintf("%d worlds: %d pods fit (%d %%), %d undecided, %d disagreements",
		s.Worlds, s.Fit, 100*s.Fit/max(1, s.Worlds), s.Undecided, s.Disagreements)
}

// worlds makes them, one after another.
func (s Seeds) worlds() iter.Seq[*world.World] {
	return func(yield func(*world.World) bool) {
		for i := range s.Count {
			if !yield(world.Make(s.First + i)) {
				return
			}
		}
	}
}

// Agree compares the worlds of seeds, and writes each disagreement down with its seed; of a single one all there is.
func Agree(ctx context.Context, out io.Writer, seeds Seeds) (Summary, error) {
	fmt.Fprintf(out, "seeds %d to %d\n", seeds.First, seeds.First+seeds.Count-1)
	var s Summary
	for r, err := range Compare(ctx, seeds.worlds()) {
		seed := seeds.First + uint64(s.Worlds)
		if err != nil {
			return s, fmt.Errorf("seed %d: %w", seed, err)
		}
		s.Worlds++
		if r.Scheduler.Fits {
			s.Fit++
		}
		if r.GaveUp {
			s.Undecided++
			fmt.Fprintf(out, "seed %d: undecided\n", seed)
		}
		if seeds.Count == 1 {
			fmt.Fprintf(out, "%s\nkube-scheduler: %+v\npredicted: %+v\n", r.World, r.Scheduler, r.Predicted)
		}
		if r.Disagreement != "" {
			s.Disagreements++
			fmt.Fprintf(out, "seed %d: %s\n", seed, r.Disagreement)
			if seeds.Stop {
				return s, nil
			}
		}
	}
	return s, nil
}
