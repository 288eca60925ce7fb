package kube

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// kubelet is all kubelets, and the pod garbage collector: it lets bound pods run, succeed and end, and takes those away
// whose node is no more. While a node is not Ready nothing on it ends.
type kubelet struct {
	client client.Client
	clock  clock.PassiveClock
	pods   map[types.NamespacedName]running
}

// running is what is remembered of a bound pod, exact where its timestamps are whole seconds.
type running struct {
	uid              types.UID
	started, deleted time.Time
}

func (k *kubelet) controller() Controller {
	onNode := func(ctx context.Context, was, is client.Object) []reconcile.Request {
		if was != nil && is != nil && nodeReady(was.(*corev1.Node)) == nodeReady(is.(*corev1.Node)) {
			return nil
		}
		if is == nil {
			is = was
		}
		return podsOn(ctx, k.client, is.GetName())
	}
	return Controller{"kubelet", k, []Watch{{&corev1.Pod{}, itself}, {&corev1.Node{}, onNode}}}
}

// Reconcile looks at one pod.
func (k *kubelet) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &corev1.Pod{}
	if err := k.client.Get(ctx, req.NamespacedName, p); err != nil {
		delete(k.pods, req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.Spec.NodeName == "" {
		if p.DeletionTimestamp != nil {
			return reconcile.Result{}, k.remove(ctx, p)
		}
		return reconcile.Result{}, nil
	}
	n := &corev1.Node{}
	err := k.client.Get(ctx, types.NamespacedName{Name: p.Spec.NodeName}, n)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, k.remove(ctx, p)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get node: %w", err)
	case terminal(p):
		if p.DeletionTimestamp != nil {
			return reconcile.Result{}, k.delete(ctx, p) // its Job may have to count it first
		}
		return reconcile.Result{}, nil
	}
	r := k.remember(p)
	if p.DeletionTimestamp != nil {
		return k.end(ctx, p, r, nodeReady(n))
	}
	return k.run(ctx, p, r, nodeReady(n))
}

// remember notes when a pod was first seen to run and to be deleted.
func (k *kubelet) remember(p *corev1.Pod) running {
	key, now := client.ObjectKeyFromObject(p), k.clock.Now()
	r := k.pods[key]
	if r.uid != p.UID {
		r = running{uid: p.UID}
	}
	if r.started.IsZero() {
		r.started = now
		if t := p.Status.StartTime; t != nil && t.Unix() < now.Unix() {
			r.started = t.Time
		}
	}
	if r.deleted.IsZero() && p.DeletionTimestamp != nil {
		r.deleted = now
	}
	k.pods[key] = r
	return r
}

// remove takes away a pod that has ended without a result, or whose node is gone.
func (k *kubelet) remove(ctx context.Context, p *corev1.Pod) error {
	if err := untrack(ctx, k.client, p); err != nil {
		return err
	}
	return k.delete(ctx, p)
}

func (k *kubelet) delete(ctx context.Context, p *corev1.Pod) error {
	if err := k.client.Delete(context.WithValue(ctx, ended{}, true), p); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove pod: %w", err)
	}
	return nil
}

// end lets a pod go once its grace is over.
func (k *kubelet) end(ctx context.Context, p *corev1.Pod, r running, ready bool) (reconcile.Result, error) {
	if !ready {
		return reconcile.Result{}, nil
	}
	ends := r.deleted.Add(grace(p))
	if ptr.Deref(p.DeletionGracePeriodSeconds, 0) > 0 { // of a dump it was deleted before it was seen here
		ends = p.DeletionTimestamp.Time
	}
	if left := ends.Sub(k.clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, k.remove(ctx, p)
}

// run starts a pod, and lets it succeed once its time is over.
func (k *kubelet) run(ctx context.Context, p *corev1.Pod, r running, ready bool) (reconcile.Result, error) {
	now := k.clock.Now()
	changed := false
	if ready && (p.Status.Phase == "" || p.Status.Phase == corev1.PodPending) {
		start(p, now)
		changed, r.started = true, now
		k.pods[client.ObjectKeyFromObject(p)] = r
	}
	if p.Status.Phase != corev1.PodRunning {
		return reconcile.Result{}, nil
	}
	if was := podReady(p); was != ready {
		c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		if !ready {
			c.Status, c.Reason = corev1.ConditionFalse, "NodeNotReady"
		}
		changed = setCondition(p, now, c) || changed
	}
	d, ends, err := k.runs(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	left := r.started.Add(d).Sub(now)
	if ready && ends && left <= 0 {
		p.Status.Phase = corev1.PodSucceeded
		for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
			setCondition(p, now, corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: "PodCompleted"})
		}
		changed = true
	}
	if changed {
		if err := k.client.Status().Update(ctx, p); err != nil {
			return reconcile.Result{}, fmt.Errorf("update pod: %w", err)
		}
	}
	if !ready || !ends || left <= 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// runs is how long a pod runs; ends is false for ever.
func (k *kubelet) runs(ctx context.Context, p *corev1.Pod) (d time.Duration, ends bool, err error) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "Job" {
		return 0, false, nil
	}
	j := &batchv1.Job{}
	if err := k.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}, j); err != nil || j.UID != ref.UID {
		return 0, false, client.IgnoreNotFound(err)
	}
	d, ends = each(j)
	return d, ends, nil
}
