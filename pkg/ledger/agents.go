package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// maxAgentsGone is how many pods that are gone are remembered of a node.
const maxAgentsGone = 16

// agents is the history of the pods on one node that no Workload made.
type agents struct {
	// since is when a pod's readiness was seen to change last; pods that never changed have none.
	since map[types.UID]time.Time
	// gone are those that left, the oldest first.
	gone []Agent
}

// agentChanged keeps what a pod's change means for the agents of its node.
func (b *Book) agentChanged(uid types.UID, old, now *Pod, at time.Time) {
	was := old != nil && old.Labels != nil && old.Node != ""
	is := now != nil && now.Labels != nil && now.Node != ""
	if was && b.nodeByName[old.Node] == "" {
		return // the node went before, and its history with it
	}
	if was && (!is || now.Node != old.Node) {
		h := b.history(old.Node)
		gone := Agent{Namespace: old.Namespace, Name: old.Name, Labels: old.Labels, Since: at}
		if !old.serves() { // it ceased to serve before
			gone.Since = h.since[uid]
		}
		delete(h.since, uid)
		h.gone = slices.DeleteFunc(slices.Clone(h.gone), func(a Agent) bool { return a.Namespace == old.Namespace && a.Name == old.Name })
		h.gone = append(h.gone, gone)
		if len(h.gone) > maxAgentsGone {
			h.gone = slices.Clone(h.gone[1:])
		}
	}
	if was && is && now.Node == old.Node && now.serves() != old.serves() {
		h := b.history(now.Node)
		if h.since == nil {
			h.since = map[types.UID]time.Time{}
		}
		h.since[uid] = at
	}
}

// serves says that a pod is Ready and not about to end.
func (p *Pod) serves() bool { return p.Serving && !p.Terminating }

func (b *Book) history(node string) *agents {
	if b.agents[node] == nil {
		b.agents[node] = &agents{}
	}
	return b.agents[node]
}

// agentsOn returns the agents of a node, and those that are gone.
func (b *Book) agentsOn(node string) (there, gone []Agent) {
	h := b.agents[node]
	for uid := range b.podsAt[place{node: node}].all() {
		p := b.pods[uid]
		if p.Labels == nil {
			continue
		}
		a := Agent{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Serving: p.serves()}
		if h != nil {
			a.Since = h.since[uid]
		}
		there = append(there, a)
	}
	slices.SortFunc(there, func(x, y Agent) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	if h != nil {
		gone = slices.Clone(h.gone)
	}
	return there, gone
}
