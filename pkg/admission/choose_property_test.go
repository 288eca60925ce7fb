package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// drawn is a random small market, as steps that can be taken in any order where they say so.
type drawn struct {
	nominal, next string
	preempts      bool
	nodes         []func(*market)
	holders       []func(*market)
	asks          []func(*market, *flavors.Policy) *Waiter
	now           int
}

func (d drawn) build(t testing.TB, reversed bool) *market {
	t.Helper()
	var edits []func(*kueue.ClusterQueue)
	if d.preempts {
		edits = append(edits, func(q *kueue.ClusterQueue) {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny}
		})
	}
	m := newMarket(t, d.nominal, edits...).queue("next", d.next, edits...)
	for _, steps := range [][]func(*market){d.nodes, d.holders} {
		steps = slices.Clone(steps)
		if reversed {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			step(m)
		}
	}
	return m
}

func drawMarket(t *rapid.T) drawn {
	quotas := func(label string) string {
		n := rapid.SampledFrom([]int{8, 4, 2, 1, 0})
		return fmt.Sprintf("h100=%d a100=%d other=%d", n.Draw(t, label), n.Draw(t, label), n.Draw(t, label))
	}
	d := drawn{nominal: quotas("cq"), next: quotas("next"), preempts: rapid.IntRange(0, 3).Draw(t, "preempts") > 0, now: 10}
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		name, flavor := fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"h100", "a100", "other"}).Draw(t, "model")
		size, state := rapid.IntRange(1, 4).Draw(t, "devices"), rapid.SampledFrom([]string{"", "", "", "", "", "", "cordoned", "lost"}).Draw(t, "state")
		d.nodes = append(d.nodes, func(m *market) {
			m.at(-1000).node(name, fmt.Sprintf("%s:%d", flavor, size), func(n *corev1.Node, _ *resourcev1.ResourceSlice) { n.Spec.Unschedulable = state == "cordoned" })
			if state == "lost" {
				m.at(0).loses(name)
			}
		})
		for at := 0; at < size; {
			n := min(rapid.IntRange(1, 2).Draw(t, "held"), size-at)
			from, kind := at, rapid.SampledFrom([]string{"", "", "", "managed", "managed", "managed", "foreign", "ending"}).Draw(t, "holder")
			queue, priority := rapid.SampledFrom([]string{"cq", "cq", "next"}).Draw(t, "queue"), rapid.SampledFrom([]int32{0, 0, 200}).Draw(t, "priority")
			at += n
			if kind == "" {
				continue
			}
			var devices []int
			for j := range n {
				devices = append(devices, from+j)
			}
			d.holders = append(d.holders, func(m *market) {
				if kind == "foreign" {
					m.held(name, false, false, devices...)
					return
				}
				m.uses(queue, flavor, name, priority, int64(len(devices)), devices...)
				if kind == "ending" {
					m.ends(name, devices[0], 30)
				}
			})
		}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "waiters") {
		name := fmt.Sprintf("job-%d", i)
		var podSets []func() PodSet
		for j := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "podSets") {
			count, gpus, alternatives := rapid.SampledFrom([]int32{1, 1, 2}).Draw(t, "pods"), rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "gpus"), rapid.Bool().Draw(t, "alternatives")
			podSets = append(podSets, func() PodSet {
				ps := pods(count, gpus, nil)
				if alternatives && gpus > 1 {
					ps = firstAvailable(gpus, gpus-1)
					ps.Count = count
				}
				ps.Name = fmt.Sprintf("p%d", j)
				return ps
			})
		}
		since := rapid.SampledFrom([]int{10000, 10000, 0, -100}).Draw(t, "since")
		closed := rapid.SampledFrom([]string{"", "", "h100", "a100"}).Draw(t, "closed")
		queue := rapid.SampledFrom([]string{"cq", "next"}).Draw(t, "waits in")
		d.asks = append(d.asks, func(m *market, p *flavors.Policy) *Waiter {
			var of []PodSet
			for _, ps := range podSets {
				of = append(of, ps())
			}
			w := m.waiter(p, name, d.now, of...)
			w.Workload.Spec.Priority = ptr.To(int32(100))
			w.ClusterQueue = clusterQueue(queue, d.nominal)
			w.Closed = map[string]time.Time{closed: after(30)}
			w.Since = map[string]time.Time{}
			if since < 10000 {
				w.Since["h100"] = after(since)
			}
			return w
		})
	}
	return d
}

// turnsOf gives each waiter its turn on working copies, as a round does, and calls each with what it saw before its turn.
func turnsOf(t testing.TB, m *market, p *flavors.Policy, asks []func(*market, *flavors.Policy) *Waiter, each func(*ledger.Snapshot, *Waiter, Choice)) []Choice {
	t.Helper()
	devices, book := m.book.Snapshot(), m.snap(t)
	var out []Choice
	for _, ask := range asks {
		w := ask(m, p)
		c := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), devices, book, w)
		if each != nil {
			each(devices, w, c)
		}
		out = append(out, c)
		if c.Offer == nil {
			continue
		}
		for _, promised := range c.Decision.PodSets {
			devices = devices.With(ledger.Holder{Kind: ledger.HolderPlacement, Managed: true, Name: w.Workload.Name, Workload: w.Workload.UID},
				Claims(promised, w.Request.podSet(promised.Name)))
		}
		book.Take(*c.Offer)
	}
	return out
}

func devicesOf(podSets []v1alpha1.PlacementPodSet) []ledger.DeviceID {
	var out []ledger.DeviceID
	for _, ps := range podSets {
		for _, c := range Claims(ps, &PodSet{}) {
			out = append(out, c.Devices...)
		}
	}
	return out
}

func TestOffersKeepTheirPromises(t *testing.T) {
	p := choicePolicy(t, nil)
	offers := map[quota.Mode]int{}
	rapid.Check(t, func(rt *rapid.T) {
		d := drawMarket(rt)
		m := d.build(t, false)
		given := map[ledger.DeviceID]types.UID{}
		turnsOf(t, m, p, d.asks, func(s *ledger.Snapshot, w *Waiter, c Choice) {
			opens(rt, w, c)
			if c.Offer == nil {
				if c.Decision.Reason == "" || len(c.Decision.PodSets) > 0 || len(c.Victims) > 0 {
					rt.Fatalf("%s has no offer, and %+v", w.Workload.Name, c)
				}
				return
			}
			offers[c.Offer.Mode]++
			leaves := map[types.UID]bool{}
			for _, v := range c.Victims {
				leaves[v.UID] = true
			}
			for _, id := range devicesOf(c.Decision.PodSets) {
				if other := given[id]; other != "" {
					rt.Fatalf("%s is offered to %s and to %s", id, other, w.Workload.UID)
				}
				given[id] = w.Workload.UID
				dev := deviceIn(s, id)
				if dev == nil || dev.Unusable != "" || !dev.Lost.IsZero() {
					rt.Fatalf("%s cannot be given: %+v", id, dev)
				}
				for _, h := range dev.Holders {
					if !leaves[h.Workload] {
						rt.Fatalf("%s is offered to %s and held by %+v, who is no victim of %v", id, w.Workload.Name, h, c.Victims)
					}
				}
			}
			held := 0
			for _, ps := range c.Decision.PodSets {
				for _, n := range ps.Nodes {
					held += int(n.Slots)
				}
			}
			want := 0
			for i := range w.Request.PodSets {
				want += int(w.Request.PodSets[i].Count)
			}
			if held != want {
				rt.Fatalf("%s is offered %d places, and has %d pods", w.Workload.Name, held, want)
			}
		})
	})
	if t.Logf("offers: %v", offers); offers[quota.Fit] == 0 {
		t.Error("no market had an offer")
	}
}

func deviceIn(s *ledger.Snapshot, id ledger.DeviceID) *ledger.Device {
	for _, n := range s.Nodes() {
		if d := n.Device(id); d != nil {
			return d
		}
	}
	return nil
}

// opens holds what is open against the standings: nothing Blocked, Impossible, closed for the Workload or not its queue's.
func opens(rt *rapid.T, w *Waiter, c Choice) {
	for podSet, allowed := range c.Plan.AllowedFor {
		for _, flavor := range allowed {
			hopeful := slices.ContainsFunc(c.Decision.Standings, func(s v1alpha1.FlavorStanding) bool {
				return s.PodSet == podSet && s.Flavor == flavor && (s.Standing == v1alpha1.StandingFits || s.Standing == v1alpha1.StandingBusy && c.Offer != nil)
			})
			if until, ok := w.Closed[flavor]; !hopeful || ok && w.Request.Now.Before(until) || !w.lists(flavor) {
				rt.Fatalf("%s is open to podset %s of %s: %+v, closed %v", flavor, podSet, w.Workload.Name, c.Decision.Standings, w.Closed)
			}
		}
	}
	if c.Offer != nil && len(c.Plan.AllowedFor) != len(w.Request.PodSets) {
		rt.Fatalf("an offer for %v of %d podsets", c.Plan.AllowedFor, len(w.Request.PodSets))
	}
}

func TestTheOrderOfObservationsDoesNotChangeAChoice(t *testing.T) {
	p := choicePolicy(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		d := drawMarket(rt)
		one, other := turnsOf(t, d.build(t, false), p, d.asks, nil), turnsOf(t, d.build(t, true), p, d.asks, nil)
		for i := range one {
			one[i].Decision.LedgerVersion, other[i].Decision.LedgerVersion = 0, 0
		}
		if diff := cmp.Diff(one, other, cmpopts.IgnoreUnexported(quota.Answer{})); diff != "" {
			rt.Fatalf("the order of observations made a difference:\n%s", diff)
		}
	})
}
