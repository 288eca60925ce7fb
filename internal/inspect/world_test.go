package inspect

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// start is when the exports of the tests were written.
var start = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a book with what is put into it.
type world struct {
	*ledger.Book
	version uint64
}

func newWorld() *world { return &world{Book: ledger.New()} }

func (w *world) see(o ledger.Observation) *world {
	w.version++
	o.Ref.ResourceVersion, o.At = w.version, start.Add(-10*time.Second)
	w.Apply(o)
	return w
}

// node adds a node with the label model, which flavors select, and what it lists beside cpu.
func (w *world) node(name, model string, lists map[corev1.ResourceName]string, edits ...func(*corev1.Node)) *world {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name, "model": model}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "pods": resource.MustParse("110")},
		},
	}
	for _, r := range slices.Sorted(maps.Keys(lists)) {
		n.Status.Allocatable[r] = resource.MustParse(lists[r])
	}
	for _, e := range edits {
		e(n)
	}
	return w.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: n.UID}, Node: n})
}

// slice adds a slice of a node's pool, one of so many, with devices of a model.
func (w *world) slice(node, model string, generation, count int64, devices int, edits ...func(*resourcev1.ResourceSlice)) *world {
	name := fmt.Sprintf("%s-%d", node, generation)
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: count}},
	}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}})
	}
	for _, e := range edits {
		e(s)
	}
	return w.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindSlice, UID: s.UID}, Slice: s})
}

func id(node string, i int) ledger.DeviceID {
	return ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)}
}

func (w *world) claim(name string, pod types.UID, devices ...ledger.DeviceID) *world {
	return w.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindClaim, UID: types.UID(name)}, Claim: &ledger.Claim{Namespace: "team-a", Name: name, Allocated: devices, Pod: pod}})
}

func (w *world) pod(name string, p ledger.Pod) *world {
	p.Namespace, p.Name = "team-a", name
	return w.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindPod, UID: types.UID(name)}, Pod: &p})
}

// promise adds a Workload of quota and its Placement on a node.
func (w *world) promise(name, node string, slots int32, requests ledger.Amounts, devices ...ledger.DeviceID) *world {
	key := &v1alpha1.PlacementKey{WorkloadUID: types.UID(name), ReservedAt: metav1.NewTime(start.Add(-time.Minute)), Admission: "a"}
	w.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindWorkload, UID: types.UID(name)}, Workload: &ledger.Workload{
		Namespace: "team-a", Name: name, Owner: types.UID("job-" + name), Key: key, Requests: map[string]ledger.Amounts{"main": requests},
	}})
	on := v1alpha1.PlacementNode{Name: node, Slots: slots}
	if len(devices) > 0 {
		r := v1alpha1.PlacementRequest{Claim: "gpu", Request: "gpu"}
		for _, d := range devices {
			r.Devices = append(r.Devices, d.String())
		}
		on.Requests = []v1alpha1.PlacementRequest{r}
	}
	return w.see(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindPlacement, UID: types.UID("p-" + name)}, Placement: &ledger.Placement{
		Namespace: "team-a", Name: name,
		Spec: &v1alpha1.PlacementSpec{Key: key, PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Nodes: []v1alpha1.PlacementNode{on}}}},
	}})
}

func (w *world) export(t testing.TB, source ledger.Source) *ledger.Export {
	t.Helper()
	var out bytes.Buffer
	if err := w.Snapshot().Export(&out, ledger.Header{Time: start, Source: source, Leader: source == ledger.SourceManager}); err != nil {
		t.Fatal(err)
	}
	e, err := ledger.ReadExport(&out)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// policy returns a policy whose flavors are models, in order, under a quotaResource.
func policy(t testing.TB, name, quotaResource string, models ...string) *flavors.Policy {
	t.Helper()
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DevicePolicySpec{QuotaResource: quotaResource}}
	for _, m := range models {
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{Name: m, Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes["gpu.example.com"].model == %q`, m)}}}})
	}
	p, problems := flavors.Resolve(dp, func(flavor string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"model": flavor}}}
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

func class(extended string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "class"}, Spec: resourcev1.DeviceClassSpec{
		Selectors:            []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}},
		ExtendedResourceName: ptr.To(extended),
	}}
}
