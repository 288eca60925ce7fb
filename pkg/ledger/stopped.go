package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Stopped says why kube-scheduler gives up every pod with a claim to be allocated, on a node and with it on all: before it looks at
// any pool it reads the node selectors of all slices that do not name their node, and fails at one that it cannot read.
type Stopped struct {
	// Driver, Pool and Slice name the slice.
	Driver, Pool, Slice string
	// Message names it and what cannot be read, in the words of every node.
	Message string
	// Since is when it was seen first.
	Since time.Time
}

// stopping is a slice of which a node selector cannot be read.
type stopping struct {
	*slice
	since time.Time
}

// unread returns a slice's or a device's node selector that cannot be read; "" for none.
func unread(what string, selector *corev1.NodeSelector) string {
	if why := unreadable(selector); why != "" {
		return fmt.Sprintf("%s has a node selector that cannot be read: %s", what, why)
	}
	return ""
}

// stops returns why kube-scheduler fails at a slice for a node, or "". It does not look at the selectors of a slice with counters, and
// looks at those of devices up to the first that is for the node.
func (s *slice) stops(n *corev1.Node) string {
	if !s.unreadable || s.counts() || s.reach.node != "" || s.reach.all {
		return ""
	}
	if s.Spec.NodeSelector != nil {
		return unread("slice "+s.Name, s.Spec.NodeSelector)
	}
	for i := range s.each {
		d := &s.Spec.Devices[i]
		if why := unread(fmt.Sprintf("slice %s: device %s", s.Name, d.Name), d.NodeSelector); why != "" {
			return why
		}
		if s.each[i].includes(n) {
			return ""
		}
	}
	return ""
}

// hasUnreadable says whether any node selector of a slice cannot be read.
func hasUnreadable(s *resourcev1.ResourceSlice) bool {
	return unreadable(s.Spec.NodeSelector) != "" ||
		slices.ContainsFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return d.NodeSelector != nil && unreadable(d.NodeSelector) != "" })
}

// stopped returns why kube-scheduler fails for a node; nil where it does not. Of several slices it is the first by name.
func (b *Book) stopped(n *corev1.Node) *Stopped {
	var first *Stopped
	var of *slice
	for uid := range b.stopping {
		s := b.stopping[uid]
		why := s.stops(n)
		if why == "" || of != nil && cmp.Or(cmp.Compare(of.Name, s.Name), cmp.Compare(of.UID, s.UID)) <= 0 {
			continue
		}
		of = s.slice
		first = &Stopped{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Slice: s.Name, Message: why + ": kube-scheduler gives up every pod with claims while it is there", Since: s.since}
	}
	return first
}

// touchStopped marks all nodes for a slice that may stop kube-scheduler on them.
func (b *Book) touchStopped(s *slice) {
	if !s.unreadable {
		return
	}
	for _, o := range b.nodes {
		b.touch(o.Node.Name)
	}
}

// by says whether it is a slice of a pool; false for nil.
func (s *Stopped) by(p *Pool) bool { return s != nil && s.Driver == p.Driver && s.Pool == p.Name }

// stops flags what stops kube-scheduler.
func (n *Node) stops() []Flag {
	if n.Stopped == nil {
		return nil
	}
	return []Flag{{Reason: FlagImpossible, Object: n.Stopped.Driver + "/" + n.Stopped.Pool, Message: n.Stopped.Message}}
}
