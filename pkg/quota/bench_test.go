package quota

import (
	"context"
	"fmt"
	"testing"
)

// large is 200 queues in 20 cohorts under one root, with 25 holders each: 5,000 in all, each of so many gpus.
func large(gpus int, e edit) (out objects, holders objects) {
	for i := range 200 {
		out = append(out, cohort(fmt.Sprint("c", i%20), "root"),
			queue(fmt.Sprint("q", i), fmt.Sprint("c", i%20), "gpus: h100=27 a100=24 l40=24;cpu: cpu=1000;memory: memory=1000Gi", e))
		for j := range 25 {
			holders = append(holders, holding(fmt.Sprint("w", i, "-", j), fmt.Sprint("q", i), int32(j%3), j, []string{"h100", "a100", "l40"}[j%3], gpus))
		}
	}
	return out, holders
}

func BenchmarkFill(b *testing.B) {
	world, holders := large(1, preempts(lower, anybody))
	b.ReportAllocs()
	for b.Loop() {
		book := newBook(b, fair, world...)
		for _, h := range holders {
			book.Apply(h, false)
		}
		book.snap(b)
	}
}

func BenchmarkApply(b *testing.B) {
	world, holders := large(1, preempts(lower, anybody))
	book := newBook(b, fair, append(world, holders...)...)
	book.snap(b)
	b.Run("holder", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			book.Apply(holding("w0-0", "q0", 0, i, "h100", 1+i%2), false)
		}
	})
	b.Run("nothing new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			book.Apply(holders[1], false)
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	world, holders := large(1, preempts(lower, anybody))
	book := newBook(b, fair, append(world, holders...)...)
	book.snap(b)
	b.Run("after a holder", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			book.Apply(holding("w0-0", "q0", 0, i, "h100", 1+i%2), false)
			book.snap(b)
		}
	})
	b.Run("after a queue", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			book.Apply(queue("q0", "c0", fmt.Sprint("gpus: h100=", 27+i%2)), false)
			book.snap(b)
		}
	})
}

func BenchmarkAsk(b *testing.B) {
	cases := map[string]struct {
		gpus    int
		edit    edit
		fitOnly bool
		want    Mode
	}{
		"quota free, fit only":       {1, preempts(lower, anybody), true, Fit},
		"full, fit only":             {3, preempts(lower, anybody), true, Wait},
		"quota free":                 {1, preempts(lower, anybody), false, Fit},
		"full, nobody preempts":      {3, preempts(never, never), false, Wait},
		"full, within the queue":     {3, preempts(lower, never), false, Preempt},
		"full, reclaim over cohorts": {3, preempts(lower, anybody), false, Preempt},
	}
	for name, c := range cases {
		b.Run(name, func(b *testing.B) {
			world, holders := large(c.gpus, c.edit)
			s := newBook(b, fair, append(world, holders...)...).snap(b)
			w := steered(job("w", 2, "gpus=8 cpu=1 memory=1Gi"), "h100")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a := s.Ask(context.Background(), Request{Workload: w, ClusterQueue: fmt.Sprint("q", i%200), FitOnly: c.fitOnly})
				if a.Mode != c.want {
					b.Fatalf("got %s", a.words())
				}
			}
		})
	}
}
