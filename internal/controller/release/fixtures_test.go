package release

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
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
	"sigs.k8s.io/kueue/pkg/constants"

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
)

const ns = "team-a"

// began is when the Workload's quota was reserved and, unless told otherwise, its pods were made.
var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// bench is a small cluster with one admitted Workload, and the controller under test.
type bench struct {
	*Controller
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	uids  int
	// ending holds the deletionTimestamps of pods, by name: a fake API server lets nobody choose them.
	ending map[string]metav1.Time
}

// newBench makes nodes of so many H100s each, and a Workload of count pods with so many devices a pod, whose slots are as
// given: one for each name of a node.
func newBench(t *testing.T, nodes map[string]int, devices int64, slotsOn ...string) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakePassiveClock(began)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	byController := func(o client.Object) []string {
		if uid := observe.ControllerOf(o); uid != "" {
			return []string{string(uid)}
		}
		return nil
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Placement{}, &kueue.Workload{}, &corev1.Pod{}).WithReturnManagedFields().
		WithIndex(&kueue.Workload{}, observe.WorkloadByOwner, byController).WithIndex(&corev1.Pod{}, observe.PodByController, byController).
		WithInterceptorFuncs(interceptor.Funcs{
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				o.SetGeneration(o.GetGeneration() + 1) // as an API server does
				return w.Update(ctx, o, opts...)
			},
			List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := w.List(ctx, list, opts...)
				if pods, ok := list.(*corev1.PodList); ok {
					for i := range pods.Items {
						if at, ends := b.ending[pods.Items[i].Name]; ends {
							pods.Items[i].DeletionTimestamp = &at
						}
					}
				}
				return err
			},
		}).Build()
	b.Controller = &Controller{Client: c, Live: c}
	b.start()
	for _, o := range queue() {
		b.make(o)
	}
	for name, n := range nodes {
		b.node(name, n, nil)
	}
	b.promise(devices, slotsOn...)
	return b
}

// start makes the controller anew, as a process that starts does: only what is written is left.
func (b *bench) start() {
	c := b.Client
	matcher := flavors.NewMatcher()
	book := ledger.New()
	m := metrics.New(prometheus.NewRegistry())
	store := &placements.Store{Client: c, Live: c, Epoch: func(context.Context) (int64, error) { return 1, nil },
		Written: func(p *v1alpha1.Placement) {
			o, _ := observe.Of(p, false)
			book.Apply(o)
		}}
	recorder := events.NewFakeRecorder(1000)
	b.Controller = &Controller{
		Client: c, Live: c, Book: book, Decider: &admission.Decider{Matcher: matcher}, Matcher: matcher, Policies: &policies.Resolver{Client: c}, Store: store,
		Evictor: &eviction.Evictor{Writer: &steering.Writer{Client: c, Now: b.clock.Now}, Store: store, Events: recorder, Metrics: m, Now: b.clock.Now},
		Events:  recorder, Metrics: m, Clock: b.clock, Synced: func() bool { return true },
	}
	b.observe()
}

// observe gives the ledger what is there.
func (b *bench) observe() {
	b.t.Helper()
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &corev1.PodList{}, &resourcev1.ResourceSliceList{}, &resourcev1.ResourceClaimList{}, &resourcev1.DeviceClassList{},
		&v1alpha1.PlacementList{}, &kueue.WorkloadList{},
	} {
		b.must(b.Client.List(context.Background(), list))
		b.must(meta.EachListItem(list, func(o runtime.Object) error {
			seen, ok := observe.Of(o.(metav1.Object), false)
			if !ok {
				b.t.Fatalf("%T is not observed", o)
			}
			b.Book.Apply(seen)
			return nil
		}))
	}
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// make creates an object, with a uid of its own.
func (b *bench) make(o client.Object) {
	b.t.Helper()
	if o.GetUID() == "" {
		b.uids++
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", b.uids)))
	}
	o.SetResourceVersion("")
	status := o.DeepCopyObject().(client.Object)
	b.must(b.Client.Create(context.Background(), o))
	switch o.(type) {
	case *v1alpha1.Placement, *kueue.Workload, *corev1.Pod:
		status.SetResourceVersion(o.GetResourceVersion())
		b.must(b.Client.Status().Update(context.Background(), status))
	}
}

// gone deletes an object, and lets the ledger know.
func (b *bench) gone(o client.Object) {
	b.t.Helper()
	b.must(b.Client.Delete(context.Background(), o, client.GracePeriodSeconds(0)))
	seen, _ := observe.Of(o, true)
	b.Book.Apply(seen)
}

func queue() []client.Object {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "plimsoll"}}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"gpus"}, Flavors: []kueue.FlavorQuotas{{Name: "h100"}}}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpus"}}
	lq.Spec.ClusterQueue = "shared"
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll"}}
	check.Spec.ControllerName = v1alpha1.ControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "DevicePolicy", Name: "gpu"}
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	rf.Spec.NodeLabels = map[string]string{"accelerator": "h100"}
	any := []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	dp.Spec.QuotaResource, dp.Spec.Flavors = "gpus", []v1alpha1.PolicyFlavor{{Name: "h100", ChargePerDevice: 1, Selectors: any}}
	return []client.Object{cq, lq, check, rf, dp, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{Selectors: any}}}
}

func (b *bench) node(name string, devices int, change func(*corev1.Node)) {
	b.t.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "accelerator": "h100"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if change != nil {
		change(n)
	}
	b.make(n)
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: ptr.To(fmt.Sprintf("%s-%d", name, i))}}})
	}
	b.make(s)
}

// changeNode changes a node, and lets the ledger know.
func (b *bench) changeNode(name string, change func(*corev1.Node)) {
	b.t.Helper()
	n := &corev1.Node{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Name: name}, n))
	change(n)
	status := n.DeepCopy()
	b.must(b.Client.Update(context.Background(), n))
	status.ResourceVersion = n.ResourceVersion
	b.must(b.Client.Status().Update(context.Background(), status))
	b.observe()
}

func cordon(n *corev1.Node) { n.Spec.Unschedulable = true }

// promise makes the Workload and its Placement, and the template of its claims.
func (b *bench) promise(devices int64, slotsOn ...string) {
	b.t.Helper()
	count := int32(len(slotsOn)) //nolint:gosec // small
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "wl", UID: "wl",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}}}}
	wl.Spec.QueueName = "gpus"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count, Template: corev1.PodTemplateSpec{Spec: podSpec(devices, "t")}}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "shared", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: &count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpus": "h100", "cpu": "h100"}}}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(began)}}
	b.make(wl)
	if devices > 0 {
		b.template(devices)
	}
	key, err := admission.KeyOf(wl)
	b.must(err)
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "wl", UID: "placement", Generation: 1,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Name: "wl", UID: "wl", Controller: ptr.To(true)}}}}
	next := map[string]int64{}
	var all []slot
	for _, node := range slotsOn {
		s := slot{podSet: "main", node: node}
		if devices > 0 {
			r := admission.Dealt{Claim: "gpu", Request: "gpu"}
			for range devices {
				r.Devices = append(r.Devices, gpu(node, next[node]))
				next[node]++
			}
			s.requests = []admission.Dealt{r}
		}
		all = append(all, s)
	}
	nodes, _, err := regroup(all)
	b.must(err)
	p.Spec = v1alpha1.PlacementSpec{Key: key, Policy: "gpu", PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Flavor: "h100", Charge: devices, Nodes: nodes}}}
	b.make(p)
	b.observe()
}

func (b *bench) template(devices int64) {
	b.t.Helper()
	b.make(&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: devices}}}}}}})
}

func gpu(node string, i int64) ledger.DeviceID {
	return ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)}
}

func podSpec(devices int64, template string) corev1.PodSpec {
	s := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}
	if devices > 0 {
		s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	}
	return s
}

// pod makes a gated pod of the Workload as the webhook leaves it. change, if set, has the last word.
func (b *bench) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	b.t.Helper()
	wl := &kueue.Workload{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "wl"}, wl))
	claims := int64(len(wl.Spec.PodSets[0].Template.Spec.ResourceClaims))
	b.uids++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(began),
			Labels:          map[string]string{v1alpha1.ManagedLabel: "true", constants.PodSetLabel: "main"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}}},
		Spec: podSpec(claims, flavors.FreshTemplateName("t", fmt.Sprintf("%010x", b.uids))),
	}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlacementGate}}
	if claims > 0 {
		raw, err := json.Marshal(map[string]string{"gpu": "t"})
		b.must(err)
		p.Annotations = map[string]string{v1alpha1.ClaimTemplatesAnnotation: string(raw)}
	}
	if change != nil {
		change(p)
	}
	b.make(p)
	b.observe()
	return p
}

// reconcile lets the controller look at a pod once, and expects no error.
func (b *bench) reconcile(name string) reconcile.Result {
	b.t.Helper()
	result, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}})
	b.must(err)
	return result
}

// get returns a pod as it is.
func (b *bench) get(name string) *corev1.Pod {
	b.t.Helper()
	p := &corev1.Pod{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, p))
	return p
}

// cutFor returns the devices that a pod's own template names, and the slot; empty while there is none.
func (b *bench) cutFor(name string) (devices []string, id string) {
	b.t.Helper()
	list := &resourcev1.ResourceClaimTemplateList{}
	b.must(b.Client.List(context.Background(), list, client.InNamespace(ns)))
	for i := range list.Items {
		if t := &list.Items[i]; observe.ControllerOf(t) == types.UID(name) {
			return names(observe.Devices(t)), t.Annotations[v1alpha1.SlotAnnotation]
		}
	}
	return nil, ""
}

// serve plays the claim controller, lets the pod be released, and plays the scheduler.
func (b *bench) serve(name string) {
	b.t.Helper()
	b.reconcile(name)
	b.claim(name)
	b.reconcile(name)
	p := b.get(name)
	if observe.Gated(p) {
		b.t.Fatalf("pod %s is still gated", name)
	}
	p.Spec.NodeName = p.Spec.NodeSelector[corev1.LabelHostname]
	b.must(b.Client.Update(context.Background(), p))
	if len(p.Spec.ResourceClaims) > 0 {
		b.allocate(name)
	}
	b.observe()
}

// allocate gives a pod's claim what it is cut to.
func (b *bench) allocate(name string) {
	b.t.Helper()
	c := &resourcev1.ResourceClaim{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, c))
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range observe.Devices(c) {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: d.Driver, Pool: d.Pool, Device: d.Device})
	}
	b.must(b.Client.Update(context.Background(), c))
	b.observe()
}

// claim makes the claim of a pod's own template, as the claim controller does.
func (b *bench) claim(name string) {
	b.t.Helper()
	p := b.get(name)
	for _, pc := range p.Spec.ResourceClaims {
		t := &resourcev1.ResourceClaimTemplate{}
		b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: *pc.ResourceClaimTemplateName}, t))
		b.make(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: t.Spec.Labels, Annotations: t.Spec.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: p.UID, Controller: ptr.To(true)}}}, Spec: t.Spec.Spec})
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: pc.Name, ResourceClaimName: &name})
	}
	b.must(b.Client.Status().Update(context.Background(), p))
	b.observe()
}

// ends makes a pod fail; its claim is deallocated and goes where freed says so.
func (b *bench) ends(name string, freed bool) {
	b.t.Helper()
	p := b.get(name)
	p.Status.Phase = corev1.PodFailed
	b.must(b.Client.Status().Update(context.Background(), p))
	if freed {
		b.freed(name)
	}
	b.observe()
}

// deletes begins the deletion of a pod that has until then to end.
func (b *bench) deletes(name string, until time.Time) {
	b.t.Helper()
	b.ending = map[string]metav1.Time{name: metav1.NewTime(until)}
	b.observe()
}

// freed deallocates a pod's claim, and deletes it.
func (b *bench) freed(name string) {
	b.t.Helper()
	c := &resourcev1.ResourceClaim{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, c))
	b.gone(c)
}

// stolen has a claim of somebody else hold a device.
func (b *bench) stolen(d ledger.DeviceID) *resourcev1.ResourceClaim {
	b.t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "stolen-" + d.Pool + "-" + d.Device}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: d.Driver, Pool: d.Pool, Device: d.Device}}}}
	b.make(c)
	b.observe()
	return c
}

func (b *bench) placement() *v1alpha1.Placement {
	b.t.Helper()
	p := &v1alpha1.Placement{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "wl"}, p))
	return p
}

// places returns what the Placement promises: "node: device device" a slot, sorted; "node" for a slot without devices.
func (b *bench) places() []string {
	b.t.Helper()
	all, err := slotsOf(&b.placement().Spec.PodSets[0])
	b.must(err)
	var out []string
	for _, s := range all {
		line := s.node
		for _, d := range s.ids() {
			line += " " + d.Device
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// evicted returns the reason for which the Workload was evicted; empty where it was not.
func (b *bench) evicted() (v1alpha1.Reason, string) {
	b.t.Helper()
	wl := &kueue.Workload{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "wl"}, wl))
	if !steering.Deactivated(wl) {
		return "", ""
	}
	r := b.placement().Status.Retry
	return r.Reason, r.Message
}
