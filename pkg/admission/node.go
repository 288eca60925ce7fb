package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// nodeFit is one node of a flavor, looked at for one podset.
type nodeFit struct {
	node *ledger.Node
	// devices are those of the flavor on the node.
	devices []*ledger.Device
	// matching are those of devices that the podset's claim selects, whoever holds them.
	matching []*ledger.Device
	// unavailable says why no pod of the podset may run there now; meant is true where only a change of the pod or of
	// the node's labels would help.
	unavailable string
	meant       bool
	classes     classLister
	// plain is true for a podset without devices.
	plain bool
	// err is why the claim's selectors cannot be evaluated.
	err error
}

// stop says why a node takes no further pod.
type stop struct {
	reason  v1alpha1.Reason
	message string
	// full is true where the node takes as many pods as it ever could: nothing on it is to be waited for.
	full bool
}

// free returns how many of the matching devices are free in a book.
func (n *nodeFit) free(b book) int {
	c := 0
	for _, d := range n.matching {
		if usable(d, b) {
			c++
		}
	}
	return c
}

// usable says whether a device can be given in a book, taints aside.
func usable(d *ledger.Device, b book) bool {
	if d.Unusable != "" {
		return false
	}
	switch b {
	case asIs:
		return d.Free()
	case managedGone:
		return !slices.ContainsFunc(d.Holders, func(h ledger.Holder) bool { return !h.Managed })
	}
	return true
}

// nodesOf returns the nodes that belong to a flavor, with what of them concerns the podset: those that carry the
// labels that Kueue gives to the pods. For anyFlavor these are the labels of what Kueue assigned.
func (d *Decider) nodesOf(s *ledger.Snapshot, r *Request, ps *PodSet, flavor int) []*nodeFit {
	var want map[string]string
	var tolerations []corev1.Toleration
	if flavor != anyFlavor {
		want, tolerations = r.Policy.Flavors[flavor].NodeLabels, r.Policy.Flavors[flavor].Tolerations
	}
	if ps.Assigned != nil && (flavor == anyFlavor || r.Policy.Flavors[flavor].Name == ps.Assigned.Flavor) {
		want, tolerations = ps.Assigned.NodeLabels, ps.Assigned.Tolerations
	}
	selector := labels.SelectorFromSet(want)
	pod := &corev1.Pod{Spec: *ps.Spec}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	tolerations = append(slices.Clone(ps.Spec.Tolerations), tolerations...)
	var fits []*nodeFit
	for _, n := range s.Nodes() {
		if !selector.Matches(labels.Set(n.Object.Labels)) {
			continue
		}
		f := &nodeFit{node: n, classes: classLister{s}, plain: flavor == anyFlavor}
		f.unavailable, f.meant = unavailable(n, affinity, tolerations)
		for i := range n.Devices {
			dev := &n.Devices[i]
			if flavor == anyFlavor || d.Matcher.FlavorOf(r.Policy, dev) != flavor {
				continue
			}
			f.devices = append(f.devices, dev)
		}
		if flavor != anyFlavor {
			d.match(s, ps, f)
		}
		fits = append(fits, f)
	}
	return fits
}

// match keeps the devices that the class and the claim's own selectors accept.
func (d *Decider) match(s *ledger.Snapshot, ps *PodSet, f *nodeFit) {
	for i := range ps.Shape.Claims {
		c := &ps.Shape.Claims[i]
		expressions := ClassSelectors(s.DeviceClass(c.Class))
		expressions = append(expressions, c.Selectors...)
		for _, dev := range f.devices {
			ok, err := d.Matcher.Matches(dev.ID.Driver, dev.Spec, expressions...)
			if err != nil {
				f.err = err
				return
			}
			if ok {
				f.matching = append(f.matching, dev)
			}
		}
	}
}

// ClassSelectors returns the CEL expressions of a DeviceClass; none for nil.
func ClassSelectors(c *resourcev1.DeviceClass) []string {
	var out []string
	if c == nil {
		return nil
	}
	for _, s := range c.Spec.Selectors {
		if s.CEL != nil {
			out = append(out, s.CEL.Expression)
		}
	}
	return out
}

// Unavailable says why a pod, as it is, may not run on a node; empty where it may.
func Unavailable(n *ledger.Node, spec *corev1.PodSpec) string {
	why, _ := unavailable(n, nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}), spec.Tolerations)
	return why
}

// unavailable says why a pod may not run on a node, and whether that is meant for good.
func unavailable(n *ledger.Node, affinity nodeaffinity.RequiredNodeAffinity, tolerations []corev1.Toleration) (string, bool) {
	if ok, err := affinity.Match(n.Object); err != nil || !ok {
		return fmt.Sprintf("node %s does not match the pod's node selector or affinity", n.Name), true
	}
	if n.Hostname == "" {
		return fmt.Sprintf("node %s has no %s label of its own to pin a pod by", n.Name, corev1.LabelHostname), true
	}
	if !n.Ready {
		return fmt.Sprintf("node %s is not Ready", n.Name), false
	}
	if n.Object.Spec.Unschedulable {
		cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
		if !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), tolerations, &cordon, false) {
			return fmt.Sprintf("node %s is cordoned", n.Name), false
		}
	}
	taint, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), n.Object.Spec.Taints, tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	if untolerated {
		return fmt.Sprintf("node %s has taint %s, which the pod does not tolerate", n.Name, taint.ToString()), false
	}
	return "", false
}

// most returns how many pods of a podset a node takes in a book, and what stopped the next one. Counts bound it first:
// the allocator's search takes exponential time where a count alone rules the claims out.
func (d *Decider) most(ctx context.Context, ps *PodSet, n *nodeFit, b book) (int32, stop) {
	if n.err != nil {
		return 0, stop{reason: v1alpha1.ReasonClaimUnsupported, message: n.err.Error()}
	}
	if n.unavailable != "" && (n.meant || b != emptyHealthy) {
		return 0, stop{reason: v1alpha1.ReasonNodeUnavailable, message: n.unavailable, full: n.meant}
	}
	room := map[book]ledger.Amounts{asIs: n.node.Free, managedGone: n.node.Free, emptyHealthy: n.node.Allocatable}[b]
	if b == managedGone {
		room = room.Clone()
		room.Add(n.node.Managed, 1)
	}
	byRoom, scarce := room.Times(ps.Requests, int64(ps.Count))
	limit := byRoom
	per := ps.Shape.Devices()
	var why stop
	if byRoom < int64(ps.Count) {
		why = stop{reason: v1alpha1.ReasonNodeResources, message: fmt.Sprintf("node %s: a pod asks for %s of %s, %s is free", n.node.Name,
			amount(scarce, ps.Requests[scarce]), scarce, amount(scarce, max(0, room[scarce])))}
	}
	if per > 0 {
		if byDevices := int64(d.healthy(ps, n, b)) / per; byDevices < limit || byDevices == 0 {
			limit, why = min(limit, byDevices), d.deviceStop(ps, n, b, per, byDevices)
		}
	}
	if per > 0 && limit > 0 && !flavors.Distinct(n.matching[0].ID.Driver, n.node.Devices) {
		return 0, stop{reason: v1alpha1.ReasonClaimUnsupported, message: fmt.Sprintf("node %s: no attribute tells its devices apart, so a claim cannot be cut to those promised", n.node.Name)}
	}
	for k := int32(limit); k > 0; k-- {
		if _, ok := d.allocate(ctx, ps, n, b, k); ok {
			return k, why
		}
		why = stop{reason: v1alpha1.ReasonConstraintUnsatisfied, message: fmt.Sprintf("node %s: the allocator finds no devices for %d pods together", n.node.Name, k)}
	}
	return 0, why
}

// healthy counts the devices that are usable in a book and free of taints that the claim does not tolerate.
func (d *Decider) healthy(ps *PodSet, n *nodeFit, b book) int {
	c := 0
	for _, dev := range n.matching {
		if usable(dev, b) && (b == emptyHealthy || tainted(ps, dev) == nil) {
			c++
		}
	}
	return c
}

// tainted returns the taint for which the allocator would not give a device, or nil.
func tainted(ps *PodSet, dev *ledger.Device) *resourcev1.DeviceTaint {
	for i := range dev.Spec.Taints {
		t := &dev.Spec.Taints[i]
		if t.Effect != resourcev1.DeviceTaintEffectNoSchedule && t.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		tolerated := false
		for _, c := range ps.Shape.Claims {
			for _, tol := range c.Tolerations {
				tolerated = tolerated || resourceclaim.ToleratesTaint(tol, *t)
			}
		}
		if !tolerated {
			return t
		}
	}
	return nil
}

// deviceStop says why a node has too few devices for one more pod than the given number.
func (d *Decider) deviceStop(ps *PodSet, n *nodeFit, b book, per, pods int64) stop {
	name := n.node.Name
	if len(n.devices) == 0 {
		for _, p := range n.node.Pools {
			if p.State != ledger.PoolFresh {
				return stop{reason: v1alpha1.ReasonPoolIncomplete, message: fmt.Sprintf("node %s: pool %s of %s shows %d of its slices", name, p.Name, p.Driver, len(p.Slices))}
			}
		}
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, message: fmt.Sprintf("node %s lists no device of this flavor", name)}
	}
	if len(n.matching) == 0 {
		return stop{reason: v1alpha1.ReasonSelectorMismatch, message: fmt.Sprintf("node %s: none of %d devices matches the class and the selectors", name, len(n.devices))}
	}
	if int64(len(n.matching)) < per {
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, message: fmt.Sprintf("node %s has %d such devices, a pod asks for %d", name, len(n.matching), per)}
	}
	if int64(len(n.matching)) < per*(pods+1) {
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, full: true,
			message: fmt.Sprintf("node %s has %d such devices, enough for %s of %d each", name, len(n.matching), plural(bounded(int(pods)), "pod"), per)}
	}
	var held, freeing, foreign, sick int64
	example := ""
	for _, dev := range n.matching {
		switch taint := tainted(ps, dev); {
		case dev.Unusable != "":
			sick, example = sick+1, fmt.Sprintf("device %s: %s", dev.ID.Device, dev.Unusable)
		case !usable(dev, b) && b == managedGone:
			foreign++
		case !usable(dev, b):
			held++
			if slices.ContainsFunc(dev.Holders, func(h ledger.Holder) bool { return h.Freeing }) {
				freeing++
			}
		case taint != nil && b != emptyHealthy:
			sick, example = sick+1, fmt.Sprintf("device %s has taint %s:%s", dev.ID.Device, taint.Key, taint.Effect)
		}
	}
	switch {
	case sick > 0 && int64(len(n.matching))-sick < per:
		return stop{reason: v1alpha1.ReasonDevicesUnhealthy, message: fmt.Sprintf("node %s: %d of %d devices cannot be given; %s", name, sick, len(n.matching), example)}
	case foreign > 0:
		return stop{reason: v1alpha1.ReasonForeignUse, message: fmt.Sprintf("node %s: %d of %d devices are held by pods that Kueue does not manage", name, foreign, len(n.matching))}
	case freeing > 0 && int64(len(n.matching))-held-sick+freeing >= per:
		return stop{reason: v1alpha1.ReasonDevicesFreeing, message: fmt.Sprintf("node %s: %d of %d devices are held by pods that are ending", name, freeing, len(n.matching))}
	}
	return stop{reason: v1alpha1.ReasonDevicesInUse, message: fmt.Sprintf("node %s: %d of %d devices are in use, a pod asks for %d", name, held, len(n.matching), per)}
}
