package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster of the parts of this package, which settle at every instant before the clock goes on.
type world struct {
	client.Client
	t           testing.TB
	store       *store.Store
	clock       *testingclock.FakePassiveClock
	controllers []Controller
	scheduler   *Scheduler
	queues      []map[reconcile.Request]bool
	later       []map[reconcile.Request]time.Time
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakePassiveClock(epoch)
	s := store.New(scheme, clock.Now)
	w := &world{Client: s.Client(), t: t, store: s, clock: clock}
	Setup(s, clock)
	w.controllers = Controllers(w.Client, clock)
	w.scheduler = NewScheduler(w.Client, clock, &admission.Decider{Matcher: flavors.NewMatcher()})
	for range w.controllers {
		w.queues = append(w.queues, map[reconcile.Request]bool{})
		w.later = append(w.later, map[reconcile.Request]time.Time{})
	}
	w.put(objects...)
	w.settle()
	return w
}

func (w *world) put(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.store.Put(o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle runs everything until nothing is left to do at this instant.
func (w *world) settle() {
	w.t.Helper()
	for round := 0; ; round++ {
		if round > 1000 {
			w.t.Fatal("the world does not settle")
		}
		w.deliver()
		did := false
		for i := range w.controllers {
			did = w.reconcile(i) || did
		}
		if did {
			continue
		}
		changed, err := w.scheduler.Schedule(context.Background())
		if err != nil {
			w.t.Fatal(err)
		}
		if !changed {
			return
		}
	}
}

func (w *world) deliver() {
	for _, e := range w.store.Events() {
		seen := e.New
		if seen == nil {
			seen = e.Old
		}
		w.scheduler.Observe(seen, e.New == nil)
		for i, c := range w.controllers {
			for _, watch := range c.Watches {
				if fmt.Sprintf("%T", watch.Kind) != fmt.Sprintf("%T", seen) {
					continue
				}
				for _, req := range watch.Requests(context.Background(), e.Old, e.New) {
					w.queues[i][req] = true
				}
			}
		}
	}
}

func (w *world) reconcile(i int) bool {
	w.t.Helper()
	var due []reconcile.Request
	for req := range w.queues[i] {
		due = append(due, req)
	}
	for req, at := range w.later[i] {
		if !at.After(w.clock.Now()) && !w.queues[i][req] {
			due = append(due, req)
		}
	}
	slices.SortFunc(due, func(a, b reconcile.Request) int { return strings.Compare(a.String(), b.String()) })
	for _, req := range due {
		delete(w.queues[i], req)
		delete(w.later[i], req)
		result, err := w.controllers[i].Reconcile(context.Background(), req)
		if err != nil {
			w.t.Fatalf("%s of %s: %v", w.controllers[i].Name, req, err)
		}
		if result.RequeueAfter < 0 {
			w.t.Fatalf("%s of %s is to be looked at %s from now", w.controllers[i].Name, req, result.RequeueAfter)
		}
		if result.RequeueAfter > 0 {
			w.later[i][req] = w.clock.Now().Add(result.RequeueAfter)
		}
		w.deliver()
	}
	return len(due) > 0
}

// until lets time pass, from one instant at which something is due to the next, up to a time since the start.
func (w *world) until(end time.Duration) {
	w.t.Helper()
	for {
		next := epoch.Add(end)
		for i := range w.later {
			for _, at := range w.later[i] {
				if at.Before(next) {
					next = at
				}
			}
		}
		w.clock.SetTime(next)
		w.settle()
		if !next.Before(epoch.Add(end)) {
			return
		}
	}
}

// steps returns the times since the start at which something is due.
func (w *world) due() []time.Duration {
	var out []time.Duration
	for i := range w.later {
		for _, at := range w.later[i] {
			out = append(out, at.Sub(epoch))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (w *world) change(obj client.Object, edit func()) {
	w.t.Helper()
	w.load(obj)
	edit()
	if err := w.Update(context.Background(), obj); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

func (w *world) load(obj client.Object) {
	w.t.Helper()
	if err := w.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(obj client.Object) {
	w.t.Helper()
	if err := w.Delete(context.Background(), obj); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// pods tells every pod: name, phase, node, and whether it is ending.
func (w *world) pods() []string {
	w.t.Helper()
	var list corev1.PodList
	if err := w.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for i := range list.Items {
		p := &list.Items[i]
		s := p.Name + " " + string(p.Status.Phase)
		if p.Spec.NodeName != "" {
			s += " " + p.Spec.NodeName
		}
		if p.DeletionTimestamp != nil {
			s += fmt.Sprintf(" ending %s", p.DeletionTimestamp.Sub(epoch))
		}
		out = append(out, s)
	}
	return out
}

// held tells every claim: name, its devices and its consumers.
func (w *world) held() []string {
	w.t.Helper()
	var list resourcev1.ResourceClaimList
	if err := w.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for i := range list.Items {
		c := &list.Items[i]
		s := c.Name
		if c.Status.Allocation != nil {
			for _, r := range c.Status.Allocation.Devices.Results {
				s += " " + r.Pool + "/" + r.Device
			}
		}
		for _, ref := range c.Status.ReservedFor {
			s += " for " + ref.Name
		}
		out = append(out, s)
	}
	return out
}

func (w *world) job(name string) *batchv1.Job {
	w.t.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	w.load(j)
	return j
}

func newNode(name string, edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func conditionReady(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Conditions[0].Status = status }
}

// newJob returns a Job of parallelism pods, each of which asks for a cpu.
func newJob(name string, parallelism int32, edits ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: batchv1.JobSpec{
			Parallelism: &parallelism, Completions: ptr.To(parallelism),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			}}}},
		},
	}
	for _, edit := range edits {
		edit(j)
	}
	return j
}

func annotated(key, value string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { metav1.SetMetaDataAnnotation(&j.ObjectMeta, key, value) }
}

func newPod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       *newJob("", 1).Spec.Template.Spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// newSlice returns a node's only slice, with n free devices gpu-0, gpu-1 and so on.
func newSlice(node string, n int, edits ...func(*resourcev1.ResourceSlice)) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range n {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: ptr.To(fmt.Sprintf("%s-%d", node, i))}},
		})
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func newClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
}

func claimSpec(count int64, expressions ...string) resourcev1.ResourceClaimSpec {
	r := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	for _, e := range expressions {
		r.Selectors = append(r.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: r}}}}
}

func newTemplate(name string, count int64, expressions ...string) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"}},
			Spec:       claimSpec(count, expressions...),
		},
	}
}

func claiming(s *corev1.PodSpec, template string) {
	s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	s.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
}
