package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// incoming is a pod for tests with its claims.
type incoming struct {
	pod    *corev1.Pod
	claims map[string]*resourcev1.ResourceClaim
}

// asks is a pod with one container, which asks for so much of resources, such as "cpu=1".
func asks(requests ...string) *incoming {
	in := &incoming{claims: map[string]*resourcev1.ResourceClaim{}, pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod", UID: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: amounts(requests...)}}}},
	}}
	return in
}

func amounts(of ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, r := range of {
		name, q, _ := strings.Cut(r, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return list
}

// claim gives the pod a claim of its own, to which its container refers.
func (in *incoming) claim(name string, spec resourcev1.ResourceClaimSpec) *incoming {
	in.unreferred(name, spec)
	c := &in.pod.Spec.Containers[0].Resources
	c.Claims = append(c.Claims, corev1.ResourceClaim{Name: name})
	return in
}

// unreferred gives it one to which no container refers.
func (in *incoming) unreferred(name string, spec resourcev1.ResourceClaimSpec) *incoming {
	in.pod.Spec.ResourceClaims = append(in.pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: ptr.To("claim-" + name)})
	in.claims[name] = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + name, UID: types.UID("claim-" + name)}, Spec: *spec.DeepCopy()}
	for i := range in.claims[name].Spec.Devices.Requests {
		r := &in.claims[name].Spec.Devices.Requests[i]
		if r.Exactly != nil && r.Exactly.AllocationMode == "" {
			r.Exactly.AllocationMode = resourcev1.DeviceAllocationModeExactCount
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].AllocationMode = resourcev1.DeviceAllocationModeExactCount
		}
	}
	return in
}

// on changes the pod.
func (in *incoming) on(change func(*corev1.Pod)) *incoming {
	change(in.pod)
	return in
}

// with changes one of its claims.
func (in *incoming) with(name string, change func(*resourcev1.ResourceClaim)) *incoming {
	change(in.claims[name])
	return in
}

// given allocates a claim to devices of node n.
func (in *incoming) given(name string, devices ...string) *incoming {
	return in.with(name, func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}}}}
		for _, d := range devices {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: "gpu.example.com", Pool: "n", Device: d})
		}
	})
}

func (w *world) predict(t *testing.T, in *incoming) Prediction {
	t.Helper()
	d := &Decider{Matcher: flavors.NewMatcher()}
	return d.Predict(context.Background(), w.book.Snapshot(), "n", &Incoming{Pod: in.pod, Claims: in.claims})
}

// devices lists what a prediction gives, by claim, as driver:device.
func (p *Prediction) devices() map[string]string {
	var out map[string]string
	for name, a := range p.Allocations {
		if out == nil {
			out = map[string]string{}
		}
		var list []string
		for _, r := range a.Devices.Results {
			list = append(list, r.Device)
		}
		out[name] = strings.Join(list, " ")
	}
	return out
}

// prediction is a case of a table.
type prediction struct {
	world *world
	pod   *incoming
	// no is the reason and part of the message; both empty where it fits.
	no   v1alpha1.Reason
	says string
	// quirk is part of the quirk; empty for none.
	quirk  string
	unsure bool
	// given and mapped are what the pod gets.
	given  map[string]string
	mapped ledger.Amounts
}

func predictions(t *testing.T, cases map[string]prediction) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := tc.world.predict(t, tc.pod)
			if p.Fits != (tc.no == "") || p.Reason != tc.no || !strings.Contains(p.Message, tc.says) || p.Fits != (p.Message == "") {
				t.Fatalf("fits %t, %s %q", p.Fits, p.Reason, p.Message)
			}
			if (p.Quirk == "") != (tc.quirk == "") || !strings.Contains(p.Quirk, tc.quirk) || p.Unsure != tc.unsure {
				t.Errorf("quirk %q, unsure %t", p.Quirk, p.Unsure)
			}
			if diff := cmp.Diff(tc.given, p.devices()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.mapped, p.Mapped); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// alone is a world of one node, n, with so many devices of a model.
func alone(models string, changes ...func(*corev1.Node, *resourcev1.ResourceSlice)) *world {
	return newWorld().node("n", models, func(n *corev1.Node, s *resourcev1.ResourceSlice) {
		for _, change := range changes {
			change(n, s)
		}
	})
}

func nodeOf(change func(*corev1.Node)) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(n *corev1.Node, _ *resourcev1.ResourceSlice) { change(n) }
}

func sliceOf(change func(*resourcev1.ResourceSlice)) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(_ *corev1.Node, s *resourcev1.ResourceSlice) { change(s) }
}

// lists makes the node list more resources, such as "hugepages-1Gi=16Gi".
func listing(more ...string) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return nodeOf(func(n *corev1.Node) {
		for name, q := range amounts(more...) {
			n.Status.Allocatable[name] = q
		}
	})
}

// uses puts a pod on node n that asks for so much.
func (w *world) runs(name string, requests ledger.Amounts) *world {
	return w.see(ledger.KindPod, types.UID(name), func(o *ledger.Observation) {
		o.Pod = &ledger.Pod{Namespace: "elsewhere", Name: name, Node: "n", Requests: requests}
	})
}

func TestPredictPlace(t *testing.T) {
	taint := nodeOf(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} })
	prefer := nodeOf(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
	})
	cordon := nodeOf(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	unready := nodeOf(func(n *corev1.Node) { n.Status.Conditions = nil })
	tolerating := func(key string) *incoming {
		return asks("cpu=1").on(func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
		})
	}
	for0 := func(name string) *incoming { return asks("cpu=1").on(func(p *corev1.Pod) { p.Spec.NodeName = name }) }
	selecting := func(value string) *incoming {
		return asks("cpu=1").on(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: value} })
	}
	unavailable := v1alpha1.ReasonNodeUnavailable
	predictions(t, map[string]prediction{
		"a pod that asks for little fits":                     {world: alone("h100:1"), pod: asks("cpu=1")},
		"a node that is not there":                            {world: newWorld(), pod: asks("cpu=1"), no: unavailable, says: "is gone"},
		"a pod for this node":                                 {world: alone("h100:1"), pod: for0("n")},
		"a pod for another node":                              {world: alone("h100:1"), pod: for0("m"), no: unavailable, says: "for node m"},
		"a node selector that matches":                        {world: alone("h100:1"), pod: selecting("n")},
		"a node selector that does not match":                 {world: alone("h100:1"), pod: selecting("m"), no: unavailable, says: "node selector"},
		"a taint that is not tolerated":                       {world: alone("h100:1", taint), pod: asks("cpu=1"), no: unavailable, says: "taint"},
		"a taint that is tolerated":                           {world: alone("h100:1", taint), pod: tolerating("k")},
		"a taint that only asks":                              {world: alone("h100:1", prefer), pod: asks("cpu=1")},
		"a cordoned node":                                     {world: alone("h100:1", cordon), pod: asks("cpu=1"), no: unavailable, says: "cordoned"},
		"a cordoned node whose cordon is tolerated":           {world: alone("h100:1", cordon), pod: tolerating(corev1.TaintNodeUnschedulable)},
		"a node that is not Ready and has no taint to say so": {world: alone("h100:1", unready), pod: asks("cpu=1")},
	})
}

func TestPredictRoom(t *testing.T) {
	node := v1alpha1.ReasonNodeResources
	sidecar := func(in *incoming) *incoming {
		return in.on(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: amounts("cpu=10")}},
				{Name: "init", Resources: corev1.ResourceRequirements{Requests: amounts("cpu=50")}},
			}
		})
	}
	none := func(in *incoming) *incoming {
		return in.on(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil })
	}
	predictions(t, map[string]prediction{
		"all there is":               {world: alone("h100:1"), pod: asks("cpu=64", "memory=512Gi")},
		"more than there is":         {world: alone("h100:1"), pod: asks("cpu=64001m"), no: node, says: "insufficient cpu"},
		"more than other pods leave": {world: alone("h100:1").runs("other", ledger.Amounts{"cpu": 60000, "pods": 1}), pod: asks("cpu=5"), no: node, says: "5000 asked for, 4000 free"},
		"nothing on a node of which more is taken than it has": {world: alone("h100:1").runs("other", ledger.Amounts{"cpu": 70000, "pods": 1}), pod: none(asks())},
		"as many pods as it takes":                             {world: alone("h100:1", listing("pods=1")), pod: asks("cpu=1")},
		"one pod too many":                                     {world: alone("h100:1", listing("pods=1")).runs("other", ledger.Amounts{"pods": 1}), pod: none(asks()), no: node, says: "too many pods"},
		"hugepages":                                            {world: alone("h100:1", listing("hugepages-1Gi=16Gi")), pod: asks("hugepages-1Gi=16Gi")},
		"hugepages of another size":                            {world: alone("h100:1", listing("hugepages-1Gi=16Gi")), pod: asks("hugepages-2Mi=2Mi"), no: node, says: "insufficient hugepages-2Mi"},
		"a device plugin's devices":                            {world: alone("h100:1", listing("example.com/foo=2")), pod: asks("example.com/foo=2")},
		"more of them than there are":                          {world: alone("h100:1", listing("example.com/foo=2")).runs("other", ledger.Amounts{"example.com/foo": 1, "pods": 1}), pod: asks("example.com/foo=2"), no: node, says: "insufficient example.com/foo"},
		"none that nothing serves":                             {world: alone("h100:1"), pod: asks("example.com/foo=1"), no: node, says: "insufficient example.com/foo"},
		"none of a resource of which none is asked for":        {world: alone("h100:1"), pod: asks("example.com/foo=0")},
		"a name without domain that nobody knows":              {world: alone("h100:1"), pod: asks("gpus=8")},
		"init containers with the sidecars before them":        {world: alone("h100:1"), pod: sidecar(asks("cpu=40"))},
		"init containers with the sidecars before them, more":  {world: alone("h100:1").runs("other", ledger.Amounts{"cpu": 4001, "pods": 1}), pod: sidecar(asks("cpu=40")), no: node, says: "60000 asked for"},
	})
}

// TestPredictIsOfTheAccounts: what is promised, released or allocated is all not there for the pod, but for what is held for
// its own claims.
func TestPredictIsOfTheAccounts(t *testing.T) {
	gpu := claiming(exactly("gpu", 1))
	released := func(w *world, claim string) *world {
		w.see(ledger.KindPod, "mine", func(o *ledger.Observation) {
			o.Pod = &ledger.Pod{Namespace: "team", Name: "mine", Pin: "n", Requests: ledger.Amounts{"cpu": 1000, "pods": 1}}
		})
		return w.see(ledger.KindClaim, types.UID(claim), func(o *ledger.Observation) {
			o.Claim = &ledger.Claim{Namespace: "team", Name: claim, Pod: "mine", Promised: []ledger.DeviceID{{Driver: "gpu.example.com", Pool: "n", Device: "gpu-0"}}}
		})
	}
	promised := func(w *world) *world {
		key := v1alpha1.PlacementKey{WorkloadUID: "wl", Admission: "a"}
		w.see(ledger.KindWorkload, "wl", func(o *ledger.Observation) {
			o.Workload = &ledger.Workload{Namespace: "team", Name: "wl", Owner: "job", Key: &key, Requests: map[string]ledger.Amounts{"main": {"cpu": 60000, "pods": 1}}}
		})
		return w.see(ledger.KindPlacement, "placement", func(o *ledger.Observation) {
			o.Placement = &ledger.Placement{Namespace: "team", Name: "wl", Spec: &v1alpha1.PlacementSpec{Key: &key, PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Nodes: []v1alpha1.PlacementNode{{
				Name: "n", Slots: 1, Requests: []v1alpha1.PlacementRequest{{Claim: "gpu", Request: "gpu", Devices: []string{"gpu.example.com/n/gpu-0"}}},
			}}}}}}
		})
	}
	devices := v1alpha1.ReasonNotEnoughDevices
	predictions(t, map[string]prediction{
		"a free device":                     {world: alone("h100:1"), pod: asks("cpu=1").claim("a", gpu), given: map[string]string{"a": "gpu-0"}},
		"an allocated one":                  {world: alone("h100:1").held("n", false, false, 0), pod: asks("cpu=1").claim("a", gpu), no: devices},
		"an allocated one beside a free":    {world: alone("h100:2").held("n", false, false, 0), pod: asks("cpu=1").claim("a", gpu), given: map[string]string{"a": "gpu-1"}},
		"one of a pod that is ending":       {world: alone("h100:1").held("n", false, true, 0), pod: asks("cpu=1").claim("a", gpu), no: devices},
		"a promised one":                    {world: promised(alone("h100:1")), pod: asks("cpu=1").claim("a", gpu), no: devices},
		"what is promised of the resources": {world: promised(alone("h100:1")), pod: asks("cpu=5"), no: v1alpha1.ReasonNodeResources},
		"one that is held for another pod":  {world: released(alone("h100:1"), "claim-b"), pod: asks("cpu=1").claim("a", gpu), no: devices},
		"one that is held for its own":      {world: released(alone("h100:1"), "claim-a"), pod: asks("cpu=1").claim("a", gpu), given: map[string]string{"a": "gpu-0"}},
	})
}

// TestPredictSearchIsBounded: where the allocator's search takes too long, counting may tell; otherwise nothing is said.
func TestPredictSearchIsBounded(t *testing.T) {
	draws := sliceOf(func(s *resourcev1.ResourceSlice) {
		s.Spec.Pool.ResourceSliceCount = 2
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "card", Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse("1")}}}}
		}
	})
	w := alone("h100:24", draws)
	w.see(ledger.KindSlice, "counters", func(o *ledger.Observation) {
		o.Slice = &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "counters", UID: "counters"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 2},
			SharedCounters: []resourcev1.CounterSet{{Name: "card", Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse("10")}}}},
		}}
	})
	in := asks("cpu=1").claim("a", claiming(exactly("gpu", 11)))
	if p := w.predict(t, in); p.Fits || !p.Unsure || p.Reason != v1alpha1.ReasonUndecided || !strings.Contains(p.Quirk, "ten seconds") {
		t.Errorf("%+v", p)
	}
	one := asks("cpu=1").claim("a", claiming(exactly("gpu", 8))).claim("b", claiming(exactly("nic", 2))).with("b", func(c *resourcev1.ResourceClaim) {
		c.Spec.Devices.Requests[0].Exactly.DeviceClassName = "gpu"
		c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: ptr.To(resourcev1.FullyQualifiedName("gpu.example.com/uuid"))}}
	})
	if p := w.predict(t, one); p.Fits || p.Unsure || p.Reason != v1alpha1.ReasonNotEnoughDevices {
		t.Errorf("a claim that cannot be had by itself: %+v", p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d := &Decider{Matcher: flavors.NewMatcher()}
	if p := d.Predict(ctx, w.book.Snapshot(), "n", &Incoming{Pod: in.pod, Claims: in.claims}); p.Fits || !p.Unsure {
		t.Errorf("an ended search came to %+v", p)
	}
}

// TestHopeless: what counting alone tells.
func TestHopeless(t *testing.T) {
	shared := sliceOf(func(s *resourcev1.ResourceSlice) { s.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true) })
	bad := sliceOf(func(s *resourcev1.ResourceSlice) {
		s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "bad", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	})
	all := func(models string) *incoming {
		return asks().claim("a", claiming(exactly("gpu", 1, is("model", models)))).with("a", everyOne)
	}
	few := func(counts ...int64) *incoming {
		in := asks()
		for i, n := range counts {
			in.claim(fmt.Sprint(i), claiming(exactly("gpu", n)))
		}
		return in
	}
	many := asks()
	for i := range 9 {
		many.claim(fmt.Sprint(i), claiming(either("gpu", "h100:1", "a100:1")))
	}
	for name, tc := range map[string]struct {
		world *world
		pod   *incoming
		want  bool
	}{
		"as many as there are":                            {alone("h100:3"), few(1, 2), false},
		"more than there are":                             {alone("h100:3"), few(2, 2), true},
		"more than are free":                              {alone("h100:3").held("n", false, false, 0), few(1, 2), true},
		"more than are healthy":                           {alone("h100:3", bad), few(1, 2), true},
		"a shared device for several requests":            {alone("h100:1", shared), few(1, 1, 1), false},
		"a shared device once for each":                   {alone("h100:1", shared), few(2), true},
		"all of what another has some of":                 {alone("h100:2").held("n", false, false, 0), all("h100"), true},
		"all of one kind beside some of another":          {alone("h100:2,a100:2"), all("h100").claim("b", claiming(exactly("gpu", 2))), false},
		"all of one kind beside more than is left":        {alone("h100:2,a100:2"), all("h100").claim("b", claiming(exactly("gpu", 3))), true},
		"the second alternative":                          {alone("h100:1,a100:2"), asks().claim("a", claiming(either("gpu", "h100:2", "a100:2"))), false},
		"no alternative":                                  {alone("h100:1,a100:2"), asks().claim("a", claiming(either("gpu", "h100:2", "a100:3"))), true},
		"an alternative that another claim needs":         {alone("h100:1,a100:1"), asks().claim("a", claiming(either("gpu", "h100:1", "a100:1"))).claim("b", claiming(exactly("gpu", 2))), true},
		"administrators take nothing":                     {alone("h100:1"), few(5).with("0", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true) }), false},
		"more choices than are counted":                   {alone("h100:1"), many, false},
		"a selector that fails is the allocator's to say": {alone("h100:1"), asks().claim("a", claiming(exactly("gpu", 3, is("other", "x")))), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.world.book.Snapshot()
			o := (&Decider{Matcher: flavors.NewMatcher()}).prospect(s, &Incoming{Pod: tc.pod.pod, Claims: tc.pod.claims}, false)
			if o.no != nil {
				t.Fatal(o.no)
			}
			f := o.at(s.Node("n"))
			var claims []*resourcev1.ResourceClaim
			for _, c := range f.claims {
				claims = append(claims, c.ResourceClaim)
			}
			if got := f.hopeless(claims); got != tc.want {
				t.Errorf("hopeless: %t", got)
			}
			if p := tc.world.predict(t, tc.pod); tc.want && p.Fits {
				t.Errorf("it fits: %v", p.devices())
			}
		})
	}
}

// What is drawn by chance in kube-scheduler is not in a prediction.
func TestPredictionsAreTheSameEachTime(t *testing.T) {
	w := alone("h100:2", sliceOf(func(s *resourcev1.ResourceSlice) {
		s.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true)
		s.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
	}))
	in := asks("cpu=1").claim("a", claiming(exactly("gpu", 2)))
	first := w.predict(t, in)
	if id := first.Allocations["a"].Devices.Results[0].ShareID; id == nil || *id != "claim-a-0" {
		t.Errorf("share %v", id)
	}
	if diff := cmp.Diff(first, w.predict(t, in)); diff != "" {
		t.Error(diff)
	}
	if got := fmt.Sprint(first.devices()); got != "map[a:gpu-0 gpu-1]" {
		t.Errorf("given %s", got)
	}
}
