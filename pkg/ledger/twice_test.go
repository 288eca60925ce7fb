package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestWhatIsHeldTwiceIsFlaggedAndCountsOnce(t *testing.T) {
	dev := device("a", 0, 0)
	claim := func(name string, c Claim) Observation { return seeClaim(name, 1, c) }
	allocated := func(ids ...DeviceID) Claim { return Claim{Allocated: ids} }
	released := seePod("p", 1, Pod{Pin: "a"})
	for name, tc := range map[string]struct {
		seen []Observation
		want []string
	}{
		"one claim holds it": {seen: []Observation{claim("x", allocated(dev))}},
		"two claims, one device each": {
			seen: []Observation{claim("x", allocated(dev)), claim("y", allocated(device("a", 0, 1)))},
		},
		"two claims have the device allocated": {
			seen: []Observation{claim("y", allocated(dev)), claim("x", allocated(dev))},
			want: []string{"device gpu.example.com/a/gpu-0-0 is allocated to 2 claims, team/x and team/y, and allows but one: it counts as held once"},
		},
		"of many claims a few are named": {
			seen: []Observation{claim("v", allocated(dev)), claim("w", allocated(dev)), claim("x", allocated(dev)), claim("y", allocated(dev)), claim("z", allocated(dev))},
			want: []string{"device gpu.example.com/a/gpu-0-0 is allocated to 5 claims, team/v, team/w, team/x and 2 more, and allows but one: it counts as held once"},
		},
		"a claim lists it twice": {
			seen: []Observation{claim("x", allocated(dev, dev))},
			want: []string{"device gpu.example.com/a/gpu-0-0 is listed more than once in the allocation of claim team/x: it counts once"},
		},
		"one has it allocated, a released pod's claim is cut to it": {
			seen: []Observation{released, claim("x", allocated(dev)), claim("y", Claim{Pod: "p", Promised: []DeviceID{dev}})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := append([]Observation{seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 2)}, tc.seen...)
			n := bookOf(seen...).Snapshot().Node("a")
			var got []string
			for _, f := range n.twice() {
				got = append(got, f.Message)
				if f.Reason != FlagHeldTwice || f.Object != dev.String() {
					t.Errorf("the flag is %s about %q, want %s about %q", f.Reason, f.Object, FlagHeldTwice, dev)
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("flags (-want +got):\n%s", d)
			}
			if n.Device(dev).Free() {
				t.Error("the device is free")
			}
		})
	}
}

// TestAShareIsHeldOnce: a device that allows several allocations is in as many claims as it has shares, each in one.
func TestAShareIsHeldOnce(t *testing.T) {
	d := Device{ID: device("a", 0, 0)}
	slice := seeSlice("a", 1, 1, 1, 0, 1).Slice
	d.Spec = &slice.Spec.Devices[0]
	d.Spec.AllowMultipleAllocations = ptr.To(true)
	d.Holders = []Holder{
		{Kind: HolderClaim, UID: "x", Namespace: "team", Name: "x", Share: "1"},
		{Kind: HolderClaim, UID: "y", Namespace: "team", Name: "y", Share: "2"},
	}
	if got := d.heldTwice(); len(got) > 0 {
		t.Errorf("two shares of two claims are flagged: %v", got)
	}
	d.Holders[1].Share = "1"
	if got := d.heldTwice(); len(got) != 1 || !strings.HasPrefix(got[0].Message, "share 1 of device ") {
		t.Errorf("a share of two claims gives %v, want one flag", got)
	}
}

// TestAShareThatAClaimListsTwiceCountsOnce: what it consumes is keyed by the claim, the device and the share.
func TestAShareThatAClaimListsTwiceCountsOnce(t *testing.T) {
	slice := seeSlice("a", 1, 1, 1, 0, 1)
	d := &slice.Slice.Spec.Devices[0]
	d.AllowMultipleAllocations = ptr.To(true)
	d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
	share := Share{Device: device("a", 0, 0), ID: "s", Consumed: Consumption{"memory": resource.MustParse("30Gi")}}
	c := seeClaim("x", 1, Claim{Allocated: []DeviceID{}, Shares: []Share{share, share}})
	b := bookOf(seeNode("a", 1, nil), slice, c)
	n := b.Snapshot().Node("a")
	if hs := n.Device(share.Device).Holders; len(hs) != 1 {
		t.Errorf("it is held %d times, want once: %+v", len(hs), hs)
	}
	if f := n.twice(); len(f) != 1 {
		t.Errorf("flagged is %v, want that the claim lists it twice", f)
	}
	c.Ref.ResourceVersion = 2
	if _, changed := b.Apply(c); changed {
		t.Error("the same claim again changed an account")
	}
}

// TestOfWhatIsLostNothingIsFlagged: a book that was filled anew does not know of it, and flags are compared with one.
func TestOfWhatIsLostNothingIsFlagged(t *testing.T) {
	slice, again := seeSlice("a", 1, 1, 1, 0, 1), Claim{Allocated: []DeviceID{device("a", 0, 0), device("a", 0, 0)}}
	b := bookOf(seeNode("a", 1, nil), slice, seeClaim("x", 1, again), seeClaim("y", 1, again), gone(slice))
	n := b.Snapshot().Node("a")
	if len(n.Lost) != 1 {
		t.Fatalf("%d devices are lost", len(n.Lost))
	}
	if flags := n.twice(); len(flags) > 0 {
		t.Errorf("flags are %v", flags)
	}
}
