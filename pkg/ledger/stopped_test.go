package ledger

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// TestASelectorThatCannotBeReadStopsKubeScheduler: where, and by which slice, the nodes say.
func TestASelectorThatCannotBeReadStopsKubeScheduler(t *testing.T) {
	wide := func(name string, change func(*resourcev1.ResourceSliceSpec)) Observation {
		o := seeSlice(name, 1, 1, 1, 0, 2)
		o.Slice.Spec.NodeName = nil
		change(&o.Slice.Spec)
		return at(o, 30)
	}
	unread := func(s *resourcev1.ResourceSliceSpec) { s.NodeSelector = gtOf("many") }
	each := func(first func(*resourcev1.Device), second func(*resourcev1.Device)) func(*resourcev1.ResourceSliceSpec) {
		return func(s *resourcev1.ResourceSliceSpec) {
			s.PerDeviceNodeSelection = ptr.To(true)
			first(&s.Devices[0])
			second(&s.Devices[1])
		}
	}
	onA := func(d *resourcev1.Device) { d.NodeName = ptr.To("a") }
	odd := func(d *resourcev1.Device) { d.NodeSelector = gtOf("many") }
	for name, tc := range map[string]struct {
		slice Observation
		// a and b are which slice stops it on node a and on node b.
		a, b string
	}{
		"a slice's, on every node": {wide("fabric", unread), "fabric-1-0", "fabric-1-0"},
		"not one that can be read": {wide("fabric", func(s *resourcev1.ResourceSliceSpec) { s.NodeSelector = gtOf("3") }), "", ""},
		"not one of a slice with counters, which is not read": {wide("fabric", func(s *resourcev1.ResourceSliceSpec) {
			unread(s)
			s.Devices, s.SharedCounters = nil, []resourcev1.CounterSet{{Name: "card"}}
		}), "", ""},
		"a device's, where no device before it is for the node": {wide("fabric", each(onA, odd)), "", "fabric-1-0"},
		"a device's that comes first":                           {wide("fabric", each(odd, onA)), "fabric-1-0", "fabric-1-0"},
		"not a device's whose slice names its node":             {at(seeSlice("a", 2, 2, 1, 0, 2), 30), "", ""},
		"nor a slice's that is gone":                            {gone(wide("fabric", unread)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			slice := seeSlice("a", 1, 1, 1, 0, 2)
			b := bookOf(at(seeNode("a", 1, nil), 0), at(seeNode("b", 1, nil), 0), at(slice, 0), at(wide("fabric", func(s *resourcev1.ResourceSliceSpec) { s.AllNodes = ptr.To(true) }), 10))
			b.Snapshot()
			tc.slice.Ref.ResourceVersion++
			b.Apply(tc.slice)
			s := b.Snapshot()
			for node, want := range map[string]string{"a": tc.a, "b": tc.b} {
				n := s.Node(node)
				var flagged []string
				for _, f := range n.Flags() {
					if strings.Contains(f.Message, "kube-scheduler gives up every pod") {
						flagged = append(flagged, f.Object)
					}
				}
				switch {
				case want == "" && (n.Stopped != nil || len(flagged) > 0):
					t.Errorf("node %s: stopped by %+v, flags %v; want neither", node, n.Stopped, flagged)
				case want != "" && (n.Stopped == nil || n.Stopped.Slice != want || len(flagged) != 1 || flagged[0] != "gpu.example.com/fabric"):
					t.Errorf("node %s: stopped by %+v, flags %v; want %s, and one flag", node, n.Stopped, flagged, want)
				case want != "" && !n.Stopped.Since.Equal(noon.Add(30*time.Second)):
					t.Errorf("node %s: stopped since %s, want since it was seen", node, n.Stopped.Since)
				}
			}
			b.Apply(gone(tc.slice))
			if s := b.Snapshot(); s.Node("a").Stopped != nil || s.Node("b").Stopped != nil {
				t.Error("it is stopped still once the slice is gone")
			}
		})
	}
}

// TestSinceWhenItIsStopped: a slice that is published again as odd as before starts no new time.
func TestSinceWhenItIsStopped(t *testing.T) {
	odd := seeSlice("fabric", 1, 1, 1, 0, 1)
	odd.Slice.Spec.NodeName, odd.Slice.Spec.NodeSelector = nil, gtOf("many")
	again := seeSlice("fabric", 2, 1, 1, 0, 2)
	again.Slice.Spec.NodeName, again.Slice.Spec.NodeSelector = nil, gtOf("lots")
	n := bookOf(at(seeNode("a", 1, func(*corev1.Node) {}), 0), at(odd, 10), at(again, 20)).Snapshot().Node("a")
	if n.Stopped == nil || !n.Stopped.Since.Equal(noon.Add(10*time.Second)) || !strings.Contains(n.Stopped.Message, "lots") {
		t.Errorf("stopped by %+v, want the newer words since 10 s", n.Stopped)
	}
}
