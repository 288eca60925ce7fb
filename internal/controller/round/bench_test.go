package round

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// The cluster of the benchmarks: holders with promises and pods fill as many nodes, what Kueue does not manage the others, and
// waiters wait for devices.
const (
	benchNodes    = 1000
	benchHolders  = 800
	benchWaiters  = 200
	benchFinished = 3000
)

// crowd is a large cluster with the engine under test.
type crowd struct {
	*Engine
	client *quick
	clock  *clocktesting.FakePassiveClock
	pods   uint64
}

func newCrowd(b *testing.B) *crowd {
	b.Helper()
	c := &crowd{client: newQuick(), clock: clocktesting.NewFakePassiveClock(noon)}
	quotas, err := quota.New(quota.Options{})
	if err != nil {
		b.Fatal(err)
	}
	book, m := ledger.New(), metrics.New(prometheus.NewRegistry())
	c.client.wrote = func(o client.Object) {
		if seen, ok := observe.Of(o, false); ok {
			seen.At = c.clock.Now()
			book.Apply(seen)
		}
		quotas.Apply(o, false)
	}
	store := &placements.Store{Client: c.client, Live: c.client, Epoch: func(context.Context) (int64, error) { return 1, nil }, Written: func(*v1alpha1.Placement) {}}
	writer, recorder := &steering.Writer{Client: c.client, Now: c.clock.Now}, &events.FakeRecorder{}
	c.Engine = &Engine{
		Client: c.client, Book: book, Quota: quotas, Decider: &admission.Decider{Matcher: flavors.NewMatcher()}, Policies: &policies.Resolver{Client: c.client},
		Store: store, Writer: writer, Evictor: &eviction.Evictor{Writer: writer, Store: store, Events: recorder, Metrics: m, Now: c.clock.Now},
		Events: recorder, Metrics: m, Clock: c.clock, Synced: func() bool { return true },
	}
	for _, o := range queueOf(func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
		for i := range cq.Spec.ResourceGroups[0].Flavors {
			cq.Spec.ResourceGroups[0].Flavors[i].Resources[0].NominalQuota = resource.MustParse("100000")
		}
	}) {
		o.SetUID(types.UID(fmt.Sprintf("%T %s", o, o.GetName())))
		c.client.put(o)
	}
	for i := range benchNodes {
		c.node(nodeName(i))
	}
	c.client.put(&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "eight"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 8}}}}}}})
	for i := range benchNodes {
		if i < benchHolders {
			c.holder(b, i)
		}
		c.pod(i)
	}
	for i := range benchFinished {
		c.client.put(c.workload(fmt.Sprintf("finished-%04d", i), func(wl *kueue.Workload) {
			wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded", LastTransitionTime: metav1.NewTime(noon)}}
		}))
		c.placed(fmt.Sprintf("finished-%04d", i), v1alpha1.PlacementSpec{})
	}
	for i := range benchWaiters {
		c.client.put(c.workload(fmt.Sprintf("waiter-%04d", i), nil))
	}
	for range 8 { // until nothing is left to write
		c.run(b)
	}
	return c
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func (c *crowd) node(name string) {
	model := "h100"
	c.client.put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name, "accelerator": model}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("slice-" + name)}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}}
	for i := range 8 {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: ptr.To(fmt.Sprintf("%s-%d", name, i))}, "model": {StringValue: &model}}})
	}
	c.client.put(s)
}

func (c *crowd) workload(name string, change func(*kueue.Workload)) *kueue.Workload {
	created := noon.Add(-time.Hour + time.Duration(c.client.version)*time.Millisecond)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created.Truncate(time.Second)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID("job-" + name), Controller: ptr.To(true)}}}}
	wl.Spec.QueueName, wl.Spec.Priority = "gpus", ptr.To(int32(100))
	spec := corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "main"}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("eight")}},
	}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: spec}}}
	if change != nil {
		change(wl)
	}
	return wl
}

// placed keeps a Placement for a Workload.
func (c *crowd) placed(name string, spec v1alpha1.PlacementSpec) {
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("placement-" + name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Name: name, UID: types.UID(name), Controller: ptr.To(true)}}}, Spec: spec}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PlacementReserved, Status: metav1.ConditionTrue, Reason: "Promised", LastTransitionTime: metav1.NewTime(noon)}}
	c.client.put(p)
}

// holder has a Workload hold quota, with a promise of a whole node and its check Ready.
func (c *crowd) holder(b *testing.B, i int) {
	name := fmt.Sprintf("holder-%04d", i)
	wl := c.workload(name, func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{v1alpha1.AllowedFlavorsAnnotation: "h100"}
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "shared", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: ptr.To(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpus": "h100"},
			ResourceUsage: corev1.ResourceList{"gpus": resource.MustParse("8")}}}}
		at := metav1.NewTime(noon.Add(-30 * time.Minute))
		wl.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: at},
			{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: at}}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady, LastTransitionTime: at,
			Message: "every pod has a place that is kept for it", PodSetUpdates: []kueue.PodSetUpdate{{Name: "main", Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}}}}
	})
	c.client.put(wl)
	key, err := admission.KeyOf(wl)
	if err != nil || key == nil {
		b.Fatal("no key", err)
	}
	pn := v1alpha1.PlacementNode{Name: nodeName(i), Slots: 1, Requests: []v1alpha1.PlacementRequest{{Claim: "gpu", Request: "gpu"}}}
	for d := range 8 {
		pn.Requests[0].Devices = append(pn.Requests[0].Devices, device(i, d).String())
	}
	c.placed(name, v1alpha1.PlacementSpec{Key: key, Policy: "gpu", PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Flavor: "h100", Charge: 8, Nodes: []v1alpha1.PlacementNode{pn}}}})
}

func device(node, i int) ledger.DeviceID {
	return ledger.DeviceID{Driver: "gpu.example.com", Pool: nodeName(node), Device: fmt.Sprintf("gpu-%d", i)}
}

// pod has a pod run on a node with all its devices: that of the node's holder, or one that Kueue does not manage.
func (c *crowd) pod(i int) { c.see(i, false) }

// ends has that pod end, with its claim.
func (c *crowd) ends(i int) { c.see(i, true) }

func (c *crowd) see(i int, gone bool) {
	c.pods++
	claim := &ledger.Claim{Namespace: ns, Name: nodeName(i), Pod: types.UID(fmt.Sprintf("pod-%d", i))}
	pod := &ledger.Pod{Namespace: ns, Name: nodeName(i), Node: nodeName(i), PodSet: "main", Requests: ledger.Amounts{"cpu": 4000, "memory": 16 << 30, "pods": 1},
		CreatedUnix: noon.Unix(), Owner: types.UID(fmt.Sprintf("job-holder-%04d", i))}
	for d := range 8 {
		claim.Allocated = append(claim.Allocated, device(i, d))
	}
	if gone {
		claim, pod = nil, nil
	}
	c.Book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindPod, UID: types.UID(fmt.Sprintf("pod-%d", i)), ResourceVersion: c.pods}, Pod: pod})
	c.Book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindClaim, UID: types.UID(fmt.Sprintf("claim-%d", i)), ResourceVersion: c.pods}, Claim: claim})
}

func (c *crowd) run(b *testing.B) {
	if _, err := c.Reconcile(b.Context(), reconcile.Request{}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkReconcile is one round, or two where something happens and is undone.
func BenchmarkReconcile(b *testing.B) {
	cases := map[string]func(b *testing.B, c *crowd, i int){
		"nothing changed": func(b *testing.B, c *crowd, _ int) { c.run(b) },
		"a pod ended": func(b *testing.B, c *crowd, i int) {
			at := benchHolders + i%(benchNodes-benchHolders)
			c.ends(at)
			c.run(b)
			c.pod(at)
			c.run(b)
		},
		"a Workload arrived": func(b *testing.B, c *crowd, i int) {
			name := fmt.Sprintf("arrival-%04d", i)
			c.client.put(c.workload(name, nil))
			c.run(b)
			c.client.drop(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		b.Run(name, func(b *testing.B) {
			c := newCrowd(b)
			runtime.GC()
			before, cpu := c.client.writes, processor()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				cases[name](b, c, i)
			}
			b.ReportMetric(float64(c.client.writes-before)/float64(b.N), "writes/op")
			b.ReportMetric(float64(processor()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processor is how long the process has used a processor, which other processes do not change.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
