package quota

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestStateChangesWithWhatAnswersDependOn(t *testing.T) {
	for name, tc := range map[string]struct {
		change client.Object
		gone   bool
		// a, b and c say whether the state of that queue's answers is another after the change.
		a, b, c bool
	}{
		"somebody comes to hold quota in the cohort":  {change: holding("new", "b", 0, 2, "h100", 1), a: true, b: true},
		"somebody in the cohort holds quota no more":  {change: holding("old", "a", 0, 1, "h100", 2), gone: true, a: true, b: true},
		"somebody in the cohort has another priority": {change: holding("old", "a", 7, 1, "h100", 2), a: true, b: true},
		"somebody goes from one cohort to another":    {change: holding("old", "c", 0, 1, "h100", 2), a: true, b: true, c: true},
		"somebody comes to hold quota in another":     {change: holding("new", "c", 0, 2, "h100", 1), c: true},
		"somebody waits": {change: job("waits", 0, "gpus=1")},
		"somebody holds quota in a queue not known": {change: holding("new", "none", 0, 2, "h100", 1), a: true, b: true, c: true},
		"a queue changes":              {change: queue("b", "inner", "gpus: h100=9"), a: true, b: true, c: true},
		"a flavor goes":                {change: flavor("l40"), gone: true, a: true, b: true, c: true},
		"a cohort gets another parent": {change: cohort("inner", ""), a: true, b: true, c: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, nil, cohort("outer", ""), cohort("inner", "outer"), queue("a", "outer", "gpus: h100=8"), queue("b", "inner", "gpus: h100=8"),
				queue("c", "", "gpus: h100=8"), holding("old", "a", 0, 1, "h100", 2))
			before := b.snap(t)
			b.Apply(tc.change, tc.gone)
			after := b.snap(t)
			for queue, want := range map[string]bool{"a": tc.a, "b": tc.b, "c": tc.c} {
				was, is := before.State(queue), after.State(queue)
				if was == "" || is == "" || (was != is) != want {
					t.Errorf("of %s it was %q and is %q", queue, was, is)
				}
			}
			if s := after.State("none"); s != "" {
				t.Errorf("of a queue that is not known it is %q", s)
			}
		})
	}
}

func TestStateAfterTake(t *testing.T) {
	b := newBook(t, nil, queue("a", "all", "gpus: h100=8"), queue("b", "all", "gpus: h100=8"), queue("c", "", "gpus: h100=8"))
	taking := func(jobs ...*kueue.Workload) *Snapshot {
		s := b.snap(t)
		for _, w := range jobs {
			s.Take(ask(t, s, "a", w))
		}
		return s
	}
	one, two := job("one", 0, "gpus=1"), job("two", 0, "gpus=1")
	none := taking()
	first, again, other, more := taking(one), taking(one), taking(two), taking(one, two)
	if first.State("a") == none.State("a") || first.State("b") == none.State("b") {
		t.Error("what was taken is not to be seen")
	}
	if first.State("c") != none.State("c") {
		t.Error("what was taken in one cohort changes another")
	}
	if first.State("a") != again.State("a") {
		t.Error("the same was taken, and the state is another")
	}
	if first.State("a") == other.State("a") || first.State("a") == more.State("a") || other.State("a") == more.State("a") {
		t.Error("another was taken, and the state is the same")
	}
	if none.Take(Answer{Mode: Wait}); none.State("a") != taking().State("a") {
		t.Error("nothing was taken, and the state is another")
	}
}
