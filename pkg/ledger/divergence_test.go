package ledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// agreed is a world in which everything agrees: Workload w is promised device gpu-0-0 of node a, which maps 16 cpus; its pod
// runs there with the claim that was made for it, and so its status says. Each test changes one of it.
type agreed struct {
	slice     *resourcev1.ResourceSlice
	placement []DeviceID
	node      string
	pod       Pod
	claim     Claim
}

func agree() *agreed {
	s := seeSlice("a", 1, 1, 1, 0, 2).Slice
	s.Spec.Devices[0].NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
		"cpu": {AllocationMultiplier: ptr.To(q("16"))},
	}
	return &agreed{
		slice: s, placement: []DeviceID{device("a", 0, 0)}, node: "a",
		pod: Pod{Node: "a", Owner: "job-w", PodSet: "main", CreatedUnix: 200, Claims: []string{"c"}, Referring: []int{1},
			Requests: Amounts{"cpu": 17000, "pods": 1}, Mapped: []ClaimStatus{{Claim: "c", Amounts: Amounts{"cpu": 16000}}}},
		claim: Claim{Pod: "pod-uid", Pods: []types.UID{"pod-uid"}, Promised: []DeviceID{device("a", 0, 0)}, Allocated: []DeviceID{device("a", 0, 0)}},
	}
}

func (a *agreed) observations() []Observation {
	pod := seePod("w-0", 1, a.pod)
	pod.Ref.UID = "pod-uid"
	return []Observation{
		seeNode("a", 1, nil), seeNode("b", 1, nil), {Ref: ref(KindSlice, "a", 1), Slice: a.slice}, seeSlice("b", 1, 1, 1, 0, 2),
		seeWorkload("w", 1, 100), seePlacement("w", 1, 100, a.node, 1, a.placement...), seeClaim("c", 1, a.claim), pod,
	}
}

func TestWhatDiffersIsSaidWithBothFigures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*agreed)
		kind   DivergenceKind
		says   []string // nothing for no difference
	}{
		"all agrees": {func(*agreed) {}, "", nil},
		"a status that says less": {func(a *agreed) { a.pod.Mapped[0].Amounts = Amounts{"cpu": 4000} },
			DivergedStatus, []string{"pod w-0", "claim c takes cpu 16 of node a", "the pod's status cpu 4"}},
		"a claim that was there before and 1.36 counts for nothing": {func(a *agreed) { a.pod.Mapped = nil },
			DivergedStatus, []string{"takes cpu 16", "status nothing"}},
		"a status that says another resource besides": {func(a *agreed) { a.pod.Mapped[0].Amounts["memory"] = 2 << 30 },
			DivergedStatus, []string{"takes cpu 16 of", "status cpu 16, memory 2Gi"}},
		"a status for devices that map nothing": {func(a *agreed) { a.slice.Spec.Devices[0].NodeAllocatableResourceMappings = nil },
			DivergedStatus, []string{"takes nothing of", "status cpu 16"}},
		"a status for a claim without devices": {func(a *agreed) { a.claim.Allocated = nil },
			DivergedStatus, []string{"claim c takes cpu 16 of node a, and the claim has no devices"}},
		"a pod that is about to end": {func(a *agreed) { a.pod.Mapped, a.pod.Terminating = nil, true }, "", nil},
		"another device": {func(a *agreed) {
			a.claim.Allocated, a.pod.Mapped = []DeviceID{device("a", 0, 1)}, nil
		}, DivergedDevices, []string{"was promised gpu.example.com/a/gpu-0-0 and got gpu.example.com/a/gpu-0-1"}},
		"a device more": {func(a *agreed) {
			a.claim.Allocated = []DeviceID{device("a", 0, 1), device("a", 0, 0)}
		}, DivergedDevices, []string{"promised gpu.example.com/a/gpu-0-0 and got gpu.example.com/a/gpu-0-0, gpu.example.com/a/gpu-0-1"}},
		"no device": {func(a *agreed) { a.claim.Allocated, a.pod.Mapped = []DeviceID{}, nil },
			DivergedDevices, []string{"promised gpu.example.com/a/gpu-0-0 and got no device"}},
		"a claim that someone else wrote": {func(a *agreed) { a.claim.Promised = nil }, DivergedDevices, []string{"by claim c, which is not the one"}},
		"a claim that a user made":        {func(a *agreed) { a.claim.Promised, a.claim.Pod = nil, "" }, "", nil},
		"a claim that kube-scheduler made for extended resources": {func(a *agreed) {
			a.claim.Promised = nil
			a.claim.Spec = &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "container-0-request-0"}}}}
		}, "", nil},
		"another node than promised":        {func(a *agreed) { a.node = "b" }, DivergedNode, []string{"was promised node b and is on a"}},
		"a pod from before the reservation": {func(a *agreed) { a.node, a.pod.CreatedUnix = "b", 50 }, "", nil},
		"a claim allocated elsewhere": {func(a *agreed) {
			a.claim.Promised, a.claim.Allocated, a.pod.Mapped = []DeviceID{device("b", 0, 0)}, []DeviceID{device("b", 0, 0)}, nil
		}, DivergedNode, []string{"is on node a, and its claim c has device gpu.example.com/b/gpu-0-0, which is for other nodes"}},
		"a device that is not listed any more": {func(a *agreed) { a.slice.Spec.Devices = a.slice.Spec.Devices[1:] },
			DivergedListing, []string{"claim c has device gpu.example.com/a/gpu-0-0, which generation 1 of its pool does not list for node a"}},
		"a pool that is lost": {func(a *agreed) {
			a.slice.Spec.Devices, a.slice.Spec.Pool.ResourceSliceCount = a.slice.Spec.Devices[1:], 2
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := agree()
			c.change(a)
			got := bookOf(a.observations()...).Divergences()
			if c.says == nil {
				if len(got) != 0 {
					t.Errorf("diverged %+v, want nothing", got)
				}
				return
			}
			if len(got) != 1 || got[0].Kind != c.kind || got[0].Node != "a" || got[0].Namespace != "team" || got[0].Pod != "w-0" || got[0].Workload != "w" || got[0].WorkloadUID != "w" {
				t.Fatalf("diverged %+v, want one %s of pod team/w-0 on node a", got, c.kind)
			}
			for _, s := range c.says {
				if !strings.Contains(got[0].Message, s) {
					t.Errorf("%q does not say %q", got[0].Message, s)
				}
			}
		})
	}
}

func TestManagedIsAPartOfAll(t *testing.T) {
	n := &Node{Name: "a", Allocatable: Amounts{"cpu": 8000}, Free: Amounts{"cpu": 5000}, Managed: Amounts{"cpu": 3000}}
	if got := n.unsummed(); len(got) != 0 {
		t.Errorf("diverged %+v, want nothing", got)
	}
	n.Managed["cpu"] = 4000
	if got := n.unsummed(); len(got) != 1 || got[0].Message != "node a: cpu 4 is counted for managed Workloads, and cpu 3 for all that is on it" {
		t.Errorf("diverged %+v, want cpu 4 beside cpu 3", got)
	}
}

// TestDivergencesComeAndGo lets versions of pods, claims and slices come in any order. What the last of them say differs, or
// not, whatever was seen before; and where they all agree nothing is left.
func TestDivergencesComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pods = 3
		cpus := func(label string) int64 { return int64(rapid.IntRange(0, 3).Draw(t, label)) }
		listed := make([]int64, pods)
		slice := func(version uint64) Observation {
			o := seeSlice("a", version, int64(version), 1, 0, pods)
			o.Ref.UID = "slice"
			for i, n := range listed {
				if n > 0 {
					o.Slice.Spec.Devices[i].NodeAllocatableResourceMappings = map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{
						"cpu": {AllocationMultiplier: ptr.To(q(fmt.Sprint(n)))},
					}
				}
			}
			return o
		}
		said, got := make([]int64, pods), make([]int, pods)
		pod := func(i int, version uint64) Observation {
			p := Pod{Node: "a", Claims: []string{fmt.Sprint("c", i)}, Referring: []int{1}, Requests: Amounts{"cpu": 1000 + 1000*said[i], "pods": 1}}
			if said[i] > 0 {
				p.Mapped = []ClaimStatus{{Claim: fmt.Sprint("c", i), Amounts: Amounts{"cpu": 1000 * said[i]}}}
			}
			return seePod(fmt.Sprint("p", i), version, p)
		}
		claim := func(i int, version uint64) Observation {
			return seeClaim(fmt.Sprint("c", i), version, Claim{Pod: types.UID(fmt.Sprint("p", i)), Allocated: []DeviceID{device("a", 0, got[i])}})
		}
		seen := []Observation{seeNode("a", 1, nil)}
		version := uint64(0)
		look := func() {
			version++
			seen = append(seen, slice(version))
			for i := range pods {
				seen = append(seen, pod(i, version), claim(i, version))
			}
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			for i := range pods {
				listed[i], said[i], got[i] = cpus("listed"), cpus("said"), rapid.IntRange(0, pods-1).Draw(t, "got")
			}
			look()
		}
		var want []string
		for i := range pods {
			if listed[got[i]] != said[i] {
				want = append(want, fmt.Sprint("p", i))
			}
		}
		var have []string
		book := bookOf(rapid.Permutation(seen).Draw(t, "order")...)
		for _, d := range book.Divergences() {
			if d.Kind != DivergedStatus {
				t.Fatalf("%+v, want statuses alone", d)
			}
			have = append(have, d.Pod)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatalf("who differs (-want +have):\n%s", diff)
		}
		for i := range pods {
			got[i], said[i] = i, listed[i]
		}
		look()
		for _, o := range seen[len(seen)-2*pods-1:] {
			book.Apply(o)
		}
		if left := book.Divergences(); len(left) != 0 {
			t.Fatalf("still %+v", left)
		}
	})
}
