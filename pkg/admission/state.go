package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
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
	// DeviceNotServing: a pod could be given it, but for its driver, no pod of which is Ready on the node.
	DeviceNotServing DeviceState = "NotServing"
	// DeviceStale: nobody has it, and what is known of it is not fresh: its pool is not complete, or its node is not Ready.
	DeviceStale DeviceState = "Stale"
)

// StateOf says what a device of a node is, by the rules by which it would be given to a pod that tolerates nothing of the
// device and every taint of the node that is not about its health; and why, where it is unhealthy, stale or not served. p is the
// policy that says how the pods of drivers are found; nil for none. Of several reasons it is the one that lasts longest: a tainted
// device is unhealthy whether its driver serves or not.
func StateOf(n *ledger.Node, d *ledger.Device, p *flavors.Policy, now time.Time) (DeviceState, string) {
	state, why := stateOf(n, d, now)
	if state != DeviceFree {
		return state, why
	}
	if _, not := notServing(n, p)[d.ID.Driver]; not {
		return DeviceNotServing, fmt.Sprintf("no pod of driver %s is Ready on the node", d.ID.Driver)
	}
	return DeviceFree, ""
}

func stateOf(n *ledger.Node, d *ledger.Device, now time.Time) (DeviceState, string) {
	w := &windows{now: now}
	switch {
	case w.overdue(d):
		i := slices.IndexFunc(d.Holders, func(h ledger.Holder) bool { return h.Freeing && !h.Ending(now) })
		return DeviceUnhealthy, fmt.Sprintf("%s %s/%s should have ended by now", d.Holders[i].Kind, d.Holders[i].Namespace, d.Holders[i].Name)
	case slices.ContainsFunc(d.Holders, func(h ledger.Holder) bool { return h.Kind == ledger.HolderClaim }):
		return DeviceHeld, ""
	case len(d.Holders) > 0:
		return DeviceReserved, ""
	}
	if state, why := poolState(n, d); state != DeviceFree {
		return state, why
	}
	if state, why := NodeState(n); state != DeviceFree {
		return state, why
	}
	switch {
	case n.Stopped != nil:
		return DeviceUnhealthy, n.Stopped.Message
	case d.Unusable != "":
		return DeviceUnhealthy, d.Unusable
	case d.Cover != "":
		return DeviceUnhealthy, fmt.Sprintf("its card is in use as device %s", d.Cover)
	}
	if why := usedUp(n, d); why != "" {
		return DeviceUnhealthy, why
	}
	if t := tainted(nil, d); t != nil {
		return DeviceUnhealthy, fmt.Sprintf("it or its card has taint %s:%s", t.Key, t.Effect)
	}
	if !w.usable(d, asIs) {
		return DeviceUnhealthy, "it is not to be given"
	}
	return DeviceFree, ""
}

// usedUp says which counter of its card has not left what a device draws; empty for none.
func usedUp(n *ledger.Node, d *ledger.Device) string {
	if len(d.Spec.ConsumesCounters) == 0 {
		return ""
	}
	for _, c := range n.Counters() {
		if c.Driver != d.ID.Driver || c.Pool != d.ID.Pool {
			continue
		}
		for _, draw := range d.Spec.ConsumesCounters {
			want, ok := draw.Counters[c.Name]
			if !ok || draw.CounterSet != c.Set {
				continue
			}
			after := c.Used.DeepCopy()
			if after.Add(want.Value); after.Cmp(c.Total) > 0 {
				return fmt.Sprintf("its card is in use: counter %s of %s has not so much left", c.Name, c.Set)
			}
		}
	}
	return ""
}

// poolState says whether the pool of a device lends: DeviceFree where it does, and why not.
func poolState(n *ledger.Node, d *ledger.Device) (DeviceState, string) {
	what := fmt.Sprintf("pool %s of %s", d.ID.Pool, d.ID.Driver)
	for i := range n.Pools {
		p := &n.Pools[i]
		if p.Driver != d.ID.Driver || p.Name != d.ID.Pool {
			continue
		}
		switch {
		case p.State == ledger.PoolImpossible:
			return DeviceUnhealthy, fmt.Sprintf("%s is kept out: %s", what, p.Problem)
		case p.State == ledger.PoolRegressed:
			return DeviceStale, fmt.Sprintf("%s went back to generation %d", what, p.Generation)
		case p.State != ledger.PoolFresh:
			return DeviceStale, fmt.Sprintf("%s shows %d slices of its newest generation, and not all", what, len(p.Slices))
		case !d.Lost.IsZero():
			return DeviceStale, fmt.Sprintf("%s does not list it any more", what)
		}
		return DeviceFree, ""
	}
	return DeviceStale, what + " is gone"
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

// Flags flags what is odd about a node that its accounts alone do not tell: the extended resources that it lists and whose
// DeviceClasses select devices of it, and the devices that kube-scheduler may take for others, each in order of their names. Nil
// for none.
func (d *Decider) Flags(s *ledger.Snapshot, n *ledger.Node) []ledger.Flag {
	count := map[corev1.ResourceName]int{}
	for _, name := range d.plugged(s, n) {
		count[name]++
	}
	var flags []ledger.Flag
	for _, name := range slices.Sorted(maps.Keys(count)) {
		flags = append(flags, ledger.Flag{Reason: ledger.FlagServedTwice, Message: fmt.Sprintf(
			"a device plugin lists %d of %s, and DRA lists %d devices that DeviceClass %s serves it by: they count once, and the device plugin lends them",
			n.Allocatable[name], name, count[name], s.ClassFor(name).Name)})
	}
	mistaken := mistakable(n)
	for i := range n.Devices {
		if id := n.Devices[i].ID; mistaken[id] {
			flags = append(flags, ledger.Flag{Reason: ledger.FlagQuirk, Object: id.String(), Message: fmt.Sprintf(
				"device %s is not lent: kube-scheduler looks up what it takes of the node's own resources by pool and name alone, and may find another", id)})
		}
	}
	return flags
}
