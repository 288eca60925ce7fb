package ledger

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// choices is what a world is made by: draws, which shrink, or a fuzzer's bytes, one a choice. Zero is the plainest.
type choices interface {
	upTo(label string, most int) int
}

// failer is what a property says no with.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

type drawing struct{ t *rapid.T }

func (d drawing) upTo(label string, most int) int { return rapid.IntRange(0, most).Draw(d.t, label) }

type bytesLeft struct{ data []byte }

func (b *bytesLeft) upTo(_ string, most int) int {
	if len(b.data) == 0 {
		return 0
	}
	v := int(b.data[0]) % (most + 1)
	b.data = b.data[1:]
	return v
}

// property is what holds in every world.
type property func(t failer, w *world)

// always checks a property in worlds that are drawn.
func always(t *testing.T, p property) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { p(t, worldOf(drawing{t})) })
}

// order is a source of shuffles that the world chooses.
func (w *world) order() *rand.Rand {
	return rand.New(rand.NewPCG(uint64(w.upTo("order", 255)), uint64(w.upTo("order", 255))))
}
