package admission

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// DeviceState says what a device is to an operator who counts them. Each is in one.
type DeviceState string

// The states.
const (
	// DeviceFree: a pod that may run on the node can be given it.
	DeviceFree DeviceState = "Free"
	// DeviceHeld: a claim has it.
	DeviceHeld DeviceState = "Held"
	// DeviceReserved: it is promised to a Workload, or named by the claim of a pod that was released.
	DeviceReserved DeviceState = "Reserved"
	// DeviceUnhealthy: nobody has it, or somebody who should have ended, and it is not to be given: it is tainted, cannot be lent
	// as it is, its card is in use as another device, or its node takes no pods.
	DeviceUnhealthy DeviceState = "Unhealthy"
	// DeviceStale: nobody has it, and what is known of it is not fresh: its pool is not complete, or its node is not Ready.
	DeviceStale DeviceState = "Stale"
)

// StateOf says what a device of a node is, by the rules by which it would be given to a pod that tolerates nothing of the
// device and every taint of the node that is not about its health; and why, where it is unhealthy or stale.
func StateOf(n *ledger.Node, d *ledger.Device, now time.Time) (DeviceState, string) {
	w := &windows{now: now}
	switch {
	case w.overdue(d):
		i := slices.IndexFunc(d.Holders, func(h ledger.Holder) bool { return h.Freeing && !h.Ending(now) })
		return DeviceUnhealthy, fmt.Sprintf("%s %s/%s should have ended by now", d.Holders[i].Kind, d.Holders[i].Namespace, d.Holders[i].Name)
	case slices.ContainsFunc(d.Holders, func(h ledger.Holder) bool { return h.Kind == ledger.HolderClaim }):
		return DeviceHeld, ""
	case len(d.Holders) > 0:
		return DeviceReserved, ""
	case !d.Lost.IsZero():
		return DeviceStale, fmt.Sprintf("pool %s of %s is not complete", d.ID.Pool, d.ID.Driver)
	}
	if state, why := NodeState(n); state != DeviceFree {
		return state, why
	}
	switch {
	case d.Unusable != "":
		return DeviceUnhealthy, d.Unusable
	case d.Cover != "":
		return DeviceUnhealthy, fmt.Sprintf("its card is in use as device %s", d.Cover)
	}
	if t := tainted(nil, d); t != nil {
		return DeviceUnhealthy, fmt.Sprintf("it has taint %s:%s", t.Key, t.Effect)
	}
	if !w.usable(d, asIs) {
		return DeviceUnhealthy, "it is not to be given"
	}
	return DeviceFree, ""
}

// NodeState says whether a node takes pods that tolerate all its taints but those about its health: DeviceFree where it does,
// else DeviceStale or DeviceUnhealthy, and why.
func NodeState(n *ledger.Node) (DeviceState, string) {
	tolerate := func(but ...string) *corev1.PodSpec {
		spec := &corev1.PodSpec{}
		for _, t := range n.Object.Spec.Taints {
			if !slices.Contains(but, t.Key) {
				spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpExists})
			}
		}
		return spec
	}
	lasting := Unavailable(n, tolerate(corev1.TaintNodeUnschedulable))
	switch all := Unavailable(n, tolerate(append(slices.Clone(readinessTaints), corev1.TaintNodeUnschedulable)...)); {
	case !n.Ready || all != "" && lasting == "":
		return DeviceStale, all
	case lasting != "":
		return DeviceUnhealthy, lasting
	}
	return DeviceFree, ""
}

// Plugged returns the devices of a node that its device plugin serves as well, with the extended resource that it lists them
// as: plugin and pool are the same hardware, and it lends by the plugin alone. Nil for none.
func (d *Decider) Plugged(s *ledger.Snapshot, n *ledger.Node) map[*ledger.Device]corev1.ResourceName {
	return d.plugged(s, n)
}
