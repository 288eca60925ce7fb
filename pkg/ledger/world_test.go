package ledger

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// The builders below make observations for tests; versions are given by the caller.

func ref(kind Kind, uid string, version uint64) Ref {
	return Ref{Kind: kind, UID: types.UID(uid), ResourceVersion: version}
}

func seeNode(name string, version uint64, change func(*corev1.Node)) Observation {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if change != nil {
		change(n)
	}
	return Observation{Ref: ref(KindNode, name, version), Node: n}
}

func seeSlice(node string, version uint64, generation, count int64, part, devices int) Observation {
	name := fmt.Sprintf("%s-%d-%d", node, generation, part)
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: ptr.To(node),
			Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: count}},
	}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d-%d", part, i)})
	}
	return Observation{Ref: ref(KindSlice, name, version), Slice: s}
}

func device(node string, part, i int) DeviceID {
	return DeviceID{Driver: "gpu.example.com", Pool: node, Device: fmt.Sprintf("gpu-%d-%d", part, i)}
}

func seePod(name string, version uint64, p Pod) Observation {
	p.Name = name
	if p.Namespace == "" {
		p.Namespace = "team"
	}
	if p.Requests == nil {
		p.Requests = Amounts{"cpu": 1000, "pods": 1}
	}
	return Observation{Ref: ref(KindPod, name, version), Pod: &p}
}

func seeClaim(name string, version uint64, c Claim) Observation {
	c.Namespace, c.Name = "team", name
	return Observation{Ref: ref(KindClaim, name, version), Claim: &c}
}

func keyOf(workload string, at int64) *v1alpha1.PlacementKey {
	return &v1alpha1.PlacementKey{WorkloadUID: types.UID(workload), ReservedAt: metav1.NewTime(time.Unix(at, 0)), Admission: "a"}
}

func seeWorkload(name string, version uint64, reservedAt int64) Observation {
	w := &Workload{Namespace: "team", Name: name, Owner: types.UID("job-" + name), Requests: map[string]Amounts{"main": {"cpu": 1000, "pods": 1}}}
	if reservedAt > 0 {
		w.Key = keyOf(name, reservedAt)
	}
	return Observation{Ref: ref(KindWorkload, name, version), Workload: w}
}

func seePlacement(workload string, version uint64, at int64, node string, slots int32, devices ...DeviceID) Observation {
	n := v1alpha1.PlacementNode{Name: node, Slots: slots}
	if len(devices) > 0 {
		r := v1alpha1.PlacementRequest{Claim: "gpu", Request: "gpu"}
		for _, d := range devices {
			r.Devices = append(r.Devices, d.String())
		}
		n.Requests = []v1alpha1.PlacementRequest{r}
	}
	return Observation{Ref: ref(KindPlacement, "p-"+workload, version), Placement: &Placement{
		Namespace: "team", Name: workload,
		Spec: &v1alpha1.PlacementSpec{Key: keyOf(workload, at), PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Nodes: []v1alpha1.PlacementNode{n}}}},
	}}
}

func gone(o Observation) Observation {
	return Observation{Ref: Ref{Kind: o.Ref.Kind, UID: o.Ref.UID, ResourceVersion: o.Ref.ResourceVersion + 1, Deleted: true}}
}

func bookOf(observations ...Observation) *Book {
	b := New()
	for _, o := range observations {
		b.Apply(o)
	}
	return b
}

func free(s *Snapshot, node string) (devices int, cpu int64) {
	n := s.Node(node)
	if n == nil {
		return 0, 0
	}
	for i := range n.Devices {
		if n.Devices[i].Free() {
			devices++
		}
	}
	return devices, n.Free["cpu"]
}
