package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// history draws, for a small cluster, several versions of each of its objects. The last version of each is what a cold
// start would see.
func history(t *rapid.T) (all, last []Observation) {
	version := uint64(0)
	draw := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
	versions := func(make func(v uint64) Observation, mayGo bool) {
		n := 1 + draw("versions", 2)
		var o Observation
		for range n {
			version++
			o = make(version)
			all = append(all, o)
		}
		if mayGo && draw("goes", 3) == 0 {
			o = gone(o)
			version++
			all = append(all, o)
		}
		last = append(last, o)
	}
	nodes := []string{"a", "b"}
	for _, n := range nodes {
		versions(func(v uint64) Observation {
			return seeNode(n, v, func(x *corev1.Node) { x.Spec.Unschedulable = draw("cordoned", 1) == 1 })
		}, true)
		for g := range int64(1 + draw("generations", 1)) {
			versions(func(v uint64) Observation {
				return seeSlice(n, v, g+1, int64(1+draw("slices", 1)), 0, 1+draw("devices", 3))
			}, true)
		}
	}
	node := func() string { return nodes[draw("node", 1)] }
	for i := range 1 + draw("workloads", 2) {
		w := fmt.Sprintf("w%d", i)
		versions(func(v uint64) Observation { return seeWorkload(w, v, int64(draw("reserved", 2))*100) }, true)
		versions(func(v uint64) Observation {
			at := node()
			return seePlacement(w, v, int64(1+draw("promised", 1))*100, at, int32(1+draw("slots", 1)), device(at, 0, draw("device", 3)))
		}, true)
		for j := range draw("pods", 2) {
			p := fmt.Sprintf("%s-p%d", w, j)
			versions(func(v uint64) Observation {
				pod := Pod{PodSet: "main", CreatedUnix: int64(draw("created", 300)), Terminating: draw("terminating", 1) == 1}
				if draw("owned", 3) > 0 {
					pod.Owner = "job-w0"
				}
				switch draw("where", 2) {
				case 1:
					pod.Node = node()
				case 2:
					pod.Pin = node()
				}
				return seePod(p, v, pod)
			}, true)
			versions(func(v uint64) Observation {
				c := Claim{Pod: seePod(p, 0, Pod{}).Ref.UID}
				ids := []DeviceID{device(node(), 0, draw("device", 3))}
				if draw("allocated", 1) == 1 {
					c.Allocated = ids
				} else {
					c.Promised = ids
				}
				return seeClaim(p+"-c", v, c)
			}, true)
		}
	}
	return all, last
}

func TestAnyOrderAndRepetitionGivesOneDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, last := history(t)
		want := bookOf(last...).Snapshot().Digest()
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 1))
		shuffled := append(append([]Observation{}, all...), all...)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		b := New()
		for _, o := range shuffled {
			b.Apply(o)
			if r.IntN(4) == 0 {
				b.Snapshot() // work out part of the accounts on the way, as a live book does
			}
		}
		if got := b.Snapshot().Digest(); got != want {
			t.Fatalf("digest %s in this order, %s in a cold rebuild (shuffle seed %d)", got, want, seed)
		}
	})
}

func TestReleaseUndoesReserveExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, _ := history(t)
		b := bookOf(all...)
		before := b.Snapshot().Digest()
		w, p := seeWorkload("new", 1_000_000, 500), seePlacement("new", 1_000_001, 500, "a", 1, device("a", 0, 0))
		b.Apply(w)
		b.Apply(p)
		b.Apply(gone(p))
		b.Apply(gone(w))
		if got := b.Snapshot().Digest(); got != before {
			t.Fatalf("digest %s after a reservation came and went, %s before", got, before)
		}
	})
}

func TestNothingIsFreeTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, last := history(t)
		s := bookOf(all...).Snapshot()
		for _, n := range s.Nodes() {
			for i := range n.Devices {
				d := &n.Devices[i]
				for _, o := range last {
					if o.Claim == nil {
						continue
					}
					for _, id := range o.Claim.Allocated {
						if id == d.ID && d.Free() {
							t.Fatalf("device %s is allocated and free", id)
						}
					}
				}
				if i > 0 && compareDeviceIDs(n.Devices[i-1].ID, d.ID) >= 0 {
					t.Fatalf("device %s is listed twice or out of order", d.ID)
				}
			}
		}
	})
}

func TestASnapshotStaysAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, _ := history(t)
		b := New()
		var shots []*Snapshot
		var digests []string
		for _, o := range all {
			b.Apply(o)
			s := b.Snapshot()
			shots, digests = append(shots, s), append(digests, s.Digest())
		}
		for i, s := range shots {
			if got := s.Digest(); got != digests[i] {
				t.Fatalf("snapshot %d of %d has changed since it was taken", i, len(shots))
			}
			for _, n := range s.Nodes() {
				if s.Node(n.Name) != n {
					t.Fatalf("node %s by name is not the one that is listed", n.Name)
				}
				if i > 0 && shots[i-1].Node(n.Name) != n && shots[i-1].Version == s.Version {
					t.Fatalf("node %s was worked out anew though nothing changed", n.Name)
				}
			}
		}
	})
}
