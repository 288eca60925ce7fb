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

// twice flags what was seen a second time of a node's devices: a device that allows one allocation and is in those of
// several claims, a share that is in those of several, and a device that one claim's allocation lists more than once. Each
// counts once, whoever else lists it. The book's lock is held.
func (b *Book) twice(n *Node) []Flag {
	var flags []Flag
	for _, list := range [2][]Device{n.Devices, n.Lost} {
		for i := range list {
			d := &list[i]
			flags = append(flags, d.heldTwice()...)
			for _, c := range b.listsTwice(d) {
				flags = append(flags, Flag{Reason: FlagHeldTwice, Object: d.ID.String(),
					Message: fmt.Sprintf("device %s is listed more than once in the allocation of claim %s: it counts once", d.ID, named(c))})
			}
		}
	}
	return flags
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

// listsTwice returns the holders of a device whose claim's allocation lists it more than once.
func (b *Book) listsTwice(d *Device) []*Holder {
	var out []*Holder
	for i := range d.Holders {
		h := &d.Holders[i]
		if h.Kind != HolderClaim || i > 0 && d.Holders[i-1].UID == h.UID {
			continue
		}
		c, n := b.claims[h.UID], 0
		if c == nil {
			continue
		}
		for _, id := range c.Allocated {
			if id == d.ID {
				n++
			}
		}
		if n > 1 {
			out = append(out, h)
		}
	}
	return out
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
