package kube

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// evictor deletes pods from nodes and devices with NoExecute taints, once they do not tolerate them any longer. A toleration
// counts from when the taint was put on, or the pod was started if that was later.
type evictor struct {
	client client.Client
	clock  clock.PassiveClock
	// seen is when a taint that does not say since when it is there was first seen, by what it is on.
	seen map[seenTaint]since
}

// seenTaint is a taint of a node, of a device with its slice's name, or of a device with the name of the rule that it comes
// from.
type seenTaint struct {
	on, device, key, effect string
	rule                    bool
}

func (e *evictor) controller() Controller {
	ofNode := func(ctx context.Context, was, is client.Object) []reconcile.Request {
		e.forget(was, is)
		if is == nil || was != nil && apiequality.Semantic.DeepEqual(was.(*corev1.Node).Spec.Taints, is.(*corev1.Node).Spec.Taints) {
			return nil
		}
		return podsOn(ctx, e.client, is.GetName())
	}
	ofSlice := func(ctx context.Context, was, is client.Object) []reconcile.Request {
		e.forget(was, is)
		if is == nil || was != nil && apiequality.Semantic.DeepEqual(was.(*resourcev1.ResourceSlice).Spec.Devices, is.(*resourcev1.ResourceSlice).Spec.Devices) {
			return nil
		}
		return podsOn(ctx, e.client, ptr.Deref(is.(*resourcev1.ResourceSlice).Spec.NodeName, ""))
	}
	ofRule := func(ctx context.Context, was, is client.Object) []reconcile.Request {
		e.forget(was, is)
		if is == nil {
			return nil
		}
		var list corev1.PodList
		if err := e.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		return requests(list.Items)
	}
	ofPod := func(_ context.Context, was, is client.Object) []reconcile.Request {
		if is == nil {
			return nil
		}
		p := is.(*corev1.Pod)
		if p.Spec.NodeName == "" || was != nil && apiequality.Semantic.DeepEqual(was.(*corev1.Pod).Spec, p.Spec) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(is)}}
	}
	return Controller{"taint-eviction", e, []Watch{{&corev1.Pod{}, ofPod}, {&corev1.Node{}, ofNode}, {&resourcev1.ResourceSlice{}, ofSlice}, {&resourcev1beta2.DeviceTaintRule{}, ofRule}}}
}

// Reconcile looks at one pod.
func (e *evictor) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &corev1.Pod{}
	if err := e.client.Get(ctx, req.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.Spec.NodeName == "" || p.DeletionTimestamp != nil || terminal(p) {
		return reconcile.Result{}, nil
	}
	byNode, err := e.byNode(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	byDevice, err := e.byDevice(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	at, reason := byNode, "DeletionByTaintManager"
	if at == nil || byDevice != nil && byDevice.Before(*at) {
		at, reason = byDevice, "DeletionByDeviceTaintManager"
	}
	if at == nil {
		return reconcile.Result{}, nil
	}
	now := e.clock.Now()
	if left := at.Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "deleting due to a NoExecute taint"}
	if setCondition(p, now, c) {
		if err := e.client.Status().Update(ctx, p); err != nil {
			return reconcile.Result{}, fmt.Errorf("update pod: %w", err)
		}
	}
	if err := e.client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("evict pod: %w", err)
	}
	return reconcile.Result{}, nil
}

// byNode returns when the pod is to be deleted for its node's taints; nil for never.
func (e *evictor) byNode(ctx context.Context, p *corev1.Pod) (at *time.Time, err error) {
	n := &corev1.Node{}
	if err := e.client.Get(ctx, types.NamespacedName{Name: p.Spec.NodeName}, n); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	spec := p.Spec.DeepCopy()
	tolerateLoss(spec)
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		least, tolerated := forever, false
		for k := range spec.Tolerations {
			if o := &spec.Tolerations[k]; o.ToleratesTaint(logr.Discard(), t, false) {
				tolerated, least = true, shorter(least, o.TolerationSeconds)
			}
		}
		begins := e.begins(p, t.TimeAdded, seenTaint{on: n.Name, key: t.Key, effect: string(t.Effect)})
		at = earlier(at, begins, least, tolerated)
	}
	return at, nil
}

// tainting is a taint of a device, with what it is remembered by.
type tainting struct {
	*resourcev1.DeviceTaint
	by seenTaint
}

// taintings returns the taints of an allocated device: its own, and those of DeviceTaintRules.
func (e *evictor) taintings(ctx context.Context, r *resourcev1.DeviceRequestAllocationResult) ([]tainting, error) {
	d, slice, err := e.device(ctx, r)
	if err != nil || d == nil {
		return nil, err
	}
	var all []tainting
	for i := range d.Taints {
		t := &d.Taints[i]
		all = append(all, tainting{t, seenTaint{on: slice, device: d.Name, key: t.Key, effect: string(t.Effect)}})
	}
	var rules resourcev1beta2.DeviceTaintRuleList
	if err := e.client.List(ctx, &rules, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list taint rules: %w", err)
	}
	for i := range rules.Items {
		rule := &rules.Items[i]
		if s := rule.Spec.DeviceSelector; s != nil && (ptr.Deref(s.Driver, r.Driver) != r.Driver || ptr.Deref(s.Pool, r.Pool) != r.Pool || ptr.Deref(s.Device, r.Device) != r.Device) {
			continue
		}
		t := &rule.Spec.Taint
		all = append(all, tainting{
			&resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffect(t.Effect), TimeAdded: t.TimeAdded},
			seenTaint{on: rule.Name, device: r.Driver + "/" + r.Pool + "/" + r.Device, key: t.Key, effect: string(t.Effect), rule: true},
		})
	}
	return all, nil
}

// byDevice returns when the pod is to be deleted for the taints of its devices; nil for never.
func (e *evictor) byDevice(ctx context.Context, p *corev1.Pod) (at *time.Time, err error) {
	for _, req := range claimsOf(p) {
		claim := &resourcev1.ResourceClaim{}
		if err := e.client.Get(ctx, req.NamespacedName, claim); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get claim: %w", err)
		}
		if claim.Status.Allocation == nil || !resourceclaim.IsReservedForPod(p, claim, false) {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			taints, err := e.taintings(ctx, r)
			if err != nil {
				return nil, err
			}
			for _, t := range taints {
				if t.Effect != resourcev1.DeviceTaintEffectNoExecute {
					continue
				}
				least, tolerated := forever, false
				for _, o := range r.Tolerations {
					if o.Effect == resourcev1.DeviceTaintEffectNoExecute && resourceclaim.ToleratesTaint(o, *t.DeviceTaint) {
						tolerated, least = true, shorter(least, o.TolerationSeconds)
					}
				}
				begins := e.begins(p, t.TimeAdded, t.by)
				at = earlier(at, begins, least, tolerated)
			}
		}
	}
	return at, nil
}

// device returns an allocated device and the name of the slice that lists it; nil where none does.
func (e *evictor) device(ctx context.Context, r *resourcev1.DeviceRequestAllocationResult) (*resourcev1.Device, string, error) {
	var list resourcev1.ResourceSliceList
	if err := e.client.List(ctx, &list, client.MatchingFields{sliceByPool: r.Driver + "/" + r.Pool}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, "", fmt.Errorf("list slices: %w", err)
	}
	var found *resourcev1.Device
	var slice *resourcev1.ResourceSlice
	for i := range list.Items {
		s := &list.Items[i]
		for k := range s.Spec.Devices {
			if s.Spec.Devices[k].Name == r.Device && (slice == nil || s.Spec.Pool.Generation > slice.Spec.Pool.Generation) {
				found, slice = &s.Spec.Devices[k], s
			}
		}
	}
	if found == nil {
		return nil, "", nil
	}
	return found, slice.Name, nil
}

// forget drops what was seen of the taints that an object does not have any more.
func (e *evictor) forget(was, is client.Object) {
	if was == nil {
		return
	}
	still := map[seenTaint]bool{}
	switch x := is.(type) {
	case *corev1.Node:
		for _, t := range x.Spec.Taints {
			still[seenTaint{on: x.Name, key: t.Key, effect: string(t.Effect)}] = true
		}
	case *resourcev1.ResourceSlice:
		for i := range x.Spec.Devices {
			for _, t := range x.Spec.Devices[i].Taints {
				still[seenTaint{on: x.Name, device: x.Spec.Devices[i].Name, key: t.Key, effect: string(t.Effect)}] = true
			}
		}
	}
	_, node := was.(*corev1.Node)
	_, rule := was.(*resourcev1beta2.DeviceTaintRule)
	for t := range e.seen {
		if x, ok := is.(*resourcev1beta2.DeviceTaintRule); ok && t.key == x.Spec.Taint.Key && t.effect == string(x.Spec.Taint.Effect) {
			continue
		}
		if t.on == was.GetName() && t.rule == rule && (t.device == "") == node && !still[t] {
			delete(e.seen, t)
		}
	}
}

// begins returns since when a pod has been on what is tainted.
func (e *evictor) begins(p *corev1.Pod, added *metav1.Time, what seenTaint) time.Time {
	if _, ok := e.seen[what]; !ok && added == nil {
		e.seen[what] = since{e.clock.Now()}
	}
	at := e.seen[what].at
	if added != nil {
		at = added.Time
	}
	if s := p.Status.StartTime; s != nil && s.After(at) {
		return s.Time
	}
	return at
}

// forever is longer than any toleration.
const forever = time.Duration(1<<63 - 1)

func shorter(d time.Duration, seconds *int64) time.Duration {
	if seconds == nil || *seconds > int64(d/time.Second) {
		return d
	}
	return max(time.Duration(*seconds)*time.Second, 0)
}

func earlier(at *time.Time, begins time.Time, tolerated time.Duration, any bool) *time.Time {
	if !any {
		tolerated = 0
	}
	if tolerated == forever {
		return at
	}
	if t := begins.Add(tolerated); at == nil || t.Before(*at) {
		return &t
	}
	return at
}
