package quota

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestTake(t *testing.T) {
	s := newBook(t, nil, queue("a", "co", "gpus: h100=8 a100=8"), queue("b", "co", "gpus: h100=4 a100=0")).snap(t)
	steps := []struct {
		queue string
		ask   *kueue.Workload
		want  string
	}{
		{"a", job("w1", 0, "gpus=12"), "Borrow p0×1[gpus→h100]"},
		{"a", job("w2", 0, "gpus=8"), "Fit p0×1[gpus→a100]"},
		{"b", job("w3", 0, "gpus=1"), "Wait p0×1[gpus→h100]"},
		{"a", job("w1", 0, "gpus=4"), "Fit p0×1[gpus→h100]"}, // what it took itself is free to it, and is given back for this
		{"b", job("w3", 0, "gpus=5"), "Borrow p0×1[gpus→h100]"},
	}
	for _, step := range steps {
		a := ask(t, s, step.queue, step.ask)
		if a.words() != step.want {
			t.Fatalf("%s: got %s, want %s", step.ask.Name, a.words(), step.want)
		}
		before := picture(s)
		s.Take(a)
		if a.Mode == Wait != (picture(s) == before) {
			t.Errorf("%s: taking %s left\n%s", step.ask.Name, a.Mode, picture(s))
		}
		if s.Holds(step.ask.UID) != (a.Mode != Wait) {
			t.Errorf("%s: Holds %v after %s", step.ask.Name, s.Holds(step.ask.UID), a.Mode)
		}
	}
	want := `a has default/w1
a has default/w2
a{"Flavor":"a100","Resource":"gpus"} 8
a{"Flavor":"h100","Resource":"gpus"} 4
b has default/w3
b{"Flavor":"h100","Resource":"gpus"} 5
cohort co{"Flavor":"a100","Resource":"gpus"} 8
cohort co{"Flavor":"h100","Resource":"gpus"} 9`
	if got := picture(s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTakeWithVictims(t *testing.T) {
	b := newBook(t, nil, queue("a", "", "gpus: h100=8", preempts(lower, never)),
		holding("old", "a", 0, 1, "h100", 4), holding("new", "a", 0, 2, "h100", 4))
	s := b.snap(t)
	first := ask(t, s, "a", job("w1", 5, "gpus=4"))
	s.Take(first)
	s.Take(first) // twice is once
	if s.Holds("new") || !s.Holds("old") || !s.Holds("w1") {
		t.Fatalf("after %s: old %v, new %v, w1 %v", first.words(), s.Holds("old"), s.Holds("new"), s.Holds("w1"))
	}
	if got := ask(t, s, "a", job("w2", 5, "gpus=4")).words(); got != "Preempt p0×1[gpus→h100] -a/old(InClusterQueue)" {
		t.Errorf("the next sees %s", got)
	}
	// What was taken later goes first among equals.
	s.Take(ask(t, s, "a", job("w2", 5, "gpus=4")))
	if got := ask(t, s, "a", job("w3", 9, "gpus=4")).words(); got != "Preempt p0×1[gpus→h100] -a/w2(InClusterQueue)" {
		t.Errorf("the last sees %s", got)
	}
	if other := b.snap(t); !other.Holds("new") || other.Holds("w1") {
		t.Error("taking in one copy showed in another")
	}
}

func TestOwnReservationIsFree(t *testing.T) {
	s := newBook(t, nil, queue("a", "co", "gpus: h100=8"), queue("b", "co", "gpus: h100=0/0"),
		holding("w", "a", 0, 1, "h100", 8), holding("v", "b", 0, 1, "h100", 0)).snap(t)
	w := holding("w", "a", 0, 1, "h100", 8)
	if got := ask(t, s, "a", w).words(); got != "Fit p0×1[gpus→h100]" {
		t.Errorf("who holds all is told %s", got)
	}
	if got := ask(t, s, "a", job("x", 0, "gpus=1")).words(); got != "Wait p0×1[gpus→h100]" {
		t.Errorf("another is told %s", got)
	}
	moved := ask(t, s, "b", holding("w", "a", 0, 1, "h100", 0))
	s.Take(moved)
	if got := ask(t, s, "a", job("x", 0, "gpus=8")).words(); got != "Fit p0×1[gpus→h100]" {
		t.Errorf("after it moved to another queue, another is told %s", got)
	}
}

func TestWhatARoundAsks(t *testing.T) {
	strict := func(q *kueue.ClusterQueueSpec) { q.QueueingStrategy = kueue.StrictFIFO }
	s := newBook(t, nil, queue("a", "", "gpus: h100=8", strict), queue("b", "", "gpus: h100=8"),
		queue("c", "", "gpus: h100=8", checked("ledger")), holding("v", "c", 0, 1, "h100", 8)).snap(t)
	for name, want := range map[string][2]bool{"a": {true, true}, "b": {true, false}, "c": {false, false}, "d": {false, false}} {
		if got := [2]bool{s.Active(name), s.StrictFIFO(name)}; got != want {
			t.Errorf("queue %s: active and strict %v, want %v", name, got, want)
		}
	}
	for uid, want := range map[types.UID]bool{"v": true, "x": false} {
		if s.Holds(uid) != want {
			t.Errorf("Holds(%s) is not %v", uid, want)
		}
	}
}

func TestFitOnly(t *testing.T) {
	full := holding("v", "a", 0, 1, "h100", 8)
	part := job("w", 9, "gpus=8")
	part.Spec.PodSets[0].Count, part.Spec.PodSets[0].MinCount = 2, new(int32(1))
	cases := map[string]struct {
		queue *kueue.ClusterQueue
		ask   *kueue.Workload
		want  string
		final bool
	}{
		"fits":                       {queue("a", "", "gpus: h100=8 a100=8"), job("w", 9, "gpus=8"), "Fit p0×1[gpus→a100]", true},
		"victims are not looked for": {queue("a", "", "gpus: h100=8", preempts(lower, never)), job("w", 9, "gpus=8"), "Wait p0×1[gpus→h100]", false},
		"never fits":                 {queue("a", "", "gpus: h100=8"), job("w", 9, "gpus=9"), "NoFit", true},
		"an earlier flavor may be preempted for": {
			queue("a", "", "gpus: h100=8 a100=8", fungible(kueue.MayStopSearch, kueue.MayStopSearch)), job("w", 9, "gpus=8"), "Fit p0×1[gpus→a100]", false,
		},
		"fewer pods may fit": {queue("a", "", "gpus: h100=8 a100=8"), part, "Fit p0×1[gpus→a100]", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newBook(t, nil, c.queue, full).snap(t)
			a := s.Ask(context.Background(), Request{Workload: c.ask, ClusterQueue: "a", FitOnly: true})
			if a.words() != c.want || a.Final != c.final {
				t.Errorf("got %s, final %v; want %s, %v", a.words(), a.Final, c.want, c.final)
			}
		})
	}
}

// In Kueue 0.17.0 the fair preemptor panics for a queue without a cohort whose candidates do not suffice (kueue#10891).
func TestKueuePanics(t *testing.T) {
	world := objects{queue("a", "", "gpus: h100=8", preempts(lower, never)), holding("old", "a", 0, 1, "h100", 4), holding("top", "a", 20, 2, "h100", 4)}
	much, little := job("w", 9, "gpus=8"), job("w", 9, "gpus=4")
	const wait, preempt = "Wait p0×1[gpus→h100]", "Preempt p0×1[gpus→h100] -a/old(InClusterQueue)"

	t.Run("is kept away from", func(t *testing.T) {
		s := newBook(t, fair, world...).snap(t)
		if got := ask(t, s, "a", much).words(); got != wait {
			t.Errorf("got %s, want %s", got, wait)
		}
	})
	t.Run("is survived", func(t *testing.T) {
		b := newBook(t, fair, world...)
		b.rules.alone = b.rules.preemptor
		s := b.snap(t)
		s.Take(ask(t, s, "a", job("none", 0, ""))) // the state to go back to is that after the last take
		for range 3 {
			got := ask(t, s, "a", much) // holds the snapshot against what it was
			if got.Mode != NoFit || got.Final || !strings.Contains(got.Message, "Kueue's own code failed") {
				t.Errorf("the question that panics: %s, final %v, %q", got.words(), got.Final, got.Message)
			}
			if got := ask(t, s, "a", little).words(); got != preempt {
				t.Errorf("the next question: got %s, want %s", got, preempt)
			}
		}
		s.Take(ask(t, s, "a", little))
		if s.Holds("old") || !s.Holds("w") || !s.Holds("none") {
			t.Error("the next take is not right")
		}
	})
	t.Run("is survived by who holds quota itself", func(t *testing.T) {
		b := newBook(t, fair, append(world, holding("w", "a", 9, 3, "h100", 0))...)
		b.rules.alone = b.rules.preemptor
		s := b.snap(t)
		ask(t, s, "a", much)
		if !s.Holds("w") || s.find("default/w") == nil {
			t.Error("its own reservation was lost")
		}
	})
}

// A copy does not see what comes after it.
func TestACopyIsOfItsTime(t *testing.T) {
	teamA := func(q *kueue.ClusterQueueSpec) { q.NamespaceSelector.MatchLabels = map[string]string{"team": "a"} }
	inTeam := func(team string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": team}}}
	}
	b := newBook(t, nil, queue("a", "", "gpus: h100=8", teamA), inTeam("a"), holding("v", "a", 0, 1, "h100", 4))
	s := b.snap(t)
	later := []struct {
		object client.Object
		gone   bool
	}{
		{object: inTeam("b")},
		{object: holding("v", "a", 0, 1, "h100", 4), gone: true},
		{object: &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}, Spec: kueue.LocalQueueSpec{StopPolicy: new(kueue.Hold)}}},
		{object: &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: amounts("cpu=1")}}},
		}},
		{object: queue("a", "", "gpus: h100=1")},
		{object: &kueue.ResourceFlavor{ObjectMeta: named("h100")}, gone: true},
	}
	for _, l := range later {
		if !b.Apply(l.object, l.gone) {
			t.Fatalf("%T changed nothing", l.object)
		}
		if got := ask(t, s, "a", job("w", 0, "gpus=4")); got.words() != "Fit p0×1[gpus→h100]" || !s.Holds("v") || s.Version == b.Version() {
			t.Errorf("after %T: %s %q, version %d", l.object, got.words(), got.Message, s.Version)
		}
	}
	if got := ask(t, b.snap(t), "a", job("w", 0, "gpus=4")); got.Mode != NoFit || b.snap(t).Holds("v") {
		t.Errorf("a later copy says %s", got.words())
	}
}
