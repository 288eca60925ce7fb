package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Scheduler is kube-scheduler: it binds pods to nodes and gives them their devices. What is on the nodes it reads from a
// ledger of its own, which knows of nothing that is merely promised, as kube-scheduler does not; whether a node takes a pod,
// which devices it gets there and what they take of the node is what package admission predicts of kube-scheduler. Of the nodes
// that take a pod it chooses the first by name. It is not safe for concurrent use.
type Scheduler struct {
	client  client.Client
	clock   clock.PassiveClock
	decider *admission.Decider

	book *ledger.Book
	// version counts what may have changed an answer.
	version int64
	pending map[types.NamespacedName]*waiting
	// byHost are the names of nodes, by their hostname label.
	byHost map[string]map[string]struct{}
	hostOf map[string]string
}

// waiting is a pod that is to be bound.
type waiting struct {
	pod *corev1.Pod
	// tried is the version at which it was found to fit nowhere; -1 before.
	tried int64
}

// NewScheduler returns a scheduler that has seen nothing yet.
func NewScheduler(c client.Client, now clock.PassiveClock, decider *admission.Decider) *Scheduler {
	return &Scheduler{
		client: c, clock: now, decider: decider, book: ledger.New(),
		pending: map[types.NamespacedName]*waiting{}, byHost: map[string]map[string]struct{}{}, hostOf: map[string]string{},
	}
}

// Observe shows the scheduler an object as it is, or as gone; of kinds that do not matter to it nothing comes. It must see
// every event of Node, Pod, ResourceSlice, ResourceClaim, DeviceClass and DeviceTaintRule, those that Schedule's own writes make too. The
// object must not change afterwards.
func (s *Scheduler) Observe(obj client.Object, gone bool) {
	switch x := obj.(type) {
	case *corev1.Pod:
		s.observePod(x, gone)
		if x.Spec.NodeName == "" {
			return
		}
	case *corev1.Node:
		s.observeNode(x, gone)
	case *resourcev1.ResourceSlice, *resourcev1.ResourceClaim, *resourcev1beta2.DeviceTaintRule, *resourcev1.DeviceClass:
	default:
		return
	}
	if o, ok := observe.Of(obj, gone); ok {
		o.At = s.clock.Now()
		if _, changed := s.book.Apply(o); changed {
			s.version++
		}
	}
}

func (s *Scheduler) observePod(p *corev1.Pod, gone bool) {
	key := client.ObjectKeyFromObject(p)
	if gone || p.Spec.NodeName != "" || terminal(p) || p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 ||
		p.Spec.SchedulerName != "" && p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		delete(s.pending, key)
		return
	}
	w := &waiting{pod: p, tried: -1}
	if old := s.pending[key]; old != nil && old.pod.UID == p.UID && apiequality.Semantic.DeepEqual(old.pod.Spec, p.Spec) &&
		apiequality.Semantic.DeepEqual(old.pod.Status.ResourceClaimStatuses, p.Status.ResourceClaimStatuses) {
		w.tried = old.tried
	}
	s.pending[key] = w
}

func (s *Scheduler) observeNode(n *corev1.Node, gone bool) {
	if host, known := s.hostOf[n.Name]; known {
		delete(s.byHost[host], n.Name)
		delete(s.hostOf, n.Name)
	}
	if host := n.Labels[corev1.LabelHostname]; !gone && host != "" {
		if s.byHost[host] == nil {
			s.byHost[host] = map[string]struct{}{}
		}
		s.byHost[host][n.Name], s.hostOf[n.Name] = struct{}{}, host
	}
}

// Schedule tries once to bind every pod that waits for it, by priority and then age. changed says whether it wrote anything.
// A pod that fits nowhere is tried again once anything has changed.
func (s *Scheduler) Schedule(ctx context.Context) (changed bool, err error) {
	var due []*waiting
	for _, w := range s.pending {
		if w.tried < s.version {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, func(a, b *waiting) int {
		return cmp.Or(
			cmp.Compare(schedulingcorev1.PodPriority(b.pod), schedulingcorev1.PodPriority(a.pod)),
			a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
			cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name),
		)
	})
	var stuck []*waiting
	for _, w := range due {
		did, bound, err := s.try(ctx, w.pod)
		changed = changed || did
		if err != nil {
			return changed, fmt.Errorf("schedule pod %s/%s: %w", w.pod.Namespace, w.pod.Name, err)
		}
		if !bound {
			stuck = append(stuck, w)
		}
	}
	for _, w := range stuck { // what was bound meanwhile leaves them no more room, but it may have allocated a claim of theirs
		if w = s.pending[client.ObjectKeyFromObject(w.pod)]; w != nil && !shares(w.pod) {
			w.tried = s.version
		}
	}
	return changed, nil
}

// shares says whether a pod uses claims that it does not own.
func shares(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.ResourceClaimName != nil })
}

// try binds one pod if it fits anywhere.
func (s *Scheduler) try(ctx context.Context, seen *corev1.Pod) (changed, bound bool, err error) {
	p := &corev1.Pod{}
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(seen), p); err != nil || p.UID != seen.UID || p.Spec.NodeName != "" {
		return false, false, client.IgnoreNotFound(err)
	}
	in, err := s.incoming(ctx, p)
	if err != nil {
		return false, false, err
	}
	snapshot := s.book.Snapshot()
	node, said := place(ctx, s.decider.Outlook(snapshot, in), s.candidates(snapshot, p))
	switch {
	case ctx.Err() != nil:
		return false, false, ctx.Err()
	case said.Fits:
		return true, true, s.bind(ctx, in, node, &said)
	case said.Reach == admission.ReachQueue:
		return false, false, nil
	}
	changed, err = s.unschedulable(ctx, p, told(&said, len(snapshot.Nodes())))
	return changed, false, err
}

// candidates are the names of the nodes that a pod may be for, in order.
func (s *Scheduler) candidates(snapshot *ledger.Snapshot, p *corev1.Pod) []string {
	if host, pinned := p.Spec.NodeSelector[corev1.LabelHostname]; pinned {
		return slices.Sorted(maps.Keys(s.byHost[host]))
	}
	var names []string
	for _, n := range snapshot.Nodes() {
		names = append(names, n.Name)
	}
	return names
}

// unschedulable says in a pod's status why it is not bound, where it does not say so yet.
func (s *Scheduler) unschedulable(ctx context.Context, p *corev1.Pod, why string) (changed bool, err error) {
	c := condition(p, corev1.PodScheduled)
	if c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return false, nil
	}
	setCondition(p, s.clock.Now(), corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
	})
	if err := s.client.Status().Update(ctx, p); err != nil {
		return false, fmt.Errorf("update pod: %w", err)
	}
	return true, nil
}
