package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// overheads is node h of 100 bytes, with two devices that each take 10 of them for a pod and 20 for each of its containers that
// refers to the claim, as Kubernetes 1.37 has it.
func overheads() *world {
	var slice *resourcev1.ResourceSlice
	w := newWorld().node("h", "h100:2", func(n *corev1.Node, s *resourcev1.ResourceSlice) {
		n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("100")
		slice = s
	})
	mappings := map[string]ledger.Mappings{}
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		mappings[d.Name] = *ledger.Mappings137(d, map[corev1.ResourceName]ledger.NodeAllocatable137{corev1.ResourceMemory: {
			Overhead: &ledger.NodeAllocatableOverhead137{PerPod: ptr.To(resource.MustParse("10")), PerContainer: ptr.To(resource.MustParse("20"))},
		}})
	}
	return w.see(ledger.KindSlice, slice.UID, func(o *ledger.Observation) { o.Slice, o.Mappings = slice, mappings })
}

// referringOften has so many of the podset's containers refer to its claim, and ask for so many bytes of memory in all.
func referringOften(containers int, memory int64) func(*PodSet) {
	return func(ps *PodSet) {
		ps.Spec = &corev1.PodSpec{}
		for i := range containers {
			ps.Spec.Containers = append(ps.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}})
		}
		ps.Requests = ledger.Amounts{"memory": memory, "pods": 1}
	}
}

// TestWhatADeviceTakesForEveryContainerIsCounted: kube-scheduler 1.37 counts the overhead for a container as often as containers
// refer to the claim.
func TestWhatADeviceTakesForEveryContainerIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		containers int
		memory     int64
		fits       bool
	}{
		"one container: 30 a device":                     {1, 40, true},
		"one container, a byte too much":                 {1, 41, false},
		"two containers, 50 a device":                    {2, 0, true},
		"two containers, a byte too much":                {2, 1, false},
		"three containers, of which the overhead is 140": {3, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := overheads()
			dec := w.decide(t, Request{Now: after(100), PodSets: []PodSet{pods(1, 2, referringOften(c.containers, c.memory))}})
			if fits := dec.Verdict == v1alpha1.VerdictAdmit; fits != c.fits {
				t.Fatalf("%s, %s: %s", dec.Verdict, dec.Reason, dec.Message)
			}
			if !c.fits && (dec.Reason != v1alpha1.ReasonNodeResources || !strings.Contains(dec.Message, "memory")) {
				t.Errorf("waits for %s: %s", dec.Reason, dec.Message)
			}
		})
	}
}
