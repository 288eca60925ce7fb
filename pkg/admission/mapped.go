package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// references is how often the podset's containers refer to one of its claims.
func (ps *PodSet) references(claim int) int { return ps.referencesTo(ps.Shape.Claims[claim].Name) }

// referencesTo is references by the claim's name in the pod's spec; 0 where there is no spec.
func (ps *PodSet) referencesTo(name string) int {
	if ps.Spec == nil {
		return 0
	}
	return ledger.Referring(ps.Spec, name)
}

// allReferences is references of each claim of the podset.
func (ps *PodSet) allReferences() []int {
	out := make([]int, len(ps.Shape.Claims))
	for i := range out {
		out[i] = ps.references(i)
	}
	return out
}

// created is the podset's spec as its pods will have it, where they ask for anything as a whole.
func (ps *PodSet) created() *corev1.PodSpec {
	if ps.Spec == nil || ps.Spec.Resources == nil {
		return ps.Spec
	}
	return ledger.AsCreated(ps.Spec)
}

// parts is what the podset's containers ask for beside what its pods ask for as a whole; nil where they ask for nothing so.
func (ps *PodSet) parts() ledger.Amounts {
	created := ps.created()
	if !asWhole(created) {
		return nil
	}
	spec := *created
	spec.Resources = nil
	return ledger.RequestsOf(&corev1.Pod{Spec: spec}, false)
}

// mapped says whether any of the devices that the podset may have takes some of the node's own resources.
func (n *nodeFit) mapped() bool {
	return slices.ContainsFunc(n.matching(), func(d *ledger.Device) bool { return d.Mappings != nil })
}

// least is what one pod takes of the node's own resources at the least: what it asks for, and for each device that it may be
// given the least of what any of them takes, resource by resource.
func (n *nodeFit) least(b book) ledger.Amounts {
	asked := n.requests()
	if !n.mapped() {
		return asked
	}
	asked = asked.Clone()
	for i := range n.wants {
		w := &n.wants[i]
		var low ledger.Amounts
		for _, dev := range w.matching {
			if !w.given(dev, b) {
				continue
			}
			takes := mapsTo(dev, w.references)
			if low == nil {
				low = takes.Clone()
				continue
			}
			for name := range low {
				if low[name] = min(low[name], takes[name]); low[name] == 0 {
					delete(low, name)
				}
			}
		}
		asked.Add(low, w.Count)
	}
	return asked
}

// mapsTo is what a device takes of its node's own resources for a claim that asks for none of its capacities, and to which
// containers refer so often.
func mapsTo(d *ledger.Device, references int) ledger.Amounts {
	return d.Maps(ledger.DefaultConsumption(d.Spec), references)
}

// cost is how much of the resource that was short a device takes of its node; 0 while none was.
func (n *nodeFit) cost(s *resourcev1.ResourceSlice, d *resourcev1.Device) int64 {
	if n.short == "" {
		return 0
	}
	if dev := n.node.Device(ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: d.Name}); dev != nil {
		return mapsTo(dev, n.references())[n.short]
	}
	return math.MaxInt64
}

// references is how often containers of a pod refer to any of its claims, at the most.
func (n *nodeFit) references() int {
	most := 0
	for i := range n.wants {
		most = max(most, n.wants[i].references)
	}
	return most
}

// maxShort is for how many resources that are short the devices that take least of them are looked for.
const maxShort = 4

// serveMapped finds devices such that what they take of the node's own resources is there beside what the pods ask for.
// kube-scheduler does not look for others where the first that it finds take too much, but a claim that is cut to devices
// leaves it no choice: so those that take least of what is short are tried first.
func (d *Decider) serveMapped(ctx context.Context, parts []part, b book) ([][]share, answer) {
	tried := map[corev1.ResourceName]bool{}
	short := corev1.ResourceName("")
	for range maxShort {
		for _, p := range parts {
			p.fit.short = short
		}
		shares, a := d.serveDevices(ctx, parts, b)
		for _, p := range parts {
			p.fit.short = ""
		}
		if a != yes {
			return nil, a
		}
		tried[short] = true
		if short = tooMuch(parts, shares, b); short == "" {
			return shares, yes
		}
		if tried[short] {
			break
		}
	}
	return nil, no
}

// tooMuch returns a resource of which the pods and their devices take more than the node has, or than a pod asks for as a whole;
// empty for none.
func tooMuch(parts []part, shares [][]share, b book) corev1.ResourceName {
	total := ledger.Amounts{}
	for i, p := range parts {
		total.Add(p.fit.requests(), int64(p.k))
		for _, sh := range shares[i] {
			if short := p.fit.uncovered(sh); short != "" {
				return short
			}
			for w := range sh {
				for _, dev := range sh[w] {
					total.Add(mapsTo(dev, p.fit.wants[w].references), 1)
				}
			}
		}
	}
	if k, short := parts[0].fit.room(b).Times(total, 1); k < 1 {
		return short
	}
	return ""
}

// uncovered returns a resource of which a pod asks for less as a whole than its containers and the devices of its share take
// together; empty for none.
func (n *nodeFit) uncovered(sh share) corev1.ResourceName {
	created := n.ps.created()
	if !asWhole(created) {
		return ""
	}
	var claims []corev1.NodeAllocatableResourceClaimStatus
	for c := range n.ps.Shape.Claims {
		var devices []ledger.Taken
		for w := range sh {
			for _, dev := range sh[w] {
				if n.wants[w].Claim == c {
					devices = append(devices, ledger.Taken{Device: dev.ID, Mappings: dev.Mappings, Consumed: ledger.DefaultConsumption(dev.Spec)})
				}
			}
		}
		if list, err := ledger.MappedList(devices, n.ps.references(c)); err == nil && list != nil {
			claims = append(claims, corev1.NodeAllocatableResourceClaimStatus{Resources: list})
		}
	}
	_, short := taken(created, claims)
	return short
}

// uncoveredAtLeast is uncovered for the devices that take least of each resource that a pod asks for as a whole.
func (n *nodeFit) uncoveredAtLeast(b book) corev1.ResourceName {
	created := n.ps.created()
	if !asWhole(created) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(created.Resources.Requests)) {
		least := make(share, len(n.wants))
		for i := range n.wants {
			w := &n.wants[i]
			for _, dev := range w.matching {
				if w.given(dev, b) {
					least[i] = append(least[i], dev)
				}
			}
			slices.SortStableFunc(least[i], func(x, y *ledger.Device) int {
				return cmp.Compare(mapsTo(x, w.references)[name], mapsTo(y, w.references)[name])
			})
			least[i] = least[i][:min(w.Count, int64(len(least[i])))]
		}
		if n.uncovered(least) == name {
			return name
		}
	}
	return ""
}

// searchLargest returns the most pods, up to limit, for which the allocator finds devices; why is what set the limit. Fewer
// pods fit wherever more do.
func (d *Decider) searchLargest(ctx context.Context, n *nodeFit, b book, limit int32, why stop) (int32, stop) {
	low, high, undecidedAt := int32(0), limit+1, int32(0)
	for low < high-1 {
		middle := high - 1 // most of the time all fit
		if high <= limit {
			middle = low + (high-low)/2
		}
		switch _, a := d.allocate(ctx, []part{{n, middle}}, b); a {
		case yes:
			low = middle
		case undecided:
			high, undecidedAt = middle, middle
		default:
			high = middle
		}
	}
	switch {
	case low == limit:
	case undecidedAt == low+1:
		why = stop{reason: v1alpha1.ReasonUndecided, message: fmt.Sprintf("node %s: the search for devices of %s together was cut short", n.node.Name, plural(low+1, "pod"))}
	case n.mapped() && low == 0 && n.uncoveredAtLeast(b) != "":
		why = stop{reason: v1alpha1.ReasonClaimUnsupported, full: true, message: fmt.Sprintf("node %s: a pod asks for less %s as a whole than its containers and its devices take together: ask for more",
			n.node.Name, n.uncoveredAtLeast(b))}
	case n.mapped() && n.scarce(b, low+1) != "":
		short := n.scarce(b, low+1)
		why = stop{reason: v1alpha1.ReasonNodeResources, message: fmt.Sprintf("node %s: what %s and their devices take of %s is not there, %s is free",
			n.node.Name, plural(low+1, "pod"), short, amount(short, max(0, n.room(b)[short])))}
	default:
		why = d.contended(n, b, low)
	}
	return low, why
}

// scarce returns the resource for which so many pods have no room at the least that their devices take; empty for none.
func (n *nodeFit) scarce(b book, pods int32) corev1.ResourceName {
	k, short := n.room(b).Times(n.least(b), int64(pods))
	if k < int64(pods) {
		return short
	}
	return ""
}

// mistakable returns the devices of a node that kube-scheduler 1.36 may take for others when it looks up what they take of the
// node's own resources: by pool and name alone, among the slices of all drivers and generations. Nil for none. They are not
// lent, while others are.
func mistakable(n *ledger.Node) map[ledger.DeviceID]bool {
	if !slices.ContainsFunc(n.Devices, func(d ledger.Device) bool { return d.Mappings != nil }) &&
		!slices.ContainsFunc(n.Pools, func(p ledger.Pool) bool { return len(p.Every) > len(p.Slices) || p.Unlike != nil }) {
		return nil
	}
	var out map[ledger.DeviceID]bool
	for i := range n.Pools {
		for _, device := range n.Pools[i].Unlike {
			if out == nil {
				out = map[ledger.DeviceID]bool{}
			}
			out[ledger.DeviceID{Driver: n.Pools[i].Driver, Pool: n.Pools[i].Name, Device: device}] = true
		}
	}
	for i := range n.Devices {
		if d := &n.Devices[i]; len(namesakes(d.ID, n, []*ledger.Node{n})) > 1 {
			if out == nil {
				out = map[ledger.DeviceID]bool{}
			}
			out[d.ID] = true
		}
	}
	return out
}

// neverBound keeps pods from a node that kube-scheduler 1.36 would choose and then fail to bind them to: those that have claims
// and ask for extended resources that a device plugin serves there and a DeviceClass serves elsewhere. It makes a claim for
// these, which is empty.
func (n *nodeFit) neverBound(s *ledger.Snapshot) {
	if len(n.ps.Shape.Claims) == 0 || n.byNumber != "" || n.spans != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.ps.Requests)) {
		if ledger.IsExtended(name) && n.ps.Requests[name] > 0 && n.node.Allocatable[name] > 0 && s.ClassFor(name) != nil {
			n.spans = fmt.Sprintf("node %s: its device plugin serves %s, as DeviceClass %s does elsewhere, and kube-scheduler never binds a pod there that has claims besides", n.node.Name, name, s.ClassFor(name).Name)
			return
		}
	}
}
