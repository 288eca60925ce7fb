package ledger

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const devicesOfANode = 8

// fleet holds objects as informers hold them: a pod and a claim for each device, of which every second takes memory of its node.
type fleet struct {
	nodes  []*corev1.Node
	slices []*resourcev1.ResourceSlice
	pods   []*corev1.Pod
	claims []*resourcev1.ResourceClaim
}

func fleetOf(nodes int) *fleet {
	c := &fleet{}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		node := seeNode(name, 1, nil).Node
		c.nodes = append(c.nodes, node)
		slice := seeSlice(name, 1, 1, 1, 0, devicesOfANode).Slice
		for j := range slice.Spec.Devices {
			slice.Spec.Devices[j].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"type": {StringValue: ptr.To("gpu")}, "uuid": {StringValue: ptr.To(fmt.Sprintf("GPU-%d-%d", i, j))},
				"resource.kubernetes.io/numaNode": {IntValue: ptr.To(int64(j / 4))},
			}
			if j%2 == 1 {
				continue
			}
			slice.Spec.Devices[j].NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
				"memory": {AllocationMultiplier: ptr.To(resource.MustParse("2Gi"))},
			}
		}
		c.slices = append(c.slices, slice)
		for j := range devicesOfANode {
			c.load(fmt.Sprintf("job-%d-%d", i, j), name, &slice.Spec.Devices[j])
		}
	}
	return c
}

func (c *fleet) load(name, node string, device *resourcev1.Device) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{{UID: types.UID("owner-" + name), Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{NodeName: node, ResourceClaims: []corev1.PodResourceClaim{{Name: name + "-gpu"}}, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi")},
		}}}},
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-gpu", UID: types.UID(name + "-claim")},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 1}}}}},
		Status: resourcev1.ResourceClaimStatus{
			Allocation:  &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.example.com", Pool: node, Device: device.Name}}}},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}},
		},
	}
	if device.NodeAllocatableResourceMappings != nil {
		pod.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{
			ResourceClaimName: claim.Name, Containers: []string{"main"}, Resources: corev1.ResourceList{"memory": resource.MustParse("2Gi")},
		}}
	}
	c.pods, c.claims = append(c.pods, pod), append(c.claims, claim)
}

func podSeen(p *corev1.Pod, version uint64) Observation {
	o := Observation{Ref: Ref{Kind: KindPod, UID: p.UID, ResourceVersion: version}, Pod: &Pod{
		Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Requests: RequestsOf(p, true), Owner: p.OwnerReferences[0].UID, PodSet: "main",
		Claims: []string{p.Spec.ResourceClaims[0].Name}, Referring: []int{1},
	}}
	for _, s := range p.Status.NodeAllocatableResourceClaimStatuses {
		o.Pod.Mapped = append(o.Pod.Mapped, ClaimStatus{Claim: s.ResourceClaimName, Amounts: AmountsOf(s.Resources)})
	}
	return o
}

func claimSeen(c *resourcev1.ResourceClaim, version uint64, allocated bool) Observation {
	o := Observation{Ref: Ref{Kind: KindClaim, UID: c.UID, ResourceVersion: version}, Claim: &Claim{
		Namespace: c.Namespace, Name: c.Name, Spec: &c.Spec, Pod: c.Status.ReservedFor[0].UID,
	}}
	if allocated {
		r := &c.Status.Allocation.Devices.Results[0]
		o.Claim.Allocated = []DeviceID{{Driver: r.Driver, Pool: r.Pool, Device: r.Device}}
		o.Claim.Pods = []types.UID{c.Status.ReservedFor[0].UID}
	}
	return o
}

// book takes in all of a fleet: its nodes and slices, then pods, then claims, and says what the heap has grown by at each.
func (c *fleet) book(measure bool) (b *Book, device, pod, claim float64) {
	b = New()
	devices := float64(len(c.pods))
	before := heap(measure)
	grown := func() float64 {
		b.Snapshot()
		now := heap(measure)
		defer func() { before = now }()
		return (now - before) / devices
	}
	for i := range c.nodes {
		b.Apply(Observation{Ref: Ref{Kind: KindNode, UID: c.nodes[i].UID, ResourceVersion: 1}, Node: c.nodes[i]})
		b.Apply(Observation{Ref: Ref{Kind: KindSlice, UID: c.slices[i].UID, ResourceVersion: 1}, Slice: c.slices[i]})
	}
	device = grown()
	for _, p := range c.pods {
		b.Apply(podSeen(p, 1))
	}
	pod = grown()
	for _, x := range c.claims {
		b.Apply(claimSeen(x, 1, true))
	}
	claim = grown()
	runtime.KeepAlive(c)
	return b, device, pod, claim
}

// heap returns the bytes that are in use, 0 when nobody asks.
func heap(measure bool) float64 {
	if !measure {
		return 0
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkMemory measures what the book keeps beyond the informers' objects: for a device that is free, and for a pod with its
// claim and all that they change of the accounts.
func BenchmarkMemory(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := fleetOf(nodes)
			for b.Loop() {
				_, device, pod, claim := c.book(true)
				b.ReportMetric(device, "bytes/device")
				b.ReportMetric(pod+claim, "bytes/pod")
			}
		})
	}
}

// TestMemory holds the book to the bounds that it is built for: 1 KiB a device, 2 KiB a pod with its claim.
func TestMemory(t *testing.T) {
	_, device, pod, claim := fleetOf(1000).book(true)
	if device >= 1024 {
		t.Errorf("%.0f bytes a device, want less than 1024", device)
	}
	if pod+claim >= 2048 {
		t.Errorf("%.0f bytes a pod and %.0f for its claim, want less than 2048 in all", pod, claim)
	}
}

// turns is what a busy cluster does to one device after another: its claim and its pod end, others come, the pod is bound;
// now and then a node's heartbeat and a taint that comes or goes.
func (c *fleet) turns(version uint64) []Observation {
	var out []Observation
	next := func() uint64 { version++; return version }
	for i := range 2000 {
		at := i * 7919 % len(c.pods)
		p, x := c.pods[at], c.claims[at]
		released := podSeen(p, next())
		released.Pod.Node, released.Pod.Pin, released.Pod.Mapped = "", p.Spec.NodeName, nil
		out = append(out,
			claimSeen(x, next(), false), Observation{Ref: Ref{Kind: KindPod, UID: p.UID, ResourceVersion: next()}},
			released, claimSeen(x, next(), true), podSeen(p, next()),
		)
		node := at / devicesOfANode
		out = append(out, Observation{Ref: Ref{Kind: KindNode, UID: c.nodes[node].UID, ResourceVersion: next()}, Node: c.nodes[node].DeepCopy()})
		if i%4 == 0 {
			slice := c.slices[node].DeepCopy()
			slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "lost", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
			out = append(out, Observation{Ref: Ref{Kind: KindSlice, UID: slice.UID, ResourceVersion: next()}, Slice: slice})
		}
	}
	for i := range out { // in the order of the list
		out[i].Ref.ResourceVersion = next()
	}
	return out
}

// BenchmarkApply measures what an observation takes, with all of the snapshot that follows it. The median is the figure.
func BenchmarkApply(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := fleetOf(nodes)
			book, _, _, _ := c.book(false)
			var took []time.Duration
			var turns []Observation
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%12500 == 0 {
					b.StopTimer()
					turns = c.turns(uint64(i) * 100)
					b.StartTimer()
				}
				o := turns[i%12500]
				began := time.Now()
				book.Apply(o)
				book.Snapshot()
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "median-ns/op")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns/op")
		})
	}
}

// crowded is a snapshot of 1,000 nodes with eight devices each.
func crowded() *Snapshot {
	b := New()
	for i := range 1000 {
		name := fmt.Sprintf("node-%04d", i)
		b.Apply(seeNode(name, 1, nil))
		b.Apply(seeSlice(name, 1, 1, 1, 0, devicesOfANode))
	}
	return b.Snapshot()
}

func BenchmarkWith(b *testing.B) {
	s := crowded()
	claims := []PodSetClaim{{Node: "node-0500", Slots: 1, Requests: Amounts{"cpu": 1000, "pods": 1}, Devices: []DeviceID{device("node-0500", 0, 0)}}}
	b.ReportAllocs()
	for b.Loop() {
		s.With(Holder{Kind: HolderPlacement, Managed: true, Workload: "w"}, claims)
	}
}

func BenchmarkWithout(b *testing.B) {
	s := crowded()
	b.ReportAllocs()
	for b.Loop() {
		s.Without(map[types.UID]bool{"w": true})
	}
}

// BenchmarkDigest is a look at the whole book, as an export, verify and simulate take it.
func BenchmarkDigest(b *testing.B) {
	book, _, _, _ := fleetOf(5000).book(false)
	s := book.Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		s.Digest()
	}
}
