package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// byClass has a node serve the podset's plain devices by DeviceClass, where it lists none of them itself: kube-scheduler
// makes a claim for them, which nobody can narrow. So the node lends only where all devices that the class selects are of
// the flavor, and any of them may be given.
func (d *Decider) byClass(s *ledger.Snapshot, p *flavors.Policy, f *nodeFit, name corev1.ResourceName) {
	class := s.ClassOn(f.node, name)
	if class == nil || f.departed {
		return
	}
	f.plugin, f.byNumber = "", name
	w := want{windows: f.windows, references: 1, Chosen: flavors.Chosen{Claim: len(f.specs), Name: string(name),
		Alternative: flavors.Alternative{Class: class.Name, Count: p.PlainDevices(f.ps.Shape)}}}
	f.specs = append(slices.Clone(f.specs), extendedClaim(class.Name, w.Count))
	expressions := ClassSelectors(class)
	for _, list := range [][]ledger.Device{f.node.Devices, f.node.Lost} {
		for i := range list {
			dev := &list[i]
			ok, err := d.Matcher.Selects(dev, expressions...)
			if ok && dev.Unusable != "" && dev.WholeOf(f.node) {
				ok = false // its parts are selected by themselves
			}
			switch {
			case err != nil:
				f.err = err
				return
			case !ok:
			case f.spans != "":
			case !slices.Contains(f.devices, dev):
				f.spans = fmt.Sprintf("node %s: DeviceClass %s, which serves %s, also selects device %s, which is not of the flavor: the scheduler might give that", f.node.Name, class.Name, name, dev.ID.Device)
			case unnumbered(dev) != "":
				f.spans = fmt.Sprintf("node %s: DeviceClass %s, which serves %s, also selects device %s: %s", f.node.Name, class.Name, name, dev.ID.Device, unnumbered(dev))
			default:
				w.matching = append(w.matching, dev)
			}
		}
	}
	f.wants = append(f.wants, w)
	if w.Count > resourcev1.AllocationResultsMaxSize {
		f.spans = fmt.Sprintf("a pod asks for %d of %s, which DeviceClass %s serves by a claim of at most %d devices", w.Count, name, class.Name, resourcev1.AllocationResultsMaxSize)
	}
}

// both says that the podset's pods ask for the same devices by name and by number. Of several such pods each would wait for the
// other: kube-scheduler may give to one by number what another was promised by name, as long as that is not there.
func (n *nodeFit) both() bool {
	if n.byNumber == "" {
		return false
	}
	numbered := n.wants[len(n.wants)-1].matching
	return slices.ContainsFunc(n.wants[:len(n.wants)-1], func(w want) bool {
		return slices.ContainsFunc(w.matching, func(d *ledger.Device) bool { return slices.Contains(numbered, d) })
	})
}

// bothWays counts the pods of such podsets.
func bothWays(parts []part) int32 {
	var pods int32
	for _, p := range parts {
		if p.fit.both() {
			pods += p.k
		}
	}
	return pods
}

// entangled says which promise keeps such a pod waiting in a book, since it is for such a pod itself; empty for none.
func (n *nodeFit) entangled(b book) string {
	if !n.both() {
		return ""
	}
	type ways struct{ named, numbered bool }
	by := map[types.UID]*ways{}
	for _, dev := range n.wants[len(n.wants)-1].matching {
		for i := range dev.Holders {
			h := &dev.Holders[i]
			if h.Kind != ledger.HolderPlacement || h.UID == "" || !n.keeps(h, b) {
				continue
			}
			if by[h.UID] == nil {
				by[h.UID] = &ways{}
			}
			by[h.UID].named = by[h.UID].named || h.Resource == ""
			by[h.UID].numbered = by[h.UID].numbered || h.Resource != ""
			if by[h.UID].named && by[h.UID].numbered {
				return fmt.Sprintf("node %s: a pod of Workload %s is about to be given such devices by claim and as %s: one at a time", n.node.Name, h.Name, n.byNumber)
			}
		}
	}
	return ""
}

// unnumbered says why a device cannot be promised by number, as the scheduler gives it for an extended resource; empty where
// it can be.
func unnumbered(d *ledger.Device) string {
	switch {
	case d.Unusable != "":
		return d.Unusable
	case len(d.Spec.ConsumesCounters) > 0:
		return "it draws on shared counters, so that how many can be given is not a number"
	case d.Multiple():
		return "it allows multiple allocations, so that how many can be given is not a number"
	case d.Mappings != nil:
		return "it takes some of the node's own resources, and kube-scheduler schedules no pod that is given such a device for an extended resource"
	}
	return ""
}

// extendedClaim is the claim that kube-scheduler makes for a pod's devices of one class. It has a request for each
// container there; what they are given is the same.
func extendedClaim(class string, count int64) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "extended", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count},
	}}}}
}

// plugged returns the devices of a node that a device plugin lends: those of a class whose extended resource the node
// lists. Plugin and pool are the same hardware, and it lends by the plugin alone.
func (d *Decider) plugged(s *ledger.Snapshot, n *ledger.Node) map[*ledger.Device]corev1.ResourceName {
	var out map[*ledger.Device]corev1.ResourceName
	for name, count := range n.Allocatable {
		if count == 0 || !ledger.IsExtended(name) {
			continue
		}
		class := s.ClassFor(name)
		if class == nil {
			continue
		}
		for i := range n.Devices {
			dev := &n.Devices[i]
			if ok, err := d.Matcher.Selects(dev, ClassSelectors(class)...); err == nil && ok {
				if out == nil {
					out = map[*ledger.Device]corev1.ResourceName{}
				}
				if had, known := out[dev]; !known || name < had {
					out[dev] = name
				}
			}
		}
	}
	return out
}

// Foresee says why a pod that would be given devices by number on a node must not be released now; nil where it may. On
// the accounts as they are, kube-scheduler's allocator is asked which devices it would give: none of them may be promised
// to anyone by name, nor held for a pod that was released; those promised by number for the same resource may be, since
// the pod leaves as many of its own. While another such pod on the node has no devices yet, what this one would be given
// is not known. own are the devices that the pod's other claims are cut to, placement is the uid of its Placement.
func (d *Decider) Foresee(ctx context.Context, s *ledger.Snapshot, e Extended) *Trouble {
	n := s.Node(e.Node)
	if n == nil {
		return &Trouble{Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("node %s is gone", e.Node), NodeGone: true}
	}
	wait := func(reason v1alpha1.Reason, format string, args ...any) *Trouble {
		return &Trouble{Reason: reason, Message: fmt.Sprintf("node %s: ", e.Node) + fmt.Sprintf(format, args...)}
	}
	class := s.ClassFor(corev1.ResourceName(e.Resource))
	switch {
	case n.Allocatable[corev1.ResourceName(e.Resource)] > 0:
		return wait(v1alpha1.ReasonForeignUse, "a device plugin lists %s by now, which a DeviceClass was to serve", e.Resource)
	case class == nil:
		return wait(v1alpha1.ReasonDeviceClassNotFound, "no DeviceClass serves %s any more", e.Resource)
	case n.Unallocated > 0:
		return wait(v1alpha1.ReasonDevicesInUse, "another pod is about to be given devices for %s", e.Resource)
	}
	f := &nodeFit{node: n, classes: classLister{s.Classes()}}
	offer := map[ledger.DeviceID]int64{}
	for i := range n.Devices {
		allocated := slices.ContainsFunc(n.Devices[i].Holders, func(h ledger.Holder) bool { return h.Kind == ledger.HolderClaim })
		if !allocated && !slices.Contains(e.Own, n.Devices[i].ID) {
			offer[n.Devices[i].ID] = 0
		}
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}, Spec: extendedClaim(class.Name, e.Count)}
	results, err := d.ask(&stepping{Context: ctx}, f, f.asListed(offer), []*resourcev1.ResourceClaim{claim})
	if err != nil || len(results) != 1 {
		return wait(v1alpha1.ReasonDevicesInUse, "the scheduler would find no %d devices for %s", e.Count, e.Resource)
	}
	for _, r := range results[0].Devices.Results {
		dev := n.Device(ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
		if dev == nil {
			continue
		}
		for _, h := range dev.Holders {
			if h.UID != e.Placement && h.Resource != e.Resource || h.UID == e.Placement && h.Resource == "" {
				return wait(v1alpha1.ReasonDevicesInUse, "the scheduler would give device %s for %s, which is promised to another pod", r.Device, e.Resource)
			}
		}
		if d.Matcher.FlavorOf(e.Policy, dev) != e.Flavor {
			return wait(v1alpha1.ReasonClaimUnsupported, "the scheduler would give device %s for %s, which is not of flavor %s", r.Device, e.Resource, e.Policy.Flavors[e.Flavor].Name)
		}
	}
	return nil
}

// Extended is a pod that is to be given devices by number.
type Extended struct {
	Policy *flavors.Policy
	// Flavor is an index into the Policy's flavors.
	Flavor int
	Node   string
	// Resource is what its containers ask for, and Count how many.
	Resource string
	Count    int64
	// Own are the devices that its own claims are cut to.
	Own []ledger.DeviceID
	// Placement is the uid of its Placement.
	Placement types.UID
}

// asListed returns the node's slices with only the given devices, in the order in which they are listed: that of the
// allocator's choice.
func (n *nodeFit) asListed(give map[ledger.DeviceID]int64) []*resourcev1.ResourceSlice {
	var out []*resourcev1.ResourceSlice
	for _, p := range n.node.Pools {
		if p.State != ledger.PoolFresh {
			continue
		}
		for _, s := range p.Slices {
			c := &resourcev1.ResourceSlice{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
			c.Spec.Devices = slices.DeleteFunc(slices.Clone(s.Spec.Devices), func(dev resourcev1.Device) bool {
				_, ok := give[ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: dev.Name}]
				return !ok
			})
			for i := range c.Spec.Devices { // those of rules among them
				c.Spec.Devices[i].Taints = n.taintsOf(s, c.Spec.Devices[i].Name)
			}
			out = append(out, c)
		}
	}
	return out
}
