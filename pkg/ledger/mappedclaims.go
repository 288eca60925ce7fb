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

// mapsFor notes that the status of a pod on the node says that a claim takes of the node's own resources.
func (n *Node) mapsFor(p *Pod, uid types.UID, claim string) {
	at := slices.IndexFunc(n.MappedClaims, func(m MappedClaim) bool { return m.Namespace == p.Namespace && m.Name == claim })
	if at < 0 {
		n.MappedClaims = append(n.MappedClaims, MappedClaim{Namespace: p.Namespace, Name: claim, Pods: []types.UID{uid}})
		return
	}
	if m := &n.MappedClaims[at]; !slices.Contains(m.Pods, uid) {
		m.Pods = append(m.Pods, uid)
	}
}

func sortMapped(list []MappedClaim) {
	slices.SortFunc(list, func(x, y MappedClaim) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for i := range list {
		slices.Sort(list[i].Pods)
	}
}
