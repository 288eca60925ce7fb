package ledger

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// attribute returns a device's attribute of its driver's own domain, or of a bare name, as a text; empty without one.
func (d *Device) attribute(name resourcev1.QualifiedName) string {
	a, ok := d.Spec.Attributes[name]
	if !ok {
		a, ok = d.Spec.Attributes[resourcev1.QualifiedName(d.ID.Driver)+"/"+name]
	}
	if !ok || a.StringValue == nil {
		return ""
	}
	return *a.StringValue
}

// cards finds the cards of a node that are listed whole and in parts, by the parts' parentUUID. What taints the whole card
// taints its parts. Where no counters tell them apart the card would count twice: it lends its parts then, since a card
// that is split cannot be given whole, unless the whole is held.
func (n *Node) cards() {
	n.join(n.Devices, n.Withheld)
	n.join(n.Lost) // what is not listed any more changes nothing of what is
	n.cover()
}

// join finds the cards among some devices.
func (n *Node) join(lists ...[]Device) {
	var parts, cards []*Device
	for _, list := range lists {
		for i := range list {
			if list[i].attribute("parentUUID") != "" {
				parts = append(parts, &list[i])
			}
		}
	}
	if len(parts) == 0 {
		return
	}
	for _, list := range lists {
		for i := range list {
			cards = append(cards, &list[i])
		}
	}
	byID := func(x, y *Device) int { return compareDeviceIDs(x.ID, y.ID) }
	slices.SortStableFunc(parts, byID)
	slices.SortStableFunc(cards, byID)
	byUUID := map[string]*Device{}
	for _, d := range slices.Backward(cards) { // the first of several
		if uuid := d.attribute("uuid"); uuid != "" {
			byUUID[d.ID.Driver+" "+uuid] = d
		}
	}
	for _, d := range parts {
		whole := byUUID[d.ID.Driver+" "+d.attribute("parentUUID")]
		if whole == nil || whole.ID == d.ID {
			continue
		}
		d.Inherited = whole.Taints
		if len(d.Spec.ConsumesCounters) == 0 || len(whole.Spec.ConsumesCounters) == 0 {
			n.split = true
			d.whole = whole.ID
			if whole.Unusable == "" {
				whole.Unusable = fmt.Sprintf("it is listed in parts as well, such as %s, which lend instead", d.ID.Device)
			}
		}
	}
}

// cover marks the parts of cards that are held whole.
func (n *Node) cover() {
	if !n.split {
		return
	}
	for _, list := range [][]Device{n.Devices, n.Lost, n.Withheld} {
		for i := range list {
			d := &list[i]
			d.Cover = ""
			if d.whole == (DeviceID{}) {
				continue
			}
			for _, of := range [][]Device{n.Devices, n.Lost, n.Withheld} {
				for j := range of {
					if of[j].ID == d.whole && !of[j].Free() {
						d.Cover = d.whole.Device
					}
				}
			}
		}
	}
}
