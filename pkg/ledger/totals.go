package ledger

import (
	"cmp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Counters returns the shared counters of a node's pools with what the devices draw that are held, those of other nodes
// too, sorted by driver, pool, set and name. A device that draws on what no slice lists draws on nothing here: it is kept out.
func (n *Node) Counters() []Counter {
	if n.told != nil {
		return n.told.counters
	}
	type key struct{ driver, pool, set, name string }
	var list []Counter
	at := map[key]int{}
	for i := range n.Pools {
		p := &n.Pools[i]
		for _, s := range p.Slices {
			for _, set := range s.Spec.SharedCounters {
				for name, c := range set.Counters {
					k := key{p.Driver, p.Name, set.Name, name}
					if _, twice := at[k]; twice {
						continue
					}
					at[k] = len(list)
					list = append(list, Counter{Driver: p.Driver, Pool: p.Name, Set: set.Name, Name: name, Total: c.Value, Used: resource.Quantity{Format: c.Value.Format}})
				}
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	for _, devices := range [][]Device{n.Devices, n.Withheld, n.Elsewhere} {
		for i := range devices {
			d := &devices[i]
			if d.Free() {
				continue
			}
			for _, draw := range d.Spec.ConsumesCounters {
				for name, c := range draw.Counters {
					if j, ok := at[key{d.ID.Driver, d.ID.Pool, draw.CounterSet, name}]; ok {
						list[j].Used.Add(c.Value)
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(x, y Counter) int {
		return cmp.Or(cmp.Compare(x.Driver, y.Driver), cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Set, y.Set), cmp.Compare(x.Name, y.Name))
	})
	return list
}

// Drawn says whether any counter that a device draws on is drawn on beyond its total.
func (n *Node) Drawn(d *Device) bool {
	if len(d.Spec.ConsumesCounters) == 0 {
		return false
	}
	return slices.ContainsFunc(n.Counters(), func(c Counter) bool {
		return c.Driver == d.ID.Driver && c.Pool == d.ID.Pool && c.Used.Cmp(c.Total) > 0 &&
			slices.ContainsFunc(d.Spec.ConsumesCounters, func(draw resourcev1.DeviceCounterConsumption) bool {
				_, draws := draw.Counters[c.Name]
				return draws && draw.CounterSet == c.Set
			})
	})
}

// Zones returns the accounts of a node's NUMA zones, in order of their numbers; NoZone, which holds what belongs to none,
// comes first. The zone of a device is its attribute resource.kubernetes.io/numaNode or numaNode of its driver. Of the node's
// own resources a zone has what its devices map to, so that the zones' sums are always the node's.
func (n *Node) Zones() []Zone {
	if n.told != nil {
		return n.told.zones
	}
	byNumber := map[int64]*Zone{NoZone: {Number: NoZone, Allocatable: n.Allocatable.Clone(), Free: n.Free.Clone()}}
	none := byNumber[NoZone]
	for i := range n.Devices {
		d := &n.Devices[i]
		z := none
		if number, ok := d.Zone(); ok {
			if z = byNumber[number]; z == nil {
				z = &Zone{Number: number, Allocatable: Amounts{}, Free: Amounts{}}
				byNumber[number] = z
			}
		}
		z.Devices++
		if d.Free() {
			z.FreeDevices++
		}
		if z == none {
			continue
		}
		whole := d.Maps(d.capacity(), 1)
		taken := Amounts{}
		for j := range d.Holders {
			taken.Add(d.Maps(d.Holders[j].Consumed, d.Holders[j].times()), 1)
		}
		z.Allocatable.Add(whole, 1)
		none.Allocatable.Add(whole, -1)
		z.Free.Add(whole, 1)
		z.Free.Add(taken, -1)
		none.Free.Add(whole, -1)
		none.Free.Add(taken, 1)
	}
	list := make([]Zone, 0, len(byNumber))
	for _, z := range byNumber {
		list = append(list, *z)
	}
	slices.SortFunc(list, func(x, y Zone) int { return cmp.Compare(x.Number, y.Number) })
	return list
}
