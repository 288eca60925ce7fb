package kube

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// indexes is a set of completion indexes.
type indexes map[int]bool

// maxIndexes bounds what is read of a status.
const maxIndexes = 1 << 20

// parseIndexes reads what String writes; what does not parse is left out.
func parseIndexes(s string) indexes {
	out := indexes{}
	for part := range strings.SplitSeq(s, ",") {
		low, high, several := strings.Cut(part, "-")
		from, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		to := from
		if several {
			if to, err = strconv.Atoi(high); err != nil {
				continue
			}
		}
		for i := from; i <= min(to, from+maxIndexes); i++ {
			out[i] = true
		}
	}
	return out
}

func (x indexes) add(i int) { x[i] = true }

func (x indexes) len() int { return len(x) }

// String writes the set as a Job's status has it: "0,2-4".
func (x indexes) String() string {
	list := slices.Sorted(maps.Keys(x))
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(list[i]))
		case 1:
			parts = append(parts, strconv.Itoa(list[i]), strconv.Itoa(list[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
