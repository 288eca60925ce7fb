package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// mixedSeed is an environment variable with the seed of the mixed load; without it the seed is Ginkgo's, which it prints.
const mixedSeed = "PLIMSOLL_MIXED_SEED"

func seedOfMix() int64 {
	GinkgoHelper()
	if s := os.Getenv(mixedSeed); s != "" {
		seed, err := strconv.ParseInt(s, 10, 64)
		Expect(err).NotTo(HaveOccurred(), mixedSeed)
		return seed
	}
	return GinkgoRandomSeed()
}

const (
	mixedJobs = 60
	// mixedBound is how long all of them may take. It is no measure: it ends a spec in which something stands still.
	mixedBound = 8 * time.Minute
	// maxUnschedulable is how long a released pod may be unschedulable where that is measured, and maxOvertaken how many others
	// may be released and bound meanwhile, wherever.
	maxUnschedulable = 10 * time.Second
	maxOvertaken     = 20
)

// outage is a node that was taken away from new pods.
type outage struct {
	node string
	// from is just before that was written, and known when the manager's ledger was first seen to have it; to is when the manager's
	// ledger was first seen to have the node back. On a busy machine the manager learns of either seconds after it was written.
	from, known, to time.Time
	// moved is when a slot there was last placed anew; zero for never.
	moved time.Time
}

// seen waits until the manager's ledger has nodes as taken away, or as lending again, and returns when it was seen to.
func (c *cluster) seen(ctx context.Context, away bool, nodes ...string) time.Time {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		status, out, problems := c.ledgerAs(ctx, c.Admin(), append([]string{"export"}, c.toManager()...)...)
		g.Expect(status).To(BeZero(), problems)
		export, err := ledger.ReadExport(strings.NewReader(out))
		g.Expect(err).NotTo(HaveOccurred())
		taken := map[string]bool{}
		for _, l := range export.Entries {
			switch l := l.Line.(type) {
			case *ledger.NodeLine:
				taken[l.Node] = taken[l.Node] || l.Unschedulable
			case *ledger.DeviceLine:
				taken[l.Node] = taken[l.Node] || len(l.Taints) > 0
			}
		}
		for _, n := range nodes {
			g.Expect(taken).To(HaveKeyWithValue(n, away))
		}
	}).WithTimeout(late).Should(Succeed())
	return time.Now()
}

// done returns how many Jobs of a mixed load have completed. It expects that none has failed.
func (c *cluster) done(ctx context.Context) int {
	GinkgoHelper()
	list := &batchv1.JobList{}
	Expect(c.List(ctx, list)).To(Succeed())
	n := 0
	for i := range list.Items {
		if list.Items[i].Status.CompletionTime != nil {
			n++
		}
		for _, cond := range list.Items[i].Status.Conditions {
			Expect(cond.Type).NotTo(Equal(batchv1.JobFailed), list.Items[i].Name)
		}
	}
	return n
}

// waitDone waits until so many Jobs have completed.
func (c *cluster) waitDone(ctx context.Context, n int, all []mixedJob, until time.Time) {
	GinkgoHelper()
	Eventually(func() int { return c.done(ctx) }).WithTimeout(time.Until(until)).Should(BeNumerically(">=", n), func() string { return c.left(ctx, all) })
	GinkgoWriter.Printf("%s: %d are done\n", time.Now().Format(time.TimeOnly), n)
}

// left tells about the Jobs that have not completed.
func (c *cluster) left(ctx context.Context, all []mixedJob) string {
	var b strings.Builder
	for _, m := range all {
		have := &batchv1.Job{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: m.name}, have); err == nil && have.Status.CompletionTime != nil {
			continue
		}
		fmt.Fprintf(&b, "%s/%s (%s, %d pods): %s\n", m.namespace, m.name, m.shape, m.pods, c.story(ctx, m.job))
	}
	return b.String()
}

// taintPool taints every device that a node publishes, or takes the taints away.
func (c *cluster) taintPool(ctx context.Context, node string, taints ...resourcev1.DeviceTaint) {
	GinkgoHelper()
	list := &resourcev1.ResourceSliceList{}
	Expect(c.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		s := &list.Items[i]
		if ptr.Deref(s.Spec.NodeName, "") != node {
			continue
		}
		patch := client.MergeFrom(s.DeepCopy())
		for k := range s.Spec.Devices {
			s.Spec.Devices[k].Taints = taints
		}
		Expect(c.Patch(ctx, s, patch)).To(Succeed())
	}
}

// settling is how long after the manager knows of a node what it decided before may still be written and seen.
const settling = 5 * time.Second

// past is what had become of one Workload up to a moment.
type past struct {
	places  []string // the nodes of its last promise
	key     *v1alpha1.PlacementKey
	opened  time.Time
	evicted bool
	why     string
	bound   map[types.UID]bool // its pods
}

// happened says whether a node that was taken away explains that a Workload was evicted: it had a place there that not all of
// its pods had taken, or it was given quota when that was about to be its place.
func (p *past) happened(at time.Time, outages []outage) bool {
	runs := len(p.bound) > 0
	for _, bound := range p.bound {
		runs = runs && bound
	}
	return !runs && slices.ContainsFunc(outages, func(o outage) bool {
		if !at.After(o.from) || at.After(o.to.Add(settling)) {
			return false
		}
		// what had no place yet may have been offered that node, or what a pod from that node was then given instead
		return slices.Contains(p.places, o.node) || len(p.places) == 0 && (p.opened.Before(o.known.Add(settling)) || p.opened.Before(o.moved))
	})
}

// evictions returns what was evicted, by anyone, although nothing had happened to it, and what was for a node that was taken
// away.
func evictions(h *history, outages []outage) (unexplained, explained []string) {
	pasts, outages := map[string]*past{}, slices.Clone(outages)
	of := func(namespace, name string) *past {
		key := namespace + "/" + name
		if pasts[key] == nil {
			pasts[key] = &past{bound: map[types.UID]bool{}}
		}
		return pasts[key]
	}
	each(h, func(o client.Object, gone bool, seen time.Time) {
		switch o := o.(type) {
		case *corev1.Pod:
			p := of(o.Namespace, o.Annotations["kueue.x-k8s.io/workload"])
			if p.bound[o.UID] = o.Spec.NodeName != ""; gone {
				delete(p.bound, o.UID)
			}
		case *v1alpha1.Placement:
			p := of(o.Namespace, o.Name)
			if o.Spec.Key != nil {
				slots, _ := promisedOn(o)
				places := slices.Sorted(maps.Keys(slots))
				for i := range outages {
					if x := &outages[i]; ledger.SameKey(p.key, o.Spec.Key) && slices.Contains(p.places, x.node) && !slices.Equal(p.places, places) {
						x.moved = seen
					}
				}
				p.places, p.key = places, o.Spec.Key
			}
			if o.Status.Retry != nil {
				p.why = string(o.Status.Retry.Reason) + ": " + o.Status.Retry.Message
			}
		case *kueue.Workload:
			p := of(o.Namespace, o.Name)
			if o.Annotations[v1alpha1.AllowedFlavorsAnnotation] != "" && !reservedNow(o) {
				p.opened = seen
			}
			evicted := !gone && (meta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadEvicted) ||
				o.Annotations[v1alpha1.SteeringAnnotation] != "" || !ptr.Deref(o.Spec.Active, true))
			began := evicted && !p.evicted
			if p.evicted = evicted; !began {
				return
			}
			what := fmt.Sprintf("%s %s/%s: %s (last places %v, opened %s)", seen.Format(time.StampMilli), o.Namespace, o.Name, p.why, p.places, p.opened.Format(time.StampMilli))
			if p.happened(seen, outages) {
				explained = append(explained, what)
			} else {
				unexplained = append(unexplained, what)
			}
		}
	})
	return unexplained, explained
}

// timeline tells, in a line each, what became of every Workload and Placement that was ever evicted or promised something.
func timeline(h *history) string {
	var b strings.Builder
	last := map[string]string{}
	each(h, func(o client.Object, gone bool, seen time.Time) {
		var line string
		switch o := o.(type) {
		case *kueue.Workload:
			line = fmt.Sprintf("allowed %q, active %t, quota %t, evicted %t, gone %t", o.Annotations[v1alpha1.AllowedFlavorsAnnotation], ptr.Deref(o.Spec.Active, true),
				reservedNow(o), meta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadEvicted), gone || meta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadFinished))
		case *v1alpha1.Placement:
			slots, _ := promisedOn(o)
			line = fmt.Sprintf("promises %v, waits %v, closed %v", slots, o.Status.Waits, o.Status.Closed)
		default:
			return
		}
		key := fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
		if last[key] != line {
			last[key] = line
			fmt.Fprintf(&b, "%s %s: %s\n", seen.Format(time.StampMilli), key, line)
		}
	})
	return b.String()
}

// unready is for how long a pod was unschedulable, and how many others were released and bound from when it first was.
type unready struct {
	lasted    time.Duration
	overtaken int
}

// unschedulable returns, of the pods that were unschedulable once no gate held them, for how long at most, and what went by.
func unschedulable(h *history) map[string]unready {
	type held struct {
		at       time.Time
		released int
	}
	since, out := map[types.UID]held{}, map[string]unready{}
	released, bound := map[types.UID]int{}, map[types.UID]bool{} // released numbers pods in the order in which they were
	each(h, func(p *corev1.Pod, gone bool, seen time.Time) {
		if from, ok := since[p.UID]; ok {
			u := unready{lasted: seen.Sub(from.at)}
			for other := range bound {
				if released[other] > from.released {
					u.overtaken++
				}
			}
			name := p.Namespace + "/" + p.Name
			out[name] = unready{lasted: max(out[name].lasted, u.lasted), overtaken: max(out[name].overtaken, u.overtaken)}
		}
		if len(p.Spec.SchedulingGates) == 0 && released[p.UID] == 0 {
			released[p.UID] = len(released) + 1
		}
		if p.Spec.NodeName != "" {
			bound[p.UID] = true
		}
		is := !gone && p.DeletionTimestamp == nil && p.Spec.NodeName == "" && len(p.Spec.SchedulingGates) == 0 && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
		if _, was := since[p.UID]; is && !was {
			since[p.UID] = held{seen, len(released)}
		} else if !is {
			delete(since, p.UID)
		}
	})
	return out
}

// expectNothingLeft waits until no queue has quota in use, nobody holds a device, and nothing is promised.
func (c *cluster) expectNothingLeft(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		queues := &kueue.ClusterQueueList{}
		g.Expect(c.List(ctx, queues)).To(Succeed())
		for _, q := range queues.Items {
			for _, f := range slices.Concat(q.Status.FlavorsReservation, q.Status.FlavorsUsage) {
				for _, r := range f.Resources {
					g.Expect(r.Total.IsZero()).To(BeTrue(), "%s has %s %s of %s", q.Name, r.Total.String(), r.Name, f.Name)
				}
			}
		}
		promises := &v1alpha1.PlacementList{}
		g.Expect(c.List(ctx, promises)).To(Succeed())
		for _, p := range promises.Items {
			g.Expect(p.Spec.Key).To(BeNil(), p.Name)
		}
		g.Expect(held(c.book(ctx))).To(BeEmpty())
	}).WithTimeout(late).Should(Succeed())
}

// runMixed runs a mixed load with a cordon and a taint on its way. at is called when so many Jobs have completed.
func (c *cluster) runMixed(ctx context.Context, at map[int]func()) {
	GinkgoHelper()
	seed, began := seedOfMix(), time.Now()
	until := began.Add(mixedBound)
	GinkgoWriter.Printf("seed %d (%s)\n", seed, mixedSeed)
	all := mix(seed, mixedJobs)
	h := c.history()
	DeferCleanup(func(ctx context.Context) {
		for _, ns := range []string{teamA, teamB, teamC} {
			Expect(c.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(ns), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			for _, m := range all {
				for _, t := range m.templates {
					Expect(client.IgnoreNotFound(c.Delete(ctx, t))).To(Succeed())
				}
			}
			Eventually(func(g Gomega) {
				pods := &corev1.PodList{}
				g.Expect(c.List(ctx, pods, client.InNamespace(ns))).To(Succeed())
				g.Expect(pods.Items).To(BeEmpty())
			}).WithTimeout(late).Should(Succeed())
		}
	})
	for _, m := range all {
		for _, t := range m.templates {
			Expect(c.Create(ctx, t.DeepCopy())).To(Succeed())
		}
		Expect(c.Create(ctx, m.object())).To(Succeed())
	}
	Eventually(func(g Gomega) { // before a manager is killed: one that comes while nobody steers it is evicted for that
		list := &kueue.WorkloadList{}
		g.Expect(c.List(ctx, list)).To(Succeed())
		g.Expect(len(list.Items)).To(BeNumerically(">=", mixedJobs))
	}).WithTimeout(late).Should(Succeed())

	outages := []outage{{node: "h100-1"}, {node: "h100-2"}}
	steps := map[int]func(){
		mixedJobs / 3: func() {
			from := time.Now()
			c.takeNode(ctx, cordoned, outages[0].node)
			c.taintPool(ctx, outages[1].node, resourcev1.DeviceTaint{Key: "example.com/xid", Effect: resourcev1.DeviceTaintEffectNoSchedule})
			known := c.seen(ctx, true, outages[0].node, outages[1].node)
			for i := range outages {
				outages[i].from, outages[i].known = from, known
			}
		},
		2 * mixedJobs / 3: func() {
			c.bringNode(ctx, cordoned, outages[0].node)
			c.taintPool(ctx, outages[1].node)
			to := c.seen(ctx, false, outages[0].node, outages[1].node)
			for i := range outages {
				outages[i].to = to
			}
		},
		mixedJobs: func() {},
	}
	for _, n := range slices.Sorted(maps.Keys(merged(steps, at))) {
		c.waitDone(ctx, n, all, until)
		for _, of := range []map[int]func(){steps, at} {
			if step := of[n]; step != nil {
				step()
			}
		}
	}
	GinkgoWriter.Printf("all %d Jobs were done after %s\n", mixedJobs, time.Since(began).Round(time.Second))
	c.expectNothingLeft(ctx)
	c.expectNothingDoubled(ctx, h)
	unexplained, explained := evictions(h, outages)
	GinkgoWriter.Printf("evicted for a node that was taken away: %d\n%s\n", len(explained), strings.Join(explained, "\n"))
	waited := unschedulable(h)
	GinkgoWriter.Printf("released and unschedulable for a while: %v\n", waited)
	if len(unexplained) > 0 {
		GinkgoWriter.Print(timeline(h))
	}
	Expect(unexplained).To(BeEmpty(), "evicted although nothing had happened to them")
	for pod, u := range waited {
		Expect(u.overtaken).To(BeNumerically("<=", maxOvertaken), pod)
		if measured() {
			Expect(u.lasted).To(BeNumerically("<=", maxUnschedulable), pod)
		}
	}
}

func merged(of ...map[int]func()) map[int]func() {
	out := map[int]func(){}
	for _, m := range of {
		maps.Copy(out, m)
	}
	return out
}

var _ = Describe("Sixty mixed Jobs of three tenants", Ordered, ContinueOnFailure, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Fallback.AfterSeconds = ptr.To[int32](5) })
	})

	It("all finish, whatever is cordoned and tainted on the way", func(ctx context.Context) {
		c.runMixed(ctx, nil)
	})

	It("all finish though the manager is killed twice", func(ctx context.Context) {
		killed := func() {
			Expect(c.KillManager(ctx)).To(Succeed())
			Expect(c.StartManager(ctx)).To(Succeed())
		}
		c.runMixed(ctx, map[int]func(){mixedJobs / 4: killed, mixedJobs / 2: killed})
	})

	It("are told apart: who was evicted for a node, and who for nothing", func() {
		at := time.Unix(1000, 0)
		workload := func(name string, change func(*kueue.Workload)) *kueue.Workload {
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
			change(wl)
			return wl
		}
		placed := func(name, node string) *v1alpha1.Placement {
			p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
			p.Spec.Key = &v1alpha1.PlacementKey{}
			p.Spec.PodSets = []v1alpha1.PlacementPodSet{{Nodes: []v1alpha1.PlacementNode{{Name: node, Slots: 1}}}}
			return p
		}
		nonce := func(wl *kueue.Workload) { wl.Annotations = map[string]string{v1alpha1.SteeringAnnotation: "x"} }
		running := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", Annotations: map[string]string{"kueue.x-k8s.io/workload": "runs"}}}
		running.Spec.NodeName = "gone"
		var versions []version
		for i, o := range []client.Object{
			placed("there", "gone"), placed("runs", "gone"), placed("elsewhere", "stays"), running,
			workload("there", nonce), workload("runs", nonce), workload("elsewhere", nonce),
		} {
			versions = append(versions, version{revision: uint64(i), object: o, seen: at.Add(time.Duration(i+1) * time.Millisecond)}) //nolint:gosec // small
		}
		opened := func(wl *kueue.Workload) { wl.Annotations = map[string]string{v1alpha1.AllowedFlavorsAnnotation: "f"} }
		for i, o := range []client.Object{
			workload("stale", opened), workload("stale", nonce),
			placed("moves", "gone"), workload("robbed", opened), placed("moves", "stays"), workload("robbed", nonce),
		} {
			versions = append(versions, version{revision: uint64(100 + i), object: o, seen: at.Add(2*settling + time.Duration(i)*time.Millisecond)}) //nolint:gosec // small
		}
		for i, o := range []client.Object{workload("fresh", opened), workload("fresh", nonce)} {
			versions = append(versions, version{revision: uint64(200 + i), object: o, seen: at.Add(4*settling + time.Duration(i)*time.Millisecond)}) //nolint:gosec // small
		}
		unexplained, explained := evictions(&history{versions: versions}, []outage{{node: "gone", from: at, known: at.Add(2 * settling), to: at.Add(time.Minute)}})
		Expect(unexplained).To(ConsistOf(ContainSubstring("ns/runs"), ContainSubstring("ns/elsewhere"), ContainSubstring("ns/fresh")))
		Expect(explained).To(ConsistOf(ContainSubstring("ns/there"), ContainSubstring("ns/stale"), ContainSubstring("ns/robbed")))
	})

	It("are told apart: who was unschedulable for long", func() {
		at := time.Unix(1000, 0)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		gated := pod.DeepCopy()
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlacementGate}}
		bound := pod.DeepCopy()
		bound.Spec.NodeName = "n"
		other := func(p *corev1.Pod, name string) *corev1.Pod {
			p = p.DeepCopy()
			p.Name, p.UID, p.Status.Conditions = name, types.UID(name), nil
			return p
		}
		h := &history{}
		for i, o := range []client.Object{
			gated, other(pod, "before"), pod, other(bound, "before"), // released before it
			other(gated, "after"), other(pod, "after"), other(bound, "after"), bound,
			other(pod, "later"), other(bound, "later"), // bound after it
		} {
			h.versions = append(h.versions, version{revision: uint64(i), object: o, seen: at.Add(time.Duration(i) * time.Minute)}) //nolint:gosec // small
		}
		Expect(unschedulable(h)).To(Equal(map[string]unready{"ns/p": {lasted: 5 * time.Minute, overtaken: 1}}))
	})
})
