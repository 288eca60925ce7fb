package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// maxNamed is how many claims a flag names.
const maxNamed = 3

// twice flags what was seen a second time of a node's devices: one that allows one allocation and is in those of several
// claims, a share that is in those of several, and what one claim's allocation lists again. Each counts as held once, whoever
// else has it.
func (n *Node) twice() []Flag {
	var flags []Flag
	for _, list := range [2][]Device{n.Devices, n.Withheld} { // what is lost is history, which a book that was filled anew does not know
		for i := range list {
			flags = append(flags, list[i].heldTwice()...)
			flags = append(flags, list[i].listedAgain()...)
		}
	}
	return flags
}

// listedAgain flags claims whose allocations list a device, or a share of it, more than once.
func (d *Device) listedAgain() []Flag {
	var flags []Flag
	for i := range d.Holders {
		if h := &d.Holders[i]; h.again && (i == 0 || d.Holders[i-1].UID != h.UID) {
			flags = append(flags, Flag{Reason: FlagHeldTwice, Object: d.ID.String(),
				Message: fmt.Sprintf("device %s is listed more than once in the allocation of claim %s: it counts once", d.ID, named(h))})
		}
	}
	return flags
}

// once returns a claim in which each device, and each share of one, is allocated once, and notes those that were listed again:
// what a claim takes counts by its uid and the device, however often it is told. A claim without repetition is returned as it is.
func (c *Claim) once() *Claim {
	var again []DeviceID
	allocated := slices.Clone(c.Allocated)
	for i := len(allocated) - 1; i > 0; i-- {
		if slices.Contains(allocated[:i], allocated[i]) {
			again, allocated = append(again, allocated[i]), slices.Delete(allocated, i, i+1)
		}
	}
	shares := slices.Clone(c.Shares)
	for i := len(shares) - 1; i > 0; i-- {
		if slices.ContainsFunc(shares[:i], func(x Share) bool { return x.Device == shares[i].Device && x.ID == shares[i].ID }) {
			again, shares = append(again, shares[i].Device), slices.Delete(shares, i, i+1)
		}
	}
	if len(again) == 0 {
		return c
	}
	x := *c
	x.Allocated, x.Shares, x.Repeated = allocated, shares, again
	return &x
}

// heldTwice flags a device that is in the allocations of more claims than it allows.
func (d *Device) heldTwice() []Flag {
	if len(d.Holders) < 2 {
		return nil
	}
	by := map[types.UID][]*Holder{} // by share; a device that allows one allocation has the empty one
	for i := range d.Holders {
		h := &d.Holders[i]
		if h.Kind != HolderClaim || d.Multiple() && h.Share == "" {
			continue
		}
		share := h.Share
		if !d.Multiple() {
			share = ""
		}
		if !slices.ContainsFunc(by[share], func(x *Holder) bool { return x.UID == h.UID }) {
			by[share] = append(by[share], h)
		}
	}
	var flags []Flag
	for share, claims := range by {
		if len(claims) < 2 {
			continue
		}
		what := "device " + d.ID.String()
		if share != "" {
			what = fmt.Sprintf("share %s of device %s", share, d.ID)
		}
		flags = append(flags, Flag{Reason: FlagHeldTwice, Object: d.ID.String(),
			Message: fmt.Sprintf("%s is allocated to %d claims, %s, and allows but one: it counts as held once", what, len(claims), named(claims...))})
	}
	slices.SortFunc(flags, func(x, y Flag) int { return cmp.Compare(x.Message, y.Message) })
	return flags
}

// named names claims, sorted, the first few of many.
func named(claims ...*Holder) string {
	names := make([]string, len(claims))
	for i, h := range claims {
		names[i] = h.Namespace + "/" + h.Name
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
