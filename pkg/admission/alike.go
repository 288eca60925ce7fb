package admission

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Choices remembers the choices of one pass without an offer, so that a Waiter that is like an earlier one need not be looked at:
// what was chosen for that one is what would be chosen for it. The zero value is empty. It is for one goroutine.
type Choices struct {
	devices *ledger.Snapshot
	kueue   Kueue
	now     time.Time
	known   map[string]*alike
}

// alike is a choice for Waiters that are alike, without the times that are each one's own.
type alike struct {
	choice Choice
	own    ownTimes
}

// ownTimes are the flavors by whose times of the Waiter itself the choice may change: when it is not closed any more, and when
// it was waited for long enough.
type ownTimes struct {
	closed, since []string
}

// note adds a Waiter's own times to its decision.
func (c *chooser) note(own ownTimes, dec *Decision) {
	for _, f := range own.closed {
		dec.note(c.waiter.Closed[f])
	}
	for _, f := range own.since {
		dec.note(c.waiter.Since[f].Add(c.patience()))
	}
}

// Forget empties it: call it when something was taken from devices or quota.
func (among *Choices) Forget() { *among = Choices{} }

// ChooseAmong is Choose, with what was chosen before it for Waiters that are alike on the same devices and quota.
func (d *Decider) ChooseAmong(ctx context.Context, s *ledger.Snapshot, k Kueue, w *Waiter, among *Choices) Choice {
	if among.devices != s || among.kueue != k || !among.now.Equal(w.Request.Now) {
		*among = Choices{devices: s, kueue: k, now: w.Request.Now, known: map[string]*alike{}}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &chooser{Decider: d, snapshot: s, kueue: k, waiter: w, request: w.Request}
	key := c.key()
	if a := among.known[key]; a != nil {
		out := a.choice
		c.note(a.own, &out.Decision)
		return out
	}
	out := c.choose(ctx)
	if key != "" && out.Offer == nil && ctx.Err() == nil {
		among.known[key] = &alike{choice: out, own: c.own}
	}
	c.note(c.own, &out.Decision)
	return out
}

// key names all that a choice depends on of the Waiter; empty for one that is like no other.
func (c *chooser) key() string {
	w := c.waiter
	if w.Like == "" || len(w.Victims) > 0 || len(c.request.Others) > 0 || c.request.Refusal != nil || c.kueue.Known(w.Workload) {
		return ""
	}
	var b strings.Builder
	b.WriteString(w.Like)
	for i := range c.request.Policy.Flavors {
		name := c.request.Policy.Flavors[i].Name
		state := byte('n')
		if since, ok := w.Since[name]; ok {
			state = 's'
			if !c.request.Now.Before(since.Add(c.patience())) {
				state = 'w'
			}
		}
		if until, ok := w.Closed[name]; ok && c.request.Now.Before(until) {
			state -= 'a' - 'A'
		}
		b.WriteByte(state)
	}
	return b.String()
}

// Likeness returns what Waiters have in common that are alike: who asks for the same, in the same LocalQueue and with the same
// priority, as long as policies, queues and templates stay as they are. It is empty for one that is like no other. It takes
// some time; Waiter.Like holds it.
func (w *Waiter) Likeness() string {
	r := w.Request
	asked := w.Workload.DeepCopy()
	if r.Refusal != nil || r.Policy.Steer(asked, flavors.Plan{}) != nil {
		return ""
	}
	type podSet struct {
		Asks            string
		Count, MinCount int32
	}
	like := struct {
		Namespace, ClusterQueue string
		Every, Coming           bool
		PodSets                 []podSet
		Overhead                map[string]corev1.ResourceList
		Spec                    kueue.WorkloadSpec
		Annotations             map[string]string
		Reclaimable             []kueue.ReclaimablePod
		Conditions              []metav1.Condition
		Checks                  []kueue.CheckState
		Created                 metav1.Time
	}{
		Namespace: asked.Namespace, ClusterQueue: w.ClusterQueue.Name, Every: r.EveryFlavor, Coming: r.Coming, Overhead: w.Overhead,
		Spec: asked.Spec, Annotations: asked.Annotations, Reclaimable: asked.Status.ReclaimablePods,
	}
	for i := range r.PodSets {
		ps := &r.PodSets[i]
		if !ps.told() || ps.Assigned != nil {
			return ""
		}
		like.PodSets = append(like.PodSets, podSet{ps.asks, ps.Count, ps.MinCount})
	}
	for i := range like.Spec.PodSets {
		bare(&like.Spec.PodSets[i].Template)
	}
	for _, c := range asked.Status.Conditions {
		if c.Type != kueue.WorkloadQuotaReserved && c.Type != kueue.WorkloadAdmitted { // these two nobody looks at
			like.Conditions = append(like.Conditions, c)
		}
	}
	for i := range asked.Status.AdmissionChecks {
		like.Checks = append(like.Checks, asked.Status.AdmissionChecks[i].State)
	}
	if agesMatter(w.ClusterQueue) {
		like.Created = asked.CreationTimestamp
	}
	raw, err := json.Marshal(like)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// agesMatter says whether a queue lets a Workload preempt one of its own priority for having waited longer.
func agesMatter(q *kueue.ClusterQueue) bool {
	p := q.Spec.Preemption
	return p != nil && slices.Contains([]kueue.PreemptionPolicy{p.WithinClusterQueue, p.ReclaimWithinCohort}, kueue.PreemptionPolicyLowerOrNewerEqualPriority)
}

// bare takes out of a pod template what neither Kueue nor a place depends on.
func bare(t *corev1.PodTemplateSpec) {
	t.Labels = nil
	t.Spec.Volumes = nil
	for _, containers := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Image, c.Command, c.Args, c.Env, c.EnvFrom, c.VolumeMounts = "", nil, nil, nil, nil, nil
		}
	}
}
