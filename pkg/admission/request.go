package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Request is one Workload that wants a place.
type Request struct {
	// without says that it is decided as if somebody were gone: what is worked out for that is remembered apart.
	without bool
	// Now is the time of the decision.
	Now    time.Time
	Policy *flavors.Policy
	// Namespace is the Workload's: holders of other namespaces are not named in the record.
	Namespace string
	PodSets   []PodSet
	// Heard is how long the watches that accounts are made of were silent: beyond the policy's window nothing is lent.
	Heard Heard
	// EveryFlavor takes the standing of every flavor of the policy, not only of those up to the first that fits.
	EveryFlavor bool
	// Coming also tries what is freeing or was lost within the grace, where nobody else is promised it: see Decision.Coming.
	Coming bool
	// Others are Workloads of which what is ending is somebody else's: Coming leaves it to them.
	Others map[types.UID]bool
	// Refusal, if set, says why the Workload cannot be decided at all; the decision is then Wait with that reason.
	Refusal *flavors.Refusal
}

// PodSet is one podset of a Request.
type PodSet struct {
	Name string
	// Count is how many pods need a place.
	Count int32
	// MinCount is with how many the podset may start, where that is fewer: a flavor counts as fitting if it has places for
	// those. What is placed is Count, which is what Kueue assigned once it did. Zero is all.
	MinCount int32
	// Spec is the pod spec as its user wrote it, without the allowed set and the charge.
	Spec  *corev1.PodSpec
	Shape flavors.Shape
	// Requests is what kube-scheduler counts for one pod on a node, with one of pods.
	Requests ledger.Amounts
	// Assigned is what Kueue assigned; nil while it holds no quota.
	Assigned *Assigned

	// asks is Spec, Shape and Requests as a text, once it was needed: none of them may change after the first decision.
	asks string
}

// least returns the podset at the fewest pods with which it may start.
func (ps *PodSet) least() *PodSet {
	if ps.MinCount <= 0 || ps.MinCount >= ps.Count {
		return ps
	}
	fewer := *ps
	fewer.Count = ps.MinCount
	return &fewer
}

// Assigned is what Kueue assigned to a podset with its quota.
type Assigned struct {
	// Flavor is the ResourceFlavor of the policy's quotaResource, or that of cpu for a podset without devices.
	Flavor string
	// Charge is what one pod was charged of the policy's quotaResource beside what its containers ask for; nil is any.
	Charge *int64
	// NodeLabels and Tolerations are those of all its ResourceFlavors together, which Kueue gives to the pods.
	NodeLabels  map[string]string
	Tolerations []corev1.Toleration
}

// Decision is the outcome for one Request.
type Decision struct {
	Verdict v1alpha1.Verdict
	// Reason and Message say why not; Reason is empty for Admit.
	Reason  v1alpha1.Reason
	Message string
	// Standings holds, by podset and flavor in the order tried, what the ledger said.
	Standings []v1alpha1.FlavorStanding
	// PodSets is the promise; set for Admit, and for Wait where it is Coming.
	PodSets []v1alpha1.PlacementPodSet
	// Coming says that the promise counts on what is freeing or was lost within the grace: nothing may be released on it yet.
	Coming bool `json:",omitempty"`
	// Until is when time alone may next change the decision; zero for never.
	Until time.Time `json:",omitzero"`
	// LedgerVersion is the snapshot's.
	LedgerVersion int64
}

// KeyOf names a Workload's current quota reservation. It is nil while the Workload holds no quota, is not active, is
// evicted or has finished: then no Placement of it is live.
func KeyOf(wl *kueue.Workload) (*v1alpha1.PlacementKey, error) {
	reserved := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	switch {
	case wl.Status.Admission == nil, reserved == nil, reserved.Status != metav1.ConditionTrue,
		wl.Spec.Active != nil && !*wl.Spec.Active,
		meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted),
		meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished):
		return nil, nil
	}
	a := wl.Status.Admission.DeepCopy()
	for i := range a.PodSetAssignments {
		a.PodSetAssignments[i].TopologyAssignment = nil
		a.PodSetAssignments[i].DelayedTopologyRequest = nil
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("hash admission: %w", err)
	}
	sum := sha256.Sum256(raw)
	return &v1alpha1.PlacementKey{WorkloadUID: wl.UID, ReservedAt: reserved.LastTransitionTime, Admission: hex.EncodeToString(sum[:8])}, nil
}
