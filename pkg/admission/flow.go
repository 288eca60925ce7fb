package admission

// demand is so many devices of certain groups.
type demand struct {
	need int
	// of says, by group, whether its devices will do.
	of []bool
}

// flow shares groups of equal devices out to demands. It is a maximum flow: where it leaves a demand short, no way of
// sharing serves all.
type flow struct {
	demands []demand
	// free is how many devices of each group are left.
	free []int
	// given is how many devices each demand has of each group.
	given [][]int
}

// satisfy says whether all demands can be served from groups of the given sizes, and how.
func satisfy(sizes []int, demands []demand) (*flow, bool) {
	f := &flow{demands: demands, free: append([]int{}, sizes...), given: make([][]int, len(demands))}
	for i := range f.given {
		f.given[i] = make([]int, len(sizes))
	}
	for i := range demands {
		for range demands[i].need {
			if !f.augment(i, make([]bool, len(sizes))) {
				return nil, false
			}
		}
	}
	return f, true
}

// augment gives a demand one more device: a free one, or one of another demand that can take another instead. seen marks
// the groups that were tried. It is the augmenting path of bipartite matching, with groups in place of devices.
func (f *flow) augment(i int, seen []bool) bool {
	for g, ok := range f.demands[i].of {
		if ok && !seen[g] && f.free[g] > 0 {
			f.free[g]--
			f.given[i][g]++
			return true
		}
	}
	for g, ok := range f.demands[i].of {
		if !ok || seen[g] {
			continue
		}
		seen[g] = true
		for other := range f.demands {
			if other != i && f.given[other][g] > 0 && f.augment(other, seen) {
				f.given[other][g]--
				f.given[i][g]++
				return true
			}
		}
	}
	return false
}
