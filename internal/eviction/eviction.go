// Package eviction takes a Workload's quota back when its promise cannot be kept, and counts how often.
package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// Evictor evicts. It is safe for concurrent use.
type Evictor struct {
	Writer  *steering.Writer
	Store   *placements.Store
	Events  events.EventRecorder
	Metrics *metrics.Metrics
	Now     func() time.Time
}

// Evict deactivates a Workload under a nonce, having written down why and until when it is not tried again. It comes
// back by itself: see steering.Reactivate.
func (e *Evictor) Evict(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, reason v1alpha1.Reason, message string) error {
	return e.evict(ctx, wl, reason, message, func(s *v1alpha1.PlacementStatus) {
		old := s.Retry
		noted := old != nil && old.NotBefore != nil && notedSince(ReservedAt(wl), old.NotBefore.Time, p, old.Count)
		if noted && old.Reason == reason && old.Message == message && old.NotBefore.After(e.Now()) {
			return
		}
		s.Retry = count(s, noted, reason, message)
		until := metav1.NewTime(e.Now().Add(Backoff(p.Spec.Retry, s.Retry.Count)))
		s.Retry.NotBefore = &until
	})
}

// count returns a further eviction, or the same one again where it was noted already: by a try whose second write was
// refused, or that did not live to make it.
func count(s *v1alpha1.PlacementStatus, noted bool, reason v1alpha1.Reason, message string) *v1alpha1.PlacementRetry {
	r := &v1alpha1.PlacementRetry{Count: 1, Reason: reason, Message: message}
	if s.Retry != nil {
		if r.Count = s.Retry.Count; !noted {
			r.Count++
		}
	}
	return r
}

// evict writes down what note says of it, and deactivates.
func (e *Evictor) evict(ctx context.Context, wl *kueue.Workload, reason v1alpha1.Reason, message string, note func(*v1alpha1.PlacementStatus)) error {
	if !ptr.Deref(wl.Spec.Active, true) {
		return nil // by us, or by somebody who did not ask us
	}
	if _, err := e.Store.Ensure(ctx, wl); err != nil {
		return err
	}
	err := e.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), note)
	if err != nil {
		return fmt.Errorf("record eviction: %w", err)
	}
	logger := log.FromContext(ctx)
	faultpoint.Reach(logger, faultpoint.AfterNote)
	if err := e.Writer.Deactivate(ctx, wl); err != nil {
		return err
	}
	logger.Info("Evicted workload", "workload", client.ObjectKeyFromObject(wl), "reason", reason)
	e.Metrics.Evictions.WithLabelValues(string(reason)).Inc()
	e.Events.Eventf(wl, nil, corev1.EventTypeWarning, string(reason), "Evict", "%s", message)
	faultpoint.Reach(logger, faultpoint.AfterDeactivate)
	return nil
}

// Refuse evicts a Workload whose reservation on some flavors cannot be kept: those are closed for it for a backoff, the
// others may be tried at once.
func (e *Evictor) Refuse(ctx context.Context, wl *kueue.Workload, p *flavors.Policy, refused []string, why flavors.Refusal) error {
	return e.evict(ctx, wl, why.Reason, why.Message, func(s *v1alpha1.PlacementStatus) {
		noted := false
		for _, c := range s.Closed {
			if !slices.Contains(refused, c.Flavor) {
				continue
			}
			if c.Until.After(e.Now()) {
				return
			}
			noted = noted || s.Retry != nil && notedSince(ReservedAt(wl), c.Until.Time, p, s.Retry.Count)
		}
		r := count(s, noted, why.Reason, why.Message)
		if s.Retry != nil {
			r.NotBefore = s.Retry.NotBefore
		}
		s.Retry = r
		Close(s, refused, e.Now(), e.Now().Add(Backoff(p.Spec.Retry, r.Count)))
	})
}

// notedSince says whether a backoff until a time, the n-th, was written down after a reservation began: an eviction ends its
// reservation, so that was for this one, however long ago.
func notedSince(reserved, until time.Time, p *flavors.Policy, n int32) bool {
	return !reserved.IsZero() && !until.Add(-Backoff(p.Spec.Retry, n)).Before(reserved)
}

// ReservedAt returns when a Workload's quota was reserved; zero where it holds none.
func ReservedAt(wl *kueue.Workload) time.Time {
	if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// maxClosed is how many flavors a status lists as closed, and a policy has at most.
const maxClosed = 16

// Close closes flavors for a Workload until a time, and forgets those whose time is over.
func Close(s *v1alpha1.PlacementStatus, refused []string, now, until time.Time) {
	s.Closed = slices.DeleteFunc(s.Closed, func(c v1alpha1.FlavorClosed) bool {
		return !c.Until.After(now) || slices.Contains(refused, c.Flavor)
	})
	for _, f := range refused {
		s.Closed = append(s.Closed, v1alpha1.FlavorClosed{Flavor: f, Until: metav1.NewTime(until)})
	}
	// More than a policy has flavors are those of earlier policies.
	slices.SortFunc(s.Closed, func(a, b v1alpha1.FlavorClosed) int {
		return cmp.Or(b.Until.Compare(a.Until.Time), cmp.Compare(a.Flavor, b.Flavor))
	})
	s.Closed = s.Closed[:min(len(s.Closed), maxClosed)]
	slices.SortFunc(s.Closed, func(a, b v1alpha1.FlavorClosed) int { return cmp.Compare(a.Flavor, b.Flavor) })
}

// Backoff returns how long a Workload waits after its n-th eviction: it doubles from initialSeconds to maxSeconds, and
// from the limit on is maxSeconds.
func Backoff(r v1alpha1.PolicyRetry, n int32) time.Duration {
	wait, longest := flavors.Seconds(r.InitialSeconds, 5), flavors.Seconds(r.MaxSeconds, 300)
	if int64(n) >= flavors.Seconds(r.Limit, 10) {
		return time.Duration(longest) * time.Second
	}
	for range n - 1 {
		if wait *= 2; wait >= longest {
			break
		}
	}
	return time.Duration(min(wait, longest)) * time.Second
}
