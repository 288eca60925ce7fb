package admission

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxFlows bounds how many flows one search over the devices of a node may try. Without constraints it takes one.
const maxFlows = 4096

// part is some pods of one podset on one node.
type part struct {
	fit *nodeFit
	k   int32
}

// share is the devices of one pod, by request in the order of its fit's wants.
type share [][]*ledger.Device

// answer is what a search came to.
type answer int

const (
	no answer = iota
	yes
	// undecided: the search reached its bound.
	undecided
)

// sharing is a search for the devices of some pods on one node.
type sharing struct {
	parts []part
	// patterns holds, by part, the ways in which its pods may choose values for their constraints.
	patterns [][]pattern
	// counts is how many pods of a part follow each pattern; caps how many could if they were alone.
	counts, caps [][]int32
	flows        int
	// found is the flow that serves all.
	found  *flow
	groups [][]*ledger.Device
}

// pattern is one value for each matchAttribute constraint of a pod: by want, the devices that are left to it.
type pattern struct {
	eligible []map[*ledger.Device]bool
}

// shareOut gives every pod of the parts, which are all on one node, devices of its own that its requests select, with
// one value of each attribute that they must match in. distinctAttribute is left to the allocator: where it is asked
// for, yes means that nothing else speaks against it.
func shareOut(parts []part, b book) ([][]share, answer) {
	s := &sharing{parts: parts}
	for _, p := range parts {
		patterns, ok := p.fit.patterns(b)
		if !ok {
			return nil, undecided
		}
		s.patterns = append(s.patterns, patterns)
		s.counts = append(s.counts, make([]int32, len(patterns)))
	}
	s.group()
	s.bound()
	a := s.search(0, 0, s.parts[0].k)
	if a != yes {
		return nil, a
	}
	return s.shares(), yes
}

// group puts devices together that are eligible for the same.
func (s *sharing) group() {
	bySignature := map[string]int{}
	node := s.parts[0].fit.node
	var devices []*ledger.Device
	for _, list := range [][]ledger.Device{node.Devices, node.Lost} {
		for i := range list {
			devices = append(devices, &list[i])
		}
	}
	for _, dev := range devices {
		var signature strings.Builder
		for _, patterns := range s.patterns {
			for _, p := range patterns {
				for _, e := range p.eligible {
					if e[dev] {
						signature.WriteByte('1')
					} else {
						signature.WriteByte('0')
					}
				}
			}
		}
		key := signature.String()
		if !strings.Contains(key, "1") {
			continue
		}
		g, known := bySignature[key]
		if !known {
			g = len(s.groups)
			bySignature[key] = g
			s.groups = append(s.groups, nil)
		}
		s.groups[g] = append(s.groups[g], dev)
	}
	if short, most := s.parts[0].fit.short, s.parts[0].fit.references(); short != "" {
		for _, g := range s.groups {
			slices.SortStableFunc(g, func(x, y *ledger.Device) int { return cmp.Compare(mapsTo(x, most)[short], mapsTo(y, most)[short]) })
		}
	}
}

// search gives the pods of part i that are left their patterns, from pattern p on, and then those of the later parts.
// More pods on the earlier patterns are tried first.
func (s *sharing) search(i, p int, left int32) answer {
	if left == 0 {
		if i+1 < len(s.parts) {
			return s.search(i+1, 0, s.parts[i+1].k)
		}
		return s.feasible()
	}
	var most int32
	for _, c := range s.caps[i][p:] {
		most += min(c, left)
	}
	if most < left {
		return no
	}
	result := no
	for n := min(left, s.caps[i][p]); n >= 0; n-- {
		s.counts[i][p] = n
		a := yes
		if n > 0 && len(s.patterns[i]) > 1 {
			a = s.feasible()
		}
		if a == yes {
			a = s.search(i, p+1, left-n)
		}
		s.counts[i][p] = 0
		if a == yes {
			return yes
		}
		if a == undecided {
			result = undecided
			if s.flows > maxFlows {
				break
			}
		}
	}
	return result
}

// bound works out caps.
func (s *sharing) bound() {
	for i, patterns := range s.patterns {
		caps := make([]int32, len(patterns))
		for p := range patterns {
			caps[p] = s.parts[i].k
			for w, e := range patterns[p].eligible {
				caps[p] = min(caps[p], bounded(len(e)/int(s.parts[i].fit.wants[w].Count)))
			}
		}
		s.caps = append(s.caps, caps)
	}
}

// feasible says whether the pods that have a pattern so far can be served together.
func (s *sharing) feasible() answer {
	if s.flows++; s.flows > maxFlows {
		return undecided
	}
	sizes := make([]int, len(s.groups))
	for g := range s.groups {
		sizes[g] = len(s.groups[g])
	}
	f, ok := satisfy(sizes, s.demands())
	if !ok {
		return no
	}
	s.found = f
	return yes
}

// demands lists what the pods ask for, by part, pattern and want.
func (s *sharing) demands() []demand {
	var out []demand
	for i, patterns := range s.patterns {
		for p := range patterns {
			for w, e := range patterns[p].eligible {
				d := demand{need: int(s.counts[i][p]) * int(s.parts[i].fit.wants[w].Count), of: make([]bool, len(s.groups))}
				for g := range s.groups {
					d.of[g] = e[s.groups[g][0]]
				}
				out = append(out, d)
			}
		}
	}
	return out
}

// shares deals the devices of the found flow out to the pods.
func (s *sharing) shares() [][]share {
	next := make([]int, len(s.groups))
	out := make([][]share, len(s.parts))
	demand := 0
	for i, patterns := range s.patterns {
		if len(s.parts[i].fit.wants) == 0 {
			out[i] = make([]share, s.parts[i].k)
			continue
		}
		for p := range patterns {
			first := len(out[i])
			for w := range patterns[p].eligible {
				var devices []*ledger.Device
				for g, n := range s.found.given[demand] {
					devices = append(devices, s.groups[g][next[g]:next[g]+n]...)
					next[g] += n
				}
				slices.SortFunc(devices, func(x, y *ledger.Device) int { return strings.Compare(x.ID.String(), y.ID.String()) })
				each := int(s.parts[i].fit.wants[w].Count)
				for pod := 0; pod*each < len(devices); pod++ {
					if first+pod == len(out[i]) {
						out[i] = append(out[i], make(share, len(patterns[p].eligible)))
					}
					out[i][first+pod][w] = devices[pod*each : (pod+1)*each]
				}
				demand++
			}
		}
	}
	return out
}

// check asks the allocator, claim by claim, whether it gives each pod the devices of its share.
func (d *Decider) check(ctx context.Context, parts []part, shares [][]share, b book) bool {
	for i, p := range parts {
		for _, sh := range shares[i] {
			if !d.accepts(ctx, p.fit, sh, b) {
				return false
			}
		}
	}
	return true
}
