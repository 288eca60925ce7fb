package ledger

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestReturnedIsTheInverseOfWith: whatever a holder takes of a cluster and gives back, the accounts are those of before.
func TestReturnedIsTheInverseOfWith(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, _ := history(t)
		s := bookOf(all...).Snapshot()
		var taken []PodSetClaim
		for range rapid.IntRange(0, 3).Draw(t, "claims") {
			node := rapid.SampledFrom([]string{"a", "b", "gone"}).Draw(t, "node")
			c := PodSetClaim{
				Node: node, Slots: rapid.Int32Range(1, 3).Draw(t, "slots"),
				Requests: Amounts{corev1.ResourceCPU: rapid.Int64Range(0, 5000).Draw(t, "cpu"), corev1.ResourcePods: 1, corev1.ResourceMemory: 0},
			}
			for i := range rapid.IntRange(0, 4).Draw(t, "devices") {
				c.Devices = append(c.Devices, device(node, 0, i))
			}
			taken = append(taken, c)
		}
		with := s.With(Holder{Kind: HolderPlacement, UID: "x", Managed: true}, taken)
		before, held := s.Digest(), with.Digest()
		back := with.Returned("x", taken)
		for _, name := range []string{"a", "b"} {
			n, m := s.Node(name), back.Node(name)
			if n == nil {
				continue
			}
			if n.Free["cpu"] != m.Free["cpu"] || n.Managed["cpu"] != m.Managed["cpu"] || n.Free["pods"] != m.Free["pods"] {
				t.Fatalf("node %s: free %v and managed %v, were %v and %v", name, m.Free, m.Managed, n.Free, n.Managed)
			}
			for i := range n.Devices {
				if len(n.Devices[i].Holders) != len(m.Devices[i].Holders) {
					t.Fatalf("device %s is held by %v, was by %v", n.Devices[i].ID, m.Devices[i].Holders, n.Devices[i].Holders)
				}
			}
		}
		if s.Digest() != before || with.Digest() != held {
			t.Fatal("a snapshot changed")
		}
	})
}

func TestReturnedLeavesADeviceToItsOtherHolders(t *testing.T) {
	d := device("a", 0, 0)
	s := bookOf(
		seeNode("a", 1, nil), seeSlice("a", 2, 1, 1, 0, 2), seeWorkload("w", 3, 100), seePlacement("w", 4, 100, "a", 2, d, device("a", 0, 1)),
		seeClaim("foreign", 5, Claim{Allocated: []DeviceID{d}}),
	).Snapshot()
	_, cpu := free(s, "a")
	back := s.Returned(types.UID("p-w"), []PodSetClaim{{Node: "a", Slots: 2, Requests: Amounts{"cpu": 1000, "pods": 1}, Devices: []DeviceID{d, device("a", 0, 1)}}})
	devices, freed := free(back, "a")
	if devices != 1 || freed != cpu+2000 {
		t.Errorf("%d devices and %d cpu are free, want 1 and %d: the foreign claim keeps its device", devices, freed, cpu+2000)
	}
	if h := back.Node("a").Device(d).Holders; len(h) != 1 || h[0].UID != "foreign" {
		t.Errorf("device is held by %v, want the foreign claim alone", h)
	}
}
