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
// ledger of its own, which knows of nothing that is merely promised, as kube-scheduler does not; whether a node takes a pod
// is package admission's to say, and which devices it gets is for kube-scheduler's own allocator. Of the nodes that take a
// pod it chooses the first by name. It is not safe for concurrent use.
type Scheduler struct {
	client  client.Client
	clock   clock.PassiveClock
	decider *admission.Decider

	book *ledger.Book
	// version counts what may have changed an answer.
	version int64
	pending map[types.NamespacedName]*waiting
	// claims are those that are allocated; byPool their uids, by the pools of their devices.
	claims map[types.UID]*resourcev1.ResourceClaim
	byPool map[pool]map[types.UID]struct{}
	// wide are the slices that are not of one node.
	wide map[types.UID]*resourcev1.ResourceSlice
	// rules are the DeviceTaintRules.
	rules map[types.UID]struct{}
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

type pool struct{ driver, name string }

// NewScheduler returns a scheduler that has seen nothing yet.
func NewScheduler(c client.Client, now clock.PassiveClock, decider *admission.Decider) *Scheduler {
	return &Scheduler{
		client: c, clock: now, decider: decider, book: ledger.New(),
		pending: map[types.NamespacedName]*waiting{},
		claims:  map[types.UID]*resourcev1.ResourceClaim{}, byPool: map[pool]map[types.UID]struct{}{},
		wide: map[types.UID]*resourcev1.ResourceSlice{}, rules: map[types.UID]struct{}{}, byHost: map[string]map[string]struct{}{}, hostOf: map[string]string{},
	}
}

// Observe shows the scheduler an object as it is, or as gone; of kinds that do not matter to it nothing comes. It must see
// every event of Node, Pod, ResourceSlice, ResourceClaim, DeviceClass and DeviceTaintRule, those that Schedule's own writes make too. The
// object must not change afterwards.
func (s *Scheduler) Observe(obj client.Object, gone bool) {
	changed := false
	switch x := obj.(type) {
	case *corev1.Pod:
		s.observePod(x, gone)
		if x.Spec.NodeName == "" {
			return
		}
	case *corev1.Node:
		s.observeNode(x, gone)
	case *resourcev1.ResourceSlice:
		if x.Spec.NodeName == nil {
			changed = s.wide[x.UID] == nil || gone || !apiequality.Semantic.DeepEqual(s.wide[x.UID].Spec, x.Spec)
			if delete(s.wide, x.UID); !gone {
				s.wide[x.UID] = x
			}
		}
	case *resourcev1.ResourceClaim:
		s.observeClaim(x, gone)
	case *resourcev1beta2.DeviceTaintRule:
		if delete(s.rules, x.UID); !gone {
			s.rules[x.UID] = struct{}{}
		}
	case *resourcev1.DeviceClass:
	default:
		return
	}
	if o, ok := observe.Of(obj, gone); ok {
		o.At = s.clock.Now()
		_, did := s.book.Apply(o)
		changed = changed || did
	}
	if changed {
		s.version++
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

func (s *Scheduler) observeClaim(c *resourcev1.ResourceClaim, gone bool) {
	if old := s.claims[c.UID]; old != nil {
		for _, r := range old.Status.Allocation.Devices.Results {
			delete(s.byPool[pool{r.Driver, r.Pool}], c.UID)
		}
		delete(s.claims, c.UID)
	}
	if gone || c.Status.Allocation == nil {
		return
	}
	s.claims[c.UID] = c
	for _, r := range c.Status.Allocation.Devices.Results {
		at := pool{r.Driver, r.Pool}
		if s.byPool[at] == nil {
			s.byPool[at] = map[types.UID]struct{}{}
		}
		s.byPool[at][c.UID] = struct{}{}
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
	a, err := s.attempt(ctx, p)
	if err != nil || a == nil {
		return false, false, err
	}
	for _, name := range s.candidates(a.snapshot, p) {
		if placed := a.on(ctx, a.snapshot.Node(name)); placed != nil {
			return true, true, s.bind(ctx, p, placed)
		}
	}
	changed, err = s.unschedulable(ctx, p, a.why())
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
