package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// IsExtended says whether a resource is one that a device plugin serves or, by a DeviceClass, the scheduler's own claim.
func IsExtended(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// ClassFor returns the DeviceClass by which pods that ask for an extended resource are given devices; nil without one. Of
// several with that extendedResourceName it is the newest, of equals the first by name, as kube-scheduler has it.
func (s *Snapshot) ClassFor(name corev1.ResourceName) *resourcev1.DeviceClass {
	if class, implicit := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix); implicit {
		return s.classes.byName[class]
	}
	var best *resourcev1.DeviceClass
	for _, class := range s.DeviceClasses() {
		if n := class.Spec.ExtendedResourceName; n == nil || *n != string(name) {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&class.CreationTimestamp) {
			best = class
		}
	}
	return best
}

// ClassOn returns the DeviceClass by which the scheduler serves an extended resource on a node; nil where the node lists
// some of it, so that a device plugin serves it, and where no class does.
func (s *Snapshot) ClassOn(n *Node, name corev1.ResourceName) *resourcev1.DeviceClass {
	if !IsExtended(name) || n.Allocatable[name] != 0 {
		return nil
	}
	return s.ClassFor(name)
}

// DeviceClasses returns the classes in order of their names.
func (s *Snapshot) DeviceClasses() []*resourcev1.DeviceClass {
	list := slices.Collect(maps.Values(s.classes.byName))
	slices.SortFunc(list, func(a, b *resourcev1.DeviceClass) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Counted returns what of a pod's requests counts against the node's own resources: all but extended resources that the
// node does not list, which the scheduler serves by claim or not at all. The result may be a itself.
func (n *Node) Counted(a Amounts) Amounts {
	counted := a
	for name := range a {
		if IsExtended(name) && n.Allocatable[name] == 0 {
			if len(counted) == len(a) {
				counted = a.Clone()
			}
			delete(counted, name)
		}
	}
	return counted
}

// byCount is promises of devices that are held by their number alone: the scheduler chooses them.
type byCount struct {
	holder   Holder
	resource string
	devices  []DeviceID
	// taken are the devices that pods of the podset have been given.
	taken map[DeviceID]bool
}

func (c *byCount) give(devices []DeviceID) {
	for _, d := range devices {
		c.taken[d] = true
	}
}

// countedElsewhere returns the promises by count of another node, holder.at, where devices are among them that a node shares
// with it.
func (b *Book) countedElsewhere(holder Holder, podSet string, requests []v1alpha1.PlacementRequest, shared map[pool]struct{}) []byCount {
	list := slices.DeleteFunc(countedOf(holder, requests), func(c byCount) bool {
		return !slices.ContainsFunc(c.devices, func(d DeviceID) bool { _, ok := shared[pool{d.Driver, d.Pool}]; return ok })
	})
	if len(list) == 0 {
		return nil
	}
	at := &Node{Name: holder.at}
	if o := b.nodes[b.nodeByName[at.Name]]; o != nil {
		if host := o.Node.Labels[corev1.LabelHostname]; b.nodesAt[host].len() == 1 {
			at.Hostname = host
		}
	}
	for uid, p := range b.podsOnNode(at) {
		if w, managed := b.workloadOf(p.Namespace, p.Owner); managed && w == holder.Workload && p.PodSet == podSet && b.takesSlot(p, w) {
			for i := range list {
				list[i].give(b.allocatedTo(uid))
			}
		}
	}
	return list
}

// touchSlots marks the nodes that share devices with those where a pod may have taken a slot whose devices are held by number.
func (b *Book) touchSlots(p *Pod) {
	w, _ := b.workloadOf(p.Namespace, p.Owner)
	for uid := range b.placedFor[w].all() {
		for id := range b.countedIn[uid] {
			if b.isWide(id) {
				b.touchPool(id)
			}
		}
	}
}

func (b *Book) isWide(id pool) bool {
	for uid := range b.slicesOf[id].all() {
		if b.slices[uid].wide() {
			return true
		}
	}
	return false
}

// promiseByCount records such promises. A pod that was given devices hands over as many of its podset's, whichever they
// are; and where it was given another's, that one has what it gave up instead.
func (b *Book) promiseByCount(promised map[DeviceID][]Holder, list []byCount) {
	slices.SortStableFunc(list, func(x, y byCount) int {
		return cmp.Or(cmp.Compare(x.resource, y.resource), cmp.Compare(x.holder.UID, y.holder.UID))
	})
	type need struct {
		holder Holder
		device DeviceID
	}
	given := map[string][]DeviceID{}
	needs := map[string][]need{}
	for _, p := range list {
		left := slices.DeleteFunc(slices.Clone(p.devices), func(d DeviceID) bool { return p.taken[d] })
		keep := max(0, len(p.devices)-len(p.taken))
		slices.SortStableFunc(left, func(x, y DeviceID) int { return cmp.Compare(b.allocated(x), b.allocated(y)) })
		keep = min(keep, len(left))
		for _, d := range left[:keep] {
			if b.allocated(d) > 0 {
				needs[p.resource] = append(needs[p.resource], need{p.holder, d})
				continue
			}
			promised[d] = append(promised[d], p.holder)
		}
		for _, d := range left[keep:] {
			if b.allocated(d) == 0 {
				given[p.resource] = append(given[p.resource], d)
			}
		}
	}
	for resource, list := range needs {
		for i, n := range list {
			if i < len(given[resource]) {
				n.device = given[resource][i]
			}
			promised[n.device] = append(promised[n.device], n.holder)
		}
	}
}

// allocated returns 1 for a device that is in a claim's allocation, else 0.
func (b *Book) allocated(id DeviceID) int {
	for uid := range b.claimsOf[id].all() {
		if b.claims[uid].Allocated != nil {
			return 1
		}
	}
	return 0
}

// allocatedTo returns the devices that a pod's claims hold, less those that were promised to it by name.
func (b *Book) allocatedTo(pod types.UID) []DeviceID {
	var out []DeviceID
	for uid := range b.claimOfPod[pod].all() {
		if c := b.claims[uid]; c.Promised == nil {
			out = append(out, c.Allocated...)
		}
	}
	return out
}

// countedOf returns the promises by count among requests, by the holder.
func countedOf(holder Holder, requests []v1alpha1.PlacementRequest) []byCount {
	var out []byCount
	for _, r := range requests {
		if r.Claim != v1alpha1.ExtendedResourcesClaim {
			continue
		}
		p := byCount{holder: holder, resource: r.Request, taken: map[DeviceID]bool{}}
		p.holder.Resource = r.Request
		for _, s := range r.Devices {
			if id, err := ParseDeviceID(s); err == nil {
				p.devices = append(p.devices, id)
			}
		}
		out = append(out, p)
	}
	return out
}
