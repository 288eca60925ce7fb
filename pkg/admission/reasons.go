package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// The record stays small whatever the cluster's size: sentences are cut to these lengths.
const (
	maxReasonMessage   = 400
	maxDecisionMessage = 1000
	namedNodes         = 4
)

// reasons counts, by reason, on how many nodes a podset failed, with the first example.
type reasons struct {
	counts []v1alpha1.StandingReason
	// full holds the reasons of which every node is full by nature; they come after the others.
	full map[v1alpha1.Reason]bool
	gang *v1alpha1.StandingReason
}

func (r *reasons) add(s *stop) {
	if s.reason == "" {
		return
	}
	if r.full == nil {
		r.full = map[v1alpha1.Reason]bool{}
	}
	for i := range r.counts {
		if r.counts[i].Reason != s.reason {
			continue
		}
		r.counts[i].Nodes++
		if r.full[s.reason] && !s.full { // the example is of a node that could take more
			r.full[s.reason], r.counts[i].Message = false, cut(s.message, maxReasonMessage)
		}
		return
	}
	r.full[s.reason] = s.full
	r.counts = append(r.counts, v1alpha1.StandingReason{Reason: s.reason, Nodes: 1, Message: cut(s.message, maxReasonMessage)})
}

// short adds that only some pods of a gang have a place; it stands beside the reasons, never instead.
func (r *reasons) short(placeable, wanted int64) {
	r.gang = &v1alpha1.StandingReason{Reason: v1alpha1.ReasonGangShort, Message: fmt.Sprintf("%d of %d pods placeable", placeable, wanted)}
}

// empty says what it means when no node at all was looked at.
func (r *reasons) empty(p *flavors.Policy, ps *PodSet) {
	if len(r.counts) > 0 {
		return
	}
	what := "the labels that Kueue gives to the pods"
	if p.Asks(ps.Shape) {
		what = "the flavor's labels"
	}
	r.counts = append(r.counts, v1alpha1.StandingReason{
		Reason: v1alpha1.ReasonNodeUnavailable, Message: fmt.Sprintf("no node carries %s (DevicePolicy %s)", what, p.Name),
	})
}

// list returns the reasons, those of most nodes first, and last those that no wait and no repair changes: nodes that are
// full by nature, or never had what is asked for.
func (r *reasons) list() []v1alpha1.StandingReason {
	out := slices.Clone(r.counts)
	lasting := func(s v1alpha1.StandingReason) bool {
		return r.full[s.Reason] || s.Reason == v1alpha1.ReasonNotEnoughDevices || s.Reason == v1alpha1.ReasonSelectorMismatch
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.StandingReason) int {
		if lasting(a) != lasting(b) {
			return map[bool]int{false: -1, true: 1}[lasting(a)]
		}
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason))
	})
	if r.gang != nil {
		out = append(out, *r.gang)
	}
	return out
}

// explain makes a standing the reason of the decision.
func (dec *Decision) explain(s v1alpha1.FlavorStanding) {
	name := "flavor " + s.Flavor
	if s.Flavor == "" {
		name = "podset " + s.PodSet
	}
	if s.Alternative != "" {
		name = "alternative " + s.Alternative + " on " + name
	}
	parts := make([]string, 0, len(s.Reasons))
	for _, r := range s.Reasons {
		text := r.Message
		if r.Nodes > 1 {
			text = fmt.Sprintf("%s (and %s)", text, plural(r.Nodes-1, "more node"))
		}
		parts = append(parts, text)
	}
	if len(s.Reasons) > 0 {
		dec.Reason = s.Reasons[0].Reason
	}
	dec.Message = cut(fmt.Sprintf("%s is %s: %s", name, s.Standing, strings.Join(parts, "; ")), maxDecisionMessage)
}

func admitMessage(placed []v1alpha1.PlacementPodSet) string {
	var parts []string
	for _, p := range placed {
		var pods int32
		var names []string
		for _, n := range p.Nodes {
			pods += n.Slots
			if len(names) < namedNodes {
				names = append(names, n.Name)
			}
		}
		if len(p.Nodes) > namedNodes {
			names = append(names, fmt.Sprintf("%d more", len(p.Nodes)-namedNodes))
		}
		parts = append(parts, fmt.Sprintf("%s: %s of %s on %s", p.Name, plural(pods, "pod"), p.Flavor, strings.Join(names, ", ")))
	}
	return cut(strings.Join(parts, "; "), maxDecisionMessage)
}

func plural(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// amount writes a ledger amount as a quantity.
func amount(name corev1.ResourceName, v int64) string {
	if name == corev1.ResourceCPU {
		return resource.NewMilliQuantity(v, resource.DecimalSI).String()
	}
	if name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || name == corev1.ResourceEphemeralStorage {
		return resource.NewQuantity(v, resource.BinarySI).String()
	}
	return resource.NewQuantity(v, resource.DecimalSI).String()
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
