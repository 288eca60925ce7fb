package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// most returns how many pods of a podset a node takes in a book, and what stopped the next one. What it returns is read-only.
func (d *Decider) most(ctx context.Context, n *nodeFit, b book) *taking {
	if n.taken[b] == nil {
		t := &taking{}
		t.pods, t.stop = d.count(ctx, n, b)
		t.free = n.free(b)
		if ctx.Err() != nil { // a search that was ended from outside says nothing about the node
			return t
		}
		n.taken[b] = t
	}
	return n.taken[b]
}

// taking is how many pods a node takes, and what stopped the next one.
type taking struct {
	pods int32
	stop stop
	// free is how many of the devices that the podset may have are free.
	free int
}

// count works most out. Counts bound it first: the allocator's search takes exponential time where a count alone rules the
// claims out.
func (d *Decider) count(ctx context.Context, n *nodeFit, b book) (int32, stop) {
	if n.err != nil {
		return 0, stop{reason: v1alpha1.ReasonClaimUnsupported, message: n.err.Error()}
	}
	if n.departed && !n.available(b) {
		return 0, stop{}
	}
	if n.unavailable != "" && !n.available(b) {
		return 0, stop{reason: v1alpha1.ReasonNodeUnavailable, message: n.unavailable, full: n.meant}
	}
	if n.spans != "" {
		return 0, stop{reason: v1alpha1.ReasonClaimUnsupported, message: n.spans}
	}
	count := int64(n.ps.Count)
	room := n.room(b)
	limit, scarce := room.Times(n.least(b), count)
	var why stop
	if limit < count {
		why = n.roomStop(room, scarce, b)
	}
	for i := range n.wants {
		w := &n.wants[i]
		if byDevices := w.count(b) / w.Count; byDevices < limit || byDevices == 0 {
			limit, why = min(limit, byDevices), d.deviceStop(n, w, b, byDevices)
		}
	}
	if limit > 0 && !d.distinct(n, b) {
		return 0, stop{reason: v1alpha1.ReasonClaimUnsupported, message: fmt.Sprintf("node %s: no attribute tells its devices apart, so a claim cannot be cut to those promised", n.node.Name)}
	}
	return d.largest(ctx, n, b, bounded(int(limit)), why)
}

// distinct says whether the podset's claims can be cut to single devices of the node, as a book has it.
func (d *Decider) distinct(n *nodeFit, b book) bool {
	known := map[string]bool{}
	for i := range n.wants {
		if n.wants[i].Name == string(n.byNumber) {
			continue
		}
		for _, dev := range n.wants[i].matching {
			if _, ok := known[dev.ID.Driver]; !ok {
				known[dev.ID.Driver] = d.tellsApart(n, dev.ID.Driver, b)
			}
			if !known[dev.ID.Driver] {
				return false
			}
		}
	}
	return true
}

// tellsApart says whether an attribute tells the devices of a driver apart that the node has in a book. What was lost and is not
// expected back does not count: a pool that goes on under another name lists the same devices.
func (d *Decider) tellsApart(n *nodeFit, driver string, b book) bool {
	key, whole := inventoryOf(n.node, driver)
	if !whole {
		return n.tellsApart(driver, b)
	}
	apart, known := d.memory.apart[key]
	if !known {
		if apart = n.tellsApart(driver, b); d.memory.apart == nil || len(d.memory.apart) >= maxRemembered {
			d.memory.apart = map[inventory]bool{}
		}
		d.memory.apart[key] = apart
	}
	return apart
}

// inventory names a driver's devices of a node that one slice lists.
type inventory struct {
	slice   types.UID
	version string
}

// inventoryOf returns the slice that lists all devices of a driver on a node; false where it is not one slice, where it lists
// others too, or where something was lost.
func inventoryOf(n *ledger.Node, driver string) (inventory, bool) {
	var s *resourcev1.ResourceSlice
	count := 0
	for i := range n.Devices {
		if n.Devices[i].ID.Driver != driver {
			continue
		}
		if s == nil {
			s = n.Devices[i].Slice
		}
		if n.Devices[i].Slice != s {
			return inventory{}, false
		}
		count++
	}
	if s == nil || len(n.Lost) > 0 || count != len(s.Spec.Devices) || s.UID == "" || s.ResourceVersion == "" {
		return inventory{}, false
	}
	return inventory{s.UID, s.ResourceVersion}, true
}

// tellsApart is that of the Decider, worked out.
func (n *nodeFit) tellsApart(driver string, b book) bool {
	if b == emptyHealthy {
		return flavors.Distinct(driver, n.node.Devices) || flavors.Distinct(driver, n.node.Lost)
	}
	gone := func(d ledger.Device) bool { return !n.back(d.Lost, b) }
	return flavors.Distinct(driver, slices.Concat(n.node.Devices, slices.DeleteFunc(slices.Clone(n.node.Lost), gone)))
}

// largest returns the most pods, up to limit, whose requests can be served together; why is what set the limit.
func (d *Decider) largest(ctx context.Context, n *nodeFit, b book, limit int32, why stop) (int32, stop) {
	known := map[int32]answer{}
	fits := func(k int32) answer {
		_, known[k] = shareOut([]part{{n, k}}, b)
		return known[k]
	}
	// Fewer pods fit wherever more do.
	low, high := int32(0), limit
	if limit > 0 && fits(limit) != no {
		low = limit
	}
	for low < high-1 {
		if middle := low + (high-low)/2; fits(middle) != no {
			low = middle
		} else {
			high = middle
		}
	}
	if low < limit {
		why = d.contended(n, b, low)
	}
	if n.counted() || n.mapped() {
		return d.searchLargest(ctx, n, b, low, why)
	}
	if n.simple() && known[low] == yes { // what is placed is held against the allocator then
		return low, why
	}
	for k := low; k > 0; k-- {
		switch _, a := d.allocate(ctx, []part{{n, k}}, b); a {
		case yes:
			return k, why
		case undecided:
			why = stop{reason: v1alpha1.ReasonUndecided, message: fmt.Sprintf("node %s: the search for devices of %s together was cut short", n.node.Name, plural(k, "pod"))}
		default:
			why = d.contended(n, b, k-1)
		}
	}
	return 0, why
}

// contended says why a node has no devices for one more pod than the given number, though each request by itself has
// enough.
func (d *Decider) contended(n *nodeFit, b book, pods int32) stop {
	total := want{windows: &windows{}, matching: n.matching()}
	for i := range n.wants {
		total.Count += n.wants[i].Count
		total.Tolerations = append(total.Tolerations, n.wants[i].Tolerations...)
	}
	if total.count(b) < total.Count*int64(pods+1) {
		return d.deviceStop(n, &total, b, int64(pods))
	}
	if len(n.constraints) > 0 {
		var names []string
		for _, c := range n.constraints {
			names = append(names, c.name)
		}
		return stop{reason: v1alpha1.ReasonConstraintUnsatisfied, message: fmt.Sprintf("node %s: constraint %s leaves devices for %s of %d each",
			n.node.Name, strings.Join(names, ", "), plural(pods, "pod"), total.Count)}
	}
	return stop{reason: v1alpha1.ReasonConstraintUnsatisfied, message: fmt.Sprintf("node %s: its devices serve the requests of %s together, not of one more", n.node.Name, plural(pods, "pod"))}
}

// available says whether a node that is unavailable counts as there in a book.
func (n *nodeFit) available(b book) bool {
	switch {
	case n.meant:
		return false
	case b == emptyHealthy:
		return !n.departed || slices.ContainsFunc(n.devices, func(d *ledger.Device) bool { return n.back(d.Lost, b) })
	}
	return n.absentSince != nil && n.back(*n.absentSince, b)
}

// roomStop says that a node has too little of a resource for one more pod. Devices that a device plugin serves are told
// as devices.
func (n *nodeFit) roomStop(room ledger.Amounts, scarce corev1.ResourceName, b book) stop {
	name, per := n.node.Name, n.least(b)[scarce]
	if scarce != n.plugin {
		return stop{reason: v1alpha1.ReasonNodeResources, message: fmt.Sprintf("node %s: a pod asks for %s of %s, %s is free", name,
			amount(scarce, per), scarce, amount(scarce, max(0, room[scarce])))}
	}
	all, free := n.node.Allocatable[scarce], max(0, room[scarce])
	switch pods := free / per; {
	case all < per:
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, full: true, message: fmt.Sprintf("node %s has %d of %s, a pod asks for %d", name, all, scarce, per)}
	case all < per*(pods+1):
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, full: true,
			message: fmt.Sprintf("node %s has %d of %s, enough for %s of %d each", name, all, scarce, plural(bounded(int(pods)), "pod"), per)}
	case b != asIs:
		return stop{reason: v1alpha1.ReasonForeignUse, message: fmt.Sprintf("node %s: %d of %d %s are held by pods that Kueue does not manage", name, all-free, all, scarce)}
	}
	return stop{reason: v1alpha1.ReasonDevicesInUse, message: fmt.Sprintf("node %s: %d of %d %s are in use, a pod asks for %d", name, all-free, all, scarce, per)}
}

// count returns how many devices can be given to the request in a book.
func (w *want) count(b book) int64 {
	var c int64
	for _, dev := range w.matching {
		if w.given(dev, b) {
			c++
		}
	}
	return c
}

// tainted returns the taint for which the allocator would not give a device, or nil: its own, or that of the card that it is a
// part of.
func tainted(tolerations []resourcev1.DeviceToleration, dev *ledger.Device) *resourcev1.DeviceTaint {
	for _, taints := range [2][]resourcev1.DeviceTaint{dev.Taints, dev.Inherited} {
		for i := range taints {
			t := &taints[i]
			if t.Effect != resourcev1.DeviceTaintEffectNoSchedule && t.Effect != resourcev1.DeviceTaintEffectNoExecute {
				continue
			}
			if !slices.ContainsFunc(tolerations, func(tol resourcev1.DeviceToleration) bool { return resourceclaim.ToleratesTaint(tol, *t) }) {
				return t
			}
		}
	}
	return nil
}

// deviceStop says why a node has too few devices of a request for one more pod than the given number.
func (d *Decider) deviceStop(n *nodeFit, w *want, b book, pods int64) stop {
	name, per := n.node.Name, w.Count
	if len(n.devices) == 0 { // nothing is remembered of them either
		for i := range n.node.Pools {
			if s := poolStop(n.node, n.node.Pools[i].Driver, n.node.Pools[i].Name); s.reason != "" {
				return s
			}
		}
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, full: true, message: fmt.Sprintf("node %s lists no device of this flavor", name)}
	}
	if len(w.matching) == 0 {
		which := ""
		if len(n.wants) > 1 {
			which = fmt.Sprintf(" of request %s", w.Name)
		}
		return stop{reason: v1alpha1.ReasonSelectorMismatch, full: true, message: fmt.Sprintf("node %s: none of %d devices matches the class and the selectors%s", name, len(n.devices), which)}
	}
	if int64(len(w.matching)) < per {
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, full: true, message: fmt.Sprintf("node %s has %d such devices, a pod asks for %d", name, len(w.matching), per)}
	}
	if int64(len(w.matching)) < per*(pods+1) {
		return stop{reason: v1alpha1.ReasonNotEnoughDevices, full: true,
			message: fmt.Sprintf("node %s has %d such devices, enough for %s of %d each", name, len(w.matching), plural(bounded(int(pods)), "pod"), per)}
	}
	var held, freeing, foreign, sick, lost int64
	example, away := "", (*ledger.Device)(nil)
	var plugin corev1.ResourceName
	for _, dev := range w.matching {
		listed, plugged := w.plugged[dev]
		switch taint := tainted(w.Tolerations, dev); {
		case plugged && b != emptyHealthy:
			plugin = listed
		case !dev.Lost.IsZero() && !n.back(dev.Lost, b):
			lost, away = lost+1, dev
		case dev.Unusable != "":
			sick, example = sick+1, fmt.Sprintf("device %s: %s", dev.ID.Device, dev.Unusable)
		case w.mistaken[dev.ID]:
			sick, example = sick+1, fmt.Sprintf("device %s: kube-scheduler looks it up by pool and name alone, and another is listed by these that takes otherwise of the node's own resources", dev.ID.Device)
		case w.unreferred(dev):
			sick, example = sick+1, fmt.Sprintf("device %s takes some of the node's own resources, and kube-scheduler gives no such device to a claim that no container refers to", dev.ID.Device)
		case w.outgrows(dev) != "":
			sick, example = sick+1, fmt.Sprintf("device %s takes some of the node's own %s, of which the pod as a whole has an amount in spec.resources that has to cover it: ask for it by container instead", dev.ID.Device, w.outgrows(dev))
		case n.overdue(dev) && b != emptyHealthy:
			sick, example = sick+1, fmt.Sprintf("device %s is held by a pod that should have ended by now", dev.ID.Device)
		case !n.usable(dev, b) && b == managedGone:
			foreign++
		case !n.usable(dev, b):
			held++
			if len(dev.Holders) > 0 && !slices.ContainsFunc(dev.Holders, func(h ledger.Holder) bool { return !h.Ending(n.now) }) {
				freeing++
			}
		case taint != nil && b != emptyHealthy:
			sick, example = sick+1, fmt.Sprintf("device %s has taint %s:%s", dev.ID.Device, taint.Key, taint.Effect)
		}
	}
	switch {
	case plugin != "":
		return stop{reason: v1alpha1.ReasonForeignUse, message: fmt.Sprintf("node %s lists %s: its device plugin lends these devices, not the pool", name, plugin)}
	case lost > 0 && int64(len(w.matching))-lost < per:
		return lostStop(n.node, away, lost, int64(len(w.matching)))
	case sick > 0 && int64(len(w.matching))-sick < per*(pods+1):
		return stop{reason: v1alpha1.ReasonDevicesUnhealthy, message: fmt.Sprintf("node %s: %d of %d devices cannot be given; %s", name, sick, len(w.matching), example)}
	case foreign > 0:
		return stop{reason: v1alpha1.ReasonForeignUse, message: fmt.Sprintf("node %s: %d of %d devices are held by pods that Kueue does not manage", name, foreign, len(w.matching))}
	case freeing > 0 && int64(len(w.matching))-held-sick+freeing >= per:
		return stop{reason: v1alpha1.ReasonDevicesFreeing, message: fmt.Sprintf("node %s: %d of %d devices are held by pods that are ending", name, freeing, len(w.matching))}
	}
	return stop{reason: v1alpha1.ReasonDevicesInUse, message: fmt.Sprintf("node %s: %d of %d devices are in use, a pod asks for %d", name, held, len(w.matching), per)}
}
