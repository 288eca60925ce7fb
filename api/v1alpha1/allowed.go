package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// ParseAllowedFlavors reads the annotation plimsoll.dev/allowed-flavors: "h100,a100", the set of every podset, or
// "launcher=a100;worker=h100,a100", one of each. others is the set of the podsets that byPodSet does not hold; nil is the
// empty set. What has neither form names no flavor.
func ParseAllowedFlavors(value string) (others []string, byPodSet map[string][]string) {
	if value == "" {
		return nil, nil
	}
	if !strings.Contains(value, "=") {
		return strings.Split(value, ","), nil
	}
	byPodSet = map[string][]string{}
	for part := range strings.SplitSeq(value, ";") {
		podSet, names, _ := strings.Cut(part, "=")
		byPodSet[podSet] = nil
		if names != "" {
			byPodSet[podSet] = strings.Split(names, ",")
		}
	}
	return nil, byPodSet
}

// FormatAllowedFlavors is the inverse of ParseAllowedFlavors: the short form where all podsets have the same set.
func FormatAllowedFlavors(byPodSet map[string][]string) string {
	podSets := slices.Sorted(maps.Keys(byPodSet))
	if len(podSets) == 0 {
		return ""
	}
	same := true
	parts := make([]string, len(podSets))
	for i, name := range podSets {
		same = same && slices.Equal(byPodSet[name], byPodSet[podSets[0]])
		parts[i] = name + "=" + strings.Join(byPodSet[name], ",")
	}
	if same {
		return strings.Join(byPodSet[podSets[0]], ",")
	}
	return strings.Join(parts, ";")
}

// UnionOfAllowedFlavors returns the flavors of all podsets' sets, in order of the podsets' names and then of each set.
func UnionOfAllowedFlavors(value string) []string {
	all, byPodSet := ParseAllowedFlavors(value)
	for _, podSet := range slices.Sorted(maps.Keys(byPodSet)) {
		for _, f := range byPodSet[podSet] {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}
