package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// AllowedFlavors is what the annotation plimsoll.dev/allowed-flavors says.
//
// +kubebuilder:object:generate=false
type AllowedFlavors struct {
	// All is the set of every podset that is not in ByPodSet; nil is the empty set.
	All []string
	// ByPodSet holds the sets of single podsets; nil where all have the same.
	ByPodSet map[string][]string
}

// ParseAllowedFlavors reads "h100,a100", the set of every podset, or "launcher=a100;worker=h100,a100", one of each. What
// has neither form names no flavor.
func ParseAllowedFlavors(value string) AllowedFlavors {
	if value == "" {
		return AllowedFlavors{}
	}
	if !strings.Contains(value, "=") {
		return AllowedFlavors{All: strings.Split(value, ",")}
	}
	a := AllowedFlavors{ByPodSet: map[string][]string{}}
	for part := range strings.SplitSeq(value, ";") {
		podSet, names, _ := strings.Cut(part, "=")
		a.ByPodSet[podSet] = nil
		if names != "" {
			a.ByPodSet[podSet] = strings.Split(names, ",")
		}
	}
	return a
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

// For returns the set of one podset; nil is the empty set.
func (a AllowedFlavors) For(podSet string) []string {
	if own, ok := a.ByPodSet[podSet]; ok {
		return own
	}
	return a.All
}

// Union returns the flavors of all podsets' sets, in order of the podsets' names and then of each set.
func (a AllowedFlavors) Union() []string {
	all := a.All
	for _, podSet := range slices.Sorted(maps.Keys(a.ByPodSet)) {
		for _, f := range a.ByPodSet[podSet] {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}
