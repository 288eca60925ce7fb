package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// DivergenceKind says which two accounts of one thing differ.
type DivergenceKind string

// The kinds.
const (
	// DivergedStatus: what a pod's status says that a claim takes of its node is not what the claim's devices map to.
	DivergedStatus DivergenceKind = "PodStatus"
	// DivergedDevices: a pod has other devices than it was promised.
	DivergedDevices DivergenceKind = "Devices"
	// DivergedNode: a pod is on another node than it was promised, or its claim is allocated where the pod is not.
	DivergedNode DivergenceKind = "Node"
	// DivergedListing: a claim has a device that its pool, which is complete, does not list.
	DivergedListing DivergenceKind = "Listing"
	// DivergedAccounts: the ledger's own sums of a node do not agree.
	DivergedAccounts DivergenceKind = "Accounts"
)

// DivergenceKinds are all kinds, in order.
var DivergenceKinds = []DivergenceKind{DivergedAccounts, DivergedDevices, DivergedListing, DivergedNode, DivergedStatus}

// Divergence is one difference between what the ledger counts and what the cluster says. It may be one in passing: objects that
// change together are seen one after the other.
type Divergence struct {
	Kind DivergenceKind
	// Node is the node in whose accounts it is.
	Node string
	// Namespace and Pod name the pod that it is about; empty for one about the node.
	Namespace, Pod string
	// Workload is the name of the Workload whose Placement it concerns, in Namespace, and WorkloadUID its uid; empty for none.
	Workload    string
	WorkloadUID types.UID
	// Message is a sentence with both figures.
	Message string
}

// Divergences returns the differences in the accounts of some nodes as they are, of all where none is named, in order of the
// nodes' names, and then by kind, namespace, pod and message. They are worked out when they are asked for, since few ask.
func (b *Book) Divergences(nodes ...string) []Divergence {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	if len(nodes) == 0 {
		nodes = slices.Collect(maps.Keys(b.viewAt))
	}
	var all []Divergence
	for _, name := range slices.Sorted(slices.Values(nodes)) {
		if at, ok := b.viewAt[name]; ok {
			all = append(all, b.diverge(b.views.at(at))...)
		}
	}
	return all
}

// diverge works out the differences in a node's accounts. The book's lock is held.
func (b *Book) diverge(n *Node) []Divergence {
	found := n.unsummed()
	for uid := range b.podsAt[place{node: n.Name}].all() {
		p := b.pods[uid]
		c := comparison{b: b, n: n, uid: uid, pod: p}
		c.compare()
		found = append(found, c.found...)
	}
	slices.SortFunc(found, func(x, y Divergence) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Pod, y.Pod), cmp.Compare(x.Message, y.Message))
	})
	return found
}

// unsummed says where more is counted for managed Workloads than for all.
func (n *Node) unsummed() []Divergence {
	var out []Divergence
	for name := range n.Managed { // their messages are sorted with the others
		if used := n.Allocatable[name] - n.Free[name]; n.Managed[name] > used {
			out = append(out, Divergence{Kind: DivergedAccounts, Node: n.Name, Message: fmt.Sprintf(
				"node %s: %s is counted for managed Workloads, and %s for all that is on it", n.Name, figure(name, n.Managed[name]), figure(name, used))})
		}
	}
	return out
}

// comparison holds one bound pod against what else is known of it.
type comparison struct {
	b   *Book
	n   *Node
	uid types.UID
	pod *Pod

	workload types.UID
	// promised is its Workload's live Placement; nil for none, and for a pod from before it.
	promised *Placement
	found    []Divergence
}

func (c *comparison) say(kind DivergenceKind, format string, args ...any) {
	d := Divergence{Kind: kind, Node: c.n.Name, Namespace: c.pod.Namespace, Pod: c.pod.Name, WorkloadUID: c.workload, Message: fmt.Sprintf(format, args...)}
	if w := c.b.workloads[c.workload]; w != nil {
		d.Workload = w.Name
	}
	c.found = append(c.found, d)
}

func (c *comparison) compare() {
	if c.pod.Terminating {
		return // its claims and its promise go in their own order
	}
	c.workload, _ = c.b.workloadOf(c.pod.Namespace, c.pod.Owner)
	c.promised = c.b.promiseOf(c.workload, c.pod)
	c.node()
	if len(c.pod.Claims) == 0 && len(c.pod.Mapped) == 0 {
		return
	}
	claims := map[string]*Claim{}
	for uid := range c.b.claimOfPod[c.uid].all() {
		if claim := c.b.claims[uid]; claim.Namespace == c.pod.Namespace {
			claims[claim.Name] = claim
		}
	}
	for i, name := range c.pod.Claims {
		claim := claims[name]
		if claim == nil || claim.Allocated == nil {
			continue
		}
		if c.listed(claim) {
			c.devices(claim)
			c.status(claim, c.pod.Referring[i])
		}
	}
	for i := range c.pod.Mapped {
		if s := &c.pod.Mapped[i]; s.anything() && (claims[s.Claim] == nil || claims[s.Claim].Allocated == nil) {
			c.say(DivergedStatus, "pod %s: its status says that claim %s takes %s of node %s, and the claim has no devices", c.pod.Name, s.Claim, figures(s.Amounts), c.n.Name)
		}
	}
}

// promiseOf returns the Placement by which a pod of a Workload has its place; nil for none.
func (b *Book) promiseOf(workload types.UID, p *Pod) *Placement {
	w := b.workloads[workload]
	if w == nil || !b.takesSlot(p, workload) {
		return nil
	}
	for _, uid := range slices.Sorted(b.placedFor[workload].all()) {
		if placed := b.placements[uid]; SameKey(placed.Spec.Key, w.Key) && placed.Namespace == w.Namespace && placed.Name == w.Name {
			return placed
		}
	}
	return nil
}

// node holds the pod's node against those that its podset was promised.
func (c *comparison) node() {
	if c.promised == nil {
		return
	}
	for _, ps := range c.promised.Spec.PodSets {
		if ps.Name != c.pod.PodSet || len(ps.Nodes) == 0 {
			continue
		}
		var nodes []string
		for i := range ps.Nodes {
			if ps.Nodes[i].Name == c.n.Name {
				return
			}
			nodes = append(nodes, ps.Nodes[i].Name)
		}
		slices.Sort(nodes)
		c.say(DivergedNode, "pod %s was promised node %s and is on %s", c.pod.Name, few(nodes), c.n.Name)
	}
}

// listed says whether the ledger can hold a claim's devices against anything: it knows all of them. A complete pool that does
// not list a device any more, or lists it for other nodes, is a difference; a pool that was lost is none.
func (c *comparison) listed(claim *Claim) bool {
	known := true
	for _, id := range claim.all() {
		if c.device(id) != nil {
			continue
		}
		known = false
		at := slices.IndexFunc(c.n.Pools, func(p Pool) bool { return p.Driver == id.Driver && p.Name == id.Pool })
		switch {
		case at >= 0 && c.n.Pools[at].State == PoolFresh:
			c.say(DivergedListing, "pod %s: claim %s has device %s, which generation %d of its pool does not list for node %s",
				c.pod.Name, claim.Name, id, c.n.Pools[at].Generation, c.n.Name)
		case at < 0 && c.b.slicesOf[pool{id.Driver, id.Pool}].len() > 0:
			c.say(DivergedNode, "pod %s is on node %s, and its claim %s has device %s, which is for other nodes", c.pod.Name, c.n.Name, claim.Name, id)
		}
	}
	return known
}

// device returns a device of the node, lent or not; nil for one that it does not have.
func (c *comparison) device(id DeviceID) *Device {
	for _, list := range [3][]Device{c.n.Devices, c.n.Withheld, c.n.Lost} {
		if i, found := slices.BinarySearchFunc(list, id, func(d Device, id DeviceID) int { return compareDeviceIDs(d.ID, id) }); found {
			return &list[i]
		}
	}
	return nil
}

// devices holds a claim's devices against those that it was made for.
func (c *comparison) devices(claim *Claim) {
	if c.workload == "" {
		return
	}
	got := devicesOf(claim.all())
	if claim.Promised != nil {
		if promised := devicesOf(claim.Promised); promised != got {
			c.say(DivergedDevices, "pod %s was promised %s and got %s", c.pod.Name, promised, got)
		}
		return
	}
	if c.promised == nil || claim.Pod != c.uid || claim.extended() {
		return // a claim that a user made, or kube-scheduler
	}
	for _, ps := range c.promised.Spec.PodSets {
		if ps.Name == c.pod.PodSet && len(ps.Nodes) > 0 {
			c.say(DivergedDevices, "pod %s got %s by claim %s, which is not the one that it was promised: someone else wrote it", c.pod.Name, got, claim.Name)
		}
	}
}

// status holds what a claim's devices map to against what the pod's status says.
func (c *comparison) status(claim *Claim, references int) {
	maps := slices.ContainsFunc(claim.all(), func(id DeviceID) bool { return c.device(id).Mappings != nil })
	if !maps && len(c.pod.Mapped) == 0 {
		return
	}
	taken := make([]Taken, 0, len(claim.Allocated)+len(claim.Shares)+len(claim.Admin))
	take := func(id DeviceID, consumed Consumption) {
		taken = append(taken, Taken{Device: id, Mappings: c.device(id).Mappings, Consumed: consumed})
	}
	for _, id := range claim.Allocated {
		take(id, nil)
	}
	for i := range claim.Shares {
		take(claim.Shares[i].Device, claim.Shares[i].Consumed)
	}
	for _, id := range claim.Admin {
		take(id, nil)
	}
	said := Amounts{}
	for i := range c.pod.Mapped {
		if c.pod.Mapped[i].Claim == claim.Name {
			said.Add(c.pod.Mapped[i].Amounts, 1)
		}
	}
	if !maps && len(said) == 0 {
		return
	}
	mapped, err := MappedBy(taken, references)
	if err != nil {
		return // kube-scheduler could not have counted it: the device is kept out, and flagged
	}
	if !sameAmounts(mapped, said) {
		c.say(DivergedStatus, "pod %s: by its devices claim %s takes %s of node %s, by the pod's status %s", c.pod.Name, claim.Name, figures(mapped), c.n.Name, figures(said))
	}
}

func (s *ClaimStatus) anything() bool {
	for _, v := range s.Amounts {
		if v != 0 {
			return true
		}
	}
	return false
}

// all returns the devices of a claim's allocation, each once, those with adminAccess too.
func (c *Claim) all() []DeviceID {
	if len(c.Shares) == 0 && len(c.Admin) == 0 && len(c.Allocated) < 2 {
		return c.Allocated
	}
	ids := slices.Concat(c.Allocated, c.Admin)
	for i := range c.Shares {
		ids = append(ids, c.Shares[i].Device)
	}
	slices.SortFunc(ids, compareDeviceIDs)
	return slices.Compact(ids)
}

// extended says that kube-scheduler made the claim, for a pod's extended resources: by the names that it gives to requests.
func (c *Claim) extended() bool {
	return c.Spec != nil && len(c.Spec.Devices.Requests) > 0 && strings.HasPrefix(c.Spec.Devices.Requests[0].Name, "container-")
}

func sameAmounts(a, b Amounts) bool {
	for _, x := range [2]Amounts{a, b} {
		for name := range x {
			if a[name] != b[name] {
				return false
			}
		}
	}
	return true
}

// figures writes amounts as quantities, in order of their names.
func figures(a Amounts) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != 0 {
			list = append(list, figure(name, a[name]))
		}
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

func figure(name corev1.ResourceName, v int64) string {
	q := resource.NewQuantity(v, resource.DecimalSI)
	switch {
	case name == corev1.ResourceCPU:
		q = resource.NewMilliQuantity(v, resource.DecimalSI)
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || hugepages(name):
		q = resource.NewQuantity(v, resource.BinarySI)
	}
	return fmt.Sprintf("%s %s", name, q.String())
}

// devicesOf names devices, all of them: which they are is the difference.
func devicesOf(ids []DeviceID) string {
	if len(ids) == 0 {
		return "no device"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// few names the first few of many.
func few(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		names = append(slices.Clone(names[:maxNamed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
