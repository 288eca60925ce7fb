package release

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// assignments remembers, while the process lives, which pod has which slot. What is written says it too: the pins of
// released pods, and the templates of those that are not; from these it is built anew after a restart.
type assignments struct {
	mu         sync.Mutex
	byWorkload map[types.UID]*assignment
	// pruneAt is how many there are when those of Workloads that are gone are looked for next: twice what was left the last
	// time, so that this costs each of them once.
	pruneAt int
}

// assignment is who has which slot of one promise. Its lock is held while a pod takes a slot and while slots are decided
// anew, never while a pod is served.
type assignment struct {
	mu       sync.Mutex
	workload types.NamespacedName
	key      *v1alpha1.PlacementKey
	// generation is that of the Placement as it was last amended: an older one from the cache names slots that are gone.
	generation int64
	holds      map[slotKey]hold

	// tries counts the failed tries to place slots anew since the last that went well, next is when another may come, and
	// by is the pod that the last was for.
	tries int32
	next  time.Time
	by    types.UID
}

// hold is one pod's hold of a slot. With a label it is final: the pod's template, or its pin, is written or about to be.
type hold struct {
	pod   types.UID
	label string
}

// pruneAbove is from how many assignments on those of Workloads that are gone are looked for.
const pruneAbove = 4096

// siblings returns the pods of an owner that are not terminal, by uid, terminating ones included.
func (c *Controller) siblings(ctx context.Context, namespace string, owner types.UID) (map[types.UID]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{observe.PodByController: string(owner)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	live := map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		if !terminal(&list.Items[i]) {
			live[list.Items[i].UID] = &list.Items[i]
		}
	}
	return live, nil
}

// assignment returns who has which slot of a Workload's live promise.
func (c *Controller) assignment(ctx context.Context, wl *kueue.Workload, placement *v1alpha1.Placement, live map[types.UID]*corev1.Pod) (*assignment, error) {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if a := c.slots.byWorkload[wl.UID]; a != nil && ledger.SameKey(a.key, placement.Spec.Key) {
		return a, nil
	}
	a := &assignment{workload: client.ObjectKeyFromObject(wl), key: placement.Spec.Key, holds: map[slotKey]hold{}}
	for uid, sibling := range live {
		if sibling.CreationTimestamp.Unix() < a.key.ReservedAt.Unix() {
			continue // of an earlier promise
		}
		if err := c.recover(ctx, placement, uid, sibling, a); err != nil {
			return nil, err
		}
	}
	if c.slots.byWorkload == nil {
		c.slots.byWorkload = map[types.UID]*assignment{}
	}
	if len(c.slots.byWorkload) >= max(pruneAbove, c.slots.pruneAt) {
		c.prune(ctx)
		c.slots.pruneAt = 2 * len(c.slots.byWorkload)
	}
	c.slots.byWorkload[wl.UID] = a
	return a, nil
}

// prune drops the assignments of Workloads that are gone. Those of others hold what is written nowhere yet.
func (c *Controller) prune(ctx context.Context) {
	for uid, a := range c.slots.byWorkload {
		wl := &kueue.Workload{}
		if err := c.Client.Get(ctx, a.workload, wl); apierrors.IsNotFound(err) || err == nil && wl.UID != uid {
			delete(c.slots.byWorkload, uid)
		}
	}
}

// recover reads from what was written which slot a pod has: its own template names the devices, or else its pin the node,
// of which any slot will do, since such pods have no devices.
func (c *Controller) recover(ctx context.Context, placement *v1alpha1.Placement, uid types.UID, p *corev1.Pod, a *assignment) error {
	written, err := c.written(ctx, p)
	if err != nil {
		return err
	}
	if written == nil && (!observe.Released(p) || len(p.Spec.ResourceClaims) > 0) {
		return nil
	}
	snapshot := c.Book.Snapshot()
	for i := range placement.Spec.PodSets {
		all, err := slotsOf(&placement.Spec.PodSets[i])
		if err != nil {
			return err
		}
		for _, s := range all {
			key := s.key()
			if written != nil {
				if slices.Contains(s.ids(), written.device) {
					a.holds[key] = hold{pod: uid, label: written.label}
					return nil
				}
				continue
			}
			n := snapshot.Node(s.node)
			_, taken := a.holds[key]
			if !taken && s.podSet == p.Labels[constants.PodSetLabel] && n != nil && n.Hostname == p.Spec.NodeSelector[corev1.LabelHostname] {
				a.holds[key] = hold{pod: uid, label: s.id()}
				return nil
			}
		}
	}
	return nil
}

// writtenSlot is what a pod's own template says of its slot.
type writtenSlot struct {
	device ledger.DeviceID
	label  string
}

// written reads a pod's own template; nil while there is none. It reads what the template gives to its claims, which
// nobody can change.
func (c *Controller) written(ctx context.Context, p *corev1.Pod) (*writtenSlot, error) {
	for i := range p.Spec.ResourceClaims {
		name := p.Spec.ResourceClaims[i].ResourceClaimTemplateName
		if name == nil {
			continue
		}
		t := &resourcev1.ResourceClaimTemplate{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *name}, t); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("get template: %w", err)
			}
			continue
		}
		devices := observe.Devices(&metav1.ObjectMeta{Annotations: t.Spec.Annotations})
		if observe.ControllerOf(t) == p.UID && t.Spec.Labels[v1alpha1.OwnedLabel] == "true" && len(devices) > 0 {
			return &writtenSlot{device: devices[0], label: t.Spec.Annotations[v1alpha1.SlotAnnotation]}, nil
		}
	}
	return nil, nil
}

// of returns the slot that a pod has among the given, if it has one.
func (a *assignment) of(pod types.UID, all []slot) (slot, bool) {
	for _, s := range all {
		if h := a.holds[s.key()]; h.pod == pod {
			s.label = h.label
			return s, true
		}
	}
	return slot{}, false
}

// settle makes a pod's hold of a slot final and returns the slot with its label: its id, or another of the node's where a
// pod has been given that with a slot that was then elsewhere.
func (a *assignment) settle(s slot, pod types.UID, live map[types.UID]*corev1.Pod) slot {
	if s.label == "" {
		used := map[string]bool{}
		for key, h := range a.holds {
			if key != s.key() && live[h.pod] != nil {
				used[h.label] = true
			}
		}
		s.label = s.id()
		for i := int32(0); used[s.label]; i++ {
			s.label = slotID(s.podSet, s.node, i)
		}
	}
	a.holds[s.key()] = hold{pod: pod, label: s.label}
	return s
}

// renumber follows an amended podset: a slot without devices has another index where one before it on its node went. all are
// the slots as they were, less those that moved, and now the same as they are.
func (a *assignment) renumber(all, now []slot) {
	next := map[slotKey]hold{}
	for i, s := range all {
		if h, ok := a.holds[s.key()]; ok {
			delete(a.holds, s.key())
			next[now[i].key()] = h
		}
	}
	for key, h := range next {
		a.holds[key] = h
	}
}
