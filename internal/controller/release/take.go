package release

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/controller/round"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// outcome is what came of a pod's look for its slot. The zero value leaves the pod to an event.
type outcome struct {
	// ready: the pod has its slot.
	ready bool
	// refusal says why the Workload is to be evicted.
	refusal *refusal
	// again is after how long to look again.
	again time.Duration
	// waits is since when the pod is kept waiting for a slot; zero for one that is not.
	waits time.Time
}

// look is one pod's look for its slot. The assignment's lock is held from the snapshot on.
type look struct {
	*Controller
	*pod
	assigned *assignment
	live     map[types.UID]*corev1.Pod
	snapshot *ledger.Snapshot
	// asked is the pod's podset as admission decided on it.
	asked *admission.PodSet
	all   []slot
}

// take gives a pod its slot: the one that it has, or the first that no live pod has and that can be used. A slot that
// cannot be used is decided anew, unless what is written holds a pod to it.
func (c *Controller) take(ctx context.Context, p *pod) (slot, outcome, error) {
	l, o, err := c.look(ctx, p)
	if l == nil || err != nil {
		return slot{}, o, err
	}
	return l.next(ctx)
}

// next is take, once the assignment's lock is held.
func (l *look) next(ctx context.Context) (slot, outcome, error) {
	l.assigned.mu.Lock()
	defer l.assigned.mu.Unlock()
	if err := l.see(ctx); err != nil {
		return slot{}, outcome{}, err
	}
	if l.placement.Generation < l.assigned.generation { // it was amended, and that has not come back yet
		return slot{}, outcome{again: retryEvery}, nil
	}
	return l.take(ctx)
}

// see looks at the accounts and at the other pods. The lock is held: whoever has a slot by now is among the pods that are
// seen now, which need not be so of pods that were seen before.
func (l *look) see(ctx context.Context) (err error) {
	l.snapshot = l.Book.Snapshot()
	l.live, err = l.siblings(ctx, l.Namespace, observe.ControllerOf(l.pod.Pod))
	return err
}

// stands holds the slot of a pod that was released and is not bound yet against the accounts: what happens to it now, no
// scheduler can mend.
func (c *Controller) stands(ctx context.Context, p *pod) (outcome, error) {
	l, _, err := c.look(ctx, p)
	if l == nil || err != nil { // what its template says now is nothing to a pod that has its claim
		return outcome{}, err
	}
	l.assigned.mu.Lock()
	defer l.assigned.mu.Unlock()
	s, has := l.assigned.of(l.UID, l.all)
	if !has {
		return outcome{}, nil
	}
	if err := l.see(ctx); err != nil {
		return outcome{}, err
	}
	t := l.generic(s)
	if t == nil {
		l.fine()
		return outcome{}, nil
	}
	if l.passes(t) {
		return outcome{}, nil
	}
	return l.mend(ctx, s, t)
}

// look gathers what a pod's look for its slot needs; nil, with what comes of it, where there is nothing to look for.
func (c *Controller) look(ctx context.Context, p *pod) (*look, outcome, error) {
	live, err := c.siblings(ctx, p.Namespace, observe.ControllerOf(p.Pod))
	if err != nil {
		return nil, outcome{}, err
	}
	l := &look{Controller: c, pod: p, live: live}
	if l.assigned, err = c.assignment(ctx, p.workload, p.placement, live); err != nil {
		return nil, outcome{}, err
	}
	if l.all, err = slotsOf(p.podSet); err != nil {
		return nil, outcome{}, err
	}
	asked, no, err := c.ask(ctx, p.workload, p.policy)
	if err != nil {
		return nil, outcome{}, err
	}
	if no != nil {
		return nil, outcome{refusal: &refusal{no.Reason, no.Message}}, nil
	}
	l.asked = asked[p.podSet.Name]
	return l, outcome{}, nil
}

// ask returns a Workload's podsets as admission decides on them, by name.
func (c *Controller) ask(ctx context.Context, wl *kueue.Workload, p *flavors.Policy) (map[string]*admission.PodSet, *flavors.Refusal, error) {
	req, err := round.Requests{Client: c.Client, Policies: c.Policies}.Of(ctx, c.Clock.Now(), wl, p)
	if err != nil {
		return nil, nil, err
	}
	out := map[string]*admission.PodSet{}
	for i := range req.PodSets {
		out[req.PodSets[i].Name] = &req.PodSets[i]
	}
	return out, req.Refusal, nil
}

func (l *look) take(ctx context.Context) (slot, outcome, error) {
	if s, has := l.assigned.of(l.UID, l.all); has {
		t := l.trouble(s)
		if t == nil {
			return l.taken(s), outcome{ready: true}, nil
		}
		if l.passes(t) {
			return slot{}, outcome{again: retryEvery}, nil
		}
		o, err := l.mend(ctx, s, t)
		return slot{}, o, err
	}
	var broken *slot
	var why *admission.Trouble
	var lost bool
	for i := range l.all {
		s := &l.all[i]
		if !l.open(*s) {
			continue
		}
		t := l.trouble(*s)
		switch {
		case t == nil:
			return l.taken(*s), outcome{ready: true}, nil
		case l.passes(t):
			lost = lost || t.Lost
		case broken == nil:
			broken, why = s, t
		}
	}
	if broken != nil {
		o, err := l.mend(ctx, *broken, why)
		return slot{}, o, err
	}
	if lost { // the grace bounds it
		return slot{}, outcome{again: retryEvery}, nil
	}
	return slot{}, outcome{again: retryEvery, waits: waitsSince(l.Pod, l.live)}, nil
}

// taken notes that the pod has a slot. That is final once its claims are to be cut, or without claims once it is to be
// released; until then the slot may still be decided anew.
func (l *look) taken(s slot) slot {
	l.fine()
	if len(l.Spec.ResourceClaims) == 0 && len(l.Spec.SchedulingGates) > 1 {
		l.assigned.holds[s.key()] = hold{pod: l.UID, label: s.label}
		return s
	}
	return l.assigned.settle(s, l.UID, l.live)
}

// fine forgets what was wrong with the pod's slot.
func (l *look) fine() {
	l.since.over(client.ObjectKeyFromObject(l.Pod), sawLoss)
	if l.assigned.by == l.UID {
		l.assigned.tries, l.assigned.by = 0, ""
	}
}

// open says whether a slot is to be had: no live pod has it, or one that is ending on a node that is not coming back.
func (l *look) open(s slot) bool {
	p := l.live[l.assigned.holds[s.key()].pod]
	if p == nil {
		return true
	}
	return p.DeletionTimestamp != nil && l.generic(s).Dead(l.Clock.Now(), l.grace())
}

// generic says why no pod of the podset can use a slot; nil where one can.
func (l *look) generic(s slot) *admission.Trouble {
	return s.place().Trouble(l.snapshot, l.asked, admission.Ours{Workload: l.workload.UID, Placement: l.placement.UID, Policy: l.policy, Now: l.Clock.Now()})
}

// trouble says why this pod, as it is, cannot use a slot.
func (l *look) trouble(s slot) *admission.Trouble {
	if t := l.generic(s); t != nil {
		return t
	}
	return l.fits(s)
}

// fits holds the pod as it is, with what LimitRanges, injectors and edits made of it, against a slot whose node is there.
func (l *look) fits(s slot) *admission.Trouble {
	n := l.snapshot.Node(s.node)
	if why := admission.Unavailable(n, &l.Spec); why != "" {
		return &admission.Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: why}
	}
	room, own := n.Free.Clone(), ledger.RequestsOf(l.Pod, false)
	room.Add(l.asked.Requests, 1)
	if r := s.byNumber(); r != nil { // a DeviceClass serves it, not the node
		if name := corev1.ResourceName(r.Request); own[name] <= l.asked.Requests[name] {
			delete(own, name)
		}
	}
	k, scarce := room.Times(own, 1)
	switch {
	case k >= 1:
		return nil
	case own[scarce] > l.asked.Requests[scarce]:
		return &admission.Trouble{Reason: v1alpha1.ReasonPodChanged,
			Message: fmt.Sprintf("pod %s asks for more %s than was promised to its podset, and node %s has no more", l.Name, scarce, s.node)}
	}
	return &admission.Trouble{Reason: v1alpha1.ReasonNodeResources, Message: fmt.Sprintf("node %s has not the %s any more that was promised to pod %s", s.node, scarce, l.Name)}
}

// grace is how long what was lost is expected back.
func (l *look) grace() time.Duration {
	return time.Duration(flavors.Seconds(l.policy.Spec.Freshness.LossGraceSeconds, 60)) * time.Second
}

// passes says whether a trouble may end by itself: a device comes free, or what was lost comes back within the grace. What
// nothing says the time of counts from when this pod first saw it.
func (l *look) passes(t *admission.Trouble) bool {
	if !t.Lost {
		return t.Freeing
	}
	now, since := l.Clock.Now(), t.Since
	if since.IsZero() {
		since = l.since.first(client.ObjectKeyFromObject(l.Pod), sawLoss, now)
	}
	return now.Sub(since) <= l.grace()
}
