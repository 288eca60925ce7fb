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
// claims, and a share that is in those of several. Each counts as held once, whoever else has it.
func (n *Node) twice() []Flag {
	var flags []Flag
	for _, list := range [2][]Device{n.Devices, n.Lost} {
		for i := range list {
			flags = append(flags, list[i].heldTwice()...)
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
