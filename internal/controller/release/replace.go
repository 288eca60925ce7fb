package release

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxTries is after how many failed tries to place slots anew a Workload gives its quota back, heldTries after how many looks
// at a slot that a pod is held to, which only what took it can mend. The policy's retry.limit may say fewer. Quota is held
// for nothing meanwhile, so they are few.
const (
	maxTries  = 3
	heldTries = 2
)

// forgetAfter is how long after its next try was due a failed one tells nothing any more.
const forgetAfter = time.Minute

// lookEvery is how often a pod looks between two tries whether its slot can be used again.
const lookEvery = time.Second

// mend decides a slot that cannot be used anew, with those beside it that no pod is held to and that cannot be used either;
// where these alone find no place, with all that no pod is held to. Then the pod looks again. Where it cannot be done, it is
// tried again after a while, and in the end the Workload is evicted.
//
// A pod whose template is written is held to its devices, since its claim cannot be changed and is not ours to delete; so is
// one without claims once it is released, to its node.
func (l *look) mend(ctx context.Context, s slot, why *admission.Trouble) (outcome, error) {
	if wait := l.assigned.next.Sub(l.Clock.Now()); wait > 0 {
		return outcome{again: min(wait, lookEvery)}, nil
	}
	if s.label != "" {
		if l.generic(s) == nil && why.Reason != v1alpha1.ReasonNodeResources { // the pod has changed, and does not change back
			return outcome{refusal: &refusal{why.Reason, why.Message}}, nil
		}
		return l.failed(why, "", heldTries), nil
	}
	l.Store.Deciding.Lock()
	defer l.Store.Deciding.Unlock()
	l.snapshot = l.Book.Snapshot()
	if why = l.trouble(s); why == nil || l.passes(why) { // it ended while a round held the lock
		return outcome{again: retryEvery}, nil
	}
	broken, movable := l.movable(s)
	dec := l.decide(ctx, s, broken)
	if dec.Verdict != v1alpha1.VerdictAdmit && len(movable) > len(broken) {
		if all := l.decide(ctx, s, movable); all.Verdict == v1alpha1.VerdictAdmit {
			broken, dec = movable, all
		}
	}
	if dec.Verdict != v1alpha1.VerdictAdmit {
		return l.failed(why, dec.Message, maxTries), nil
	}
	if l.conflicts(ctx, broken, dec) {
		return outcome{again: ledger.ReserveAgain}, nil
	}
	return l.amend(ctx, broken, dec, why)
}

// conflicts says whether a decision must not be written: what it touches has changed since its snapshot, or the slots that
// it gives back count for nothing as the book knows their Workload.
func (l *look) conflicts(ctx context.Context, moved []slot, dec admission.Decision) bool {
	nodes := ledger.NodesOf(dec.PodSets)
	for _, s := range moved {
		nodes = append(nodes, s.node)
	}
	changed := l.Book.Reserve(l.snapshot, l.placement.Spec.Key, nodes...)
	if len(changed) == 0 {
		return false
	}
	l.Metrics.Conflicts.WithLabelValues("Replacement").Inc()
	log.FromContext(ctx).V(2).Info("Left slots to be placed anew on newer accounts", "changed", changed)
	return true
}

// movable returns the slots that may be decided anew, the given one first: those of them that cannot be used, and all. A
// slot that is about to come free, or that may come back within the grace, is left alone.
func (l *look) movable(first slot) (broken, all []slot) {
	broken, all = []slot{first}, []slot{first}
	for _, s := range l.all {
		if s.key() == first.key() {
			continue
		}
		h := l.assigned.holds[s.key()]
		if !l.open(s) && h.label != "" {
			continue
		}
		switch t := l.generic(s); {
		case t == nil:
			all = append(all, s)
		case t.Freeing || t.Lost && !t.Dead(l.Clock.Now(), l.grace()):
		default:
			broken, all = append(broken, s), append(all, s)
		}
	}
	return broken, all
}

// decide asks admission for other places for slots, the first of which is for the pod as it is.
func (l *look) decide(ctx context.Context, first slot, move []slot) admission.Decision {
	mine := *l.asked
	mine.Name = ofPod(l.Name)
	mine.Count, mine.Spec, mine.Requests = 1, &l.Spec, ledger.RequestsOf(l.Pod, false)
	req := &admission.Request{Now: l.Clock.Now(), Policy: l.policy, Namespace: l.Namespace, PodSets: []admission.PodSet{mine}}
	if others := len(move) - 1; others > 0 {
		rest := *l.asked
		rest.Count = int32(others) //nolint:gosec // fewer than the slots of a Placement
		req.PodSets = append(req.PodSets, rest)
	}
	var back []ledger.PodSetClaim
	for _, s := range move {
		back = append(back, ledger.PodSetClaim{Node: s.node, Slots: 1, Requests: l.asked.Requests, Devices: s.ids()})
	}
	give := admission.Return{Placement: l.placement.UID, Claims: back, Charge: l.podSet.Charge}
	beside := l.Store.Beside(l.snapshot, l.workload.UID)
	dec := l.Decider.Replace(ctx, beside, req, give)
	if dec.Verdict != v1alpha1.VerdictAdmit && beside != l.snapshot {
		dec = l.Decider.Replace(ctx, l.snapshot, req, give)
	}
	return dec
}

// ofPod names what one pod asks for among what its podset does.
func ofPod(name string) string { return "pod " + name }

// found returns the slots that a decision found, the pod's own first.
func (l *look) found(dec admission.Decision) ([]slot, error) {
	var out []slot
	for i := range dec.PodSets {
		ps := dec.PodSets[i]
		first := ps.Name == ofPod(l.Name)
		ps.Name = l.podSet.Name
		part, err := slotsOf(&ps)
		if err != nil {
			return nil, err
		}
		if first {
			out = append(part, out...)
		} else {
			out = append(out, part...)
		}
	}
	return out, nil
}

// amend writes a Placement in which slots are elsewhere. The pod gets the first of the new ones.
func (l *look) amend(ctx context.Context, moved []slot, dec admission.Decision, why *admission.Trouble) (outcome, error) {
	kept := slices.DeleteFunc(slices.Clone(l.all), func(s slot) bool {
		return slices.ContainsFunc(moved, func(m slot) bool { return m.key() == s.key() })
	})
	fresh, err := l.found(dec)
	if err != nil {
		return outcome{}, err
	}
	nodes, now, err := regroup(slices.Concat(kept, fresh))
	if err != nil {
		return l.failed(why, err.Error(), maxTries), nil
	}
	podSets := slices.Clone(l.placement.Spec.PodSets)
	for i := range podSets {
		if podSets[i].Name == l.podSet.Name {
			podSets[i].Nodes = nodes
		}
	}
	written, err := l.Store.Amend(ctx, l.placement, podSets)
	if err != nil {
		return outcome{}, err
	}
	for _, s := range moved {
		delete(l.assigned.holds, s.key())
	}
	l.assigned.renumber(kept, now)
	mine := now[len(kept)]
	l.assigned.holds[mine.key()] = hold{pod: l.UID}
	l.assigned.generation, l.assigned.tries, l.assigned.by = written.Generation, 0, ""
	l.Metrics.Replacements.WithLabelValues(string(why.Reason)).Add(float64(len(moved)))
	logger := log.FromContext(ctx)
	logger.V(2).Info("Placed slots anew", "reason", why.Reason, "slots", len(moved), "node", mine.node)
	faultpoint.Reach(logger, faultpoint.AfterReplace)
	message := fmt.Sprintf("%s placed anew in flavor %s: %s", count(len(moved), "slot"), l.podSet.Flavor, why.Message)
	l.Events.Eventf(l.Pod, nil, corev1.EventTypeNormal, "Replaced", "Release", "%s", message)
	err = l.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(l.workload), func(s *v1alpha1.PlacementStatus) {
		if s.Record != nil { // its standings say why this flavor, which is as it was
			s.Record.Time, s.Record.Message = metav1.NewTime(l.Clock.Now()), admission.PlacedMessage(podSets, message)
		}
	})
	return outcome{again: retryEvery}, err // sooner where the Placement comes back before
}

// failed notes that no other place was found, and says when to try again or, after so many tries, why to evict.
func (l *look) failed(why *admission.Trouble, message string, tries int64) outcome {
	a, now := l.assigned, l.Clock.Now()
	if now.Sub(a.next) > forgetAfter {
		a.tries = 0
	}
	a.tries++
	a.by = l.UID
	limit := min(tries, flavors.Seconds(l.policy.Spec.Retry.Limit, 10))
	if int64(a.tries) >= limit {
		a.tries = 0
		said := why.Message
		if message != "" {
			said += "; there is no other place: " + message
		}
		return outcome{refusal: &refusal{why.Reason, said}}
	}
	wait := eviction.Backoff(l.policy.Spec.Retry, a.tries)
	a.next = now.Add(wait)
	return outcome{again: min(wait, lookEvery)}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
