package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// overheadFor137 is node a with two devices, each of which takes 10 bytes of memory for a pod and 3 for each of its containers
// that refers to the claim.
func overheadFor137() []Observation {
	s := seeSlice("a", 1, 1, 1, 0, 2)
	s.Mappings = map[string]Mappings{}
	for i := range s.Slice.Spec.Devices {
		d := &s.Slice.Spec.Devices[i]
		s.Mappings[d.Name] = *Mappings137(d, map[corev1.ResourceName]NodeAllocatable137{
			"memory": {Overhead: &NodeAllocatableOverhead137{PerPod: ptr.To(q("10")), PerContainer: ptr.To(q("3"))}},
		})
	}
	return []Observation{seeNode("a", 1, nil), s}
}

// TestEveryContainerThatRefersToAClaimCounts: kube-scheduler 1.37 counts the overhead for a container as often as containers
// refer to the claim, and so does the book, from the promise on until the pod is bound and its status says it.
func TestEveryContainerThatRefersToAClaimCounts(t *testing.T) {
	w := seeWorkload("w", 1, 100)
	w.Workload.Referring = map[string]map[string]int{"main": {"gpu": 3}}
	first := device("a", 0, 0)
	placed := seePlacement("w", 1, 100, "a", 1, first)
	pod := func(change func(*Pod)) Observation {
		p := Pod{Owner: "job-w", PodSet: "main", CreatedUnix: 100, Pin: "a"}
		change(&p)
		return seePod("p", 1, p)
	}
	claim := func(change func(*Claim)) Observation {
		c := Claim{Pod: "p", Promised: []DeviceID{first}}
		change(&c)
		return seeClaim("p-gpu", 1, c)
	}
	released := func(*Claim) {}
	allocated := func(c *Claim) { c.Allocated, c.Pods = []DeviceID{first}, []types.UID{"p"} }
	for name, c := range map[string]struct {
		seen []Observation
		want int64
	}{
		"a promise":                                    {[]Observation{w, placed}, 19},
		"a promise of a pod that refers once":          {[]Observation{seeWorkload("w", 1, 100), placed}, 13},
		"a released pod that does not name its claim":  {[]Observation{w, placed, pod(func(*Pod) {}), claim(released)}, 19},
		"a released pod":                               {[]Observation{w, placed, pod(func(p *Pod) { p.Claims, p.Referring = []string{"p-gpu"}, []int{2} }), claim(released)}, 16},
		"a pod that was given its device":              {[]Observation{w, placed, pod(func(p *Pod) { p.Claims, p.Referring = []string{"p-gpu"}, []int{2} }), claim(allocated)}, 16},
		"a pod none of whose containers refers to it":  {[]Observation{w, placed, pod(func(p *Pod) { p.Claims, p.Referring = []string{"p-gpu"}, []int{0} }), claim(allocated)}, 13},
		"a bound pod, in whose requests its status is": {[]Observation{w, placed, pod(func(p *Pod) { p.Pin, p.Node, p.Requests = "", "a", Amounts{"memory": 16, "pods": 1} }), claim(allocated)}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			empty := bookOf(overheadFor137()...).Snapshot().Node("a").Free["memory"]
			n := bookOf(append(overheadFor137(), c.seen...)...).Snapshot().Node("a")
			if got := empty - n.Free["memory"]; got != c.want {
				t.Errorf("takes %d bytes of the node, want %d", got, c.want)
			}
		})
	}

	none := bookOf(append(overheadFor137(), w)...).Snapshot()
	podSets := []PodSetClaim{{Node: "a", Slots: 1, Requests: w.Workload.Requests["main"], Devices: []DeviceID{first}, Referring: []int{3}}}
	holder := Holder{Kind: HolderPlacement, UID: "p-w", Managed: true, Namespace: "team", Name: "w", Workload: "w"}
	with, seen := none.With(holder, podSets), bookOf(append(overheadFor137(), w, placed)...).Snapshot()
	if diff := cmp.Diff(seen.Node("a").Free, with.Node("a").Free); diff != "" {
		t.Errorf("taken before it is seen (-seen +taken)\n%s", diff)
	}
	if diff := cmp.Diff(none.Node("a").Free, with.Returned("p-w", podSets).Node("a").Free); diff != "" {
		t.Errorf("given back (-before +after)\n%s", diff)
	}
	if diff := cmp.Diff(none.Node("a").Free, seen.Returned("p-w", podSets).Node("a").Free); diff != "" {
		t.Errorf("given back after it was seen (-before +after)\n%s", diff)
	}
}
