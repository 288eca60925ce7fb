package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// TestNoDeviceIsCountedTwice: cases that public reports told of others.
func TestNoDeviceIsCountedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		world   *world
		podSet  PodSet
		reason  v1alpha1.Reason
		message string
		// gang says that GangShort is told, devices how many were looked at where nothing is admitted.
		gang    bool
		devices int32
	}{
		"three pods of one device each on a node with two free are short by one": {
			world: newWorld().node("n", "h100:8", nil).held("n", true, false, 0, 1, 2, 3, 4, 5), podSet: pods(3, 1, nil),
			reason: v1alpha1.ReasonDevicesInUse, message: "2 of 3 pods placeable", gang: true, devices: 8,
		},
		"two pods of one device each on a node with two free are not": {
			world: newWorld().node("n", "h100:8", nil).held("n", true, false, 0, 1, 2, 3, 4, 5), podSet: pods(2, 1, nil),
		},
		"8 that a device plugin lists and 8 in a slice are 8": {
			world: newWorld().served("").node("n", "h100:8", lists("8")), podSet: plainly(9, 1),
			reason: v1alpha1.ReasonNotEnoughDevices, message: "node n has 8 of nvidia.com/gpu, enough for 8 pods of 1 each", gang: true, devices: 8,
		},
		"8 that a device plugin lists and 8 in a slice lend 8": {
			world: newWorld().served("").node("n", "h100:8", lists("8")), podSet: plainly(8, 1),
		},
		"8 that a device plugin lists and 8 in a slice are not lent by the slice beside": {
			world: newWorld().served("").node("n", "h100:8", lists("8")).uses("n", true, 8), podSet: pods(1, 1, nil),
			reason: v1alpha1.ReasonForeignUse, message: "its device plugin lends these devices, not the pool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dec := c.world.decide(t, Request{Policy: plainPolicy(t), PodSets: []PodSet{c.podSet}})
			if dec.Reason != c.reason || !strings.Contains(dec.Message, c.message) || (dec.Verdict == v1alpha1.VerdictAdmit) != (c.reason == "") {
				t.Errorf("%s %s: %s\nwant %s: …%s…", dec.Verdict, dec.Reason, dec.Message, c.reason, c.message)
			}
			short := slices.ContainsFunc(dec.Standings, func(f v1alpha1.FlavorStanding) bool {
				return slices.ContainsFunc(f.Reasons, func(r v1alpha1.StandingReason) bool { return r.Reason == v1alpha1.ReasonGangShort })
			})
			if short != c.gang {
				t.Errorf("GangShort is told: %t, want %t: %v", short, c.gang, dec.Standings)
			}
			if c.devices > 0 && dec.Standings[0].Devices != c.devices {
				t.Errorf("%d devices were looked at, want %d", dec.Standings[0].Devices, c.devices)
			}
		})
	}
}
