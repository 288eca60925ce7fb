package ledger

import (
	"cmp"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

func (b *Book) applyTaintRule(uid types.UID, r *TaintRule) bool {
	old := b.rules[uid]
	if old == nil && r == nil || old != nil && r != nil && apiequality.Semantic.DeepEqual(old, r) {
		return false
	}
	if r == nil {
		delete(b.rules, uid)
	} else {
		b.rules[uid] = r
	}
	b.lentRules = nil
	for _, o := range b.nodes { // rules are few and change seldom
		b.touch(o.Node.Name)
	}
	return true
}

// ruleLines returns the rules in order of their names.
func (b *Book) ruleLines() []*RuleLine {
	list := make([]*RuleLine, 0, len(b.rules))
	for uid, r := range b.rules {
		l := &RuleLine{past: past{lineRule}, Name: r.Name, UID: uid, Version: r.Version, Driver: r.Driver, Pool: r.Pool, Device: r.Device,
			Taint: DeviceTaint{r.Taint.Key, r.Taint.Value, r.Taint.Effect}}
		switch {
		case r.All:
			l.Devices = "all"
		case r.None:
			l.Devices = "none"
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(x, y *RuleLine) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID)) })
	return list
}
