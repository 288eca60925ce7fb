package release

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// rival lets the book see a promise of a device to another Workload, created so many seconds after 1970.
func (b *bench) rival(id ledger.DeviceID, created int64) {
	key := &v1alpha1.PlacementKey{WorkloadUID: "rival", Admission: "a", ReservedAt: metav1.NewTime(began)}
	b.Book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindWorkload, UID: "rival", ResourceVersion: 1},
		Workload: &ledger.Workload{Namespace: ns, Name: "rival", Key: key}})
	node := v1alpha1.PlacementNode{Name: id.Pool, Slots: 1, Requests: []v1alpha1.PlacementRequest{{Claim: "gpu", Request: "gpu", Devices: []string{id.String()}}}}
	b.Book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindPlacement, UID: "promise of rival", ResourceVersion: 1},
		Placement: &ledger.Placement{Namespace: ns, Name: "rival", CreatedUnix: created, Spec: &v1alpha1.PlacementSpec{Key: key,
			PodSets: []v1alpha1.PlacementPodSet{{Name: "main", Nodes: []v1alpha1.PlacementNode{node}}}}}})
}

// TestOfTwoPromisesOfOneDeviceOnePodGetsIt: whose Placement comes first takes it, the other's slot is placed anew.
func TestOfTwoPromisesOfOneDeviceOnePodGetsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		created int64
		want    string
	}{
		"another was promised it earlier": {-1 << 40, "b gpu-0"},
		"another was promised it later":   {1 << 40, "a gpu-0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, map[string]int{"a": 1, "b": 1}, 1, "a")
			b.rival(gpu("a", 0), tc.created)
			b.pod("p", nil)
			b.reconcile("p")
			b.expectPlaces(tc.want)
			b.serve("p")
			b.expectNotEvicted()
		})
	}
}
