package admission

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

var update = flag.Bool("update", false, "rewrite the golden decisions")

// world is a small cluster for tests: nodes of one model each unless told otherwise.
type world struct {
	book    *ledger.Book
	version uint64
	now     time.Time
	pods    map[types.UID]ledger.Pod
	// seen is all that the book was told.
	seen []ledger.Observation
}

func newWorld() *world {
	w := &world{book: ledger.New(), pods: map[types.UID]ledger.Pod{}}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "class"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}
	w.see(ledger.KindDeviceClass, class.UID, func(o *ledger.Observation) { o.Class = class })
	return w
}

func (w *world) see(kind ledger.Kind, uid types.UID, set func(*ledger.Observation)) *world {
	w.version++
	o := ledger.Observation{Ref: ledger.Ref{Kind: kind, UID: uid, ResourceVersion: w.version}, At: w.now}
	set(&o)
	w.seen = append(w.seen, o)
	w.book.Apply(o)
	return w
}

// node adds a node with so many devices of each model, such as "h100:8" or "h100:4,a100:4".
func (w *world) node(name, models string, change func(*corev1.Node, *resourcev1.ResourceSlice)) *world {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("slice-" + name), ResourceVersion: fmt.Sprint(w.version)},
		Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: ptr.To(name),
			Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}},
	}
	for _, part := range strings.Split(models, ",") {
		model, count, _ := strings.Cut(part, ":")
		n.Labels["flavor-"+model] = "true"
		quantity := resource.MustParse(count)
		for range quantity.Value() {
			i := len(s.Spec.Devices)
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"model": {StringValue: ptr.To(model)}, "uuid": {StringValue: ptr.To(fmt.Sprintf("%s-%d", name, i))},
			}})
		}
	}
	if change != nil {
		change(n, s)
	}
	w.see(ledger.KindNode, n.UID, func(o *ledger.Observation) { o.Node = n })
	w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
	return w
}

// held has a claim hold devices of a node; managed says whether Kueue manages the pod.
func (w *world) held(node string, managed, ending bool, devices ...int) *world {
	name := fmt.Sprintf("holder-%s-%d", node, devices[0])
	c := &ledger.Claim{Namespace: "elsewhere", Name: name, Pod: types.UID(name)}
	for _, i := range devices {
		c.Allocated = append(c.Allocated, ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)})
	}
	p := &ledger.Pod{Namespace: "elsewhere", Name: name, Node: node, Owner: types.UID("job-" + name), Terminating: ending, Requests: ledger.Amounts{"cpu": 1000, "pods": 1}}
	w.pods[types.UID(name)] = *p
	w.see(ledger.KindPod, types.UID(name), func(o *ledger.Observation) { o.Pod = p })
	w.see(ledger.KindClaim, types.UID("claim-"+name), func(o *ledger.Observation) { o.Claim = c })
	if managed {
		w.see(ledger.KindWorkload, types.UID("wl-"+name), func(o *ledger.Observation) {
			o.Workload = &ledger.Workload{Namespace: "elsewhere", Name: name, Owner: p.Owner, Key: &v1alpha1.PlacementKey{WorkloadUID: types.UID("wl-" + name), Admission: "a"}}
		})
	}
	return w
}

func modelSelector(m string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes["gpu.example.com"].model == %q`, m)}}}
}

func testPolicy(t *testing.T, change func(*v1alpha1.DevicePolicySpec)) *flavors.Policy {
	t.Helper()
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.DevicePolicySpec{
		QuotaResource: "gpus", Ordering: v1alpha1.OrderingPack,
		Flavors: []v1alpha1.PolicyFlavor{{Name: "h100", Selectors: modelSelector("h100")}, {Name: "a100", Selectors: modelSelector("a100")}},
	}}
	if change != nil {
		change(&dp.Spec)
	}
	p, problems := flavors.Resolve(dp, func(name string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor-" + name: "true"}}}
	})
	if len(problems) > 0 {
		t.Fatalf("policy: %v", problems)
	}
	return p
}

// pods asks for count pods of so many devices each.
func pods(count int32, devices int64, change func(*PodSet)) PodSet {
	ps := PodSet{Name: "main", Count: count, Spec: &corev1.PodSpec{}, Requests: ledger.Amounts{"cpu": 1000, "pods": 1}}
	if devices > 0 {
		spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: devices}}}}}
		ps.Shape.Claims = []flavors.ClaimShape{{Name: "gpu", Template: "t", Spec: spec, Requests: []flavors.RequestShape{
			{Name: "gpu", Alternatives: []flavors.Alternative{{Class: "gpu", Count: devices}}}}}}
	}
	if change != nil {
		change(&ps)
	}
	return ps
}

func assignedTo(flavor string) func(*PodSet) {
	return func(ps *PodSet) {
		ps.Assigned = &Assigned{Flavor: flavor, NodeLabels: map[string]string{"flavor-" + flavor: "true"}}
	}
}

func (w *world) decide(t *testing.T, r Request) Decision {
	t.Helper()
	if r.Policy == nil {
		r.Policy = testPolicy(t, nil)
	}
	r.Namespace = "team"
	if r.Now.IsZero() {
		r.Now = time.Unix(1000, 0)
	}
	d := &Decider{Matcher: flavors.NewMatcher()}
	return d.Decide(context.Background(), w.book.Snapshot(), &r)
}

func cordon(n *corev1.Node, _ *resourcev1.ResourceSlice) { n.Spec.Unschedulable = true }

// TestDecisions holds whole decisions against golden files; each name is the rule that the decision shows.
func TestDecisions(t *testing.T) {
	one := []PodSet{pods(1, 8, nil)}
	for name, tc := range map[string]struct {
		world   *world
		podSets []PodSet
		every   bool
	}{
		"the preferred flavor is taken when it is free":           {newWorld().node("h", "h100:8", nil).node("a", "a100:8", nil), one, false},
		"the flavor that Kueue assigned is the only one admitted": {newWorld().node("h", "h100:8", nil).node("a", "a100:8", nil), []PodSet{pods(1, 8, assignedTo("a100"))}, false},
		"devices that managed workloads hold make a flavor Busy":  {newWorld().node("h", "h100:8", nil).held("h", true, false, 0), one, false},
		"devices of ending pods are said to be freeing":           {newWorld().node("h", "h100:8", nil).held("h", true, true, 0), one, false},
		"devices that others hold make a flavor Blocked":          {newWorld().node("h", "h100:8", nil).held("h", false, false, 0), one, false},
		"a cordoned node makes a flavor Blocked":                  {newWorld().node("h", "h100:8", cordon), one, false},
		"a node that never has as many devices is Impossible":     {newWorld().node("h", "h100:8", nil), []PodSet{pods(1, 9, nil)}, false},
		"a gang is short by the pods that have no place":          {newWorld().node("h1", "h100:8", nil).node("h2", "h100:8", nil).held("h2", true, false, 3), []PodSet{pods(2, 8, nil)}, false},
		"a gang names the node that it waits for before those that are too small": {
			newWorld().node("h1", "h100:8", nil).node("h2", "h100:8", nil).node("h3", "h100:8", nil).node("small", "h100:4", nil).held("h1", true, false, 0), []PodSet{pods(3, 8, nil)}, false,
		},
		"a podset of 3 x 1 on a node with 2 free devices is short": {newWorld().node("h", "h100:2", nil), []PodSet{pods(3, 1, nil)}, false},
		"four pods of one node share its devices out":              {newWorld().node("h", "h100:8", nil), []PodSet{pods(4, 2, nil)}, false},
		"pack fills the node with the fewest free devices":         {newWorld().node("h1", "h100:8", nil).node("h2", "h100:8", nil).held("h2", true, false, 0, 1), []PodSet{pods(1, 2, nil)}, false},
		"devices of another flavor on the same node are not given": {newWorld().node("m", "h100:4,a100:4", nil), []PodSet{pods(1, 5, nil)}, false},
		"every flavor's standing is taken when it is asked for":    {newWorld().node("h", "h100:8", nil).node("a", "a100:4", nil), one, true},
		"a podset without devices goes where Kueue puts it":        {newWorld().node("h", "h100:8", nil).node("a", "a100:8", nil), []PodSet{pods(2, 0, assignedTo("a100"))}, false},
		"a second podset is placed beside the first":               {newWorld().node("h", "h100:8", nil), []PodSet{pods(1, 6, nil), pods(1, 3, func(p *PodSet) { p.Name = "other" })}, false},
		"a node's memory bounds the pods beside its devices":       {newWorld().node("h", "h100:8", nil), []PodSet{pods(4, 1, func(p *PodSet) { p.Requests = ledger.Amounts{"memory": 200 << 30, "pods": 1} })}, false},
		"a tainted device is not given": {newWorld().node("h", "h100:8", func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
			s.Spec.Devices[3].Taints = []resourcev1.DeviceTaint{{Key: "xid", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}), one, false},
		"a node taint that the pod does not tolerate keeps it away": {newWorld().node("h", "h100:8", func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
			n.Spec.Taints = []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
		}), one, false},
		"a node that is not Ready lends nothing": {newWorld().node("h", "h100:8", func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		}), one, false},
		"an incomplete pool lends nothing": {newWorld().node("h", "h100:8", func(_ *corev1.Node, s *resourcev1.ResourceSlice) { s.Spec.Pool.ResourceSliceCount = 2 }), one, false},
		"devices that nothing tells apart are not given": {newWorld().node("h", "h100:8", func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
			for i := range s.Spec.Devices {
				delete(s.Spec.Devices[i].Attributes, "uuid")
			}
		}), one, false},
		"a selector that no device matches is said": {newWorld().node("h", "h100:8", nil), []PodSet{pods(1, 1, func(p *PodSet) {
			p.Shape.Claims[0].Requests[0].Alternatives[0].Selectors = []string{`device.attributes["gpu.example.com"].uuid == "none"`}
		})}, false},
		"a node affinity that no node matches is Impossible":           {newWorld().node("h", "h100:8", nil), []PodSet{pods(1, 1, func(p *PodSet) { p.Spec.NodeSelector = map[string]string{"zone": "mars"} })}, false},
		"nodes that the pod does not want are not the first reason":    {newWorld().node("h1", "h100:8", nil).node("h2", "h100:8", nil).node("h3", "h100:8", nil).held("h1", true, false, 0), []PodSet{pods(1, 8, func(p *PodSet) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "h1"} })}, false},
		"a class that does not exist is waited for":                    {newWorld().node("h", "h100:8", nil), []PodSet{pods(1, 1, func(p *PodSet) { p.Shape.Claims[0].Requests[0].Alternatives[0].Class = "missing" })}, false},
		"a flavor of Kueue's that the policy does not know is refused": {newWorld().node("h", "h100:8", nil), []PodSet{pods(1, 1, assignedTo("l4"))}, false},
		"no node at all carries the flavor's labels":                   {newWorld(), one, false},
	} {
		t.Run(name, func(t *testing.T) {
			dec := tc.world.decide(t, Request{PodSets: tc.podSets, EveryFlavor: tc.every})
			dec.LedgerVersion = 0
			got, err := yaml.Marshal(dec)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpreadTakesTheEmptiestNode(t *testing.T) {
	w := newWorld().node("h1", "h100:8", nil).node("h2", "h100:8", nil).held("h1", true, false, 0)
	for ordering, want := range map[v1alpha1.Ordering]string{v1alpha1.OrderingPack: "h1", v1alpha1.OrderingSpread: "h2"} {
		dec := w.decide(t, Request{Policy: testPolicy(t, func(s *v1alpha1.DevicePolicySpec) { s.Ordering = ordering }), PodSets: []PodSet{pods(1, 1, nil)}})
		if dec.Verdict != v1alpha1.VerdictAdmit || dec.PodSets[0].Nodes[0].Name != want {
			t.Errorf("%s took %+v, want node %s", ordering, dec.PodSets, want)
		}
	}
}

func TestConstraintsAreNeverLoosened(t *testing.T) {
	p := testPolicy(t, func(s *v1alpha1.DevicePolicySpec) {
		s.Constraints = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].uuid != "h-0"`}}}
	})
	dec := newWorld().node("h", "h100:2", nil).decide(t, Request{Policy: p, PodSets: []PodSet{pods(1, 1, nil)}})
	if got := dec.PodSets[0].Nodes[0].Requests[0].Devices; !slices.Equal(got, []string{"gpu.example.com/h/gpu-1"}) {
		t.Errorf("got %v, gpu-0 fails the constraint", got)
	}
	if dec := newWorld().node("h", "h100:2", nil).decide(t, Request{Policy: p, PodSets: []PodSet{pods(1, 2, nil)}}); dec.Verdict == v1alpha1.VerdictAdmit {
		t.Errorf("admitted with a device that fails the constraint: %+v", dec.PodSets)
	}
}

func TestTheSameInputGivesTheSameDecision(t *testing.T) {
	build := func(names []string) *world {
		w := newWorld()
		for _, n := range names {
			w.node(n, "h100:8", nil)
		}
		return w
	}
	ask := Request{PodSets: []PodSet{pods(3, 4, nil)}}
	want := build([]string{"a", "b", "c"}).decide(t, ask)
	got := build([]string{"c", "a", "b"}).decide(t, ask)
	want.LedgerVersion, got.LedgerVersion = 0, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the order of observations changed the decision:\n%s", diff)
	}
}

func TestRecordsStaySmallWithManyAlternatives(t *testing.T) {
	dec := Decision{Verdict: v1alpha1.VerdictWait, Message: strings.Repeat("m", 1000)}
	for i := range 200 {
		dec.Standings = append(dec.Standings, v1alpha1.FlavorStanding{PodSet: "main", Flavor: fmt.Sprintf("f%d", i), Alternative: strings.Repeat("a", 700), Standing: v1alpha1.StandingBusy})
	}
	r := Record(dec, nil, time.Unix(0, 0))
	if n := size(r); n > maxRecordBytes || len(r.Standings) == 0 || r.Standings[0].Flavor != "f0" {
		t.Errorf("record of %d bytes with %d standings", n, len(r.Standings))
	}
	for i := range dec.Standings {
		dec.Standings[i].Alternative = ""
	}
	if r := Record(dec, nil, time.Unix(0, 0)); len(r.Standings) != maxStandings {
		t.Errorf("%d standings, a Placement holds %d", len(r.Standings), maxStandings)
	}
}

func TestRecordsStaySmall(t *testing.T) {
	dec := Decision{Verdict: v1alpha1.VerdictWait, Message: strings.Repeat("m", 1000)}
	for i := range 16 {
		s := v1alpha1.FlavorStanding{PodSet: "main", Flavor: fmt.Sprintf("f%d", i), Standing: v1alpha1.StandingBusy}
		for range 12 {
			s.Reasons = append(s.Reasons, v1alpha1.StandingReason{Reason: v1alpha1.ReasonDevicesInUse, Nodes: 5000, Message: strings.Repeat("x", 400)})
		}
		dec.Standings = append(dec.Standings, s)
	}
	r := Record(dec, nil, time.Unix(0, 0))
	if n := size(r); n > maxRecordBytes || len(r.Standings) != 16 || len(r.Standings[0].Reasons) == 0 {
		t.Errorf("record of %d bytes with %d standings", n, len(r.Standings))
	}
}

func TestAPromiseThatNoObjectHoldsIsRefused(t *testing.T) {
	w := newWorld()
	for i := range 1400 {
		w.node(fmt.Sprintf("a-node-with-a-rather-long-name-%04d", i), "h100:8", nil)
	}
	for count, want := range map[int32]v1alpha1.Verdict{100: v1alpha1.VerdictAdmit, 1400: v1alpha1.VerdictWait} {
		dec := w.decide(t, Request{PodSets: []PodSet{pods(count, 8, nil)}})
		if dec.Verdict != want || want == v1alpha1.VerdictWait && dec.Reason != v1alpha1.ReasonClaimUnsupported {
			t.Errorf("%d pods: %s for %s, want %s: %s", count, dec.Verdict, dec.Reason, want, dec.Message)
		}
	}
}
