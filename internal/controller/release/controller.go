// Package release takes managed pods from their gate to their node: each gets a slot of its Workload's live Placement, a
// claim for exactly the slot's devices, and a pin, and only then loses the gate. Without a live Placement no pod does.
package release

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/faultpoint"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// retryEvery is how often a pod that waits for devices to come free looks again.
const retryEvery = 500 * time.Millisecond

// Controller releases pods. Reconcile may run concurrently for different pods.
type Controller struct {
	Client   client.Client
	Live     client.Reader
	Book     *ledger.Book
	Decider  *admission.Decider
	Matcher  *flavors.Matcher
	Policies *policies.Resolver
	Store    *placements.Store
	Evictor  *eviction.Evictor
	Events   events.EventRecorder
	Metrics  *metrics.Metrics
	Clock    clock.PassiveClock
	// Synced says whether the ledger has seen all that existed at the start.
	Synced func() bool
	// Heard says how long the watches that the ledger is fed by were silent; nil for watches that are always alive.
	Heard func() admission.Heard

	slots    assignments
	since    sightings
	entering entering
}

// pod is one managed pod with all that its release depends on.
type pod struct {
	*corev1.Pod
	workload  *kueue.Workload
	placement *v1alpha1.Placement
	podSet    *v1alpha1.PlacementPodSet
	template  *kueue.PodSet
	policy    *flavors.Policy
}

// refusal says why a pod's Workload cannot be served as promised and has to be evicted.
type refusal struct {
	reason  v1alpha1.Reason
	message string
}

// Reconcile does the next step for one pod.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := c.step(ctx, req)
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) { // the pod, or its promise, is not the one that was looked at any more
		return reconcile.Result{RequeueAfter: retryEvery}, nil
	}
	return result, err
}

func (c *Controller) step(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		return reconcile.Result{RequeueAfter: retryEvery}, nil
	}
	p := &corev1.Pod{}
	if err := c.Client.Get(ctx, req.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			c.since.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	_, managed := p.Labels[v1alpha1.ManagedLabel]
	gated := observe.Gated(p)
	if !managed && !gated || p.DeletionTimestamp != nil || terminal(p) {
		return reconcile.Result{}, c.progress(ctx, p)
	}
	if !gated {
		return c.released(ctx, p)
	}
	return c.gated(ctx, p)
}

// stale says whether a watch was silent for longer than a policy lets it be. Then no pod is released, and none is evicted for what
// may have been mended unheard; each looks again.
func (c *Controller) stale(p *flavors.Policy) bool {
	return c.Heard != nil && c.Heard().Stale(c.Clock.Now(), p) != ""
}

func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// gated serves a pod that still has the gate.
func (c *Controller) gated(ctx context.Context, p *corev1.Pod) (reconcile.Result, error) {
	full, why, err := c.find(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	if why != "" {
		c.tell(p, "NotManaged", why)
		return reconcile.Result{}, nil
	}
	if full == nil {
		return reconcile.Result{}, nil // no live Placement yet; its event wakes the pod
	}
	if _, managed := p.Labels[v1alpha1.ManagedLabel]; !managed {
		return reconcile.Result{}, c.evict(ctx, full, &refusal{v1alpha1.ReasonPodChanged,
			fmt.Sprintf("someone took label %s off pod %s, which still has the gate: leave it on", v1alpha1.ManagedLabel, p.Name)})
	}
	if c.stale(full.policy) {
		return reconcile.Result{RequeueAfter: lookEvery}, nil
	}
	s, o, err := c.take(ctx, full)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !o.ready {
		return c.wait(ctx, full, o)
	}
	ready, r, err := c.cut(ctx, full, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r != nil {
		return reconcile.Result{}, c.evict(ctx, full, r)
	}
	if !ready {
		return reconcile.Result{}, nil // the claim's event wakes the pod
	}
	for _, g := range p.Spec.SchedulingGates {
		if g.Name != v1alpha1.PlacementGate {
			return reconcile.Result{}, nil // another gate is left; ours goes last
		}
	}
	done, o, err := c.enter(ctx, full, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !o.ready {
		return c.wait(ctx, full, o)
	}
	defer done()
	return reconcile.Result{}, c.release(ctx, full, s)
}

// find returns a pod with its Workload and live Placement; nil where there is none yet, and why where there never will
// be one. Labels and annotations select nothing here but the podset: whose pod it is, its owners' uids say.
func (c *Controller) find(ctx context.Context, p *corev1.Pod) (*pod, string, error) {
	wl, err := c.workloadOf(ctx, p)
	if err != nil {
		return nil, "", err
	}
	if wl == nil {
		return nil, "no Workload that Plimsoll manages owns this pod, so it stays gated: take label " + v1alpha1.ManagedLabel +
			" and gate " + v1alpha1.PlacementGate + " out of its template, or submit it as a Job to a LocalQueue", nil
	}
	key, err := admission.KeyOf(wl)
	if err != nil || key == nil {
		return nil, "", err
	}
	placement, err := c.Store.Get(ctx, wl)
	if err != nil || placement == nil || !ledger.SameKey(placement.Spec.Key, key) {
		return nil, "", err
	}
	out := &pod{Pod: p, workload: wl, placement: placement}
	name := p.Labels[constants.PodSetLabel]
	for i := range placement.Spec.PodSets {
		if placement.Spec.PodSets[i].Name == name {
			out.podSet = &placement.Spec.PodSets[i]
		}
	}
	for i := range wl.Spec.PodSets {
		if string(wl.Spec.PodSets[i].Name) == name {
			out.template = &wl.Spec.PodSets[i]
		}
	}
	if out.podSet == nil || out.template == nil {
		return nil, fmt.Sprintf("label %s: %q names no podset of Workload %s, so the pod stays gated", constants.PodSetLabel, name, wl.Name), nil
	}
	if out.policy, err = c.policyOf(ctx, out); err != nil || out.policy == nil {
		return nil, "", err
	}
	return out, "", nil
}

// policyOf returns the policy that a pod's Placement was made by, whether the queue still has a check of it or not. Where
// it is gone or does not resolve, a pod behind the gate is tried again later if the queue has a check; if it has none, nobody
// would bring the policy back for it, and the Workload is evicted.
func (c *Controller) policyOf(ctx context.Context, p *pod) (*flavors.Policy, error) {
	name := p.placement.Spec.Policy
	policy, err := c.Policies.ByName(ctx, name)
	if err != nil || policy != nil {
		return policy, err
	}
	if !observe.Gated(p.Pod) {
		return nil, nil
	}
	m, err := c.Policies.ForQueue(ctx, p.workload.Namespace, string(p.workload.Spec.QueueName))
	if err != nil {
		return nil, err
	}
	if m != nil {
		return nil, fmt.Errorf("DevicePolicy %s does not resolve", name)
	}
	p.policy = &flavors.Policy{Name: name}
	return nil, c.evict(ctx, p, &refusal{v1alpha1.ReasonPolicyNotReady, fmt.Sprintf("DevicePolicy %s is gone, by which this was placed, and the queue has no check of ours", name)})
}

// workloadOf returns the Workload in the pod's namespace that the pod's controller owns; nil if there is none.
func (c *Controller) workloadOf(ctx context.Context, p *corev1.Pod) (*kueue.Workload, error) {
	owner := observe.ControllerOf(p)
	if owner == "" {
		return nil, nil
	}
	list := &kueue.WorkloadList{}
	if err := c.Client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingFields{observe.WorkloadByOwner: string(owner)}); err != nil {
		return nil, fmt.Errorf("list workloads: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// wait leaves a pod that did not get its slot: until it looks again, or evicts its Workload. It waits for one to come free
// for at most release.waitSeconds.
func (c *Controller) wait(ctx context.Context, p *pod, o outcome) (reconcile.Result, error) {
	if o.refusal != nil {
		return reconcile.Result{}, c.evict(ctx, p, o.refusal)
	}
	limit := p.policy.ReleaseWait()
	if !o.waits.IsZero() && c.Clock.Since(o.waits) > limit {
		return reconcile.Result{}, c.evict(ctx, p, &refusal{v1alpha1.ReasonReleaseTimeout, fmt.Sprintf("pod %s had no slot for %s", p.Name, limit)})
	}
	return reconcile.Result{RequeueAfter: o.again}, nil
}

func (c *Controller) evict(ctx context.Context, p *pod, r *refusal) error {
	c.tell(p.Pod, string(r.reason), r.message)
	return c.Evictor.Evict(ctx, p.workload, p.policy, r.reason, r.message)
}

// tell says something about a pod as an event, once.
func (c *Controller) tell(p *corev1.Pod, reason, message string) {
	if c.since.told(client.ObjectKeyFromObject(p), reason+message) {
		return
	}
	c.Events.Eventf(p, nil, corev1.EventTypeWarning, reason, "Release", "%s", message)
}

// release removes the gate and pins the pod, in one patch that fails where the pod is not the one that was looked at.
func (c *Controller) release(ctx context.Context, p *pod, s slot) error {
	n := c.Book.Snapshot().Node(s.node)
	if n == nil || n.Hostname == "" {
		return c.evict(ctx, p, &refusal{v1alpha1.ReasonNodeUnavailable, fmt.Sprintf("node %s is gone or has no hostname label of its own", s.node)})
	}
	gate := -1
	for i, g := range p.Spec.SchedulingGates {
		if g.Name == v1alpha1.PlacementGate {
			gate = i
		}
	}
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	path := "/spec/schedulingGates/" + strconv.Itoa(gate)
	ops := []op{
		{"test", "/metadata/uid", p.UID},
		{"test", "/metadata/resourceVersion", p.ResourceVersion},
		{"test", path + "/name", v1alpha1.PlacementGate},
		{"remove", path, nil},
	}
	switch have, pinned := p.Spec.NodeSelector[corev1.LabelHostname]; {
	case pinned && have != n.Hostname:
		return c.evict(ctx, p, &refusal{v1alpha1.ReasonPodChanged, fmt.Sprintf("pod %s selects node %s, its place is on %s", p.Name, have, s.node)})
	case pinned:
	case p.Spec.NodeSelector == nil:
		ops = append(ops, op{"add", "/spec/nodeSelector", map[string]string{corev1.LabelHostname: n.Hostname}})
	default:
		ops = append(ops, op{"add", "/spec/nodeSelector/kubernetes.io~1hostname", n.Hostname})
	}
	raw, err := json.Marshal(ops)
	if err != nil {
		return fmt.Errorf("marshal patch: %w", err)
	}
	logger := log.FromContext(ctx)
	if len(p.Spec.ResourceClaims) > 0 {
		faultpoint.Reach(logger, faultpoint.AfterTemplate)
	}
	if err := c.Client.Patch(ctx, p.DeepCopy(), client.RawPatch(types.JSONPatchType, raw), client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("release pod: %w", err))
	}
	c.since.first(client.ObjectKeyFromObject(p.Pod), sawRelease, c.Clock.Now())
	c.Metrics.Releases.Inc()
	logger.V(2).Info("Released pod", "node", s.node, "devices", s.devices())
	return nil
}
