package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const (
	// verifyTries is how often the two books are looked at, and verifyPause how long between.
	verifyTries = 8
	verifyPause = 2 * time.Second
	// lasting is in how many looks on end both sides must say the same for a difference to be one.
	lasting = 3
)

// Verifier holds the live book against one that is filled from the API server.
type Verifier struct {
	Live, Cold func(ctx context.Context) (*ledger.Export, error)
	// Tries and Pause are how often to look and how long to wait between; zero for the defaults.
	Tries int
	Pause time.Duration
}

// Verdict is what came of it.
type Verdict struct {
	// Equal says that the accounts are the same.
	Equal bool
	// Live and Cold are the books as they were seen last.
	Live, Cold *ledger.Export
	// Lasting are the differences that stayed as they were for so many looks that they are none of time; A is the live book's.
	Lasting []ledger.Difference
	// Moving is how many lines differed in the last look but not in the same way all along.
	Moving int
}

// ErrMoving says that the books differed each time, each time in something else.
var ErrMoving = errors.New("the cluster moves too fast to tell")

// Verify looks until the two books are equal, or differ in the same lines for several looks on end. The cluster moves, and
// what a manager has seen it has seen a little later than it was so; hence a book is held against those from before and after
// it, and a difference counts only once neither side of it changes any more.
func (v *Verifier) Verify(ctx context.Context) (*Verdict, error) {
	tries, pause := v.Tries, v.Pause
	if tries == 0 {
		tries, pause = verifyTries, verifyPause
	}
	before, err := v.Cold(ctx)
	if err != nil {
		return nil, fmt.Errorf("compute from the API server: %w", err)
	}
	var out *Verdict
	same := map[string]seenDifference{}
	for try := 1; try <= tries; try++ {
		if try > 1 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		live, err := v.Live(ctx)
		if errors.Is(err, ErrRebuilding) && try < tries {
			continue
		}
		if err != nil {
			return nil, err
		}
		after, err := v.Cold(ctx)
		if err != nil {
			return nil, fmt.Errorf("compute from the API server: %w", err)
		}
		out = &Verdict{Live: live, Cold: after}
		if equal(live, before) || equal(live, after) {
			out.Equal = true
			return out, nil
		}
		same = out.compare(before, same)
		if len(out.Lasting) > 0 {
			return out, nil
		}
		before = after
	}
	if out == nil {
		return nil, ErrRebuilding
	}
	return out, ErrMoving
}

func equal(a, b *ledger.Export) bool { return a.Header.Digest == b.Header.Digest }

// seenDifference is a difference and in how many looks on end it was the same.
type seenDifference struct {
	ledger.Difference
	looks int
}

// compare notes what differs and has differed in the same way, and returns it for the next look. A line on which the cold
// book itself changed during the look is on its way.
func (v *Verdict) compare(before *ledger.Export, earlier map[string]seenDifference) map[string]seenDifference {
	moved := map[string]bool{}
	for _, d := range before.Compare(v.Cold) {
		moved[d.Key] = true
	}
	now := map[string]seenDifference{}
	for _, d := range v.Live.Compare(v.Cold) {
		looks := 1
		if e, known := earlier[d.Key]; known && bytes.Equal(e.A, d.A) && bytes.Equal(e.B, d.B) {
			looks += e.looks
		}
		switch {
		case moved[d.Key]:
			v.Moving++
		case looks >= lasting:
			v.Lasting = append(v.Lasting, d)
		default:
			v.Moving++
			now[d.Key] = seenDifference{d, looks}
		}
	}
	return now
}

// Print tells a verdict on a screen.
func (v *Verdict) Print(w io.Writer) error {
	if v.Equal {
		h := &v.Live.Header
		_, err := fmt.Fprintf(w, "The live ledger, version %d, equals the cluster: %s, %s, %s.\n",
			h.Version, report.Printable(h.Digest), report.Plural(h.Counts["node"], "node"), report.Plural(h.Counts["device"], "device"))
		return err
	}
	for _, d := range v.Lasting {
		if _, err := fmt.Fprintf(w, "%s\n  live: %s\n  api:  %s\n", report.Printable(d.Key), side(d.A), side(d.B)); err != nil {
			return err
		}
	}
	return nil
}

func side(line []byte) string {
	if line == nil {
		return "nothing"
	}
	return report.Printable(string(line))
}
