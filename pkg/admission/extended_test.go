package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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

// served adds a DeviceClass that serves plainGPU with devices of a model, or of any where that is empty.
func (w *world) served(model string) *world {
	expressions := []string{`device.driver == "gpu.example.com"`}
	if model != "" {
		expressions = append(expressions, is("model", model))
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "served", UID: "served"},
		Spec: resourcev1.DeviceClassSpec{Selectors: cels(expressions), ExtendedResourceName: ptr.To(string(plainGPU))}}
	return w.see(ledger.KindDeviceClass, class.UID, func(o *ledger.Observation) { o.Class = class })
}

func lists(count string) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
		n.Status.Allocatable[plainGPU] = resource.MustParse(count)
	}
}

func TestPlainDevicesByDeviceClass(t *testing.T) {
	unusable := func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		s.Spec.Devices[1].AllowMultipleAllocations = ptr.To(true)
	}
	same := func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			delete(s.Spec.Devices[i].Attributes, "uuid")
		}
	}
	for name, tc := range map[string]struct {
		world  *world
		podSet PodSet
		want   []string
		// reason and message say why it waits.
		reason  v1alpha1.Reason
		message string
	}{
		"the devices of the class are promised by number":        {world: newWorld().served("").node("n", "h100:4", nil), podSet: plainly(2, 2), want: []string{"main n <extended-resources>/nvidia.com/gpu 0 1 2 3"}},
		"a class without the name serves by its own":             {world: newWorld().node("n", "h100:4", nil), podSet: plainly(1, 2), reason: v1alpha1.ReasonNotEnoughDevices, message: "node n has 0 of nvidia.com/gpu, a pod asks for 2"},
		"devices that nothing tells apart can be given":          {world: newWorld().served("").node("n", "h100:2", same), podSet: plainly(1, 2), want: []string{"main n <extended-resources>/nvidia.com/gpu 0 1"}},
		"a node whose devices span two flavors lends none":       {world: newWorld().served("").node("n", "h100:4,a100:4", nil), podSet: plainly(1, 2), reason: v1alpha1.ReasonClaimUnsupported, message: "also selects device gpu-4, which is not of the flavor"},
		"a class of one model serves on a mixed node":            {world: newWorld().served("h100").node("n", "h100:4,a100:4", nil), podSet: plainly(1, 2), want: []string{"main n <extended-resources>/nvidia.com/gpu 0 1"}},
		"a class that selects what is never lent serves none":    {world: newWorld().served("").node("n", "h100:4", unusable), podSet: plainly(1, 2), reason: v1alpha1.ReasonClaimUnsupported, message: "it allows multiple allocations"},
		"a node that lists the name lends by its plugin":         {world: newWorld().served("").node("n", "h100:8", lists("8")), podSet: plainly(1, 8), want: []string{}},
		"a node that lists the name lends no more than it lists": {world: newWorld().served("").node("n", "h100:8", lists("4")), podSet: plainly(1, 8), reason: v1alpha1.ReasonNotEnoughDevices, message: "node n has 4 of nvidia.com/gpu, a pod asks for 8"},
		"held devices are not promised":                          {world: newWorld().served("").node("n", "h100:4", nil).held("n", true, false, 0), podSet: plainly(1, 4), reason: v1alpha1.ReasonDevicesInUse, message: "node n: 1 of 4 devices are in use, a pod asks for 4"},
		"more than a claim holds":                                {world: newWorld().served("").node("n", "h100:40", nil), podSet: plainly(1, 33), reason: v1alpha1.ReasonClaimUnsupported, message: "a claim of at most 32 devices"},
		"a claim on a node that lists the name is the plugin's":  {world: newWorld().served("").node("n", "h100:8", lists("8")), podSet: shaped("main", 1, claiming(exactly("gpu", 1))), reason: v1alpha1.ReasonForeignUse, message: "node n lists nvidia.com/gpu: its device plugin lends these devices, not the pool"},
		"a claim on a node that lists no such devices is served": {world: newWorld().served("").node("n", "h100:8", lists("0")), podSet: shaped("main", 1, claiming(exactly("gpu", 1))), want: []string{"main n c0/gpu 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			dec := tc.world.decide(t, Request{Policy: plainPolicy(t), PodSets: []PodSet{tc.podSet}})
			if got := given(dec); !slices.Equal(got, tc.want) || dec.Reason != tc.reason || !strings.Contains(dec.Message, tc.message) || (dec.Verdict == v1alpha1.VerdictAdmit) != (tc.reason == "") {
				t.Errorf("given %q, %s: %s\nwant %q, %s: %s", got, dec.Reason, dec.Message, tc.want, tc.reason, tc.message)
			}
		})
	}
}

// promisedByNumber has a Workload be promised devices of a node, by number or by name.
func (w *world) promises(workload, node string, byNumber bool, devices ...int) *world {
	key := &v1alpha1.PlacementKey{WorkloadUID: types.UID(workload), Admission: "a"}
	r := v1alpha1.PlacementRequest{Claim: "c0", Request: "gpu"}
	if byNumber {
		r.Claim, r.Request = v1alpha1.ExtendedResourcesClaim, string(plainGPU)
	}
	for _, i := range devices {
		r.Devices = append(r.Devices, ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)}.String())
	}
	w.see(ledger.KindWorkload, key.WorkloadUID, func(o *ledger.Observation) {
		o.Workload = &ledger.Workload{Namespace: "team", Name: workload, Owner: types.UID("job-" + workload), Key: key}
	})
	return w.see(ledger.KindPlacement, types.UID("p-"+workload), func(o *ledger.Observation) {
		o.Placement = &ledger.Placement{Namespace: "team", Name: workload, Spec: &v1alpha1.PlacementSpec{Key: key, PodSets: []v1alpha1.PlacementPodSet{{
			Name: "main", Nodes: []v1alpha1.PlacementNode{{Name: node, Slots: 1, Requests: []v1alpha1.PlacementRequest{r}}}}}}}
	})
}

// pod has a pod of a Workload be on a node, and be given devices by the scheduler's claim, if any.
func (w *world) pod(workload, node string, devices ...int) *world {
	uid := types.UID("pod-" + workload)
	w.see(ledger.KindPod, uid, func(o *ledger.Observation) {
		o.Pod = &ledger.Pod{Namespace: "team", Name: workload, Node: node, Owner: types.UID("job-" + workload), PodSet: "main", CreatedUnix: 10, Requests: ledger.Amounts{plainGPU: 2, "pods": 1}}
	})
	if len(devices) == 0 {
		return w
	}
	c := &ledger.Claim{Namespace: "team", Name: workload, Pod: uid}
	for _, i := range devices {
		c.Allocated = append(c.Allocated, ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)})
	}
	return w.see(ledger.KindClaim, types.UID("claim-"+workload), func(o *ledger.Observation) { o.Claim = c })
}

// holders writes who holds each device of a node.
func (w *world) holders(node string) []string {
	var out []string
	n := w.book.Snapshot().Node(node)
	for i := range n.Devices {
		var names []string
		for _, h := range n.Devices[i].Holders {
			names = append(names, string(h.Kind)+" "+h.Name)
		}
		out = append(out, strings.Join(names, "+"))
	}
	return out
}

func TestPromisesByNumberAreHeldByNumber(t *testing.T) {
	for name, tc := range map[string]struct {
		world *world
		want  []string
	}{
		"before the pod has devices":                       {newWorld().served("").node("n", "h100:4", nil).promises("a", "n", true, 0, 1).pod("a", "n"), []string{"Placement a", "Placement a", "", ""}},
		"the pod was given what was foreseen":              {newWorld().served("").node("n", "h100:4", nil).promises("a", "n", true, 0, 1).pod("a", "n", 0, 1), []string{"Claim a", "Claim a", "", ""}},
		"the pod was given others":                         {newWorld().served("").node("n", "h100:4", nil).promises("a", "n", true, 0, 1).pod("a", "n", 2, 3), []string{"", "", "Claim a", "Claim a"}},
		"the pod was given one of them":                    {newWorld().served("").node("n", "h100:4", nil).promises("a", "n", true, 0, 1).pod("a", "n", 1, 2), []string{"", "Claim a", "Claim a", ""}},
		"what was taken of another's promise is exchanged": {newWorld().served("").node("n", "h100:4", nil).promises("a", "n", true, 0, 1).promises("b", "n", true, 2, 3).pod("b", "n", 0, 1), []string{"Claim b", "Claim b", "Placement a", "Placement a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.world.holders("n"); !slices.Equal(got, tc.want) {
				t.Errorf("held %q, want %q", got, tc.want)
			}
			if free := tc.world.book.Snapshot().Node("n").Free[plainGPU]; free != 0 {
				t.Errorf("the node's own account of %s is %d: a DeviceClass serves it", plainGPU, free)
			}
		})
	}
}

func TestForesee(t *testing.T) {
	base := func() *world { return newWorld().served("").node("n", "h100:4", nil).promises("a", "n", true, 0, 1) }
	for name, tc := range map[string]struct {
		world *world
		// reason is why the pod of a waits; empty where it may go.
		reason v1alpha1.Reason
	}{
		"nothing else is there":                              {world: base()},
		"the first devices are promised by number":           {world: newWorld().served("").node("n", "h100:4", nil).promises("b", "n", true, 0, 1).promises("a", "n", true, 2, 3)},
		"the first devices are promised by name":             {world: newWorld().served("").node("n", "h100:4", nil).promises("b", "n", false, 0).promises("a", "n", true, 2, 3), reason: v1alpha1.ReasonDevicesInUse},
		"those promised by name are not the first":           {world: base().promises("b", "n", false, 2, 3)},
		"another pod of the kind is on its way":              {world: base().promises("b", "n", true, 2, 3).pod("b", "n"), reason: v1alpha1.ReasonDevicesInUse},
		"another pod of the kind has its devices":            {world: base().promises("b", "n", true, 2, 3).pod("b", "n", 0, 1)},
		"someone took so many that the scheduler finds none": {world: base().held("n", false, false, 0, 1, 2), reason: v1alpha1.ReasonDevicesInUse},
		"a device plugin lists the name by now":              {world: base().node("n", "h100:4", lists("4")), reason: v1alpha1.ReasonForeignUse},
		"the node is gone":                                   {world: base().see(ledger.KindNode, "n", func(o *ledger.Observation) { o.Ref.Deleted = true }), reason: v1alpha1.ReasonNodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Decider{Matcher: flavors.NewMatcher()}
			got := d.Foresee(context.Background(), tc.world.book.Snapshot(), Extended{Policy: plainPolicy(t), Node: "n", Resource: string(plainGPU), Count: 2, Placement: "p-a"})
			if got == nil && tc.reason != "" || got != nil && got.Reason != tc.reason {
				t.Errorf("foreseen %+v, want %q", got, tc.reason)
			}
		})
	}
}
