package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// guises are what a node looks like without some drivers, so that whoever asks for the same gets the same, by pointer.
type guises struct {
	mu    sync.Mutex
	known map[string]*Node
}

// maxGuises bounds the guises of one node: there are as many as policies that tell drivers differently.
const maxGuises = 64

// Unserved returns the node as it is while some drivers do not serve there: what their pools list is lost since the given
// times, by driver, as if the pools were. It is the node itself where it lists nothing of theirs, and the same for the same times.
func (n *Node) Unserved(since map[string]time.Time) *Node {
	theirs := func(d Device) bool { _, ok := since[d.ID.Driver]; return ok }
	if !slices.ContainsFunc(n.Devices, theirs) {
		return n
	}
	if n.guises == nil {
		return n.unserved(since, theirs)
	}
	var key strings.Builder
	for _, driver := range slices.Sorted(maps.Keys(since)) {
		fmt.Fprintf(&key, "%s %d\n", driver, since[driver].UnixNano())
	}
	n.guises.mu.Lock()
	defer n.guises.mu.Unlock()
	g := n.guises.known[key.String()]
	if g == nil {
		g = n.unserved(since, theirs)
		if len(n.guises.known) < maxGuises {
			if n.guises.known == nil {
				n.guises.known = map[string]*Node{}
			}
			n.guises.known[key.String()] = g
		}
	}
	return g
}

func (n *Node) unserved(since map[string]time.Time, theirs func(Device) bool) *Node {
	g := n.clone()
	for _, d := range n.Devices {
		if theirs(d) {
			d.Lost, d.Unserved = since[d.ID.Driver], true
			g.Lost = append(g.Lost, d)
		}
	}
	g.Devices = slices.DeleteFunc(g.Devices, theirs)
	slices.SortStableFunc(g.Lost, func(x, y Device) int { return compareDeviceIDs(x.ID, y.ID) })
	return g
}
