package release

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// entering is, by node, the last pod that was released there to be given devices by number.
type entering struct {
	mu     sync.Mutex
	byNode map[string]entrant
}

type entrant struct {
	pod types.NamespacedName
	uid types.UID
	at  time.Time
}

// enterWithin is after how long a pod that the cache still shows with its gate was not released after all.
const enterWithin = 30 * time.Second

// enter lets a pod go to its node. One that is to be given devices by number, for an extended resource, has to wait until
// what the scheduler would give it is nobody else's; and there is only one at a time on a node. done must be called once
// the pod was released, or was not; it is nil where the outcome is not ready.
func (c *Controller) enter(ctx context.Context, p *pod, s slot) (done func(), o outcome, err error) {
	r := s.byNumber()
	if r == nil {
		return func() {}, outcome{ready: true}, nil
	}
	c.entering.mu.Lock()
	keep := false
	defer func() {
		if !keep {
			c.entering.mu.Unlock()
		}
	}()
	later := outcome{again: retryEvery, waits: p.CreationTimestamp.Time}
	busy, err := c.enters(ctx, s.node, p.UID)
	if err != nil || busy {
		return nil, later, err
	}
	flavor := p.policy.Flavor(p.podSet.Flavor)
	if flavor < 0 {
		return nil, later, nil
	}
	t := c.Decider.Foresee(ctx, c.Book.Snapshot(), admission.Extended{
		Policy: p.policy, Flavor: flavor, Node: s.node, Resource: r.Request, Count: int64(len(r.Devices)), Own: s.named(), Placement: p.placement.UID,
	})
	if t != nil {
		c.tell(p.Pod, string(t.Reason), t.Message)
		return nil, later, nil
	}
	if c.entering.byNode == nil {
		c.entering.byNode = map[string]entrant{}
	}
	c.entering.byNode[s.node] = entrant{client.ObjectKeyFromObject(p.Pod), p.UID, c.Clock.Now()}
	keep = true
	return c.entering.mu.Unlock, outcome{ready: true}, nil
}

// enters says whether another pod that was released to a node may still be given devices there. The ledger says it too,
// as soon as it has seen the pod.
func (c *Controller) enters(ctx context.Context, node string, pod types.UID) (bool, error) {
	last, ok := c.entering.byNode[node]
	if !ok || last.uid == pod {
		return false, nil
	}
	p := &corev1.Pod{}
	if err := c.Client.Get(ctx, last.pod, p); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if p.UID != last.uid || terminal(p) || observe.Gated(p) && c.Clock.Since(last.at) > enterWithin {
		return false, nil
	}
	return p.Status.ExtendedResourceClaimStatus == nil, nil
}

// byNumber returns what the slot promises by number; nil for nothing.
func (s slot) byNumber() *admission.Dealt {
	for i := range s.requests {
		if s.requests[i].Claim == v1alpha1.ExtendedResourcesClaim {
			return &s.requests[i]
		}
	}
	return nil
}
