package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// gates are those of the lab's scheduler; the rest is as it is by default in Kubernetes 1.36.
var gates = map[string]bool{
	"DRANodeAllocatableResources": true,
	"DRADeviceTaintRules":         true,
	"DRADeviceTaints":             true,
	"DRAPartitionableDevices":     true,
	"DRAConsumableCapacity":       true,
	"DRAExtendedResource":         true,
	"DRAPrioritizedList":          true,
	"DRAListTypeAttributes":       true,
}

func setGates() error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
}

// patience bounds how long the scheduler may take over one pod.
const patience = 30 * time.Second

// schedule lets kube-scheduler, with all of its default plugins, look once at the world's pod. An error is one of the
// oracle's own, never a pod that does not fit.
func schedule(ctx context.Context, w *world.World) (world.Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("kube-scheduler did not answer in time"))
	defer cancel()
	ctx = klog.NewContext(ctx, klog.New(nil))
	c := newCluster(w)
	informers := scheduler.NewInformerFactory(c.client, 0)
	c.seen = informers.Resource().V1().ResourceClaims().Informer().GetStore()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	defer broadcaster.Shutdown()
	s, err := scheduler.New(ctx, c.client, informers, nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		return world.Answer{}, fmt.Errorf("make scheduler: %w", err)
	}
	informers.StartWithContext(ctx)
	if err := informers.WaitForCacheSyncWithContext(ctx).Err; err != nil {
		return world.Answer{}, fmt.Errorf("start scheduler: %w", err)
	}
	if err := synced(ctx, s); err != nil {
		return world.Answer{}, err
	}
	if s.APIDispatcher != nil {
		s.APIDispatcher.Run(klog.FromContext(ctx))
		defer s.APIDispatcher.Close()
	}
	defer s.SchedulingQueue.Close()
	if len(w.Gang) > 0 {
		return scheduleGang(ctx, s, c, w.Gang)
	}
	return scheduleOne(ctx, s, c, w.Pod)
}

// scheduleOne lets a scheduler look once at a pod.
func scheduleOne(ctx context.Context, s *scheduler.Scheduler, c *cluster, pod *corev1.Pod) (world.Answer, error) {
	for _, p := range s.Profiles[corev1.DefaultSchedulerName].PreEnqueuePlugins() {
		if status := p.PreEnqueue(ctx, pod); !status.IsSuccess() {
			return world.Answer{Why: status.Message()}, nil
		}
	}
	info, err := framework.NewPodInfo(pod.DeepCopy())
	if err != nil {
		return world.Answer{}, fmt.Errorf("take pod: %w", err)
	}
	s.NextPod = func(klog.Logger) (*framework.QueuedPodInfo, error) {
		return &framework.QueuedPodInfo{PodInfo: info}, nil
	}
	s.FailureHandler = func(_ context.Context, _ framework.Framework, _ *framework.QueuedPodInfo, status *fwk.Status, _ *fwk.NominatingInfo, _ time.Time) {
		c.ended <- status.Message()
	}
	s.ScheduleOne(ctx)
	select {
	case why := <-c.ended:
		return c.answer(why), nil
	case <-ctx.Done():
		return world.Answer{}, context.Cause(ctx)
	}
}

// synced waits until the scheduler has taken all that there is.
func synced(ctx context.Context, s *scheduler.Scheduler) error {
	now, cancel := context.WithCancel(ctx)
	cancel() // so that it is asked once
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for s.WaitForHandlersSync(now) != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("start scheduler: %w", context.Cause(ctx))
		}
	}
	return nil
}

// cluster is the API server that the scheduler talks to, with what it wrote.
type cluster struct {
	client  *fake.Clientset
	version atomic.Int64
	// seen are the claims that the scheduler has seen.
	seen cache.Store
	// ended gets why the pod was turned down, or nothing once it is bound.
	ended chan string
	// allocated are the claims that were so before, claims those that were allocated.
	allocated map[string]bool
	claims    map[string]*resourcev1.ResourceClaim
	mapped    []corev1.NodeAllocatableResourceClaimStatus
	// goesOn says that other pods follow, so that what is bound has to be seen.
	goesOn bool
	// node is where the pod was bound.
	node string
}

func newCluster(w *world.World) *cluster {
	var objects []runtime.Object
	if w.Pod != nil {
		objects = append(objects, w.Pod)
	}
	for _, p := range w.Gang {
		objects = append(objects, p)
	}
	for _, o := range w.Objects() {
		if p, ok := o.(*corev1.Pod); ok && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
			continue // its field selector leaves them out, which the fake does not know
		}
		objects = append(objects, o.(runtime.Object))
	}
	c := &cluster{client: fake.NewSimpleClientset(objects...), ended: make(chan string, 1), allocated: map[string]bool{}, claims: map[string]*resourcev1.ResourceClaim{}}
	for _, claim := range w.Claims {
		c.allocated[claim.Name] = claim.Status.Allocation != nil
	}
	c.version.Store(1 << 20)
	c.client.PrependReactor("create", "resourceclaims", c.write)
	c.client.PrependReactor("update", "resourceclaims", c.write)
	c.client.PrependReactor("patch", "pods", c.patchPod)
	c.client.PrependReactor("create", "pods", c.bind)
	c.goesOn = len(w.Gang) > 0
	return c
}

// write gives what is written a version, as an API server does, and allocated devices the conditions that binding waits for,
// as their drivers would.
func (c *cluster) write(a clienttesting.Action) (handled bool, out runtime.Object, err error) {
	claim, ok := a.(interface{ GetObject() runtime.Object }).GetObject().(*resourcev1.ResourceClaim)
	if !ok {
		return false, nil, nil
	}
	if a.GetVerb() == "update" {
		now, err := c.client.Tracker().Get(a.GetResource(), a.GetNamespace(), claim.Name)
		if err != nil {
			return true, nil, err
		}
		if now.(*resourcev1.ResourceClaim).ResourceVersion != claim.ResourceVersion {
			return true, nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), claim.Name, errors.New("it has changed"))
		}
	}
	version := strconv.FormatInt(c.version.Add(1), 10)
	claim.ResourceVersion = version
	if claim.UID == "" {
		claim.Name, claim.UID = claim.GenerateName+version, types.UID("made-"+version)
	}
	if a.GetSubresource() != "status" || claim.Status.Allocation == nil {
		return false, nil, nil
	}
	c.waitSeen(claim)
	if errs, err := problems(claim); err != nil || len(errs) > 0 {
		return true, nil, errors.Join(err, errs.ToAggregate())
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if len(r.BindingConditions) == 0 {
			continue
		}
		d := resourcev1.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
		for _, t := range r.BindingConditions {
			d.Conditions = append(d.Conditions, metav1.Condition{Type: t, Status: metav1.ConditionTrue})
		}
		claim.Status.Devices = append(claim.Status.Devices, d)
	}
	if !c.allocated[claim.Name] {
		c.claims[claim.Name] = claim.DeepCopy()
	}
	return false, nil, nil
}

// waitSeen waits, not for long, until the scheduler has seen a claim that it made: it looks for it once, and then once a second.
func (c *cluster) waitSeen(claim *resourcev1.ResourceClaim) {
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for range 10_000 {
		if _, ok, err := c.seen.GetByKey(claim.Namespace + "/" + claim.Name); ok || err != nil {
			return
		}
		<-tick.C
	}
}

func (c *cluster) patchPod(a clienttesting.Action) (handled bool, out runtime.Object, err error) {
	var p corev1.Pod
	if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &p); err != nil {
		return true, nil, err
	}
	if len(p.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		c.mapped = p.Status.NodeAllocatableResourceClaimStatuses
	}
	return false, nil, nil
}

func (c *cluster) bind(a clienttesting.Action) (handled bool, out runtime.Object, err error) {
	if a.GetSubresource() != "binding" {
		return false, nil, nil
	}
	if binding, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding); ok && c.goesOn {
		if err := c.boundTo(a, binding); err != nil {
			return true, nil, err
		}
	}
	c.ended <- ""
	return true, nil, nil
}

// answer puts together what the scheduler wrote.
func (c *cluster) answer(why string) world.Answer {
	if why != "" {
		return world.Answer{Why: why}
	}
	a := world.Answer{Fits: true, Devices: map[string][]string{}}
	for name, claim := range c.claims {
		if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" {
			name = world.ExtendedResources
		}
		a.Devices[name] = world.Given(claim.Status.Allocation)
	}
	var mapped corev1.ResourceList
	for i := range c.mapped {
		mapped = quota.Add(mapped, c.mapped[i].Resources)
	}
	a.Mapped = world.Amounts(mapped)
	return a
}
