package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nodes is the node lifecycle controller: it taints nodes by their conditions.
type nodes struct {
	client client.Client
	clock  clock.PassiveClock
	// since is when each taint was put on a node: one that is written anew whole keeps it.
	since map[string]map[taintKey]since
}

type taintKey struct {
	key    string
	effect corev1.TaintEffect
}

// since is when something was first so.
type since struct{ at time.Time }

// pressures are the conditions for which nodes get a NoSchedule taint.
var pressures = []struct {
	condition corev1.NodeConditionType
	taint     string
}{
	{corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.TaintNodeNetworkUnavailable},
}

func (c *nodes) controller() Controller {
	return Controller{"node-lifecycle", c, []Watch{{&corev1.Node{}, itself}}}
}

// Reconcile looks at one node.
func (c *nodes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	n := &corev1.Node{}
	if err := c.client.Get(ctx, req.NamespacedName, n); err != nil {
		delete(c.since, req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	want := wantedTaints(n)
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return ours(t.Key) && !want[taintKey{t.Key, t.Effect}]
	})
	known := map[taintKey]since{}
	for _, key := range order {
		if !want[key] {
			continue
		}
		s, ok := c.since[req.Name][key]
		if !ok {
			s = since{c.clock.Now()}
		}
		has := slices.IndexFunc(taints, func(t corev1.Taint) bool { return t.Key == key.key && t.Effect == key.effect })
		if has < 0 {
			t := corev1.Taint{Key: key.key, Effect: key.effect}
			if key.effect == corev1.TaintEffectNoExecute {
				t.TimeAdded = ptr.To(metav1.NewTime(s.at))
			}
			taints = append(taints, t)
		}
		known[key] = s
	}
	c.since[req.Name] = known
	if apiequality.Semantic.DeepEqual(taints, n.Spec.Taints) {
		return reconcile.Result{}, nil
	}
	n.Spec.Taints = taints
	if err := c.client.Update(ctx, n); err != nil {
		return reconcile.Result{}, fmt.Errorf("taint node: %w", err)
	}
	return reconcile.Result{}, nil
}

// order is that in which taints are put on.
var order = func() []taintKey {
	var out []taintKey
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		out = append(out, taintKey{key, corev1.TaintEffectNoSchedule}, taintKey{key, corev1.TaintEffectNoExecute})
	}
	for _, p := range pressures {
		out = append(out, taintKey{p.taint, corev1.TaintEffectNoSchedule})
	}
	return append(out, taintKey{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule})
}()

// ours says whether the node lifecycle controller alone puts a taint on and takes it off.
func ours(key string) bool {
	return slices.ContainsFunc(order, func(k taintKey) bool { return k.key == key })
}

func wantedTaints(n *corev1.Node) map[taintKey]bool {
	want := map[taintKey]bool{}
	if !nodeReady(n) {
		key := corev1.TaintNodeNotReady
		if nodeCondition(n, corev1.NodeReady).Status == corev1.ConditionUnknown {
			key = corev1.TaintNodeUnreachable
		}
		want[taintKey{key, corev1.TaintEffectNoSchedule}], want[taintKey{key, corev1.TaintEffectNoExecute}] = true, true
	}
	for _, p := range pressures {
		if c := nodeCondition(n, p.condition); c != nil && c.Status == corev1.ConditionTrue {
			want[taintKey{p.taint, corev1.TaintEffectNoSchedule}] = true
		}
	}
	if n.Spec.Unschedulable {
		want[taintKey{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule}] = true
	}
	return want
}
