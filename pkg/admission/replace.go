package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Slot is one pod's place as a Placement promises it.
type Slot struct {
	Node    string
	Devices []ledger.DeviceID
}

// Ours says whose a slot is, and when it is looked at.
type Ours struct {
	// Workload and Placement are the uids of who it is promised to and by.
	Workload, Placement types.UID
	// Policy is the one that it was decided by; nil where none does any more.
	Policy *flavors.Policy
	Now    time.Time

	// snapshot are the accounts that the slot is held against.
	snapshot *ledger.Snapshot
}

// Trouble says why a slot cannot be used as it is.
type Trouble struct {
	Reason  v1alpha1.Reason
	Message string
	// Freeing: what holds a device is ending, or is the slot's own predecessor, so the slot comes free by itself.
	Freeing bool
	// Lost: the node or its pool is away and may come back within the policy's loss grace. Since is when it went; zero
	// where nothing says.
	Lost  bool
	Since time.Time
	// NodeGone: the node is deleted.
	NodeGone bool
}

// Dead says whether what was on the slot's node is not coming back: the node is deleted, or has not been Ready for longer
// than the grace.
func (t *Trouble) Dead(now time.Time, grace time.Duration) bool {
	return t != nil && (t.NodeGone || t.Reason == v1alpha1.ReasonNodeUnavailable && t.Lost && now.Sub(t.Since) > grace)
}

// Trouble holds a slot that a live Placement promises against the accounts; nil where a pod of the podset can use it.
func (s Slot) Trouble(snapshot *ledger.Snapshot, ps *PodSet, o Ours) *Trouble {
	n := asServed(snapshot.Node(s.Node), o.Policy)
	if n == nil {
		return &Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s is gone", s.Node), NodeGone: true}
	}
	if t := nodeTrouble(n, ps); t != nil {
		return t
	}
	o.snapshot = snapshot
	return s.deviceTrouble(n, ps, o)
}

// deviceTrouble says what about a slot's devices keeps a pod from them, whatever its node; what comes free by itself comes
// last.
func (s Slot) deviceTrouble(n *ledger.Node, ps *PodSet, o Ours) *Trouble {
	var freeing *Trouble
	for _, id := range s.Devices {
		switch t := deviceTrouble(n, id, ps, o); {
		case t == nil:
		case t.Freeing:
			freeing = t
		default:
			return t
		}
	}
	return freeing
}

// nodeTrouble tells a node that is away from one that is kept from pods on purpose. The taints that stand for the former
// outlive it by a moment.
func nodeTrouble(n *ledger.Node, ps *PodSet) *Trouble {
	if !n.Ready {
		return &Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s is not Ready", n.Name), Lost: true, Since: ledger.ReadySince(n.Object)}
	}
	tolerations := slices.Clone(ps.Spec.Tolerations)
	if ps.Assigned != nil {
		if !labels.SelectorFromSet(ps.Assigned.NodeLabels).Matches(labels.Set(n.Object.Labels)) {
			return &Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s does not carry the labels of flavor %s any more", n.Name, ps.Assigned.Flavor)}
		}
		tolerations = append(tolerations, ps.Assigned.Tolerations...)
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *ps.Spec})
	why, _ := unavailable(n, affinity, tolerations)
	if why == "" {
		return nil
	}
	return &Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: why, Lost: onlyAway(n, affinity, tolerations), Since: ledger.ReadySince(n.Object)}
}

// yields says whether a holder is a promise that loses the device to another by the rule of Overlaps: it is about to be
// withdrawn, and keeps nobody from it.
func (o *Ours) yields(h *ledger.Holder) bool {
	return h.Kind == ledger.HolderPlacement && h.UID != "" &&
		slices.ContainsFunc(o.snapshot.Overlaps(), func(x ledger.Overlap) bool { return x.Loser.UID == h.UID })
}

func deviceTrouble(n *ledger.Node, id ledger.DeviceID, ps *PodSet, o Ours) *Trouble {
	d := n.Device(id)
	if d == nil {
		away := !slices.ContainsFunc(n.Pools, func(p ledger.Pool) bool {
			return p.Driver == id.Driver && p.Name == id.Pool && p.State == ledger.PoolFresh
		})
		t := &Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: fmt.Sprintf("node %s: device %s is gone", n.Name, id.Device), Lost: away}
		for i := range n.Lost {
			if n.Lost[i].ID != id {
				continue
			}
			t.Since = n.Lost[i].Lost
			if n.Stopped != nil {
				t.Lost, t.Message = true, n.Stopped.Message
				continue
			}
			if n.Lost[i].Unserved {
				t.Reason, t.Lost = v1alpha1.ReasonDriverNotServing, true
				t.Message = fmt.Sprintf("node %s: no pod of driver %s is Ready there, whose device %s was promised", n.Name, id.Driver, id.Device)
			}
		}
		return t
	}
	if d.Unusable != "" {
		return &Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: fmt.Sprintf("node %s: device %s: %s", n.Name, id.Device, d.Unusable)}
	}
	if t := tainted(ps.tolerations(), d); t != nil {
		return &Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: fmt.Sprintf("node %s: device %s has taint %s:%s", n.Name, id.Device, t.Key, t.Effect)}
	}
	if d.Cover != "" {
		return &Trouble{Reason: v1alpha1.ReasonForeignUse, Message: fmt.Sprintf("node %s: device %s is a part of %s, which is held whole", n.Name, id.Device, d.Cover)}
	}
	if n.Drawn(d) {
		return &Trouble{Reason: v1alpha1.ReasonForeignUse, Message: fmt.Sprintf("node %s: more is drawn of the counters of device %s than there is", n.Name, id.Device)}
	}
	theirs := func(h *ledger.Holder) bool {
		return h.UID != o.Placement && (h.Workload == "" || h.Workload != o.Workload)
	}
	if d.Multiple() && d.Left(ledger.DefaultConsumption(d.Spec), theirs) {
		return nil
	}
	var freeing *Trouble
	for _, h := range d.Holders {
		switch {
		case h.UID == o.Placement || o.yields(&h):
		case h.Freeing && !h.Ending(o.Now):
			return &Trouble{Reason: v1alpha1.ReasonDevicesUnhealthy, Message: fmt.Sprintf("node %s: device %s is held by a pod that should have ended by now", n.Name, id.Device)}
		case h.Freeing || h.Workload != "" && h.Workload == o.Workload:
			freeing = &Trouble{Reason: v1alpha1.ReasonDevicesFreeing, Message: fmt.Sprintf("node %s: device %s is held by a pod that is ending", n.Name, id.Device), Freeing: true}
		case h.Managed:
			return &Trouble{Reason: v1alpha1.ReasonDevicesInUse, Message: fmt.Sprintf("node %s: another workload has taken device %s", n.Name, id.Device)}
		default:
			return &Trouble{Reason: v1alpha1.ReasonForeignUse, Message: fmt.Sprintf("node %s: a pod that Kueue does not manage has taken device %s", n.Name, id.Device)}
		}
	}
	return freeing
}

// Return is what of a Placement is given back to be decided anew.
type Return struct {
	// Placement is its uid.
	Placement types.UID
	// Claims are what the slots that it gives back take.
	Claims []ledger.PodSetClaim
	// Charge is what one pod of their podset costs by the Placement.
	Charge int64
}

// Replace decides anew the slots that a Placement gives back, in the flavor and at the charge that Kueue has reserved for
// their podset: r's counts are those of the slots. Nobody's quota pays for more.
func (d *Decider) Replace(ctx context.Context, s *ledger.Snapshot, r *Request, back Return) Decision {
	dec := d.Decide(ctx, s.Returned(back.Placement, back.Claims), r)
	if dec.Verdict != v1alpha1.VerdictAdmit {
		return dec
	}
	for i := range dec.PodSets {
		if got := dec.PodSets[i].Charge; got != back.Charge {
			return Decision{
				Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonQuotaMismatch, LedgerVersion: dec.LedgerVersion, Standings: dec.Standings,
				Message: fmt.Sprintf("another place would cost %d a pod, %d is charged", got, back.Charge),
			}
		}
	}
	return dec
}

// PlacedMessage says in one sentence where a promise is and what happened to it since it was decided.
func PlacedMessage(podSets []v1alpha1.PlacementPodSet, since string) string {
	return cut(admitMessage(podSets)+"; "+since, maxDecisionMessage)
}
