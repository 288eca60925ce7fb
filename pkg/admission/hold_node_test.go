package admission

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func TestHowAPromiseStandsOnItsNode(t *testing.T) {
	// a pod of another Workload has the promised device, and half a minute to end from noon on
	held := func() *world {
		return newWorld().at(0).node("h", "h100:2", nil).held("h", true, false, 0).ends("h", 0, 30).promised(1, "h")
	}
	for name, c := range map[string]struct {
		world *world
		now   int
		want  Keeping
		why   v1alpha1.Reason
	}{
		"all is there":                                         {world: newWorld().at(0).node("h", "h100:2", nil).promised(1, "h"), now: 10, want: Kept},
		"what is ending is coming":                             {world: held(), now: 89, want: Coming, why: v1alpha1.ReasonDevicesFreeing},
		"what should have ended is not":                        {world: held(), now: 90, want: Broken, why: v1alpha1.ReasonDevicesUnhealthy},
		"a node that is not Ready is coming":                   {world: newWorld().at(0).node("h", "h100:2", notReady(5)).promised(1, "h"), now: 64, want: Coming, why: v1alpha1.ReasonNodeUnavailable},
		"for no longer than the grace":                         {world: newWorld().at(0).node("h", "h100:2", notReady(5)).promised(1, "h"), now: 65, want: Broken, why: v1alpha1.ReasonNodeUnavailable},
		"so is one with a pod that is ending":                  {world: held().node("h", "h100:2", notReady(80)), now: 89, want: Coming, why: v1alpha1.ReasonNodeUnavailable},
		"but not one with a pod that should have ended by now": {world: held().node("h", "h100:2", notReady(80)), now: 90, want: Broken, why: v1alpha1.ReasonDevicesUnhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Request{Policy: testPolicy(t, nil), Now: after(c.now), PodSets: []PodSet{pods(1, 1, assignedTo("h100"))}}
			devices := []string{}
			for _, id := range gpus("h", 0) {
				devices = append(devices, id.String())
			}
			got := Holds(c.world.book.Snapshot(), r, Promise{Workload: "wl", Placement: "placement", PodSets: []v1alpha1.PlacementPodSet{{
				Name: "main", Flavor: "h100", Nodes: []v1alpha1.PlacementNode{{Name: "h", Slots: 1, Requests: []v1alpha1.PlacementRequest{{Claim: "gpu", Request: "gpu", Devices: devices}}}}}}})
			if got.Keeping != c.want || got.Reason != c.why {
				t.Errorf("promise is %s for %q (%s), want %s for %q", got.Keeping, got.Reason, got.Message, c.want, c.why)
			}
		})
	}
}
