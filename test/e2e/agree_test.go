package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	simulation "github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

const (
	scenariosFolder = "../scenarios"
	// labMark is the file that says of a scenario that it can be played on the lab, too. Where it says labAlways it is each
	// time, the others where playAll is set: make agree.
	labMark, labAlways, playAll = "lab", "always", "PLIMSOLL_AGREE_ALL"
	// atOnce bounds how many are played at the same time.
	atOnce = 16
	// settled is how long after the last thing that is simulated the lab is looked at.
	settled = 3 * time.Second
	// longest bounds how long a scenario is waited for. It is no measure: it ends a spec in which something stands still.
	longest = 5 * time.Minute
)

// scenarios returns the names of those that are played on the lab, sorted.
func scenarios() []string {
	marks, err := filepath.Glob(filepath.Join(scenariosFolder, "*", labMark))
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var out []string
	for _, m := range marks {
		says, err := os.ReadFile(m)
		if err != nil {
			panic(err) // it was there a moment ago
		}
		if os.Getenv(playAll) == "" && strings.TrimSpace(string(says)) != labAlways {
			continue
		}
		out = append(out, filepath.Base(filepath.Dir(m)))
	}
	return out
}

// readScenario reads a scenario's manifests.
func readScenario(name string) (*input.Input, error) {
	names, err := filepath.Glob(filepath.Join(scenariosFolder, name, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var files []input.File
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			return nil, err
		}
		files = append(files, input.File{Name: filepath.Base(n), Data: data})
	}
	in, err := input.Read(files, input.Options{Strict: true})
	if err != nil {
		return nil, err
	}
	if in.Kueue != nil {
		return nil, fmt.Errorf("%s: the lab's Kueue has a configuration of its own", name)
	}
	return in, nil
}

// simulateScenario reads a scenario, changes what was read, gives it names of its own and simulates it.
func simulateScenario(ctx context.Context, name, prefix string, change func(*input.Input)) (*input.Input, course, error) {
	in, err := readScenario(name)
	if err != nil {
		return nil, course{}, err
	}
	if change != nil {
		change(in)
	}
	if in, err = renamed(in, prefix); err != nil {
		return nil, course{}, err
	}
	result, err := simulation.Run(ctx, in, simulation.Options{})
	if err != nil {
		return nil, course{}, err
	}
	return in, simulated(result), nil
}

// runsFor changes how long a Job runs.
func runsFor(job, duration string) func(*input.Input) {
	return func(in *input.Input) {
		for _, o := range in.Objects {
			if j, is := o.Object.(*batchv1.Job); is && j.Name == job {
				j.Annotations[durationAnnotation] = duration
			}
		}
	}
}

// withoutQuota takes the quota of all ClusterQueues away.
func withoutQuota(in *input.Input) {
	for _, o := range in.Objects {
		if q, is := o.Object.(*kueue.ClusterQueue); is {
			for g := range q.Spec.ResourceGroups {
				for f := range q.Spec.ResourceGroups[g].Flavors {
					for r := range q.Spec.ResourceGroups[g].Flavors[f].Resources {
						q.Spec.ResourceGroups[g].Flavors[f].Resources[r].NominalQuota = resource.MustParse("0")
					}
				}
			}
		}
	}
}

// staging is one scenario, simulated and on the lab.
type staging struct {
	name, prefix string
	in           *input.Input
	sim, lab     course
	// last is when the last thing happens in it.
	last time.Duration
	// done is closed once the lab has come to what was simulated, or did not for so long that it will not.
	done chan struct{}
	err  error
}

// run stagings it on the lab and looks, from a moment after the last thing that was simulated, for the same there.
func (p *staging) run(ctx context.Context, c *cluster, d *diary) {
	defer close(p.done)
	lost := false
	start, err := c.stage(ctx, p.in, func(ctx context.Context, at time.Duration) error {
		if !lost {
			lost = !p.caughtUp(ctx, c, d, at)
		}
		return ctx.Err()
	})
	if err != nil {
		p.err = err
		return
	}
	if !lost {
		p.caughtUp(ctx, c, d, p.last+1)
	}
	if p.err = until(ctx, time.Now().Add(settled)); p.err != nil {
		return
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second, late, true, func(ctx context.Context) (bool, error) {
		lab, err := c.came(ctx, d, p.sim.keys(), start)
		if err != nil {
			return false, nil // it may be there at the next look
		}
		p.lab = lab
		return len(differences(p.sim, lab)) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		p.err = context.Cause(ctx)
	}
}

// caughtUp waits until all that is simulated to happen before a time has happened on the lab, which takes time where the
// simulation takes none. What has not after so long will not: then it returns false.
func (p *staging) caughtUp(ctx context.Context, c *cluster, d *diary, at time.Duration) bool {
	due := map[occasion]bool{}
	for o, when := range occasions(p.sim.events) {
		if when < at {
			due[o] = true
		}
	}
	err := wait.PollUntilContextTimeout(ctx, often, late, true, func(context.Context) (bool, error) {
		var events []simulate.Event
		for _, key := range p.sim.keys() {
			events = append(events, d.of(key, time.Time{})...)
		}
		have := occasions(events)
		for o := range due {
			if _, is := have[o]; !is {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return false
	}
	// Pods may wait for more than time, so this has not to come.
	_ = wait.PollUntilContextTimeout(ctx, 2*often, 2*while, true, func(context.Context) (bool, error) {
		for _, namespace := range p.namespaces() {
			if !c.allRun(ctx, namespace) {
				return false, nil
			}
		}
		return true, nil
	})
	return true
}

// namespaces returns those of the scenario's Jobs.
func (p *staging) namespaces() []string {
	var out []string
	for _, key := range p.sim.keys() {
		out = append(out, key.Namespace)
	}
	return slices.Compact(out)
}

var _ = Describe("The lab and simulate", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var d *diary
	stagings := map[string]*staging{}

	BeforeAll(func(ctx context.Context) {
		l, err := lab.Start(ctx, lab.Options{Out: GinkgoWriter, Release: release(), Manager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(l.Stop)
		c = &cluster{Lab: l, Client: clientFor(l.Admin())}
		d = c.diary()
		background, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		var all []*staging
		for i, name := range scenarios() {
			p := &staging{name: name, prefix: fmt.Sprintf("s%02d", i), done: make(chan struct{})}
			stagings[name] = p
			if p.in, p.sim, p.err = simulateScenario(ctx, name, p.prefix, nil); p.err != nil {
				close(p.done)
				continue
			}
			for _, e := range p.sim.events {
				p.last = max(p.last, e.At)
			}
			all = append(all, p)
		}
		slices.SortStableFunc(all, func(a, b *staging) int { return cmp.Compare(b.last, a.last) }) // the longest first
		group := &errgroup.Group{}
		group.SetLimit(atOnce)
		go func() {
			for _, p := range all {
				group.Go(func() error { p.run(background, c, d); return nil })
			}
		}()
	})

	for _, name := range scenarios() {
		It("agree on "+name, func() {
			p := stagings[name]
			Eventually(p.done).WithTimeout(longest).Should(BeClosed(), "it is played to its end")
			Expect(p.err).NotTo(HaveOccurred())
			Expect(d.whole()).To(Succeed())
			Expect(p.sim.entries).NotTo(BeEmpty())
			GinkgoWriter.Print(beside(p.sim, p.lab))
			Expect(differences(p.sim, p.lab)).To(BeEmpty(), func() string { return beside(p.sim, p.lab) })
		})
	}

	DescribeTable("are seen not to agree where simulate is told something else", func(ctx context.Context, name string, change func(*input.Input), says string) {
		p := stagings[name]
		Expect(p).NotTo(BeNil(), "the scenario is played on the lab")
		Eventually(p.done).WithTimeout(longest).Should(BeClosed())
		_, other, err := simulateScenario(ctx, name, p.prefix, change)
		Expect(err).NotTo(HaveOccurred())
		Expect(differences(other, p.lab)).To(ContainElement(ContainSubstring(says)), func() string { return beside(other, p.lab) })
	},
		Entry("about how long another runs, by the flavor", "busy-then-next", runsFor("busy", "2s"), "train's flavors"),
		Entry("about quota, by the outcome", "preferred-free", withoutQuota, "train's outcome"),
		Entry("about how often one is admitted", "busy-then-next", withoutQuota, "train Admitted"),
	)

	It("are seen not to agree about an order that is another, unless the lab lagged by more", func() {
		of := func(name string) simulate.Key { return simulate.Key{Namespace: "ns", Kind: "Job", Name: name} }
		at := func(seconds int, name string, kind simulate.EventKind) simulate.Event {
			return simulate.Event{At: time.Duration(seconds) * time.Second, Workload: of(name), Kind: kind}
		}
		play := func(admitted, first, second int) course {
			return course{entries: map[simulate.Key]report.Entry{of("a"): {}, of("b"): {}}, events: []simulate.Event{
				at(0, "a", simulate.EventArrived), at(admitted, "a", simulate.EventAdmitted), at(first, "a", simulate.EventFinished), at(second, "b", simulate.EventFinished),
			}}
		}
		Expect(differences(play(0, 10, 16), play(1, 12, 18))).To(BeEmpty())
		Expect(differences(play(0, 10, 16), play(1, 18, 12))).To(ConsistOf(ContainSubstring("the order of a Finished and b Finished")))
		Expect(differences(play(0, 10, 16), play(7, 24, 18))).To(BeEmpty(), "it took seven seconds to admit what was admitted at once")
	})

	It("are asked about twenty scenarios at least", func() {
		Expect(len(scenarios())).To(BeNumerically(">=", 20))
	})
})
