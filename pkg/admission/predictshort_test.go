package admission

import (
	"context"
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// What is seen at a glance is what kube-scheduler's allocator finds, a selector that fails among it.
func TestShortIsWhatTheAllocatorFinds(t *testing.T) {
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 4).Draw(t, "devices")
		w := alone(fmt.Sprintf("h100:%d", count), sliceOf(func(s *resourcev1.ResourceSlice) {
			for i := range s.Spec.Devices {
				d := &s.Spec.Devices[i]
				switch rapid.IntRange(0, 9).Draw(t, "device") {
				case 0:
					d.AllowMultipleAllocations = ptr.To(true)
				case 1:
					d.Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
				case 2:
					d.Attributes["odd"] = resourcev1.DeviceAttribute{StringValue: ptr.To("x")}
				}
			}
		}))
		for i := range count {
			if rapid.Bool().Draw(t, "held") {
				w.held("n", false, false, i)
			}
		}
		in := asks()
		for i := range rapid.IntRange(1, 3).Draw(t, "claims") {
			r := exactly("gpu", rapid.Int64Range(1, 4).Draw(t, "count"))
			switch rapid.IntRange(0, 7).Draw(t, "request") {
			case 0:
				r = exactly("gpu", 1, is("odd", "x"))
			case 1:
				r = either("gpu", "h100:1", "a100:3")
			case 2:
				r = exactly("gpu", 40)
			}
			in.claim(fmt.Sprint(i), claiming(r))
			switch r := &in.claims[fmt.Sprint(i)].Spec.Devices.Requests[0]; {
			case r.Exactly == nil:
			case rapid.IntRange(0, 7).Draw(t, "admin") == 0:
				r.Exactly.AdminAccess = ptr.To(true)
			case rapid.IntRange(0, 7).Draw(t, "all") == 0:
				r.Exactly.AllocationMode, r.Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
			}
		}
		s := w.book.Snapshot()
		f := (&Decider{Matcher: flavors.NewMatcher()}).prospect(s, &Incoming{Pod: in.pod, Claims: in.claims}, false).at(s.Node("n"))
		var claims []*resourcev1.ResourceClaim
		for _, c := range f.claims {
			claims = append(claims, c.ResourceClaim)
		}
		short := f.short(claims)
		seen[short]++
		if !short {
			return
		}
		if _, no := f.search(context.Background(), claims); no == nil || no.reason != v1alpha1.ReasonNotEnoughDevices || no.reach != "" {
			t.Errorf("there are too few at a glance; the allocator says %v", no)
		}
	})
	if seen[true] < 10 || seen[false] < 10 {
		t.Errorf("there were too few, and not: %v", seen)
	}
}
