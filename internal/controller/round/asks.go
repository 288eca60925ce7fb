package round

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// asks gathers what a choice needs. What cannot be read while it is made is put into unread.
func (t *turns) asks(ctx context.Context, w *waiting, unread *error) (*admission.Waiter, error) {
	g, err := t.askedFor(ctx, w)
	if err != nil {
		return nil, err
	}
	req := *g.request
	req.Now, req.Heard, req.Policy = t.now, t.heard, w.managed.Policy
	asks := waiterOf(&req, w.workload, w.managed, w.placement)
	asks.Lookup = Requests{Client: t.Client, Policies: t.Policies}.flavor(ctx, unread)
	asks.Overhead, asks.Like = g.overhead, g.like
	return asks, nil
}

// gathered is what a choice for one version of a Workload needs, whenever it is made.
type gathered struct {
	inputs   int64
	version  string
	request  *admission.Request
	overhead map[string]corev1.ResourceList
	like     string
	// closed says whether it carries the empty set; nil before that was looked at.
	closed *bool
}

// askedFor gathers what a choice needs, once for each version of a Workload and of what else it depends on.
func (t *turns) askedFor(ctx context.Context, w *waiting) (*gathered, error) {
	wl := w.workload
	t.mu.Lock()
	g := t.asked[wl.UID]
	t.mu.Unlock()
	if g != nil && g.inputs == t.inputs && g.version == wl.ResourceVersion {
		return g, nil
	}
	req, err := Requests{Client: t.Client, Policies: t.Policies}.Of(ctx, t.now, wl, w.managed.Policy)
	if err != nil {
		return nil, err
	}
	g = &gathered{inputs: t.inputs, version: wl.ResourceVersion, request: req}
	if g.overhead, err = t.Policies.Overheads(ctx, wl); err != nil {
		return nil, err
	}
	like := waiterOf(req, wl, w.managed, nil)
	like.Overhead = g.overhead
	g.like = like.Likeness()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked == nil {
		t.asked = map[types.UID]*gathered{}
	}
	t.asked[wl.UID] = g
	return g, nil
}

// waiterOf joins a Request with what is remembered of the wait.
func waiterOf(req *admission.Request, wl *kueue.Workload, m *policies.Managed, placement *v1alpha1.Placement) *admission.Waiter {
	w := &admission.Waiter{
		Request: req, Workload: wl, ClusterQueue: m.ClusterQueue,
		Since: map[string]time.Time{}, Closed: map[string]time.Time{}, Victims: map[types.UID]bool{},
	}
	if placement != nil {
		for _, x := range placement.Status.Waits {
			w.Since[x.Flavor] = x.Since.Time
		}
		for _, x := range placement.Status.Closed {
			w.Closed[x.Flavor] = x.Until.Time
		}
		for _, uid := range placement.Status.Victims {
			w.Victims[types.UID(uid)] = true
		}
	}
	return w
}

// closedAlready says whether a Workload carries the empty set as it would be written.
func (t *turns) closedAlready(w *waiting) bool {
	carries := func() bool { return w.managed.Policy.Steered(w.workload) && len(flavors.AllowedOf(w.workload)) == 0 }
	t.mu.Lock()
	g := t.asked[w.workload.UID]
	t.mu.Unlock()
	if g == nil || g.inputs != t.inputs || g.version != w.workload.ResourceVersion {
		return carries()
	}
	if g.closed == nil {
		g.closed = ptr.To(carries())
	}
	return *g.closed
}
