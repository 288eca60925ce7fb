package quota

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func edited[T client.Object](o T, edit func(T)) T {
	out := o.DeepCopyObject().(T)
	edit(out)
	return out
}

func TestWhatChangesAnAnswer(t *testing.T) {
	q, held, ledger := queue("a", "co", "gpus: h100=8", checked("ledger")), holding("v", "a", 0, 1, "h100", 4), check("ledger", "True")
	held.Spec.PodSets[0].Template.Spec.Containers[0].Image = "one"
	namespace := &corev1.Namespace{ObjectMeta: named("default")}
	local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}}
	class := &nodev1.RuntimeClass{ObjectMeta: named("sandbox"), Handler: "runc"}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}}
	waiting := job("w", 0, "gpus=4")
	world := objects{q, cohort("co", ""), held, ledger, namespace, local, class, limits, waiting}
	topology := flavor("h100")
	topology.Spec.TopologyName = new(kueue.TopologyReference("racks"))
	cases := map[string]struct {
		object client.Object
		gone   bool
		want   bool
	}{
		"the same once more":                  {object: q},
		"a queue's usage":                     {object: edited(q, func(q *kueue.ClusterQueue) { q.Status.PendingWorkloads = 3 })},
		"a queue's labels":                    {object: edited(q, func(q *kueue.ClusterQueue) { q.Labels = map[string]string{"a": "b"} })},
		"a queue's quota":                     {object: queue("a", "co", "gpus: h100=9", checked("ledger")), want: true},
		"a queue that is being deleted":       {object: edited(q, func(q *kueue.ClusterQueue) { q.DeletionTimestamp = &metav1.Time{Time: start} }), want: true},
		"a queue that is gone":                {object: q, gone: true, want: true},
		"a queue that never was":              {object: queue("x", "", "gpus: h100=1"), gone: true},
		"a cohort's quota":                    {object: cohort("co", "", group("gpus: h100=8")), want: true},
		"a flavor's topology":                 {object: topology},
		"a flavor's labels":                   {object: edited(flavor("h100"), func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels["x"] = "y" }), want: true},
		"a check's heartbeat":                 {object: edited(ledger, func(c *kueue.AdmissionCheck) { c.Status.Conditions[0].Message = "still here" })},
		"a check that is not active any more": {object: check("ledger", "False"), want: true},
		"a Workload that waits":               {object: edited(waiting, func(w *kueue.Workload) { w.Spec.Priority = new(int32(9)) })},
		"a Workload that waits and is gone":   {object: waiting, gone: true},
		"a holder's template":                 {object: edited(held, func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.Containers[0].Image = "two" })},
		"a holder's check": {object: edited(held, func(w *kueue.Workload) {
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "ledger", State: kueue.CheckStateReady}}
		})},
		"a holder's priority":       {object: edited(held, func(w *kueue.Workload) { w.Spec.Priority = new(int32(9)) }), want: true},
		"a holder's reclaimed pods": {object: edited(held, func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "p0", Count: 1}} }), want: true},
		"a holder that is evicted": {object: edited(held, func(w *kueue.Workload) {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: "True"})
		}), want: true},
		"a holder that finished": {object: edited(held, func(w *kueue.Workload) {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: "True"})
		}), want: true},
		"a holder that was deactivated": {object: edited(held, func(w *kueue.Workload) { w.Spec.Active = new(false) }), want: true},
		"a holder that is gone":         {object: held, gone: true, want: true},
		"a namespace's annotations":     {object: edited(namespace, func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": "b"} })},
		"a namespace's labels":          {object: edited(namespace, func(n *corev1.Namespace) { n.Labels = map[string]string{"a": "b"} }), want: true},
		"a LocalQueue's usage":          {object: edited(local, func(q *kueue.LocalQueue) { q.Status.PendingWorkloads = 3 })},
		"a LocalQueue that is stopped":  {object: edited(local, func(q *kueue.LocalQueue) { q.Spec.StopPolicy = new(kueue.Hold) }), want: true},
		"a runtime class's handler":     {object: edited(class, func(c *nodev1.RuntimeClass) { c.Handler = "gvisor" })},
		"a runtime class's overhead":    {object: edited(class, func(c *nodev1.RuntimeClass) { c.Overhead = &nodev1.Overhead{PodFixed: amounts("cpu=1")} }), want: true},
		"a limit range's limits":        {object: edited(limits, func(l *corev1.LimitRange) { l.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypePod}} }), want: true},
		"a pod":                         {object: &corev1.Pod{ObjectMeta: named("p")}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, nil, world...)
			before := b.Version()
			if got := b.Apply(c.object, c.gone); got != c.want {
				t.Errorf("changed is %v", got)
			}
			if changed := b.Version() != before; changed != c.want {
				t.Errorf("the version went from %d to %d", before, b.Version())
			}
			if b.Apply(c.object, c.gone) {
				t.Error("the same a second time is a change")
			}
		})
	}
}

func TestOldNews(t *testing.T) {
	at := func(version string, gpus int) client.Object {
		w := holding("v", "a", 0, 1, "h100", gpus)
		w.ResourceVersion = version
		return w
	}
	type news struct {
		object client.Object
		gone   bool
	}
	cases := map[string]struct {
		news []news
		held int // of 8
	}{
		"the newest counts, whenever it comes": {[]news{{at("12", 5), false}, {at("9", 3), false}, {at("100", 6), false}, {at("12", 5), false}}, 6},
		"what is gone stays gone":              {[]news{{at("9", 3), false}, {at("12", 3), true}, {at("10", 4), false}, {at("12", 4), false}}, 0},
		"gone before it came":                  {[]news{{at("12", 3), true}, {at("9", 4), false}}, 0},
		"its last known version is gone":       {[]news{{at("9", 3), false}, {at("9", 3), true}}, 0},
		"an older one is not gone":             {[]news{{at("12", 3), false}, {at("9", 3), true}}, 3},
		"made anew under the same name":        {[]news{{at("9", 3), true}, {at("12", 4), false}}, 4},
		"without a version it is the newest":   {[]news{{at("12", 3), false}, {at("", 5), false}}, 5},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, nil, queue("a", "", "gpus: h100=8"))
			for _, n := range c.news {
				b.Apply(n.object, n.gone)
				b.snap(t) // so that the next is fed to a cache
			}
			s := b.snap(t)
			if got := ask(t, s, "a", job("w", 0, fmt.Sprint("gpus=", 8-c.held))).Mode; got != Fit {
				t.Errorf("more than %d are held", c.held)
			}
			if got := ask(t, s, "a", job("w", 0, fmt.Sprint("gpus=", 9-c.held))).Mode; got == Fit {
				t.Errorf("fewer than %d are held", c.held)
			}
			if s.Holds("v") != (c.held > 0) {
				t.Errorf("Holds is %v", s.Holds("v"))
			}
		})
	}
}

func TestGravesAreBounded(t *testing.T) {
	b := newBook(t, nil)
	before := len(b.seen)
	for i := range 3 * tombstones {
		w := job(fmt.Sprint("w", i), 0, "gpus=1")
		w.ResourceVersion = fmt.Sprint(i + 1)
		b.Apply(w, false)
		b.Apply(w, true)
	}
	if got := len(b.seen) - before; got != tombstones || len(b.graves) != tombstones {
		t.Errorf("%d objects that are gone are remembered, in %d graves", got, len(b.graves))
	}
}

func TestNew(t *testing.T) {
	for strategy, fails := range map[config.PreemptionStrategy]bool{config.LessThanInitialShare: false, "Random": true} {
		_, err := New(Options{Configuration: &config.Configuration{FairSharing: &config.FairSharing{PreemptionStrategies: []config.PreemptionStrategy{strategy}}}})
		if (err != nil) != fails || err != nil && !strings.Contains(err.Error(), `fairSharing.preemptionStrategies: "Random" is not one of`) {
			t.Errorf("%s: %v", strategy, err)
		}
	}
}

// delivery is one version of an object, as a watch might bring it.
type delivery struct {
	object client.Object
	gone   bool
}

func drawHistory(t *rapid.T) (all []delivery, last objects) {
	version := 0
	add := func(states []client.Object, gone bool) {
		for i, o := range states {
			version++
			o = o.DeepCopyObject().(client.Object)
			o.SetResourceVersion(fmt.Sprint(version))
			all = append(all, delivery{object: o})
			if i == len(states)-1 && !gone {
				last = append(last, o)
			}
		}
		if gone {
			version++
			o := states[len(states)-1].DeepCopyObject().(client.Object)
			o.SetResourceVersion(fmt.Sprint(version))
			all = append(all, delivery{object: o, gone: true})
		}
	}
	draw := func(label string, make func() client.Object) {
		var states []client.Object
		for range rapid.IntRange(1, 3).Draw(t, label+" versions") {
			states = append(states, make())
		}
		add(states, rapid.IntRange(0, 4).Draw(t, label+" gone") == 0)
	}
	in := func(label string, n int) int { return rapid.IntRange(0, n).Draw(t, label) }
	for _, o := range everywhere() {
		draw("place", func() client.Object { return o })
	}
	draw("check", func() client.Object {
		return check("ledger", []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}[in("inactive", 3)/3])
	})
	for i := range 3 {
		name := fmt.Sprint("c", i)
		draw(name, func() client.Object {
			return cohort(name, []string{"", "c0", "c1", "c2"}[in("parent", 3)], group(fmt.Sprint("gpus: h100=", in("cohort quota", 4))))
		})
	}
	for i := range 4 {
		name := fmt.Sprint("q", i)
		draw(name, func() client.Object {
			parent := []string{"", "c0", "c1", "c2"}[in("cohort", 3)]
			quota := fmt.Sprint(in("quota", 6))
			if parent != "" {
				quota += []string{"", "/2", "//2"}[in("limit", 2)]
			}
			edits := []edit{preempts([]kueue.PreemptionPolicy{never, lower}[in("within", 1)], []kueue.PreemptionPolicy{never, anybody}[in("reclaim", 1)])}
			if in("checked", 3) == 0 {
				edits = append(edits, checked("ledger"))
			}
			return queue(name, parent, "gpus: h100="+quota+" a100="+quota+";cpu: cpu=20", edits...)
		})
		for j := range 2 {
			w := fmt.Sprint("w", i, "-", j)
			draw(w, func() client.Object {
				if in("waits", 3) == 0 {
					return job(w, 0, "gpus=1")
				}
				return holding(w, fmt.Sprint("q", in("queue", 3)), int32(in("priority", 2)), in("since", 9), []string{"h100", "a100"}[in("flavor", 1)], in("gpus", 5))
			})
		}
	}
	return all, last
}

// Whatever the order in which the versions of objects come, and however often, the answers are those of a book that was only
// given the last of each.
func TestOrderOfArrival(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all, last := drawHistory(rt)
		live, cold := newEmptyBook(t), newEmptyBook(t)
		for _, d := range append(rapid.Permutation(all).Draw(rt, "order"), rapid.SliceOfN(rapid.SampledFrom(all), 0, 9).Draw(rt, "repeats")...) {
			live.Apply(d.object, d.gone)
			if rapid.IntRange(0, 3).Draw(rt, "snapshot between") == 0 {
				live.snap(t)
			}
		}
		for _, o := range last {
			cold.Apply(o, false)
		}
		got, want := live.snap(t), cold.snap(t)
		if picture(got) != picture(want) {
			rt.Fatalf("live\n%s\ncold\n%s", picture(got), picture(want))
		}
		for i := range 4 {
			for gpus := range 6 {
				q, w := fmt.Sprint("q", i), job("ask", 1, fmt.Sprint("gpus=", gpus+1, " cpu=1"))
				a, b := ask(t, got, q, w), ask(t, want, q, w)
				if a.words() != b.words() || a.Message != b.Message {
					rt.Fatalf("%s, %d gpus: live %s %q, cold %s %q", q, gpus+1, a.words(), a.Message, b.words(), b.Message)
				}
			}
		}
	})
}

func newEmptyBook(t testing.TB) *Book {
	t.Helper()
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Two readers with a copy each ask about the same Workload, while the book is fed. For the race detector.
func TestConcurrentUse(t *testing.T) {
	b := newBook(t, fair, queue("a", "co", "gpus: h100=8", preempts(lower, anybody)), queue("b", "co", "gpus: h100=8"))
	w := job("w", 9, "gpus=4")
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for range 100 {
				s, err := b.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				s.Take(s.Ask(context.Background(), Request{Workload: w, ClusterQueue: "a"}))
				s.Holds(types.UID("v1"))
			}
		})
	}
	for i := range 300 {
		b.Apply(holding(fmt.Sprint("v", i%5), []string{"a", "b"}[i%2], 0, i, "h100", i%7), i%3 == 0)
		b.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"i": fmt.Sprint(i)}}}, false)
		if i%50 == 0 {
			b.Apply(queue("b", "co", fmt.Sprint("gpus: h100=", 8+i)), false)
		}
	}
	readers.Wait()
}

// What Kueue's code is given instead of a client can read three kinds. Everything else, so every write, is nil.
func TestNothingCanBeWritten(t *testing.T) {
	var c client.Client = &reader{}
	ctx, o := context.Background(), &kueue.Workload{}
	calls := map[string]func(){
		"create":       func() { _ = c.Create(ctx, o) },
		"update":       func() { _ = c.Update(ctx, o) },
		"patch":        func() { _ = c.Patch(ctx, o, client.MergeFrom(o)) },
		"apply":        func() { _ = c.Apply(ctx, nil) },
		"delete":       func() { _ = c.Delete(ctx, o) },
		"delete all":   func() { _ = c.DeleteAllOf(ctx, o) },
		"write status": func() { _ = c.Status().Update(ctx, o) },
		"subresource":  func() { _ = c.SubResource("eviction").Create(ctx, o, o) },
	}
	for name, call := range calls {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			call()
		}()
	}
	if c.Get(ctx, client.ObjectKey{Name: "x"}, o) == nil || c.List(ctx, &corev1.PodList{}) == nil {
		t.Error("another kind can be read")
	}
}
