package placements

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

func TestBesideTakesWhatOthersWereOffered(t *testing.T) {
	b := ledger.New()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8")}
	b.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: "a", ResourceVersion: 1}, Node: node})
	offer := func(uid types.UID, slots int32) Offer {
		return Offer{
			Holder: ledger.Holder{Kind: ledger.HolderPlacement, Managed: true, Workload: uid},
			Claims: []ledger.PodSetClaim{{Node: "a", Slots: slots, Requests: ledger.Amounts{"cpu": 1000}}},
		}
	}
	s := &Store{Offers: map[types.UID]Offer{"own": offer("own", 1), "other": offer("other", 2), "third": offer("third", 4)}}
	snapshot := b.Snapshot()
	if got := s.Beside(snapshot, "own").Node("a").Free["cpu"]; got != 2000 {
		t.Errorf("%d of cpu is free beside the others' offers, want 2000", got)
	}
	if got := snapshot.Node("a").Free["cpu"]; got != 8000 {
		t.Errorf("the snapshot itself has %d of cpu free, want 8000", got)
	}
	if (&Store{}).Beside(snapshot, "own") != snapshot {
		t.Error("without offers the snapshot is as it was")
	}
}
