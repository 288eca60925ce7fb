package release

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// slot is one pod's place in a Placement.
type slot struct {
	podSet, node string
	index        int32
	requests     []slotRequest
}

type slotRequest struct {
	claim, request string
	devices        []ledger.DeviceID
}

// id names the slot within its Placement, as the annotation of its template does.
func (s slot) id() string { return s.podSet + "/" + s.node + "/" + strconv.Itoa(int(s.index)) }

func (s slot) devices() []string {
	var out []string
	for _, r := range s.requests {
		for _, d := range r.devices {
			out = append(out, d.String())
		}
	}
	return out
}

// slotsOf lists the slots of a podset in order of node and index.
func slotsOf(ps *v1alpha1.PlacementPodSet) ([]slot, error) {
	var out []slot
	for _, n := range ps.Nodes {
		for i := range n.Slots {
			s := slot{podSet: ps.Name, node: n.Name, index: i}
			for _, r := range n.Requests {
				each := len(r.Devices) / int(n.Slots)
				part := slotRequest{claim: r.Claim, request: r.Request}
				for _, id := range r.Devices[int(i)*each : (int(i)+1)*each] {
					d, err := ledger.ParseDeviceID(id)
					if err != nil {
						return nil, fmt.Errorf("placement: %w", err)
					}
					part.devices = append(part.devices, d)
				}
				s.requests = append(s.requests, part)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// slots remembers, while the process lives, which pod has which slot. What is written says it too: the pins of released
// pods, and the templates of those that are not; from these it is built anew after a restart.
type slots struct {
	mu         sync.Mutex
	byWorkload map[types.UID]*assignment
}

type assignment struct {
	key   *v1alpha1.PlacementKey
	taken map[string]types.UID
}

// maxAssignments is how many Workloads' assignments are kept before all are dropped, to be built anew when asked for.
const maxAssignments = 4096

// take gives a pod its slot: the one that it has, or the first that no live pod has and whose devices nobody but this
// Placement holds any more. ok is false while there is none.
func (c *Controller) take(ctx context.Context, p *pod) (s slot, ok bool, err error) {
	all, err := slotsOf(p.podSet)
	if err != nil {
		return s, false, err
	}
	live, err := c.siblings(ctx, p)
	if err != nil {
		return s, false, err
	}
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	a, err := c.assignment(ctx, p, live)
	if err != nil {
		return s, false, err
	}
	for _, s := range all {
		if a.taken[s.id()] == p.UID {
			return s, true, nil
		}
	}
	snapshot := c.Book.Snapshot()
	for _, s := range all {
		if holder, held := a.taken[s.id()]; held && live[holder] != nil {
			continue
		}
		if !c.vacant(snapshot, s, p.placement.UID) {
			continue
		}
		a.taken[s.id()] = p.UID
		return s, true, nil
	}
	return s, false, nil
}

// siblings returns the pods of the Workload that are not terminal, by uid, terminating ones included.
func (c *Controller) siblings(ctx context.Context, p *pod) (map[types.UID]*corev1.Pod, error) {
	list := &corev1.PodList{}
	owner := string(observe.ControllerOf(p.Pod))
	if err := c.Client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingFields{PodByController: owner}, client.UnsafeDisableDeepCopy); err != nil {
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

// assignment returns who has which slot of the Workload's current promise. The lock is held.
func (c *Controller) assignment(ctx context.Context, p *pod, live map[types.UID]*corev1.Pod) (*assignment, error) {
	if c.slots.byWorkload == nil || len(c.slots.byWorkload) > maxAssignments {
		c.slots.byWorkload = map[types.UID]*assignment{}
	}
	a := c.slots.byWorkload[p.workload.UID]
	if a != nil && ledger.SameKey(a.key, p.placement.Spec.Key) {
		return a, nil
	}
	a = &assignment{key: p.placement.Spec.Key, taken: map[string]types.UID{}}
	for uid, sibling := range live {
		if sibling.CreationTimestamp.Unix() < a.key.ReservedAt.Unix() {
			continue // of an earlier promise
		}
		id, err := c.writtenSlot(ctx, p, sibling, a)
		if err != nil {
			return nil, err
		}
		if id != "" {
			a.taken[id] = uid
		}
	}
	c.slots.byWorkload[p.workload.UID] = a
	return a, nil
}

// writtenSlot reads from what was written which slot a pod has: its own template says it, or else its pin, of which any
// slot on that node will do, since such pods have no devices.
func (c *Controller) writtenSlot(ctx context.Context, p *pod, sibling *corev1.Pod, a *assignment) (string, error) {
	for i := range sibling.Spec.ResourceClaims {
		name := sibling.Spec.ResourceClaims[i].ResourceClaimTemplateName
		if name == nil {
			continue
		}
		t := &resourcev1.ResourceClaimTemplate{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: sibling.Namespace, Name: *name}, t); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("get template: %w", err)
			}
			continue
		}
		if observe.ControllerOf(t) == sibling.UID && t.Labels[v1alpha1.OwnedLabel] == "true" {
			return t.Annotations[v1alpha1.SlotAnnotation], nil
		}
	}
	if !observe.Released(sibling) || len(sibling.Spec.ResourceClaims) > 0 {
		return "", nil
	}
	snapshot := c.Book.Snapshot()
	for _, ps := range p.placement.Spec.PodSets {
		for _, n := range ps.Nodes {
			view := snapshot.Node(n.Name)
			if ps.Name != sibling.Labels[constants.PodSetLabel] || view == nil || view.Hostname != sibling.Spec.NodeSelector[corev1.LabelHostname] {
				continue
			}
			for i := range n.Slots {
				if id := (slot{podSet: ps.Name, node: n.Name, index: i}).id(); a.taken[id] == "" {
					return id, nil
				}
			}
		}
	}
	return "", nil
}

// vacant says whether nobody but the Placement holds a slot's devices.
func (c *Controller) vacant(snapshot *ledger.Snapshot, s slot, placement types.UID) bool {
	n := snapshot.Node(s.node)
	if n == nil || len(s.requests) == 0 {
		return true // fits says what is wrong with the node
	}
	want := strings.Join(s.devices(), ",") + ","
	for i := range n.Devices {
		if !strings.Contains(want, n.Devices[i].ID.String()+",") {
			continue
		}
		for _, h := range n.Devices[i].Holders {
			if h.UID != placement {
				return false
			}
		}
	}
	return true
}

// sightings remembers when something about a pod was first seen, and what was said about it.
type sightings struct {
	mu    sync.Mutex
	at    map[types.NamespacedName]map[string]time.Time
	words map[types.NamespacedName]string
}

// first returns when what was first seen of a pod.
func (s *sightings) first(pod types.NamespacedName, what string, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[types.NamespacedName]map[string]time.Time{}
	}
	if s.at[pod] == nil {
		s.at[pod] = map[string]time.Time{}
	}
	if t, ok := s.at[pod][what]; ok {
		return t
	}
	s.at[pod][what] = now
	return now
}

// told says whether these words were the last about a pod, and keeps them.
func (s *sightings) told(pod types.NamespacedName, words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.words == nil {
		s.words = map[types.NamespacedName]string{}
	}
	if s.words[pod] == words {
		return true
	}
	s.words[pod] = words
	return false
}

// forget drops what is remembered of a pod that is gone.
func (s *sightings) forget(pod types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, pod)
	delete(s.words, pod)
}
