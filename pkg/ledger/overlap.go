package ledger

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Overlap is two promises of one device, as two managers may write them across a lost lease.
type Overlap struct {
	// Winner keeps the device, Loser is to be withdrawn. Both are promises.
	Winner, Loser Holder
	// Node and Device are the first that both are promised.
	Node   string
	Device DeviceID
}

// Overlaps settles which of the promises that share a device stay: those on whose shared devices a claim or a released pod of
// their Workload is already come first, then those of the earlier creationTimestamp, then those of the lower uid; one that
// shares a device with one before it that stays is the Loser. They are in order of the losers' uids, each once, with the first
// of its winners. So whatever the order in which promises and pods were seen, of two that overlap exactly one stays, and it is
// always the same.
//
// Devices that allow several allocations are shared as long as there is room, and a node's other resources are not told apart by
// promise: where they do not suffice, whichever promise is looked at first is one that is not kept, and not an Overlap.
func (s *Snapshot) Overlaps() []Overlap {
	var shared []contested
	claims := map[types.UID]*claimant{}
	for _, n := range s.Nodes() {
		if !n.shared {
			continue
		}
		for _, list := range [3][]Device{n.Devices, n.Lost, n.Withheld} {
			for i := range list {
				if list[i].promisedTwice() {
					shared = append(shared, list[i].contested(n.Name, claims))
				}
			}
		}
	}
	if len(shared) == 0 {
		return nil
	}
	by := map[types.UID][]*contested{}
	for i := range shared {
		for _, uid := range shared[i].promises {
			by[uid] = append(by[uid], &shared[i])
		}
	}
	order := slices.Collect(maps.Values(claims))
	slices.SortFunc(order, compareClaimants)
	var out []Overlap
	for _, c := range order {
		if o := c.loses(by[c.promise.UID], claims); o != nil {
			out = append(out, *o)
			continue
		}
		c.stays = true
	}
	slices.SortFunc(out, func(x, y Overlap) int { return cmp.Compare(x.Loser.UID, y.Loser.UID) })
	return out
}

// contested is a device that several promises have.
type contested struct {
	node     string
	device   DeviceID
	promises []types.UID
}

// claimant is one of several promises of a device.
type claimant struct {
	promise Holder
	// used says that a claim or a released pod of its Workload is on one of the devices that it shares.
	used, stays bool
}

func compareClaimants(x, y *claimant) int {
	if x.used != y.used {
		if x.used {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.promise.Created, y.promise.Created), cmp.Compare(x.promise.UID, y.promise.UID))
}

// promisedTwice says whether several promises have a device of a node that allows one allocation.
func (n *Node) promisedTwice() bool {
	for _, list := range [3][]Device{n.Devices, n.Lost, n.Withheld} {
		for i := range list {
			if list[i].promisedTwice() {
				return true
			}
		}
	}
	return false
}

// promisedTwice says whether several promises have a device that allows one allocation.
func (d *Device) promisedTwice() bool {
	first := types.UID("")
	for i := range d.Holders {
		switch h := &d.Holders[i]; {
		case !h.promise() || h.UID == first:
		case first != "":
			return !d.Multiple()
		default:
			first = h.UID
		}
	}
	return false
}

// contested notes the promises of a device that several have.
func (d *Device) contested(node string, claims map[types.UID]*claimant) contested {
	c := contested{node: node, device: d.ID}
	for i := range d.Holders {
		h := &d.Holders[i]
		if !h.promise() || slices.Contains(c.promises, h.UID) {
			continue
		}
		c.promises = append(c.promises, h.UID)
		if claims[h.UID] == nil {
			claims[h.UID] = &claimant{promise: *h}
		}
		claims[h.UID].used = claims[h.UID].used || d.usedBy(h.Workload)
	}
	return c
}

// promise says that a holder is a Placement that is written; one that is about to be has no uid.
func (h *Holder) promise() bool { return h.Kind == HolderPlacement && h.UID != "" }

// usedBy says whether a claim or a released pod of a Workload has the device and is not about to give it back.
func (d *Device) usedBy(workload types.UID) bool {
	return slices.ContainsFunc(d.Holders, func(h Holder) bool {
		return h.Kind != HolderPlacement && h.Workload == workload && workload != "" && !h.Freeing
	})
}

// loses returns what a promise loses to one that stays, the first of them in order; nil for nothing.
func (c *claimant) loses(shared []*contested, claims map[types.UID]*claimant) *Overlap {
	var best *Overlap
	for _, s := range shared {
		for _, uid := range s.promises {
			x := claims[uid]
			if !x.stays || best != nil && compareClaimants(x, claims[best.Winner.UID]) >= 0 {
				continue
			}
			best = &Overlap{Winner: x.promise, Loser: c.promise, Node: s.node, Device: s.device}
		}
	}
	return best
}
