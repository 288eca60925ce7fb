package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// ofEveryKind is one object of each kind that the book takes, at a version.
func ofEveryKind(version uint64) []Observation {
	return []Observation{
		seeNode("a", version, nil), seePod("p", version, Pod{Node: "a"}), seeSlice("a", version, 1, 1, 0, 2),
		seeClaim("c", version, Claim{Allocated: []DeviceID{device("a", 0, 0)}}),
		{Ref: ref(KindDeviceClass, "class", version), Class: &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "class"}}},
		seeWorkload("w", version, 100), seePlacement("w", version, 100, "a", 1, device("a", 0, 1)),
		{Ref: ref(KindTaintRule, "rule", version), TaintRule: &TaintRule{Name: "rule", All: true, Taint: resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNone}}},
	}
}

// TestWhatBecameOfAnObservationIsTold of every kind: of a write's answer and its watch event, of a relist, of what is behind, and of
// deletions, however often and late they are seen.
func TestWhatBecameOfAnObservationIsTold(t *testing.T) {
	for i, first := range ofEveryKind(5) {
		b := New()
		version := int64(0)
		for _, step := range []struct {
			name    string
			seen    Observation
			outcome Outcome
			changes bool
		}{
			{"the answer to its write", first, Applied, true},
			{"its watch event", first, Duplicate, false},
			{"the event of an older write", ofEveryKind(4)[i], Stale, false},
			{"a newer version that says the same", ofEveryKind(6)[i], Applied, false},
			{"a relist", ofEveryKind(6)[i], Duplicate, false},
			{"its deletion, as it was last seen", Observation{Ref: Ref{Kind: first.Ref.Kind, UID: first.Ref.UID, ResourceVersion: 6, Deleted: true}}, Applied, true},
			{"its deletion again", gone(ofEveryKind(6)[i]), Duplicate, false},
			{"an answer that comes late", ofEveryKind(7)[i], Stale, false},
		} {
			outcome, changed := b.Apply(step.seen)
			if outcome != step.outcome || changed != step.changes {
				t.Errorf("%s: %s is %s and changes %t, want %s and %t", first.Ref.Kind, step.name, outcome, changed, step.outcome, step.changes)
			}
			if moved := b.Version() != version; moved != changed {
				t.Errorf("%s: %s moves the version: %t, and changes: %t", first.Ref.Kind, step.name, moved, changed)
			}
			version = b.Version()
		}
	}
}

// TestNoVersionIsAppliedTwice: of any sequence of sights each version of an object is applied at most once, what was applied only
// goes forward, and nothing but what was applied changes anything.
func TestNoVersionIsAppliedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, applied := New(), map[seenKey]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "sights") {
			o := ofEveryKind(uint64(rapid.IntRange(1, 4).Draw(t, "version")))[rapid.IntRange(0, 7).Draw(t, "kind")] //nolint:gosec // small
			if rapid.IntRange(0, 7).Draw(t, "gone") == 0 {
				o = gone(o)
			}
			key, version := seenKey{o.Ref.Kind, o.Ref.UID}, o.Ref.ResourceVersion
			if o.Ref.Deleted {
				version = final
			}
			last, was := applied[key]
			want := Applied
			switch {
			case was && version == last:
				want = Duplicate
			case was && version < last:
				want = Stale
			}
			before, digest := b.Version(), b.Snapshot().Digest()
			outcome, changed := b.Apply(o)
			if outcome != want {
				t.Fatalf("%s at %d after %d is %s, want %s", o.Ref.Kind, version, last, outcome, want)
			}
			if outcome == Applied {
				applied[key] = version
			} else if changed || b.Version() != before || b.Snapshot().Digest() != digest {
				t.Fatalf("%s at %d is %s and changes something", o.Ref.Kind, version, outcome)
			}
		}
	})
}

// TestEverySlotIsChargedOnce: a node is charged for each pod that is on it or was released to it, and for each slot of a promise
// that no pod of that promise has taken there; pods from before the reservation, of another podset, of another owner, of another
// namespace that names the same owner, or whose Workload is gone take none, and two pods on one slot are two pods.
func TestEverySlotIsChargedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		const reserved = 200
		slots := int32(draw("slots", 3)) //nolint:gosec // small
		seen := []Observation{seeNode("a", 1, nil), seeNode("b", 1, nil), seeSlice("a", 1, 1, 1, 0, 4)}
		workload := seeWorkload("w", 1, reserved)
		live := true
		switch draw("workload", 4) {
		case 0: // it is gone
			workload, live = gone(workload), false
		case 1: // it was evicted
			workload, live = seeWorkload("w", 1, 0), false
		case 2: // it was evicted, and holds quota anew
			workload, live = seeWorkload("w", 1, reserved+50), false
		}
		seen = append(seen, workload)
		var ids []DeviceID
		for i := range slots {
			ids = append(ids, device("a", 0, int(i)))
		}
		if slots > 0 {
			seen = append(seen, seePlacement("w", 1, reserved, "a", slots, ids...))
		}
		charged, open := int64(0), int64(0)
		if live {
			open = int64(slots)
		}
		held := map[DeviceID]bool{}
		for _, id := range ids {
			held[id] = live
		}
		for i := range draw("pods", 5) {
			p := Pod{PodSet: "main", Owner: "job-w", CreatedUnix: reserved + int64(draw("created", 2)) - 1, Namespace: "team"}
			switch draw("whose", 5) {
			case 0:
				p.Owner = "job-v"
			case 1:
				p.Namespace = "foreign"
			case 2:
				p.PodSet = "side"
			}
			on := draw("place", 3)
			switch on {
			case 1:
				p.Node = "a"
			case 2:
				p.Pin = "a"
			case 3:
				p.Node = "b"
			}
			uid := fmt.Sprintf("p%d", i)
			seen = append(seen, seePod(uid, 1, p))
			if on != 1 && on != 2 {
				continue
			}
			charged += 1000
			if live && p.Owner == "job-w" && p.Namespace == "team" && p.PodSet == "main" && p.CreatedUnix >= reserved {
				open = max(0, open-1)
			}
			if d := draw("device", 4); d < 4 {
				c := Claim{Pod: types.UID(uid), Promised: []DeviceID{device("a", 0, d)}}
				if on == 1 {
					c.Allocated = c.Promised
				}
				seen, held[device("a", 0, d)] = append(seen, seeClaim(uid+"-c", 1, c)), true
			}
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		b := New()
		for _, i := range r.Perm(2 * len(seen)) {
			b.Apply(seen[i%len(seen)])
			if r.IntN(3) == 0 {
				b.Snapshot()
			}
		}
		n := b.Snapshot().Node("a")
		if got, want := 64000-n.Free["cpu"], charged+1000*open; got != want {
			t.Fatalf("charged are %d of cpu, want %d: %d for pods, and %d slots", got, want, charged, open)
		}
		var uses int64
		for _, u := range n.Uses {
			uses += u.Requests["cpu"] * u.Times
		}
		if uses != 64000-n.Free["cpu"] {
			t.Fatalf("the uses are %d of cpu, and %d are taken", uses, 64000-n.Free["cpu"])
		}
		for i := range n.Devices {
			if d := &n.Devices[i]; d.Free() == held[d.ID] {
				t.Fatalf("device %s is free: %t, want the contrary; its holders are %+v", d.ID, d.Free(), d.Holders)
			}
		}
	})
}
