package admission

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Heard is when anything came last, bookmarks included, from the watch that was silent for longest among those that accounts
// are made of. The zero value stands for watches that are always alive.
type Heard struct {
	// Kind is the kind that is watched, as "ResourceSlice".
	Kind string
	At   time.Time
}

// Window is how long a watch may be silent by a policy.
func Window(p *flavors.Policy) time.Duration {
	return time.Duration(flavors.Seconds(p.Spec.Freshness.WindowSeconds, 180)) * time.Second
}

// Deaf says whether a watch was silent for longer than a policy's window: what is free is then not known.
func (h Heard) Deaf(now time.Time, window time.Duration) bool {
	return !h.At.IsZero() && now.Sub(h.At) > window
}

// Stale says why nothing may be lent on the accounts as they are known; empty where they are fresh. It is the same for as long as
// nothing is heard.
func (h Heard) Stale(now time.Time, p *flavors.Policy) string {
	window := Window(p)
	if !h.Deaf(now, window) {
		return ""
	}
	return fmt.Sprintf("nothing was heard of %ss since %s, for longer than DevicePolicy %s lets a watch be silent (%s): what is free now is not known",
		h.Kind, h.At.UTC().Format(time.RFC3339), p.Name, window)
}

// stale is the standing of every option while the accounts are not known: whatever it is that is asked for may be there or not.
func (t *trial) stale(nodes []*nodeFit, why string) {
	t.standing.Standing = v1alpha1.StandingBlocked
	t.standing.Reasons = []v1alpha1.StandingReason{{Reason: v1alpha1.ReasonPoolStale, Nodes: bounded(len(nodes)), Message: cut(why, maxReasonMessage)}}
}

// longAgo is since when a driver does not serve a node of which nothing says that it ever did.
var longAgo = time.Unix(1, 0)

// asServed returns a node as a policy has it that says how to find the pods of drivers: devices of a driver without a pod that is
// Ready are lost since that ceased to be, or, where it never was, since the node was seen first.
//
// Where kube-scheduler gives up every pod with claims, all devices are lost since that began: nobody is released to it, and what is
// in its way may be gone in a moment.
func asServed(n *ledger.Node, p *flavors.Policy) *ledger.Node {
	if n == nil || n.Stopped == nil && (p == nil || len(p.Drivers) == 0) {
		return n
	}
	since := notServing(n, p)
	if n.Stopped != nil {
		at := n.Stopped.Since
		if at.IsZero() {
			at = longAgo
		}
		if since == nil {
			since = map[string]time.Time{}
		}
		for i := range n.Devices {
			if driver := n.Devices[i].ID.Driver; since[driver].IsZero() {
				since[driver] = at
			}
		}
	}
	if since == nil {
		return n
	}
	return n.Unserved(since)
}

// notServing returns the drivers that do not serve a node by what a policy says of them, and since when; nil for none, and for no
// policy.
func notServing(n *ledger.Node, p *flavors.Policy) (since map[string]time.Time) {
	if p == nil {
		return nil
	}
	for i := range p.Drivers {
		at, serves := servedBy(n, &p.Drivers[i])
		if serves {
			continue
		}
		if since == nil {
			since = map[string]time.Time{}
		}
		since[p.Drivers[i].Name] = at
	}
	return since
}

// servedBy says whether a driver serves a node, and since when it does not.
func servedBy(n *ledger.Node, d *flavors.Driver) (since time.Time, serves bool) {
	for i, list := range [][]ledger.Agent{n.Agents, n.AgentsGone} {
		for j := range list {
			a := &list[j]
			if !d.Has(a) {
				continue
			}
			if i == 0 && a.Serving {
				return time.Time{}, true
			}
			if a.Since.After(since) {
				since = a.Since
			}
		}
	}
	switch {
	case !since.IsZero():
		return since, false
	case !n.SeenAt.IsZero():
		return n.SeenAt, false
	}
	return longAgo, false
}

// lostStop says, for a device that is lost, why its like cannot be given: lost of them of all that match.
func lostStop(n *ledger.Node, d *ledger.Device, lost, all int64) stop {
	if n.Stopped != nil {
		return stop{reason: v1alpha1.ReasonDevicesUnhealthy, message: n.Stopped.Message}
	}
	if d.Unserved {
		return stop{reason: v1alpha1.ReasonDriverNotServing, message: fmt.Sprintf("node %s: no pod of driver %s is Ready there, which has %d of %d devices", n.Name, d.ID.Driver, lost, all)}
	}
	if s := poolStop(n, d.ID.Driver, d.ID.Pool); s.reason != "" {
		s.message += fmt.Sprintf("; %d of %d devices are of it", lost, all)
		return s
	}
	return stop{reason: v1alpha1.ReasonPoolRebuilding, message: fmt.Sprintf("node %s: its driver has published no complete pool with %d of %d devices since it last did", n.Name, lost, all)}
}

// poolStop says why a pool that is there lends nothing; empty for one that is not there, or that lends.
func poolStop(n *ledger.Node, driver, name string) stop {
	for i := range n.Pools {
		p := &n.Pools[i]
		if p.Driver != driver || p.Name != name {
			continue
		}
		switch p.State {
		case ledger.PoolIncomplete:
			return stop{reason: v1alpha1.ReasonPoolIncomplete, message: fmt.Sprintf("node %s: pool %s of %s shows %d of its slices", n.Name, p.Name, p.Driver, len(p.Slices))}
		case ledger.PoolRegressed:
			return stop{reason: v1alpha1.ReasonPoolRegressed, message: fmt.Sprintf("node %s: pool %s of %s went back to generation %d, and a newer one was seen: its driver has to publish a newer one, or take all its slices away first",
				n.Name, p.Name, p.Driver, p.Generation)}
		case ledger.PoolImpossible:
			return stop{reason: v1alpha1.ReasonDevicesUnhealthy, message: fmt.Sprintf("node %s: pool %s of %s is kept out: %s", n.Name, p.Name, p.Driver, p.Problem)}
		}
	}
	return stop{}
}
