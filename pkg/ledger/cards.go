package ledger

import (
	"fmt"

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
	var byUUID map[string]*Device
	for _, list := range [][]Device{n.Devices, n.Lost, n.Withheld} {
		for i := range list {
			d := &list[i]
			parent := d.attribute("parentUUID")
			if parent == "" {
				continue
			}
			if byUUID == nil {
				byUUID = n.byUUID()
			}
			whole := byUUID[d.ID.Driver+" "+parent]
			if whole == nil || whole.ID == d.ID {
				continue
			}
			d.Inherited = whole.Taints
			if len(d.Spec.ConsumesCounters) == 0 || len(whole.Spec.ConsumesCounters) == 0 {
				n.split = true
				d.whole = whole.ID
				if whole.Unusable != "" {
					continue
				}
				whole.Unusable = fmt.Sprintf("it is listed in parts as well, such as %s, which lend instead", d.ID.Device)
			}
		}
	}
	n.cover()
}

func (n *Node) byUUID() map[string]*Device {
	out := map[string]*Device{}
	for _, list := range [][]Device{n.Lost, n.Withheld, n.Devices} {
		for i := range list {
			if uuid := list[i].attribute("uuid"); uuid != "" {
				out[list[i].ID.Driver+" "+uuid] = &list[i]
			}
		}
	}
	return out
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
