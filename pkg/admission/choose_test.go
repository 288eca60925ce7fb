package admission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// firstAvailable asks for one pod with so many devices of either alternative.
func firstAvailable(big, small int64) PodSet {
	return pods(1, big, func(ps *PodSet) {
		r := &ps.Shape.Claims[0].Requests[0]
		r.Alternatives = []flavors.Alternative{{Sub: "big", Class: "gpu", Count: big}, {Sub: "small", Class: "gpu", Count: small}}
		sub := func(name string, count int64) resourcev1.DeviceSubRequest {
			return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
		}
		ps.Shape.Claims[0].Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{sub("big", big), sub("small", small)}}
	})
}

func named(name string) func(*PodSet) { return func(ps *PodSet) { ps.Name = name } }

func TestChoices(t *testing.T) {
	full := "h100=8 a100=8 other=8"
	nodes := map[string]string{"h": "h100:8", "a": "a100:8"}
	eight := []PodSet{pods(1, 8, nil)}
	both := func(edits ...func(*kueue.ClusterQueue)) *market { return newMarket(t, full, edits...).with(nodes) }
	cases := map[string]struct {
		market    *market
		podSets   []PodSet
		now       int
		ask       func(*Waiter)
		policy    func(*v1alpha1.DevicePolicySpec)
		want      string
		standings string
	}{
		"the preferred flavor is opened alone when it is free": {
			market: both(), want: "main=h100@8 Fit", standings: "h100=Fits/Fit a100=Fits/Fit other=Impossible/Fit"},
		"a Blocked flavor is passed over at once": {
			market: both().wedge("h"), want: "main=a100@8 Fit", standings: "h100=Blocked/Fit a100=Fits/Fit other=Impossible/Fit"},
		"a Busy flavor with quota is waited for, and its clock starts": {
			market: both().uses("next", "h100", "h", 0, 8, 0), now: 5, want: "closed waits=h100 DevicesInUse until=1m5s", standings: "h100=Busy/Fit a100=Fits/Fit other=Impossible/Fit"},
		"the clock of a flavor goes on from when it started": {
			market: both().uses("next", "h100", "h", 0, 8, 0), now: 50, ask: since("h100", 0), want: "closed waits=h100 DevicesInUse until=1m0s"},
		"after the clock the next flavor is taken": {
			market: both().uses("next", "h100", "h", 0, 8, 0), now: 60, ask: since("h100", 0), want: "main=a100@8 Fit"},
		"after the clock, but it fits again, it is taken": {
			market: both(), now: 600, ask: since("h100", 0), want: "main=h100@8 Fit"},
		"after the clocks of all flavors it waits for what fits first": {
			market: both().uses("next", "h100", "h", 0, 8, 0).uses("next", "a100", "a", 0, 8, 0), now: 300, ask: since("h100", 0, "a100", 100), want: "closed DevicesInUse"},
		"what was lost within the grace is waited for without a clock": {
			market: both().lost("h", 0), now: 10, want: "closed PoolRebuilding until=1m0s", standings: "h100=Busy/Fit a100=Fits/Fit other=Impossible/Fit"},
		"what was lost within the grace is waited for after the clock too": {
			market: both().lost("h", 0), now: 10, ask: since("h100", -100), want: "closed PoolRebuilding until=1m0s"},
		"what was lost for the grace is passed over": {
			market: both().lost("h", 0), now: 60, want: "main=a100@8 Fit until=1h0m0s"},
		"without quota for the first flavor the second is taken": {
			market: newMarket(t, "h100=4 a100=8").with(nodes), want: "main=a100@8 Fit", standings: "h100=Fits/NoFit a100=Fits/Fit other=Impossible/NoFit"},
		"with quota for neither what fits stays open, for when quota comes": {
			market: both().uses("cq", "h100", "x", 100, 8).uses("cq", "a100", "y", 100, 8), want: "main=h100|a100@8 QuotaExhausted"},
		"with quota for neither what is Busy does not stay open": {
			market: both().uses("cq", "h100", "h", 100, 8, 0).uses("cq", "a100", "y", 100, 8), want: "main=a100@8 QuotaExhausted"},
		"quota of the cohort is borrowed": {
			market: newMarket(t, "h100=0 a100=0").with(nodes).queue("next", "h100=8"), want: "main=h100@8 Borrow"},
		"victims whose devices suffice are named": {
			market: both(preemptsLower).uses("cq", "h100", "h", 0, 8, 0, 1, 2, 3, 4, 5, 6, 7).uses("cq", "a100", "x", 100, 8),
			want:   "main=h100@8 Preempt victim=wl-holder-h-0", standings: "h100=Busy/Preempt a100=Fits/Wait other=Impossible/Fit"},
		"nobody is preempted where the devices would not suffice": {
			market: newMarket(t, "h100=8 a100=8", preemptsLower).with(map[string]string{"h1": "h100:8", "h2": "h100:8", "a": "a100:8"}).
				uses("cq", "h100", "h1", 0, 4, 0, 1, 2, 3).uses("cq", "h100", "h2", 0, 4, 0, 1, 2, 3).uses("next", "h100", "h1", 0, 4, 4).uses("next", "h100", "h2", 0, 4, 4),
			want: "main=a100@8 Fit"},
		"nobody is preempted where the devices would not suffice, and there is no other": {
			market: newMarket(t, "h100=8", preemptsLower).with(map[string]string{"h1": "h100:8", "h2": "h100:8"}).
				uses("cq", "h100", "h1", 0, 4, 0, 1, 2, 3).uses("cq", "h100", "h2", 0, 4, 0, 1, 2, 3).uses("next", "h100", "h1", 0, 4, 4).uses("next", "h100", "h2", 0, 4, 4),
			want: "closed DevicesInUse"},
		"what is ending of its own victims is its own": {
			market: both().uses("next", "h100", "h", 0, 8, 0).ending("h", 0, 30), now: 10, ask: victims("wl-holder-h-0"), want: "main=h100@8 Fit until=1m30s"},
		"what is ending of others' victims is not": {
			market: both().uses("next", "h100", "h", 0, 8, 0).ending("h", 0, 30), now: 10, ask: victims("somebody"), want: "closed waits=h100 DevicesFreeing until=1m10s"},
		"what should have ended of its own victims is not waited for": {
			market: both().uses("next", "h100", "h", 0, 8, 0).ending("h", 0, 30), now: 100, ask: victims("wl-holder-h-0"), want: "main=a100@8 Fit"},
		"what should have ended of its own victims does not count beside what is Busy": {
			market: newMarket(t, full).with(map[string]string{"h": "h100:8", "h2": "h100:8"}).uses("next", "h100", "h", 0, 8, 0).ending("h", 0, 30).uses("next", "h100", "h2", 0, 8, 0),
			now:    100, ask: victims("wl-holder-h-0"), want: "closed waits=h100 DevicesInUse until=2m40s"},
		"a closed flavor is passed over until its time": {
			market: both(), now: 10, ask: closed("h100", 30), want: "main=a100@8 Fit until=30s"},
		"a closed flavor is open again from its time on": {
			market: both(), now: 30, ask: closed("h100", 30), want: "main=h100@8 Fit"},
		"when all that fits is closed, it waits for that": {
			market: both(), now: 10, ask: closed("h100", 30, "a100", 40), want: "closed Undecided until=30s"},
		"alternatives of two charges are asked about one at a time": {
			market: both(), podSets: []PodSet{firstAvailable(8, 4)}, want: "main=h100@8 Fit",
			standings: "gpu/big:h100=Fits/Fit gpu/big:a100=Fits/Fit gpu/big:other=Impossible/Fit gpu/small:h100=Fits/Fit gpu/small:a100=Fits/Fit gpu/small:other=Impossible/Fit"},
		"where the first charge has no quota the second is asked about": {
			market: newMarket(t, "h100=4 a100=4").with(nodes), podSets: []PodSet{firstAvailable(8, 4)}, want: "main=h100@4 Fit"},
		"where neither charge has quota the first stays open": {
			market: newMarket(t, "h100=2 a100=2").with(nodes), podSets: []PodSet{firstAvailable(8, 4)}, want: "main=h100|a100@8 QuotaExhausted"},
		"where the victims of the first charge would not suffice the second is asked about": {
			market: newMarket(t, "h100=8", preemptsLower).with(map[string]string{"h1": "h100:8", "h2": "h100:8"}).
				uses("cq", "h100", "h1", 0, 4, 0, 1, 2, 3).uses("next", "h100", "h1", 0, 4, 4).uses("next", "h100", "h2", 0, 4, 4),
			podSets: []PodSet{firstAvailable(8, 4)}, want: "main=h100@4 Fit"},
		"podsets go to flavors of their own": {
			market: both(), podSets: []PodSet{pods(1, 8, nil), pods(1, 4, func(ps *PodSet) { ps.Name = "second"; ps.Spec.NodeSelector = map[string]string{"flavor-a100": "true"} })},
			want: "main=h100@8 second=a100@4 Fit"},
		"podsets that fit alone and not together wait": {
			market: newMarket(t, "h100=16 a100=16").with(nodes), podSets: []PodSet{pods(1, 8, nil), pods(1, 4, named("second"))}, now: 1,
			want: "closed waits=h100 DevicesInUse until=1m1s"},
		"podsets that fit alone and not together go on after the clock": {
			market: newMarket(t, "h100=16 a100=16").with(map[string]string{"h": "h100:8", "a": "a100:8", "b": "a100:8"}), podSets: []PodSet{pods(1, 8, nil), pods(1, 4, named("second"))},
			now: 60, ask: since("h100", 0), want: "main=a100@8 second=a100@4 Fit"},
		"a podset without devices is placed beside the others": {
			market: both(), podSets: []PodSet{pods(1, 8, nil), pods(1, 0, named("driver"))}, want: "main=h100@8 Fit"},
		"the user's affinity excludes a flavor": {
			market: both(), podSets: []PodSet{pods(1, 8, func(ps *PodSet) {
				ps.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "flavor-a100", Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}}}}}}}
			})}, want: "main=a100@8 Fit", standings: "h100=Impossible/NoFit a100=Fits/Fit other=Impossible/NoFit"},
		"a claim that cannot be cut to any device is never given quota": {
			market: both(), podSets: []PodSet{pods(1, 8, func(ps *PodSet) {
				ps.Shape.Claims[0].Requests[0].Alternatives[0].Selectors = slices.Repeat([]string{"true"}, 32)
			})}, want: "closed ClaimUnsupported"},
		"more than any node has is Impossible": {
			market: everything(t), podSets: []PodSet{pods(1, 9, nil)}, want: "closed NotEnoughDevices"},
		"more than any node has is rejected where the policy says so": {
			market: everything(t), podSets: []PodSet{pods(1, 9, nil)}, policy: reject, want: "closed Reject NotEnoughDevices"},
		"nothing is rejected for what came just now": {
			market: everything(t).seen(t), podSets: []PodSet{pods(1, 9, nil)}, policy: reject, want: "closed NotEnoughDevices until=3m0s"},
		"nothing is rejected while a flavor has no inventory": {
			market: both(), podSets: []PodSet{pods(1, 9, nil)}, policy: reject, want: "closed NotEnoughDevices"},
		"a flavor that the queue does not list gives no hope": {
			market: newMarket(t, "h100=9").with(map[string]string{"h": "h100:8", "a": "a100:16"}), podSets: []PodSet{pods(1, 9, nil)}, want: "closed NotEnoughDevices"},
		"a flavor that the queue does not list keeps it from being rejected": {
			market: newMarket(t, "h100=9").with(map[string]string{"h": "h100:8", "a": "a100:16"}), podSets: []PodSet{pods(1, 9, nil)}, policy: reject, want: "closed NotEnoughDevices"},
		"a queue with none of the policy's flavors says so": {
			market: both(), ask: foreign, want: "closed QuotaExhausted"},
		"a refusal is said before anything is asked": {
			market: both(), ask: func(w *Waiter) {
				w.Request.Refusal = &flavors.Refusal{Reason: v1alpha1.ReasonClaimUnsupported, Message: "no"}
			}, want: "closed ClaimUnsupported"},
		"an inactive queue is said to be so, and nothing stays open for when it takes workloads again": {
			market: both(func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = ptr.To(kueue.Hold) }), want: "closed QueueInactive"},
		"a queue that does not exist is said to be inactive": {
			market: both(), ask: func(w *Waiter) { w.ClusterQueue = clusterQueue("gone", full) }, want: "closed QueueInactive"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.podSets == nil {
				c.podSets = eight
			}
			w := c.market.waiter(choicePolicy(t, c.policy), "job", c.now, c.podSets...)
			if c.ask != nil {
				c.ask(w)
			}
			before := w.Workload.DeepCopy()
			got := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), c.market.book.Snapshot(), c.market.snap(t), w)
			if got := wordsOf(got); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := standingsOf(got); c.standings != "" && got != c.standings {
				t.Errorf("standings are %s, want %s", got, c.standings)
			}
			if got.Decision.Reason == "" && got.Offer == nil || got.Decision.Message == "" {
				t.Errorf("it does not say why: %+v", got.Decision)
			}
			if before.ResourceVersion != w.Workload.ResourceVersion || len(w.Workload.Annotations) > 0 {
				t.Error("the Workload was changed")
			}
		})
	}
}

func TestWhyNobodyIsPreemptedIsSaid(t *testing.T) {
	m := newMarket(t, "h100=2", preemptsLower).with(map[string]string{"h": "h100:3"}).uses("cq", "h100", "h", 0, 1, 0).uses("next", "h100", "h", 0, 2, 1, 2)
	got := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), m.book.Snapshot(), m.snap(t), m.waiter(choicePolicy(t, nil), "job", 0, pods(1, 2, nil)))
	if want := "Kueue would preempt for it, in vain: even then flavor h100 is Busy: node h: 2 of 3 devices are in use, a pod asks for 2"; got.Decision.Message != want {
		t.Errorf("it says %s", got.Decision.Message)
	}
}

func TestWhatWasOfferedToOneIsNotTakenForTheNext(t *testing.T) {
	m := newMarket(t, "h100=8", preemptsLower).with(map[string]string{"h": "h100:8"})
	ask := func(name string, priority int32) func(*market, *flavors.Policy) *Waiter {
		return func(m *market, p *flavors.Policy) *Waiter {
			w := m.waiter(p, name, 0, pods(1, 8, nil))
			w.Workload.Spec.Priority = ptr.To(priority)
			return w
		}
	}
	got := turnsOf(t, m, choicePolicy(t, nil), []func(*market, *flavors.Policy) *Waiter{ask("first", 0), ask("next", 100)}, nil)
	if a, b := wordsOf(got[0]), wordsOf(got[1]); a != "main=h100@8 Fit" || b != "closed DevicesInUse" {
		t.Errorf("the first has %s, the next %s", a, b)
	}
}

// never is a Kueue that has quota for nobody and is not sure of it, and counts how often it is asked.
type never struct{ asks, looks int }

func (k *never) Priority(types.UID) (int32, bool) { return 0, false }
func (*never) Known(*kueue.Workload) bool         { return false }

func (k *never) Takes(*kueue.Workload, string) bool { return true }

func (k *never) Ask(_ context.Context, r quota.Request) quota.Answer {
	if r.FitOnly {
		k.asks++
		return quota.Answer{Mode: quota.Wait, Message: "no"}
	}
	k.looks++
	return quota.Answer{Mode: quota.Wait, Message: "no", Final: true}
}

func TestOneWorkloadAsksKueueABoundedNumberOfTimes(t *testing.T) {
	m := newMarket(t, "h100=8 a100=8 other=8").with(map[string]string{"h": "h100:8", "a": "a100:8", "o": "other:8"})
	var podSets []PodSet
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		ps := firstAvailable(2, 1)
		ps.Name = name
		podSets = append(podSets, ps)
	}
	k := &never{}
	c := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), m.book.Snapshot(), k, m.waiter(choicePolicy(t, nil), "job", 0, podSets...))
	if c.Decision.Reason != v1alpha1.ReasonQuotaExhausted || k.looks > maxLooks || k.asks > maxAsks+len(c.Decision.Standings)+maxStages {
		t.Errorf("%s, after %d questions and %d looks for victims", wordsOf(c), k.asks, k.looks)
	}
	if k.looks < 2 {
		t.Error("nothing was looked for")
	}
}

func TestAWorkloadWithManyAffinityTermsIsOpenedWhatCanBeWritten(t *testing.T) {
	for n, want := range map[int]string{100: "main=h100@8 QuotaExhausted", 128: "main=h100@8 QuotaExhausted", 129: "closed ClaimUnsupported"} {
		m := newMarket(t, "h100=8 a100=8").with(map[string]string{"h": "h100:8", "a": "a100:8"}).uses("cq", "h100", "x", 100, 8).uses("cq", "a100", "y", 100, 8)
		terms := make([]corev1.NodeSelectorTerm, n)
		for i := range terms {
			terms[i].MatchExpressions = []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"h", "a", fmt.Sprint(i)}}}
		}
		w := m.waiter(choicePolicy(t, nil), "job", 0, pods(1, 8, func(ps *PodSet) {
			ps.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}))
		c := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), m.book.Snapshot(), m.snap(t), w)
		if got := wordsOf(c); got != want {
			t.Errorf("with %d terms it has %s, want %s", n, got, want)
		}
		if err := w.Request.Policy.Steer(w.Workload, c.Plan); err != nil {
			t.Error(err)
		}
	}
}

func since(pairs ...any) func(*Waiter) {
	return func(w *Waiter) { w.Since = timesOf(pairs) }
}

func closed(pairs ...any) func(*Waiter) {
	return func(w *Waiter) { w.Closed = timesOf(pairs) }
}

func victims(uids ...types.UID) func(*Waiter) {
	return func(w *Waiter) {
		w.Victims = map[types.UID]bool{}
		for _, u := range uids {
			w.Victims[u] = true
		}
	}
}

// foreign has the queue list none of the policy's flavors.
func foreign(w *Waiter) { w.ClusterQueue = clusterQueue("cq", "t4=8") }

func reject(s *v1alpha1.DevicePolicySpec) { s.OnInfeasible = v1alpha1.OnInfeasibleReject }

// everything has inventory for every flavor.
func everything(t *testing.T) *market {
	return newMarket(t, "h100=9 a100=9 other=9").with(map[string]string{"h": "h100:8", "a": "a100:8", "o": "other:2"})
}
