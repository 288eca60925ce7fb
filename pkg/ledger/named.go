package ledger

import (
	"cmp"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Naming is devices of one driver as a claim's own spec names them: those that have, for each of Keys, the value at the same
// place in one of Values. It tells devices of one node apart, not those of several.
type Naming struct {
	Driver string
	Keys   []AttributeKey
	Values [][]AttributeValue
}

// AttributeKey is the name of an attribute with its domain.
type AttributeKey struct {
	Domain, ID string
}

// AttributeValue is the value of an attribute: Text where IsText is true, else Int.
type AttributeValue struct {
	Text   string
	Int    int64
	IsText bool
}

// Names says whether a device is one of those.
func (n *Naming) Names(d *Device) bool {
	if d.ID.Driver != n.Driver || len(n.Keys) == 0 {
		return false
	}
	return slices.ContainsFunc(n.Values, func(values []AttributeValue) bool {
		for i, k := range n.Keys {
			if i >= len(values) || !values[i].is(k.of(d)) {
				return false
			}
		}
		return true
	})
}

// of returns an attribute of a device; one without a domain has its driver's.
func (k *AttributeKey) of(d *Device) *resourcev1.DeviceAttribute {
	if k.Domain == d.ID.Driver {
		if a, ok := d.Spec.Attributes[resourcev1.QualifiedName(k.ID)]; ok {
			return &a
		}
	}
	if a, ok := d.Spec.Attributes[resourcev1.QualifiedName(k.Domain+"/"+k.ID)]; ok {
		return &a
	}
	return nil
}

func (v *AttributeValue) is(a *resourcev1.DeviceAttribute) bool {
	switch {
	case a == nil:
		return false
	case v.IsText:
		return a.StringValue != nil && *a.StringValue == v.Text
	}
	return a.IntValue != nil && *a.IntValue == v.Int
}

// bySpec holds what released pods of a node are to be given against the specs of their claims: those name the devices and cannot
// be changed, while what is noted beside them may be wrong or missing. Where the two differ the spec counts, and it is flagged.
// A spec none of whose devices the node lists says nothing. What other nodes see of a device that they may use as well is as it is
// noted, until there is an allocation.
func (b *Book) bySpec(n *Node) {
	at := []place{{node: n.Name}, {host: n.Hostname}}
	if n.Hostname == "" {
		at = at[:1]
	}
	for _, p := range at {
		for uid := range b.podsAt[p].all() {
			for claim := range b.claimOfPod[uid].all() {
				if c := b.claims[claim]; c.Pod == uid && c.Allocated == nil && len(c.Named) > 0 {
					b.heldBySpec(n, claim, c)
				}
			}
		}
	}
}

// heldBySpec has the devices that a claim's spec names be held by it, and no others.
func (b *Book) heldBySpec(n *Node, uid types.UID, c *Claim) {
	var named, noted []*Device
	wrong := false
	for _, list := range [3][]Device{n.Devices, n.Lost, n.Withheld} {
		for i := range list {
			d := &list[i]
			is := slices.ContainsFunc(c.Named, func(x Naming) bool { return x.Names(d) })
			was := slices.Contains(c.Promised, d.ID)
			if is {
				named = append(named, d)
			}
			if was {
				noted = append(noted, d)
			}
			wrong = wrong || is != was
		}
	}
	if len(named) == 0 || !wrong {
		return
	}
	for _, d := range noted {
		d.Holders = slices.DeleteFunc(d.Holders, func(h Holder) bool { return h.UID == uid })
	}
	h := Holder{Kind: HolderReleased, UID: uid, Namespace: c.Namespace, Name: c.Name, misnoted: true}
	b.serves(&h, c)
	for _, d := range named {
		x := h
		if d.Multiple() {
			x.Consumed = DefaultConsumption(d.Spec)
		}
		d.Holders = append(slices.DeleteFunc(d.Holders, func(h Holder) bool { return h.UID == uid }), x)
		slices.SortFunc(d.Holders, compareHolders)
	}
}

func compareHolders(x, y Holder) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.UID, y.UID), cmp.Compare(x.Share, y.Share), cmp.Compare(x.at, y.at))
}

// misnoted flags claims beside which other devices are noted than their specs name.
func (n *Node) misnoted() []Flag {
	var flags []Flag
	for _, list := range [3][]Device{n.Devices, n.Lost, n.Withheld} {
		for i := range list {
			for j := range list[i].Holders {
				if h := &list[i].Holders[j]; h.misnoted {
					flags = append(flags, Flag{Reason: FlagMisnoted, Object: list[i].ID.String(),
						Message: fmt.Sprintf("claim %s/%s is cut to device %s by its spec, and its annotation does not name the same devices: the spec counts", h.Namespace, h.Name, list[i].ID)})
				}
			}
		}
	}
	return flags
}
