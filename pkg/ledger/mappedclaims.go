package ledger

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// MappedClaim is a claim on a node that takes of the node's own resources.
type MappedClaim struct {
	Namespace, Name string
	// Pods are those on the node whose status says so, sorted.
	Pods []types.UID
}

// mappedClaims returns the claims of the pods bound to a node that their status says take of its own resources.
func (b *Book) mappedClaims(node string) []MappedClaim {
	var out []MappedClaim
	for uid := range b.podsAt[place{node: node}].all() {
		p := b.pods[uid]
		for i := range p.Mapped {
			name := p.Mapped[i].Claim
			at := slices.IndexFunc(out, func(m MappedClaim) bool { return m.Namespace == p.Namespace && m.Name == name })
			if at < 0 {
				at, out = len(out), append(out, MappedClaim{Namespace: p.Namespace, Name: name})
			}
			if !slices.Contains(out[at].Pods, uid) {
				out[at].Pods = append(out[at].Pods, uid)
			}
		}
	}
	slices.SortFunc(out, func(x, y MappedClaim) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for i := range out {
		slices.Sort(out[i].Pods)
	}
	return out
}
