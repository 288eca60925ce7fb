package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// promised is a Placement that was created at a time, of a Workload that holds quota since 100.
func promised(workload string, created int64, devices ...DeviceID) []Observation {
	p := seePlacement(workload, 1, 100, "a", 1, devices...)
	p.Placement.CreatedUnix = created
	return []Observation{seeWorkload(workload, 1, 100), p}
}

// served is a pod of a Workload with a claim cut to a device: allocated if it is bound, otherwise released.
func served(workload string, bound bool, d DeviceID) []Observation {
	p, c := Pod{Owner: types.UID("job-" + workload), PodSet: "main", CreatedUnix: 100}, Claim{Pod: types.UID("pod-" + workload), Promised: []DeviceID{d}}
	if bound {
		p.Node, c.Allocated = "a", []DeviceID{d}
	} else {
		p.Pin = "a"
	}
	return []Observation{seePod("pod-"+workload, 1, p), seeClaim("claim-"+workload, 1, c)}
}

func TestOfOverlappingPromisesOneStays(t *testing.T) {
	first, second := device("a", 0, 0), device("a", 0, 1)
	all := func(lists ...[]Observation) []Observation {
		out := []Observation{seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 4)}
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	for name, tc := range map[string]struct {
		seen []Observation
		want []string // "winner>loser device"
	}{
		"one promise":                     {seen: all(promised("v", 5, first))},
		"two of different devices":        {seen: all(promised("v", 5, first), promised("w", 5, second))},
		"the one created earlier stays":   {seen: all(promised("v", 6, first), promised("w", 5, first)), want: []string{"w>v gpu-0-0"}},
		"of one second the lower uid":     {seen: all(promised("v", 5, first), promised("w", 5, first)), want: []string{"v>w gpu-0-0"}},
		"one that is released stays":      {seen: all(promised("v", 5, first), promised("w", 6, first), served("w", false, first)), want: []string{"w>v gpu-0-0"}},
		"one that is allocated stays":     {seen: all(promised("v", 5, first), promised("w", 6, first), served("w", true, first)), want: []string{"w>v gpu-0-0"}},
		"what is released elsewhere":      {seen: all(promised("v", 5, first), promised("w", 6, first, second), served("w", true, second)), want: []string{"v>w gpu-0-0"}},
		"two devices of one pair are one": {seen: all(promised("v", 5, first, second), promised("w", 6, first, second)), want: []string{"v>w gpu-0-0"}},
		"who loses to one that loses itself stays": {
			seen: all(promised("u", 5, first), promised("v", 6, first, second), promised("w", 7, second)), want: []string{"u>v gpu-0-0"},
		},
		"who loses to two loses once":            {seen: all(promised("u", 5, first), promised("v", 6, second), promised("w", 7, second, first)), want: []string{"u>w gpu-0-0"}},
		"a promise of an earlier reservation":    {seen: all(promised("v", 5, first), []Observation{seeWorkload("v", 2, 200)}, promised("w", 6, first))},
		"another Placement of the same Workload": {seen: all(promised("v", 5, first), stray("v", 4, first), promised("w", 6, second))},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range bookOf(tc.seen...).Snapshot().Overlaps() {
				got = append(got, fmt.Sprintf("%s>%s %s", o.Winner.Workload, o.Loser.Workload, o.Device.Device))
				if o.Node != "a" || o.Winner.UID != "p-"+o.Winner.Workload {
					t.Errorf("it is on node %q, of Placement %q", o.Node, o.Winner.UID)
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("overlaps (-want +got):\n%s", d)
			}
		})
	}
}

// stray is a Placement that names a Workload and its reservation, under another name than the Workload's.
func stray(workload string, created int64, devices ...DeviceID) []Observation {
	p := seePlacement(workload, 1, 100, "a", 1, devices...)
	p.Ref.UID, p.Placement.Name, p.Placement.CreatedUnix = "stray", "stray", created
	return []Observation{p}
}

// TestAWorkloadHasOnePlacement: another that names its reservation, by another name or in another namespace, counts for
// nothing, so that no reservation counts twice.
func TestAWorkloadHasOnePlacement(t *testing.T) {
	other := stray("w", 1, device("a", 0, 1))
	foreign := stray("w", 1, device("a", 0, 2))
	foreign[0].Ref.UID, foreign[0].Placement.Name, foreign[0].Placement.Namespace = "foreign", "w", "foreign"
	seen := append([]Observation{seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 4)}, promised("w", 5, device("a", 0, 0))...)
	devices, cpu := free(bookOf(append(append(seen, other...), foreign...)...).Snapshot(), "a")
	if devices != 3 || cpu != 63000 {
		t.Errorf("%d devices and %d of cpu are free, want 3 and 63000: one promise counts", devices, cpu)
	}
}

func TestADeviceThatAllowsSeveralIsNotOverlapped(t *testing.T) {
	d := Device{ID: device("a", 0, 0), Holders: []Holder{{Kind: HolderPlacement, UID: "v"}, {Kind: HolderPlacement, UID: "w"}}}
	slice := seeSlice("a", 1, 1, 1, 0, 1).Slice
	d.Spec = &slice.Spec.Devices[0]
	if !d.promisedTwice() {
		t.Error("two promises of a device that allows one are none")
	}
	d.Spec.AllowMultipleAllocations = ptr.To(true)
	if d.promisedTwice() {
		t.Error("two promises of a device that allows several overlap")
	}
}

// ofAll is a slice of a pool that every node may use.
func ofAll() Observation {
	o := seeSlice("net", 1, 1, 1, 0, 2)
	o.Slice.Spec.NodeName, o.Slice.Spec.AllNodes = nil, ptr.To(true)
	return o
}

// TestADeviceOfSeveralNodesIsPromisedOnce, on whichever of them, and changes all of them.
func TestADeviceOfSeveralNodesIsPromisedOnce(t *testing.T) {
	v, w := promised("v", 5, device("net", 0, 0)), promised("w", 6, device("net", 0, 0))
	w[1].Placement.Spec.PodSets[0].Nodes[0].Name = "b"
	b := bookOf(append([]Observation{seeNode("a", 1, nil), seeNode("b", 1, nil), ofAll(), w[0]}, v...)...)
	s := b.Snapshot()
	b.Apply(w[1])
	if changed := b.Reserve(s, keyOf("v", 100), "a"); len(changed) != 1 {
		t.Errorf("changed are %v: the device was promised on another node meanwhile", changed)
	}
	if got := b.Snapshot().Overlaps(); len(got) != 1 || got[0].Winner.Workload != "v" || got[0].Loser.Workload != "w" {
		t.Errorf("the overlaps are %+v, want that w loses to v, once", got)
	}
}

// TestOfTwoThatOverlapTheSameStays, whatever the order in which everything was seen, and with it all that it was promised:
// once the losers are withdrawn nothing overlaps, and each of them did overlap one that stays.
func TestOfTwoThatOverlapTheSameStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		seen := []Observation{seeNode("a", 1, nil), seeSlice("a", 1, 1, 1, 0, 4)}
		has := map[types.UID]map[DeviceID]bool{}
		for i := range 2 + draw("promises", 3) {
			w := fmt.Sprintf("w%d", i)
			var ids []DeviceID
			has[types.UID("p-"+w)] = map[DeviceID]bool{}
			for j := range 4 {
				if draw("has", 1) == 1 {
					ids = append(ids, device("a", 0, j))
					has[types.UID("p-"+w)][device("a", 0, j)] = true
				}
			}
			if len(ids) == 0 {
				continue
			}
			seen = append(seen, promised(w, int64(draw("created", 2)), ids...)...)
			if pods := draw("pods", 3); pods > 1 {
				seen = append(seen, served(w, pods == 3, ids[draw("of", len(ids)-1)])...)
			}
		}
		want := bookOf(seen...).Snapshot().Overlaps()
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		b := New()
		for _, i := range r.Perm(2 * len(seen)) {
			b.Apply(seen[i%len(seen)])
			if r.IntN(3) == 0 {
				b.Snapshot()
			}
		}
		if d := cmp.Diff(want, b.Snapshot().Overlaps(), cmp.AllowUnexported(Holder{})); d != "" {
			t.Fatalf("in another order other promises stay (-one +other):\n%s", d)
		}
		loses := map[types.UID]bool{}
		for _, o := range want {
			if loses[o.Loser.UID] {
				t.Fatalf("%s loses twice", o.Loser.UID)
			}
			loses[o.Loser.UID] = true
			if !has[o.Winner.UID][o.Device] || !has[o.Loser.UID][o.Device] {
				t.Fatalf("%s and %s do not both have %s", o.Winner.UID, o.Loser.UID, o.Device)
			}
		}
		for _, o := range want {
			if loses[o.Winner.UID] {
				t.Fatalf("%s wins and loses", o.Winner.UID)
			}
		}
		for _, o := range seen {
			if loses[o.Ref.UID] {
				b.Apply(gone(o))
			}
		}
		if left := b.Snapshot().Overlaps(); len(left) > 0 {
			t.Fatalf("still %v once the losers are withdrawn", left)
		}
		stays := map[DeviceID]types.UID{}
		for uid, ids := range has {
			for id := range ids {
				if loses[uid] {
					continue
				}
				if stays[id] != "" {
					t.Fatalf("%s and %s both keep %s", stays[id], uid, id)
				}
				stays[id] = uid
			}
		}
	})
}
