package ledger

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the accounts at one version. It is immutable and safe for concurrent use.
type Snapshot struct {
	// Version counts the changes since the book was made; it is local to the process.
	Version int64

	// nodes are in order of their names; at says where each is. Versions with the same nodes share at.
	nodes    nodeList
	at       map[string]int
	departed []*Node
	classes  *Classes
	// rules are in order of their names; read-only.
	rules []*RuleLine
}

// Departed returns nodes that were deleted, in order of their names, with what they listed in Lost. They lend nothing.
func (s *Snapshot) Departed() []*Node { return s.departed }

// Nodes returns the nodes in order of their names. The list is read-only. A node that did not change between two versions is
// the same in both, by pointer.
func (s *Snapshot) Nodes() []*Node { return s.nodes.all() }

// Node returns one node, or nil.
func (s *Snapshot) Node(name string) *Node {
	if i, ok := s.at[name]; ok {
		return s.nodes.at(i)
	}
	return nil
}

// Classes are the DeviceClasses that a snapshot has. It is immutable and safe for concurrent use.
type Classes struct {
	byName map[string]*resourcev1.DeviceClass
}

// DeviceClass returns a class by name, or nil.
func (c *Classes) DeviceClass(name string) *resourcev1.DeviceClass { return c.byName[name] }

// Classes returns the classes. Snapshots of one book between which no class changed have the same, by pointer.
func (s *Snapshot) Classes() *Classes { return s.classes }

// DeviceClass returns a class by name, or nil.
func (s *Snapshot) DeviceClass(name string) *resourcev1.DeviceClass { return s.classes.byName[name] }

// With returns a snapshot in which one Placement that is not written yet also holds its devices, its pods' requests, and what
// its devices map to. It is how a round's later decisions see the earlier ones. requests holds what one pod of each podset
// asks for. A device that several of its pods share is named as often. s is unchanged.
func (s *Snapshot) With(holder Holder, podSets []PodSetClaim) *Snapshot {
	return s.edited(podSets, func(n *Node, ps *PodSetClaim) {
		n.use(Use{Workload: holder.Workload, Requests: ps.Requests, Times: int64(ps.Slots), Placement: holder.UID}, holder.Managed)
	}, func(n *Node, d *Device, at string, referring int) {
		h := holder
		h.at, h.referring = at, referring
		if d.Multiple() {
			h.Consumed = DefaultConsumption(d.Spec)
		}
		d.Holders = append(slices.Clone(d.Holders), h)
		if n.Name == at {
			n.takeMapped(d, &h, 1)
		}
	})
}

// edited returns a snapshot with nodes of its own where podsets have slots, each changed by room and each of their devices
// by lent, which is told for whose pods; devices that other nodes may use as well are changed there too. s is unchanged.
func (s *Snapshot) edited(podSets []PodSetClaim, room func(*Node, *PodSetClaim), lent func(n *Node, d *Device, at string, referring int)) *Snapshot {
	nodes := s.nodes.edit()
	fresh := map[string]bool{}
	own := func(at int) *Node {
		n := nodes.at(at)
		if !fresh[n.Name] {
			fresh[n.Name] = true
			n = n.clone()
			nodes.set(at, n)
		}
		return n
	}
	for i := range podSets {
		ps := &podSets[i]
		at, ok := s.at[ps.Node]
		if !ok {
			continue
		}
		n := own(at)
		room(n, ps)
		wide := false
		for k, id := range ps.Devices {
			if d := n.device(id); d != nil {
				lent(n, d, ps.Node, ps.referring(k))
				wide = wide || d.Wide
			} else {
				wide = true // it may be one of another node
			}
		}
		n.cover()
		if !wide {
			continue
		}
		for j := range nodes.len {
			if other := nodes.at(j); other.Name != ps.Node && slices.ContainsFunc(ps.Devices, func(id DeviceID) bool { return other.device(id) != nil }) {
				other = own(j)
				for k, id := range ps.Devices {
					if d := other.device(id); d != nil {
						lent(other, d, ps.Node, ps.referring(k))
					}
				}
				other.cover()
			}
		}
	}
	return s.of(nodes)
}

// device returns one of the devices that the node may use, or that draw on the same counters elsewhere; nil for none.
func (n *Node) device(id DeviceID) *Device {
	if d := n.Device(id); d != nil {
		return d
	}
	for _, list := range [][]Device{n.Elsewhere, n.Lost} { // what was lost can be promised, since it may come back
		for i := range list {
			if list[i].ID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// of returns the snapshot with other nodes.
func (s *Snapshot) of(nodes *edit) *Snapshot {
	c := *s
	c.nodes = nodes.nodeList
	return &c
}

// Without returns a snapshot in which nothing is held by, promised to or used by the given Workloads, as if their pods had
// ended. s is unchanged.
func (s *Snapshot) Without(workloads map[types.UID]bool) *Snapshot {
	return s.without(workloads, func(w types.UID, _ bool) bool { return workloads[w] || w == orphan }, time.Time{})
}

// orphan stands for whoever had a claim of ours whose pod is gone: it is about to be given back, sooner than anything that is
// yet to end, and nothing says any more whose it was.
const orphan types.UID = "orphan"

// owner returns whose a holder is for Without; empty for what is not Kueue's.
func (h *Holder) owner() types.UID {
	if h.Workload == "" && h.Kind == HolderClaim && h.Managed && h.Freeing {
		return orphan
	}
	return h.Workload
}

// WithoutEnding is Without for what of theirs is ending alone: what else they hold stays, and so does what should have
// ended longer ago than that is waited for.
func (s *Snapshot) WithoutEnding(workloads map[types.UID]bool, now time.Time) *Snapshot {
	return s.without(workloads, func(w types.UID, ending bool) bool { return ending && workloads[w] }, now)
}

func (s *Snapshot) without(workloads map[types.UID]bool, gone func(w types.UID, ending bool) bool, now time.Time) *Snapshot {
	if len(workloads) == 0 {
		return s
	}
	nodes := s.nodes.edit()
	for i := range nodes.len {
		n := nodes.at(i)
		if c := n.without(gone, now); c != n {
			nodes.set(i, c)
		}
	}
	return s.of(nodes)
}

// NodeWithout returns one node as Without has it for one Workload, or nil.
func (s *Snapshot) NodeWithout(name string, workload types.UID) *Node {
	n := s.Node(name)
	if n == nil {
		return nil
	}
	return n.without(func(w types.UID, _ bool) bool { return w == workload }, time.Time{})
}

func (n *Node) without(gone func(w types.UID, ending bool) bool, now time.Time) *Node {
	ends := func(u *Use) bool { return u.Workload != "" && gone(u.Workload, u.Ending(now)) }
	theirs := func(h *Holder) bool { return h.owner() != "" && gone(h.owner(), h.Ending(now)) }
	if !n.has(ends, theirs) {
		return n
	}
	c := n.clone()
	c.Uses = slices.DeleteFunc(c.Uses, func(u Use) bool {
		if !ends(&u) {
			return false
		}
		c.giveBack(&u)
		return true
	})
	for _, list := range [][]Device{c.Devices, c.Lost, c.Withheld, c.Elsewhere} {
		for i := range list {
			if d := &list[i]; slices.ContainsFunc(d.Holders, func(h Holder) bool { return theirs(&h) }) {
				d.Holders = slices.DeleteFunc(slices.Clone(d.Holders), func(h Holder) bool { return theirs(&h) })
			}
		}
	}
	c.cover()
	return c
}

// giveBack undoes what a use takes of the node's resources.
func (n *Node) giveBack(u *Use) {
	n.Free.Add(u.Requests, u.Times)
	if u.managed {
		n.Managed.Add(u.Requests, -u.Times)
	}
	if u.mapped {
		n.Mapped.Add(u.Requests, -u.Times)
	}
}

// has says whether any use of the node's resources or any holder of its devices is one of those asked for.
func (n *Node) has(use func(*Use) bool, holder func(*Holder) bool) bool {
	for i := range n.Uses {
		if use(&n.Uses[i]) {
			return true
		}
	}
	for _, list := range [4][]Device{n.Devices, n.Lost, n.Withheld, n.Elsewhere} {
		for i := range list {
			for j := range list[i].Holders {
				if holder(&list[i].Holders[j]) {
					return true
				}
			}
		}
	}
	return false
}

// PodSetClaim is what one podset takes of one node.
type PodSetClaim struct {
	Node     string
	Slots    int32
	Requests Amounts
	Devices  []DeviceID
	// Referring says of each of Devices how often the containers of its pod refer to its claim; nil for once.
	Referring []int
}

// Node is the accounts of one node. It is read-only.
type Node struct {
	Name string
	// Object is the node; owned by the observer.
	Object *corev1.Node
	// Hostname is the value of its label kubernetes.io/hostname, by which pods are pinned; empty where it has none or
	// another node has the same.
	Hostname string
	// Ready is the node's Ready condition.
	Ready bool
	// Allocatable is what the node lists; Free is that less the requests of its pods and of what is promised;
	// Managed is how much of the difference is for Workloads that Kueue manages. Free may be below zero.
	Allocatable, Free, Managed Amounts
	// Uses is what the difference between Allocatable and Free is made of, in no particular order.
	Uses []Use
	// Devices holds the devices of complete pools, sorted by driver, pool and name.
	Devices []Device
	// Lost holds the devices of pools that were complete once and are not now, as they were, sorted likewise. They lend
	// nothing.
	Lost []Device
	// NotReadySince is when Ready became false by the node's own condition; zero for a node that is Ready, or never was.
	NotReadySince time.Time
	// SeenAt is when this process saw the node first.
	SeenAt time.Time
	// Pools holds the newest generation of each pool, sorted by driver and name.
	Pools []Pool
	// Mapped is how much of the difference between Allocatable and Free is for devices that map to the node's own resources.
	Mapped Amounts
	// Withheld holds the devices of pools that regressed or are impossible, as their slices list them now, sorted likewise. They
	// lend nothing.
	Withheld []Device
	// Elsewhere holds the devices of its wide pools that draw on counters and that other nodes alone may use.
	Elsewhere []Device
	// MappedClaims are the claims for which kube-scheduler counts something against the node's own resources, with the pods on
	// the node that it does so for; sorted by namespace and name.
	MappedClaims []MappedClaim
	// Agents are the pods on the node that no Workload made and that carry labels, sorted by namespace and name: drivers are
	// found among them.
	Agents []Agent
	// AgentsGone are such pods that were there and are not any more, as of the latest; at most maxAgentsGone.
	AgentsGone []Agent
	// Stopped says why kube-scheduler gives up every pod with a claim that is to be allocated; nil where it does not.
	Stopped *Stopped
	// Unallocated is how many pods were released to the node to be given devices by number and have none yet: which they
	// will be given is not known.
	Unallocated int

	// split says that cards are listed whole and in parts.
	split bool
	// shared says that several promises have a device of it that allows one allocation.
	shared bool
	// told holds what an export says of a node that was read from one; nil for others, where it is worked out.
	told   *told
	guises *guises
}

// Use is what one pod, or the open slots of one promise, take of a node's resources.
type Use struct {
	// Workload is whose it is; empty for what Kueue does not manage.
	Workload types.UID
	// Requests is what it takes; owned by the observer.
	Requests Amounts
	// Times is how many times that: 1 for a pod, the number of open slots for a promise.
	Times int64
	// Placement is whose open slots they are; empty for a pod.
	Placement types.UID
	// Freeing and Until are as those of a Holder.
	Freeing bool
	Until   time.Time
	// mapped says that it is what devices map to, remembered that they did and are not listed so now.
	mapped, remembered bool
	managed            bool
}

// Ending says whether a use is freeing and still waited for.
func (u *Use) Ending(now time.Time) bool {
	return u.Freeing && (u.Until.IsZero() || now.Before(u.Until))
}

// Counter is one shared counter of a pool.
type Counter struct {
	Driver, Pool, Set, Name string
	// Total is what its slice lists; Used what the devices draw that are held.
	Total, Used resource.Quantity
}

// NoZone is the number of the Zone that holds what belongs to none.
const NoZone int64 = -1

// Zone is the accounts of one NUMA zone of a node.
type Zone struct {
	// Number is the zone's, or NoZone.
	Number int64
	// Devices and Free are how many devices it has, and how many of them nothing holds.
	Devices, FreeDevices int
	// Allocatable and Free are the parts of the node's that devices of the zone map to; what no device maps to belongs to
	// NoZone.
	Allocatable, Free Amounts
}

// FlagReason says what is odd about a node.
type FlagReason string

// The reasons.
const (
	// FlagServedTwice: the node serves the same cards by a device plugin and by DRA.
	FlagServedTwice FlagReason = "ServedTwice"
	// FlagListedTwice: a card is listed whole and in parts, without counters that tell.
	FlagListedTwice FlagReason = "ListedTwice"
	// FlagHeldTwice: several claims have the same device, which allows but one.
	FlagHeldTwice FlagReason = "HeldTwice"
	// FlagMisnoted: what is noted beside a claim of ours is not what its spec names.
	FlagMisnoted FlagReason = "Misnoted"
	// FlagOverdrawn: a counter, a capacity or a resource is drawn on beyond its total.
	FlagOverdrawn FlagReason = "Overdrawn"
	// FlagImpossible: what a slice lists cannot be, and is kept out.
	FlagImpossible FlagReason = "Impossible"
	// FlagQuirk: kube-scheduler counts something otherwise than it is.
	FlagQuirk FlagReason = "Quirk"
)

// FlagReasons are all reasons, in order.
var FlagReasons = []FlagReason{FlagHeldTwice, FlagImpossible, FlagListedTwice, FlagOverdrawn, FlagQuirk, FlagServedTwice}

// Flag is something odd about a node.
type Flag struct {
	Reason FlagReason
	// Object names what it is about, such as a pool or a device, as driver/pool/device; empty for the node.
	Object  string
	Message string
}

// Agent is a pod on a node among which a driver's is found.
type Agent struct {
	Namespace, Name string
	// Labels is owned by the observer.
	Labels map[string]string
	// Serving is whether it is Ready.
	Serving bool
	// Since is when it was seen to become Ready, or not, or to be gone; zero if it was so when it was seen first.
	Since time.Time
}

// PoolState says whether a pool lends.
type PoolState string

// The states of a pool.
const (
	// PoolFresh lends.
	PoolFresh PoolState = "Fresh"
	// PoolIncomplete lends nothing: slices of its newest generation are missing.
	PoolIncomplete PoolState = "Incomplete"
	// PoolRegressed lends nothing: its newest generation was taken back while slices of an older one are left.
	PoolRegressed PoolState = "Regressed"
	// PoolImpossible lends nothing: what its slices list cannot be; see the node's Flags.
	PoolImpossible PoolState = "Impossible"
)

// Pool is one pool on one node.
type Pool struct {
	Driver, Name string
	Generation   int64
	State        PoolState
	// Slices holds the slices of the generation that concern the node, sorted by name: those with devices for it, and those
	// with the pool's counters.
	Slices []*resourcev1.ResourceSlice
	// Every holds all slices of the pool that kube-scheduler looks at, of every generation and node, sorted by name. By default it
	// does not look at those that cannot be read in full.
	Every []*resourcev1.ResourceSlice
	// Unlike are devices of it by whose names another node lists, in the same pool, some that take otherwise of their node's own
	// resources; nil for none.
	Unlike []string
	// Wide is true where slices of it are for more than this node.
	Wide bool
	// Problem says why it is Impossible; empty for the other states.
	Problem string

	// list is Slices as the book has them.
	list []*slice
}

func (n *Node) clone() *Node {
	c := *n
	c.Free, c.Managed, c.Uses = n.Free.Clone(), n.Managed.Clone(), slices.Clone(n.Uses)
	c.Devices, c.Lost, c.Elsewhere = slices.Clone(n.Devices), slices.Clone(n.Lost), slices.Clone(n.Elsewhere)
	c.Withheld = slices.Clone(n.Withheld)
	c.Mapped, c.guises = n.Mapped.Clone(), &guises{}
	return &c
}

// use takes u from the node's resources.
func (n *Node) use(u Use, managed bool) {
	u.Requests, u.managed = n.Counted(u.Requests), managed
	n.Free.Add(u.Requests, -u.Times)
	if managed {
		n.Managed.Add(u.Requests, u.Times)
	}
	n.Uses = append(n.Uses, u)
}

// listedAs is the state of a pool by what its slices list, whatever it was before.
func (p *Pool) listedAs() PoolState {
	if p.State == PoolRegressed {
		return PoolFresh
	}
	return p.State
}

// Listed returns the devices that the node's complete pools list, also of those that lend nothing for what they were before,
// sorted by driver, pool and name. It is read-only.
func (n *Node) Listed() []Device {
	if len(n.Withheld) == 0 {
		return n.Devices
	}
	all := slices.Concat(n.Devices, n.Withheld)
	slices.SortStableFunc(all, func(x, y Device) int { return compareDeviceIDs(x.ID, y.ID) })
	return all
}

// Eligible returns the devices that kube-scheduler may give on the node, whether or not they are lent: those of regressed pools
// too. It is read-only.
func (n *Node) Eligible() []Device {
	if len(n.Withheld) == 0 {
		return n.Devices
	}
	return slices.Concat(n.Devices, n.Withheld)
}

// Device returns one device of the node, or nil.
func (n *Node) Device(id DeviceID) *Device {
	i, found := slices.BinarySearchFunc(n.Devices, id, func(d Device, id DeviceID) int { return compareDeviceIDs(d.ID, id) })
	if !found {
		return nil
	}
	return &n.Devices[i]
}
