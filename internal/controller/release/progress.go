package release

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// boundEvery is how often a pod that was released and is not bound yet is looked at; most are bound before the first time.
const boundEvery = 2 * time.Second

// released follows a pod from its gate to its node, and holds what it got against what it was promised.
func (c *Controller) released(ctx context.Context, p *corev1.Pod) (reconcile.Result, error) {
	if p.Spec.NodeName != "" {
		if err := c.compare(ctx, p); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, c.progress(ctx, p)
	}
	full, _, err := c.find(ctx, p)
	if err != nil || full == nil {
		return reconcile.Result{}, err
	}
	if c.stale(full.policy) {
		return reconcile.Result{RequeueAfter: lookEvery}, c.progress(ctx, p)
	}
	limit := time.Duration(flavors.Seconds(full.policy.Spec.Release.BindSeconds, 900)) * time.Second
	since, err := c.releasedSince(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	waited := c.Clock.Since(since)
	if waited > limit {
		return reconcile.Result{}, c.evict(ctx, full, &refusal{v1alpha1.ReasonReleaseTimeout, fmt.Sprintf("pod %s was released and not bound for %s", p.Name, limit)})
	}
	if waited >= boundEvery {
		o, err := c.stands(ctx, full)
		if err != nil {
			return reconcile.Result{}, err
		}
		if o.refusal != nil {
			return reconcile.Result{}, c.evict(ctx, full, o.refusal)
		}
	}
	return reconcile.Result{RequeueAfter: min(limit-waited+time.Second, boundEvery)}, c.progress(ctx, p)
}

// progress follows what a pod's Placement has come to: slots that Kueue reclaims are given back, and its conditions
// Released and Bound are set once every slot's pod has come so far.
func (c *Controller) progress(ctx context.Context, p *corev1.Pod) error {
	wl, err := c.workloadOf(ctx, p)
	if err != nil || wl == nil {
		return err
	}
	key, err := admission.KeyOf(wl)
	if err != nil || key == nil {
		return err
	}
	placement, err := c.Store.Get(ctx, wl)
	if err != nil || placement == nil || !ledger.SameKey(placement.Spec.Key, key) {
		return err
	}
	if given, err := c.reclaim(ctx, wl, placement, observe.ControllerOf(p)); given || err != nil {
		return err
	}
	if meta.IsStatusConditionTrue(placement.Status.Conditions, v1alpha1.PlacementBound) {
		return nil
	}
	var slots, released, bound int32
	for _, ps := range placement.Spec.PodSets {
		for _, n := range ps.Nodes {
			slots += n.Slots
		}
	}
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingFields{observe.PodByController: string(observe.ControllerOf(p))}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		if s.CreationTimestamp.Unix() < key.ReservedAt.Unix() || !observe.Released(s) {
			continue
		}
		released++
		if s.Spec.NodeName != "" {
			bound++
		}
	}
	if released < slots {
		return nil
	}
	return c.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), func(s *v1alpha1.PlacementStatus) {
		set := func(t, reason, message string) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: t, Status: metav1.ConditionTrue, ObservedGeneration: placement.Generation, Reason: reason, Message: message})
		}
		set(v1alpha1.PlacementReleased, "AllReleased", "every pod's gate was removed")
		if bound >= slots {
			set(v1alpha1.PlacementBound, "AllBound", "every pod is bound")
			s.Retry = nil
		}
	})
}

// compare holds a bound pod's node and devices against its slot. A difference is said, never adopted.
func (c *Controller) compare(ctx context.Context, p *corev1.Pod) error {
	for _, st := range p.Status.ResourceClaimStatuses {
		if st.ResourceClaimName == nil {
			continue
		}
		claim := &resourcev1.ResourceClaim{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *st.ResourceClaimName}, claim); err != nil {
			return client.IgnoreNotFound(err)
		}
		if claim.Status.Allocation == nil {
			continue
		}
		if claim.Labels[v1alpha1.OwnedLabel] != "true" { // every claim of a managed pod was marked when the gate went
			return c.diverged(ctx, p, ledger.DivergedDevices, fmt.Sprintf("pod %s got %s by claim %s, which is not the one that it was promised: someone else wrote it",
				p.Name, strings.Join(allocated(claim), ", "), claim.Name))
		}
		promised, got := names(observe.Devices(claim)), allocated(claim)
		if !slices.Equal(promised, got) {
			return c.diverged(ctx, p, ledger.DivergedDevices, fmt.Sprintf("pod %s was promised %s and got %s", p.Name, strings.Join(promised, ", "), strings.Join(got, ", ")))
		}
		if node := slotNode(claim); node != "" && node != p.Spec.NodeName {
			return c.diverged(ctx, p, ledger.DivergedNode, fmt.Sprintf("pod %s was promised node %s and got %s", p.Name, node, p.Spec.NodeName))
		}
	}
	return nil
}

func names(ids []ledger.DeviceID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	slices.Sort(out)
	return out
}

func allocated(c *resourcev1.ResourceClaim) []string {
	var ids []ledger.DeviceID
	for _, r := range c.Status.Allocation.Devices.Results {
		ids = append(ids, ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
	}
	return names(ids)
}

// slotNode returns the node that a claim's slot is on: what stands between the first and the last slash.
func slotNode(c *resourcev1.ResourceClaim) string {
	id := c.Annotations[v1alpha1.SlotAnnotation]
	first, last := strings.Index(id, "/"), strings.LastIndex(id, "/")
	if first < 0 || last <= first {
		return ""
	}
	return id[first+1 : last]
}

// diverged says once, as condition, metric and event, that what happened differs from what was promised.
func (c *Controller) diverged(ctx context.Context, p *corev1.Pod, kind ledger.DivergenceKind, message string) error {
	if c.since.told(client.ObjectKeyFromObject(p), message) {
		return nil
	}
	c.Metrics.Divergences.WithLabelValues(string(kind)).Inc()
	c.Events.Eventf(p, nil, corev1.EventTypeWarning, v1alpha1.PlacementDiverged, "Compare", "%s", message)
	wl, err := c.workloadOf(ctx, p)
	if err != nil || wl == nil {
		return err
	}
	return c.Store.UpdateStatus(ctx, client.ObjectKeyFromObject(wl), func(s *v1alpha1.PlacementStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.PlacementDiverged, Status: metav1.ConditionTrue, Reason: v1alpha1.DivergedNotAsPromised, Message: message})
	})
}

// PodsOf returns the pods of a Workload that still carry the gate or are not bound, to be looked at when its Placement
// changes, and where Kueue reclaims quota one more, by which the slots are given back.
func (c *Controller) PodsOf(ctx context.Context, wl *kueue.Workload) []reconcile.Request {
	owner := observe.ControllerOf(wl)
	if owner == "" {
		return nil
	}
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{observe.PodByController: string(owner)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == "" {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	for i := range list.Items {
		if p := &list.Items[i]; len(wl.Status.ReclaimablePods) > 0 && p.Spec.NodeName != "" {
			return append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return out
}
