package round

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

const ns = "team-a"

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// bench is a small cluster with the engine under test. Quota is ample unless told otherwise.
type bench struct {
	*Engine
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	uids  int
	// writes are what was written since it was last looked at, in order.
	writes []string
}

func newBench(t *testing.T, nodes map[string]string, change func(*kueue.ClusterQueue, *v1alpha1.DevicePolicySpec)) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakePassiveClock(noon)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Placement{}, &kueue.Workload{}, &corev1.Node{}).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if o.GetUID() == "" {
					o.SetUID(types.UID(fmt.Sprintf("%T %s", o, o.GetName())))
				}
				b.wrote("create", o)
				return w.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				b.wrote("update", o)
				o.SetGeneration(o.GetGeneration() + 1) // as an API server does
				return w.Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				b.wrote("patch", o)
				return w.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				b.wrote("patch "+sub+" of", o)
				if p, ok := o.(*v1alpha1.Placement); ok {
					b.valid(p)
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				b.writes = append(b.writes, "apply "+sub)
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		})
	for _, i := range observe.Indexes() {
		builder = builder.WithIndex(i.Object, i.Field, i.Of)
	}
	c := builder.Build()
	matcher := flavors.NewMatcher()
	book := ledger.New()
	quotas, err := quota.New(quota.Options{})
	b.must(err)
	m := metrics.New(prometheus.NewRegistry())
	store := &placements.Store{Client: c, Live: c, Epoch: func(context.Context) (int64, error) { return 1, nil },
		Written: func(p *v1alpha1.Placement) {
			if o, ok := observe.Of(p, false); ok {
				book.Apply(o)
			}
		}}
	writer := &steering.Writer{Client: c, Now: b.clock.Now}
	recorder := events.NewFakeRecorder(10000)
	b.Engine = &Engine{
		Client: c, Book: book, Quota: quotas, Decider: &admission.Decider{Matcher: matcher}, Policies: &policies.Resolver{Client: c}, Store: store, Writer: writer,
		Evictor: &eviction.Evictor{Writer: writer, Store: store, Events: recorder, Metrics: m, Now: b.clock.Now},
		Events:  recorder, Metrics: m, Clock: b.clock, Synced: func() bool { return true },
	}
	for _, o := range queueOf(change) {
		b.make(o)
	}
	for name, model := range nodes {
		b.node(name, model, 8)
	}
	b.template("eight", 8)
	return b
}

func (b *bench) wrote(verb string, o client.Object) {
	kind := fmt.Sprintf("%T", o)
	b.writes = append(b.writes, verb+" "+kind[strings.LastIndex(kind, ".")+1:]+" "+o.GetName())
}

// valid holds a status against what the API server holds it against.
func (b *bench) valid(p *v1alpha1.Placement) {
	b.t.Helper()
	for _, c := range p.Status.Conditions {
		if c.Reason == "" || c.LastTransitionTime.IsZero() {
			b.t.Errorf("the API server would refuse condition %+v of %s", c, p.Name)
		}
	}
	if s := &p.Status; len(s.Waits) > 16 || len(s.Closed) > 16 || len(s.Victims) > 256 {
		b.t.Errorf("the API server would refuse %d waits, %d closed and %d victims of %s", len(s.Waits), len(s.Closed), len(s.Victims), p.Name)
	}
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// make creates an object.
func (b *bench) make(o client.Object) {
	b.t.Helper()
	status := o.DeepCopyObject().(client.Object)
	b.must(b.Client.Create(context.Background(), o))
	switch o.(type) {
	case *v1alpha1.Placement, *kueue.Workload, *corev1.Node:
		status.SetResourceVersion(o.GetResourceVersion())
		b.must(b.Client.Status().Update(context.Background(), status))
	}
}

func queueOf(change func(*kueue.ClusterQueue, *v1alpha1.DevicePolicySpec)) []client.Object {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}}}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "plimsoll"}}}
	g := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"gpus"}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpus"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "shared"}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll"}}
	check.Spec.ControllerName = v1alpha1.ControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "DevicePolicy", Name: "gpu"}
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.DevicePolicySpec{QuotaResource: "gpus"}}
	cel := func(expression string) []resourcev1.DeviceSelector {
		return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	}
	out := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, lq, check, cq, dp,
		&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{Selectors: cel(`device.driver == "gpu.example.com"`)}}}
	for _, name := range []string{"h100", "a100"} {
		g.Flavors = append(g.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{{Name: "gpus", NominalQuota: resource.MustParse("1000")}}})
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{Name: name, ChargePerDevice: 1, Selectors: cel(fmt.Sprintf(`device.attributes["gpu.example.com"].model == %q`, name))})
		out = append(out, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"accelerator": name}}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{g}
	if change != nil {
		change(cq, &dp.Spec)
	}
	return out
}

func (b *bench) node(name, model string, devices int) {
	b.t.Helper()
	b.make(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "accelerator": model}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: ptr.To(fmt.Sprintf("%s-%d", name, i))}, "model": {StringValue: &model}}})
	}
	b.make(s)
}

func (b *bench) template(name string, devices int64) {
	b.t.Helper()
	b.make(&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: devices}}}}}}})
}

// waits makes a Workload of one pod with eight devices; those made first go first.
func (b *bench) waits(name string, change func(*kueue.Workload)) {
	b.t.Helper()
	b.uids++
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(b.uids-100) * time.Second))}}
	wl.Spec.QueueName, wl.Spec.Priority = "gpus", ptr.To(int32(100))
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("eight")}}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: spec}}}
	if change != nil {
		change(wl)
	}
	b.make(wl)
}

// reserve has Kueue give a Workload quota on a flavor.
func (b *bench) reserve(name, flavor string) {
	b.t.Helper()
	b.change(name, func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "shared", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: ptr.To(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpus": kueue.ResourceFlavorReference(flavor)},
			ResourceUsage: corev1.ResourceList{"gpus": resource.MustParse("8")}}}}
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(b.clock.Now())}}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(b.clock.Now())}}
	})
}

// change changes a Workload's status.
func (b *bench) change(name string, change func(*kueue.Workload)) {
	b.t.Helper()
	wl := b.workload(name)
	change(wl)
	b.must(b.Client.Status().Update(context.Background(), wl))
}

// pod makes a pod that holds devices of a node; Kueue does not manage it.
func (b *bench) pod(name, node string, devices ...int) { b.podOf("", name, node, devices...) }

// podOf is pod, of a Job.
func (b *bench) podOf(job types.UID, name, node string, devices ...int) {
	b.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("pod-" + name)}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}}}
	if job != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: string(job), UID: job, Controller: ptr.To(true)}}
	}
	b.make(p)
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: p.UID, Controller: ptr.To(true)}}}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, i := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: "gpu", Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)})
	}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: p.UID}}
	b.make(c)
}

func (b *bench) gone(o client.Object) {
	b.t.Helper()
	b.must(b.Client.Get(context.Background(), client.ObjectKeyFromObject(o), o))
	b.must(b.Client.Delete(context.Background(), o, client.GracePeriodSeconds(0)))
	if seen, ok := observe.Of(o, true); ok {
		b.Book.Apply(seen)
	}
	b.Quota.Apply(o, true)
}

// observe gives the ledger and the quota book what is there.
func (b *bench) observe() {
	b.t.Helper()
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &corev1.PodList{}, &resourcev1.ResourceSliceList{}, &resourcev1.ResourceClaimList{}, &resourcev1.DeviceClassList{},
		&v1alpha1.PlacementList{}, &kueue.WorkloadList{}, &corev1.LimitRangeList{}, &nodev1.RuntimeClassList{},
		&corev1.NamespaceList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.ResourceFlavorList{}, &kueue.AdmissionCheckList{},
	} {
		b.must(b.Client.List(context.Background(), list))
		b.must(meta.EachListItem(list, func(o runtime.Object) error {
			if seen, ok := observe.Of(o.(metav1.Object), false); ok {
				seen.At = b.clock.Now()
				b.Book.Apply(seen)
			}
			b.Quota.Apply(o.(client.Object), false)
			return nil
		}))
	}
}

// round observes and runs one round at so many seconds after noon, and returns what it wrote.
func (b *bench) round(at int) []string {
	b.t.Helper()
	writes, _ := b.roundThen(at)
	return writes
}

// roundThen is round, and says in how many seconds it wants another.
func (b *bench) roundThen(at int) ([]string, float64) {
	b.t.Helper()
	b.clock.SetTime(noon.Add(time.Duration(at) * time.Second))
	b.observe()
	b.writes = nil
	result, err := b.Reconcile(context.Background(), reconcile.Request{})
	b.must(err)
	return slices.Clone(b.writes), result.RequeueAfter.Seconds()
}

// settle runs rounds until one writes nothing, as the events of its writes would.
func (b *bench) settle(at int) {
	b.t.Helper()
	for range 10 {
		if len(b.round(at)) == 0 {
			return
		}
	}
	b.t.Fatalf("rounds write without end: %v", b.round(at))
}

func (b *bench) workload(name string) *kueue.Workload {
	b.t.Helper()
	wl := &kueue.Workload{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, wl))
	return wl
}

// placement returns a Workload's Placement; an empty one where there is none.
func (b *bench) placement(name string) *v1alpha1.Placement {
	b.t.Helper()
	p := &v1alpha1.Placement{}
	b.must(client.IgnoreNotFound(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, p)))
	return p
}

// open returns, of the Workloads named, those that something is open to: "name=flavor".
func (b *bench) open(names ...string) string {
	b.t.Helper()
	var out []string
	for _, name := range names {
		if of := flavors.AllowedOf(b.workload(name)); len(of) > 0 {
			out = append(out, name+"="+strings.Join(of, "|"))
		}
	}
	return strings.Join(out, " ")
}

// remembers writes what a Workload's Placement remembers.
func (b *bench) remembers(name string, change func(*v1alpha1.PlacementStatus)) {
	b.t.Helper()
	_, err := b.Store.Ensure(context.Background(), b.workload(name))
	b.must(err)
	b.must(b.Store.UpdateStatus(context.Background(), types.NamespacedName{Namespace: ns, Name: name}, change))
}
