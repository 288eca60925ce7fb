package ledger

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// crowded is a book of 1,000 nodes with eight devices each.
func crowded() *Book {
	b := New()
	for i := range 1000 {
		name := fmt.Sprintf("node-%04d", i)
		b.Apply(seeNode(name, 1, nil))
		b.Apply(seeSlice(name, 1, 1, 1, 0, 8))
	}
	b.Snapshot()
	return b
}

// turned is a pod that comes and goes on a node.
func turned(i int) Observation {
	return seePod("p", uint64(i+1), Pod{Node: "node-0500", Requests: Amounts{"cpu": int64(1000 + i%2), "pods": 1}})
}

func BenchmarkSnapshotAfterOneChange(b *testing.B) {
	book := crowded()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		book.Apply(turned(i))
		book.Snapshot()
	}
}

func BenchmarkApply(b *testing.B) {
	book := crowded()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		book.Apply(turned(i))
	}
}

func BenchmarkWith(b *testing.B) {
	s := crowded().Snapshot()
	claims := []PodSetClaim{{Node: "node-0500", Slots: 1, Requests: Amounts{"cpu": 1000, "pods": 1}, Devices: []DeviceID{device("node-0500", 0, 0)}}}
	b.ReportAllocs()
	for b.Loop() {
		s.With(Holder{Kind: HolderPlacement, Managed: true, Workload: "w"}, claims)
	}
}

func BenchmarkWithout(b *testing.B) {
	s := crowded().Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		s.Without(map[types.UID]bool{"w": true})
	}
}
