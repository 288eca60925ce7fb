package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

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
	windows
	// unavailable says why no pod of the podset may run there now; meant is true where only a change of the pod or of
	// the node's labels would help.
	unavailable string
	meant       bool
	// absentSince is set where nothing but its readiness, or the taints that come with it, makes a node unavailable: since
	// then.
	absentSince *time.Time
	// departed is true for a node that was deleted.
	departed bool
	classes  classLister
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
		if n.usable(d, b) {
			c++
		}
	}
	return c
}

// nodesOf returns the nodes that belong to a flavor, with what of them concerns the podset: those that carry the
// labels that Kueue gives to the pods. For anyFlavor these are the labels of what Kueue assigned. departed asks for those
// that were deleted instead.
func (d *Decider) nodesOf(s *ledger.Snapshot, r *Request, ps *PodSet, flavor int, departed bool) []*nodeFit {
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
	look := func(nodes []*ledger.Node) {
		for _, n := range nodes {
			if !selector.Matches(labels.Set(n.Object.Labels)) {
				continue
			}
			f := &nodeFit{node: n, windows: windowsOf(r), classes: classLister{s}, plain: flavor == anyFlavor, departed: departed}
			f.unavailable, f.meant = unavailable(n, affinity, tolerations)
			if departed && !f.meant {
				f.unavailable = fmt.Sprintf("node %s was deleted", n.Name)
			}
			if f.unavailable != "" && !f.meant && !departed {
				f.absentSince = absentSince(n, affinity, tolerations)
			}
			if flavor != anyFlavor {
				f.devices = d.ofFlavor(d.ofFlavor(nil, r.Policy, n.Devices, flavor), r.Policy, n.Lost, flavor)
				d.match(s, ps, f)
			}
			fits = append(fits, f)
		}
	}
	if departed {
		look(s.Departed())
	} else {
		look(s.Nodes())
	}
	return fits
}

// ofFlavor appends those of devices that belong to a flavor.
func (d *Decider) ofFlavor(list []*ledger.Device, p *flavors.Policy, devices []ledger.Device, flavor int) []*ledger.Device {
	for i := range devices {
		if d.Matcher.FlavorOf(p, &devices[i]) == flavor {
			list = append(list, &devices[i])
		}
	}
	return list
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

// readinessTaints come and go with a node's readiness.
var readinessTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// absentSince returns since when nothing but its readiness keeps a pod from a node; nil if something else does as well.
func absentSince(n *ledger.Node, affinity nodeaffinity.RequiredNodeAffinity, tolerations []corev1.Toleration) *time.Time {
	since := n.NotReadySince
	object := *n.Object
	object.Spec.Taints = nil
	for i := range n.Object.Spec.Taints {
		t := &n.Object.Spec.Taints[i]
		if !slices.Contains(readinessTaints, t.Key) {
			object.Spec.Taints = append(object.Spec.Taints, *t)
		} else if t.TimeAdded != nil && n.Ready && since.Before(t.TimeAdded.Time) {
			since = t.TimeAdded.Time
		}
	}
	ready := *n
	ready.Ready, ready.Object = true, &object
	if why, _ := unavailable(&ready, affinity, tolerations); why != "" || since.IsZero() {
		return nil
	}
	return &since
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
	if n.departed && !n.available(b) {
		return 0, stop{}
	}
	if n.unavailable != "" && !n.available(b) {
		return 0, stop{reason: v1alpha1.ReasonNodeUnavailable, message: n.unavailable, full: n.meant}
	}
	room := n.room(n.node, b)
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
	if per > 0 && limit > 0 && !flavors.Distinct(n.matching[0].ID.Driver, slices.Concat(n.node.Devices, n.node.Lost)) {
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

// available says whether a node that is unavailable counts as there in a book.
func (n *nodeFit) available(b book) bool {
	switch {
	case n.meant:
		return false
	case b == emptyHealthy:
		return !n.departed || slices.ContainsFunc(n.matching, func(d *ledger.Device) bool { return n.back(d.Lost, b) })
	}
	return n.absentSince != nil && n.back(*n.absentSince, b)
}

// healthy counts the devices that are usable in a book and free of taints that the claim does not tolerate.
func (d *Decider) healthy(ps *PodSet, n *nodeFit, b book) int {
	c := 0
	for _, dev := range n.matching {
		if n.usable(dev, b) && (b == emptyHealthy || tainted(ps, dev) == nil) {
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
	if len(n.devices) == 0 { // nothing is remembered of them either
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
	var held, freeing, foreign, sick, lost int64
	example, lostAs := "", v1alpha1.Reason("")
	for _, dev := range n.matching {
		switch taint := tainted(ps, dev); {
		case !dev.Lost.IsZero() && !n.back(dev.Lost, b):
			lost, lostAs = lost+1, lostReason(n.node, dev)
		case dev.Unusable != "":
			sick, example = sick+1, fmt.Sprintf("device %s: %s", dev.ID.Device, dev.Unusable)
		case n.overdue(dev) && b != emptyHealthy:
			sick, example = sick+1, fmt.Sprintf("device %s is held by a pod that should have ended by now", dev.ID.Device)
		case !n.usable(dev, b) && b == managedGone:
			foreign++
		case !n.usable(dev, b):
			held++
			if !slices.ContainsFunc(dev.Holders, func(h ledger.Holder) bool { return !h.Ending(n.now) }) {
				freeing++
			}
		case taint != nil && b != emptyHealthy:
			sick, example = sick+1, fmt.Sprintf("device %s has taint %s:%s", dev.ID.Device, taint.Key, taint.Effect)
		}
	}
	switch {
	case lost > 0 && int64(len(n.matching))-lost < per:
		return stop{reason: lostAs, message: fmt.Sprintf("node %s: its driver has published no complete pool with %d of %d devices since it last did", name, lost, len(n.matching))}
	case sick > 0 && int64(len(n.matching))-sick < per:
		return stop{reason: v1alpha1.ReasonDevicesUnhealthy, message: fmt.Sprintf("node %s: %d of %d devices cannot be given; %s", name, sick, len(n.matching), example)}
	case foreign > 0:
		return stop{reason: v1alpha1.ReasonForeignUse, message: fmt.Sprintf("node %s: %d of %d devices are held by pods that Kueue does not manage", name, foreign, len(n.matching))}
	case freeing > 0 && int64(len(n.matching))-held-sick+freeing >= per:
		return stop{reason: v1alpha1.ReasonDevicesFreeing, message: fmt.Sprintf("node %s: %d of %d devices are held by pods that are ending", name, freeing, len(n.matching))}
	}
	return stop{reason: v1alpha1.ReasonDevicesInUse, message: fmt.Sprintf("node %s: %d of %d devices are in use, a pod asks for %d", name, held, len(n.matching), per)}
}
