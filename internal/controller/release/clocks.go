package release

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// waitsSince returns from when on a pod without a slot counts as kept waiting: from when the first of the pods before it
// should have ended, or its own creation if that is later. The API tells both, so a restart changes nothing.
func waitsSince(p *corev1.Pod, siblings map[types.UID]*corev1.Pod) time.Time {
	var ends time.Time
	for _, s := range siblings {
		if s.DeletionTimestamp == nil || s.Labels[constants.PodSetLabel] != p.Labels[constants.PodSetLabel] {
			continue
		}
		if ends.IsZero() || s.DeletionTimestamp.Time.Before(ends) {
			ends = s.DeletionTimestamp.Time
		}
	}
	if ends.After(p.CreationTimestamp.Time) {
		return ends
	}
	return p.CreationTimestamp.Time
}

// releasedSince returns when a pod's gate was removed. A process that did not remove it reads that from the pod itself: the
// API server keeps when we last wrote to it, which the cache does not hold. PodScheduled tells nothing: it is False from the
// pod's creation on.
func (c *Controller) releasedSince(ctx context.Context, p *corev1.Pod) (time.Time, error) {
	key := client.ObjectKeyFromObject(p)
	if t, ok := c.since.seen(key, sawRelease); ok {
		return t, nil
	}
	live := &corev1.Pod{}
	if err := c.Live.Get(ctx, key, live); client.IgnoreNotFound(err) != nil {
		return time.Time{}, fmt.Errorf("get pod: %w", err)
	}
	at := c.Clock.Now()
	for _, f := range live.ManagedFields {
		if live.UID == p.UID && f.Manager == v1alpha1.FieldOwner && f.Subresource == "" && f.Time != nil {
			at = f.Time.Time
		}
	}
	return c.since.first(key, sawRelease, at), nil
}

// What is remembered of a pod.
const (
	sawRelease = "release"
	sawLoss    = "loss"
)

// sightings remembers when something about a pod was first seen, and what was said about it.
type sightings struct {
	mu    sync.Mutex
	at    map[types.NamespacedName]map[string]time.Time
	words map[types.NamespacedName]string
}

// first returns when what was first seen of a pod: before, or else now.
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

// seen returns when what was first seen of a pod, if it was.
func (s *sightings) seen(pod types.NamespacedName, what string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.at[pod][what]
	return t, ok
}

// over forgets what was seen of a pod: it is not so any more.
func (s *sightings) over(pod types.NamespacedName, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at[pod], what)
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
