package quota

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"testing"
	"time"
	_ "unsafe" // go:linkname

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/workload"
)

// getAssignments is the scheduler's own: what its cycle does with the head of a queue.
//
//go:linkname getAssignments sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).getAssignments
func getAssignments(*scheduler.Scheduler, logr.Logger, *workload.Info, *schdcache.Snapshot) (flavorassigner.Assignment, []*preemption.Target)

// oracle is Kueue's scheduler over a cache of its own, fed with the whole objects.
type oracle struct {
	reads     *reader
	scheduler *scheduler.Scheduler
	snapshot  *schdcache.Snapshot
	takes     int
}

func newOracle(t *testing.T, fs *config.FairSharing, reads *reader, world objects) *oracle {
	t.Helper()
	ctx := logr.NewContext(context.Background(), silent)
	c := schdcache.New(reads, schdcache.WithFairSharing(fs != nil))
	feed := func(take func(o client.Object)) {
		for _, o := range world {
			take(o)
		}
	}
	feed(func(o client.Object) {
		switch o := o.(type) {
		case *kueue.ResourceFlavor:
			c.AddOrUpdateResourceFlavor(silent, o)
		case *kueue.Cohort:
			if err := c.AddOrUpdateCohort(o); err != nil {
				t.Fatal(err)
			}
		}
	})
	feed(func(o client.Object) {
		if q, ok := o.(*kueue.ClusterQueue); ok {
			if err := c.AddClusterQueue(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
	})
	feed(func(o client.Object) {
		if w, ok := o.(*kueue.Workload); ok && !c.AddOrUpdateWorkload(silent, w) {
			t.Fatalf("%s was not added", w.Name)
		}
	})
	snapshot, err := c.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(start.Add(time.Hour))
	return &oracle{
		reads: reads, snapshot: snapshot,
		scheduler: scheduler.New(nil, c, reads, nil, scheduler.WithFairSharing(fs), scheduler.WithClock(nil, clock)),
	}
}

// ask runs as many of the scheduler's cycles as it would take, and puts the result into the words of Answer.
func (o *oracle) ask(queue string, w *kueue.Workload) (Answer, flavorassigner.Assignment) {
	asked := w.DeepCopy()
	workload.AdjustResources(logr.NewContext(context.Background(), silent), o.reads, asked)
	info := workload.NewInfo(asked)
	info.ClusterQueue = kueue.ClusterQueueReference(queue)
	var first *flavorassigner.Assignment
	for cycle := 1; ; cycle++ {
		found, targets := getAssignments(o.scheduler, silent, info, o.snapshot)
		if first == nil {
			first = &found
		}
		mode := found.RepresentativeMode()
		if len(targets) == 0 && mode == flavorassigner.Preempt && found.LastState.PendingFlavors() && cycle < maxCycles {
			info.LastAssignment = found.LastState.Clone() // the queue brings it back for another cycle
			continue
		}
		if len(targets) == 0 && mode != flavorassigner.Fit {
			found = *first
		}
		a := Answer{Mode: Preempt, Borrows: found.Borrows(), targets: targets}
		switch mode := found.RepresentativeMode(); {
		case mode == flavorassigner.NoFit:
			return Answer{Mode: NoFit}, found
		case mode == flavorassigner.Fit && found.Borrows() > 0:
			a.Mode = Borrow
		case mode == flavorassigner.Fit:
			a.Mode = Fit
		case len(targets) == 0:
			a.Mode = Wait
		}
		for _, p := range found.ToAPI() {
			out := PodSetAnswer{Name: string(p.Name), Count: *p.Count, Flavors: map[corev1.ResourceName]string{}}
			for r, f := range p.Flavors {
				out.Flavors[r] = string(f)
			}
			a.PodSets = append(a.PodSets, out)
		}
		for _, t := range targets {
			a.Victims = append(a.Victims, Victim{Name: t.WorkloadInfo.Obj.Name, ClusterQueue: string(t.WorkloadCq.Name), Reason: t.Reason})
		}
		return a, found
	}
}

func (o *oracle) take(queue string, w *kueue.Workload, a Answer, found flavorassigner.Assignment) {
	for _, t := range a.targets {
		o.snapshot.RemoveWorkload(t.WorkloadInfo)
	}
	taken := w.DeepCopy()
	taken.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: found.ToAPI()}
	o.takes++
	taken.Status.Conditions = []metav1.Condition{{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(start.Add(time.Hour + time.Duration(o.takes)*time.Minute)),
	}}
	o.snapshot.AddWorkload(workload.NewInfo(taken))
}

// randomWorld is a tree of cohorts of two levels with queues, quotas, limits, policies and holders.
func randomWorld(rnd *rand.Rand, classical bool) (out objects, queues []string) {
	newer := kueue.PreemptionPolicyLowerOrNewerEqualPriority
	within := []kueue.PreemptionPolicy{never, lower, newer}
	reclaim := []kueue.PreemptionPolicy{never, lower, anybody, newer}
	policy := []kueue.FlavorFungibilityPolicy{kueue.MayStopSearch, kueue.TryNextFlavor}
	out = append(everywhere(), cohort("root", ""), cohort("c1", "root"), cohort("c2", "root", group("gpus: h100=4 a100=2")))
	for i := range 4 + rnd.Intn(6) {
		name, parent := fmt.Sprint("q", i), []string{"", "root", "c1", "c2"}[rnd.Intn(4)]
		quota := func() string {
			q := fmt.Sprint(rnd.Intn(9))
			if parent == "" {
				return q
			}
			limits := []string{"", "", "", fmt.Sprint("/", rnd.Intn(5)), fmt.Sprint("//", rnd.Intn(5)), fmt.Sprint("/", rnd.Intn(5), "/", rnd.Intn(5))}
			return q + limits[rnd.Intn(len(limits))]
		}
		out = append(out, queue(name, parent, "gpus: h100="+quota()+" a100="+quota()+";cpu: cpu=20", preempts(within[rnd.Intn(3)], reclaim[rnd.Intn(4)]),
			fungible(policy[rnd.Intn(2)], policy[rnd.Intn(2)]), func(q *kueue.ClusterQueueSpec) {
				if rnd.Intn(3) == 0 {
					q.FlavorFungibility.Preference = new(kueue.PreemptionOverBorrowing)
				}
				if classical && q.Preemption.ReclaimWithinCohort != never && rnd.Intn(2) == 0 {
					q.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{
						Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: new(int32(rnd.Intn(3))),
					}
				}
			}))
		queues = append(queues, name)
		for j := range rnd.Intn(5) {
			f := []string{"h100", "a100"}[rnd.Intn(2)]
			out = append(out, holding(fmt.Sprint("w", i, "-", j), name, int32(rnd.Intn(3)), rnd.Intn(50), f, 1+rnd.Intn(5)))
		}
	}
	return out, queues
}

func randomJob(rnd *rand.Rand, name string) *kueue.Workload {
	w := job(name, int32(rnd.Intn(4)), fmt.Sprint("cpu=", 1+rnd.Intn(8), " gpus=", 1+rnd.Intn(6)))
	switch rnd.Intn(6) {
	case 0, 1:
		w.Spec.PodSets[0].Count, w.Spec.PodSets[0].MinCount = 4, new(int32(1))
	case 2:
		w = job(name, int32(rnd.Intn(4)), "cpu=1 gpus=2", fmt.Sprint("cpu=1 gpus=", 1+rnd.Intn(4)))
	}
	switch rnd.Intn(4) {
	case 0:
		return steered(w, "h100")
	case 1:
		return steered(w, "a100")
	case 2:
		return steered(w, "h100", "a100")
	}
	return w
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Ask says what the scheduler itself would do, in random worlds, also after it was told to take what it said before.
// PLIMSOLL_QUOTA_WORLDS is how many, PLIMSOLL_QUOTA_SEED the first one's seed. Among those of every run are one that takes a
// second cycle (319), and one where the choice for a second podset depends on victims (229).
func TestAgainstTheScheduler(t *testing.T) {
	worlds, first := number(t, "PLIMSOLL_QUOTA_WORLDS", 300), number(t, "PLIMSOLL_QUOTA_SEED", 101)
	seen := map[string]int{}
	for seed := first; seed < first+worlds && !t.Failed(); seed++ {
		againstTheScheduler(t, seed, seen)
	}
	t.Logf("seeds %d to %d: %v", first, first+worlds-1, seen)
	for _, m := range []Mode{Fit, Borrow, Preempt, Wait, NoFit} {
		if worlds >= 300 && seen[string(m)] < 10 {
			t.Errorf("only %d answers %s: the worlds prove little", seen[string(m)], m)
		}
	}
}

func againstTheScheduler(t *testing.T, seed int, seen map[string]int) {
	rnd := rand.New(rand.NewSource(int64(seed)))
	fs := []*config.FairSharing{{}, nil, {PreemptionStrategies: []config.PreemptionStrategy{config.LessThanOrEqualToFinalShare}}}[rnd.Intn(3)]
	world, queues := randomWorld(rnd, fs == nil)
	shuffled := append(objects{}, world...)
	rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	ours := newBook(t, &config.Configuration{FairSharing: fs}, shuffled...).snap(t)
	theirs := newOracle(t, fs, ours.reads, world)
	for i := range 6 {
		q, w := queues[rnd.Intn(len(queues))], randomJob(rnd, fmt.Sprint("ask", i))
		got := ask(t, ours, q, w)
		seen[string(got.Mode)]++
		quick := ours.Ask(context.Background(), Request{Workload: w, ClusterQueue: q, FitOnly: true})
		if quick.Final && (quick.words() != got.words() || quick.Message != got.Message) {
			t.Errorf("seed %d, question %d: FitOnly says %s, and that it is final; in full %s", seed, i, quick.words(), got.words())
		}
		got, want, panicked := agree(theirs, ours, q, w, got)
		if panicked != nil {
			seen["panics of the scheduler"]++
			if theirs.snapshot.ClusterQueue(kueue.ClusterQueueReference(q)).HasParent() || !got.Final {
				t.Errorf("seed %d, question %d: the scheduler panics: %v; ours says %s", seed, i, panicked, got.words())
			}
			return // its snapshot is spoilt
		}
		if want.tries > 1 {
			seen["one of several"]++
		}
		if key(got) != key(want.answer) {
			t.Errorf("seed %d, question %d, queue %s: got %s, Kueue says %s", seed, i, q, key(got), key(want.answer))
			return
		}
		if got.taken != nil && rnd.Intn(2) == 0 {
			ours.Take(got)
			theirs.take(q, w, want.answer, want.found)
		}
	}
}

func key(a Answer) string { return fmt.Sprint(a.words(), " borrows ", a.Borrows) }

// said is what the scheduler says, after so many tries.
type said struct {
	answer Answer
	found  flavorassigner.Assignment
	tries  int
}

// agree asks both until both have said the same: among sibling cohorts of equal share the scheduler picks at random, some of
// its answers once in a hundred times. What both never say is a difference.
func agree(theirs *oracle, ours *Snapshot, queue string, w *kueue.Workload, first Answer) (got Answer, want said, panicked any) {
	got = first
	defer func() { panicked = recover() }()
	all := map[string]said{}
	for tries := 1; tries <= 600; tries++ {
		want.answer, want.found = theirs.ask(queue, w)
		want.tries = tries
		all[key(want.answer)] = want
		if same, ok := all[key(got)]; ok {
			same.tries = tries
			return got, same, nil
		}
		got = ours.Ask(context.Background(), Request{Workload: w, ClusterQueue: queue})
	}
	return got, want, nil
}
