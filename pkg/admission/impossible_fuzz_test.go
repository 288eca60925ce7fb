package admission

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// slicesText is a list of slices as the API has them: one of devices and one of counters, with what is given in the fields of
// the first device, of the counters and of either spec.
func slicesText(device, counters, spec string) string {
	return fmt.Sprintf(`[{"metadata":{"name":"s0"},"spec":{"driver":"gpu.example.com","nodeName":"a","pool":{"name":"a","generation":1,"resourceSliceCount":2},
 "devices":[{"name":"gpu-0","attributes":{"model":{"string":"h100"}}%s},{"name":"gpu-1","attributes":{"model":{"string":"h100"}}}]%s}},
 {"metadata":{"name":"s1"},"spec":{"driver":"gpu.example.com","nodeName":"a","pool":{"name":"a","generation":1,"resourceSliceCount":2},
 "sharedCounters":[{"name":"card","counters":{"memory":{"value":"80Gi"}%s}}]%s}}]`, device, spec, counters, spec)
}

// FuzzSlice looks for slices, from the API server or not, that stop the ledger or what decides on it, or of which something is
// lent that the ledger knows cannot be.
func FuzzSlice(f *testing.F) {
	for _, text := range []string{
		`[]`, `[{}]`, `[{"spec":{"devices":[{}]}}]`,
		slicesText("", "", ""),
		slicesText(`,"consumesCounters":[{"counterSet":"card","counters":{"memory":{"value":"81Gi"}}}]`, "", ""),
		slicesText(`,"consumesCounters":[{"counterSet":"card","counters":{"memory":{"value":"-1"}}}]`, `,"slices":{"value":"-1"}`, ""),
		slicesText(`,"consumesCounters":[{"counterSet":"none","counters":{"memory":{"value":"1"}}}]`, "", ""),
		slicesText(`,"capacity":{"memory":{"value":"-80Gi"}}`, "", ""),
		slicesText(`,"allowMultipleAllocations":true,"capacity":{"memory":{"value":"80","requestPolicy":{"default":"10","validRange":{"min":"10","step":"0"}}}}`, "", ""),
		slicesText(`,"allowMultipleAllocations":true,"capacity":{"memory":{"value":"80","requestPolicy":{"default":"10","validRange":{"step":"10"}}}}`, "", ""),
		slicesText(`,"allowMultipleAllocations":true,"capacity":{"memory":{"value":"80","requestPolicy":{"default":"-10"}}}`, "", ""),
		slicesText(`,"nodeAllocatableResourceMappings":{"cpu":{"capacityKey":"cores"},"memory":{"allocationMultiplier":"-2"},"a/b":{}}`, "", ""),
		slicesText(`,"attributes":{"version":{"version":"99999999999999999999.0.0"},"two":{"int":1,"bool":true},"none":{}}`, "", ""),
		slicesText(`,"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Gt","values":["b"]}]}]}`, "", `,"perDeviceNodeSelection":true`),
		slicesText("", "", `,"allNodes":true`),
		slicesText("", "", `,"devices":[{"name":"gpu-0"},{"name":"gpu-0"},{"name":"a/b"}]`),
		slicesText("", "", `,"pool":{"name":"a","generation":-1,"resourceSliceCount":-1}`),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var list []resourcev1.ResourceSlice
		if json.Unmarshal(data, &list) != nil || len(list) > 8 {
			return
		}
		book := bookOfSlices(list, false)
		s := book.Snapshot()
		if again := bookOfSlices(list, true).Snapshot(); s.Digest() != again.Digest() {
			t.Error("the order of slices makes other accounts")
		}
		n := s.Node("a")
		n.Flags()
		n.Counters()
		n.Zones()
		book.Divergences()
		d := &Decider{Matcher: flavors.NewMatcher()}
		ps := pods(1, 1, assignedTo("h100"))
		r := Request{Now: after(0), Policy: testPolicy(t, nil), Namespace: "team", PodSets: []PodSet{ps}, EveryFlavor: true}
		for range 2 { // the second time from what is remembered
			for _, ps := range d.Decide(t.Context(), s, &r).PodSets {
				for _, node := range ps.Nodes {
					for _, request := range node.Requests {
						for _, id := range request.Devices {
							lentWell(t, n, id)
						}
					}
				}
			}
		}
		for _, asked := range []*resourcev1.CapacityRequirements{nil, {Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("11")}}} {
			spec := ps.Shape.Claims[0].Spec.DeepCopy()
			spec.Devices.Requests[0].Exactly.Capacity = asked
			d.Predict(t.Context(), s, "a", &Incoming{
				Pod:    &corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("c")}}}},
				Claims: map[string]*resourcev1.ResourceClaim{"gpu": {ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}, Spec: *spec}},
			})
		}
	})
}

func lentWell(t *testing.T, n *ledger.Node, id string) {
	t.Helper()
	device, err := ledger.ParseDeviceID(id)
	if err != nil {
		t.Fatal(err)
	}
	switch d := n.Device(device); {
	case d == nil:
		t.Errorf("%s is lent, and the node does not have it", id)
	case d.Unusable != "":
		t.Errorf("%s is lent: %s", id, d.Unusable)
	}
}

// bookOfSlices is a book with node a, the slices, and a claim that has the second device of one of them.
func bookOfSlices(list []resourcev1.ResourceSlice, backwards bool) *ledger.Book {
	w := newWorld()
	w.see(ledger.KindNode, "a", func(o *ledger.Observation) {
		o.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Labels: map[string]string{corev1.LabelHostname: "a", "flavor-h100": "true"}}}
		o.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		o.Node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("64"), "pods": resource.MustParse("110")}
	})
	for i := range list {
		if backwards {
			i = len(list) - 1 - i
		}
		s := list[i].DeepCopy()
		s.UID = types.UID(fmt.Sprint("slice-", i))
		w.see(ledger.KindSlice, s.UID, func(o *ledger.Observation) { o.Slice = s })
	}
	for i := range list {
		if s := &list[i]; len(s.Spec.Devices) > 1 {
			w.see(ledger.KindClaim, "held", func(o *ledger.Observation) {
				o.Claim = &ledger.Claim{Namespace: "elsewhere", Name: "held", Pod: "holder", Allocated: []ledger.DeviceID{
					{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: s.Spec.Devices[1].Name},
				}}
			})
			w.see(ledger.KindPod, "holder", func(o *ledger.Observation) {
				o.Pod = &ledger.Pod{Namespace: "elsewhere", Name: "holder", Node: "a", Claims: []string{"held"}, Referring: []int{1}, Requests: ledger.Amounts{"pods": 1}}
			})
			break
		}
	}
	return w.book
}
