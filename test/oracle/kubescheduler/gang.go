package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// scheduleGang lets a scheduler look at pods one after another, once each: at each when it has seen that the one before was
// bound. It ends with the first that is not.
func scheduleGang(ctx context.Context, s *scheduler.Scheduler, c *cluster, pods []*corev1.Pod) (world.Answer, error) {
	var out world.Answer
	for _, p := range pods {
		c.claims, c.mapped, c.node = map[string]*resourcev1.ResourceClaim{}, nil, ""
		a, err := scheduleOne(ctx, s, c, p)
		if err != nil {
			return out, err
		}
		a.Node = c.node
		if out.Gang = append(out.Gang, a); !a.Fits {
			return out, nil
		}
		if err := confirmed(ctx, s, p); err != nil {
			return out, err
		}
	}
	out.Fits = true
	return out, nil
}

// boundTo writes where a pod was bound to.
func (c *cluster) boundTo(a clienttesting.Action, b *corev1.Binding) error {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	now, err := c.client.Tracker().Get(pods, a.GetNamespace(), b.Name)
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	p := now.(*corev1.Pod).DeepCopy()
	p.Spec.NodeName, c.node = b.Target.Name, b.Target.Name
	p.ResourceVersion = fmt.Sprint(c.version.Add(1))
	if err := c.client.Tracker().Update(pods, p, a.GetNamespace()); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// confirmed waits until a scheduler has seen that a pod is bound.
func confirmed(ctx context.Context, s *scheduler.Scheduler, p *corev1.Pod) error {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		if known, err := s.Cache.GetPod(p); err == nil && known.Spec.NodeName != "" {
			if assumed, err := s.Cache.IsAssumedPod(p); err == nil && !assumed {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("bind: %w", context.Cause(ctx))
		}
	}
}
