package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// maxAnswers bounds how many answers of Kueue are remembered; each takes about a kilobyte.
const maxAnswers = 1 << 14

// answers are what Kueue said: it says the same again to whoever asks for the same, as long as nobody's quota in the cohort and
// nothing else that it looks at has changed. Between two passes it is the devices that change most often.
type answers map[string]quota.Answer

// stateful is a Kueue that can tell whether anything has changed.
type stateful interface {
	State(clusterQueue string) string
}

// asks is askKueue, with what is remembered. again asks anew where the answer is one that was remembered: such a one cannot be taken.
func (d *Decider) asks(ctx context.Context, k Kueue, w *Waiter, plan flavors.Plan, fitOnly bool) (a quota.Answer, again func() quota.Answer) {
	key := answerKey(k, w, plan, fitOnly)
	ask := func() quota.Answer { return askKueue(ctx, k, w, plan, fitOnly) }
	if key == "" {
		return ask(), nil
	}
	if a, known := d.memory.answers[key]; known {
		a.PodSets, a.Victims = slices.Clone(a.PodSets), slices.Clone(a.Victims)
		return a, ask
	}
	if a = ask(); ctx.Err() != nil {
		return a, nil
	}
	if d.memory.answers == nil || len(d.memory.answers) >= maxAnswers {
		d.memory.answers = answers{}
	}
	d.memory.answers[key] = a.Told()
	return a, nil
}

// answerKey names all that an answer depends on; empty for what is like nothing else.
func answerKey(k Kueue, w *Waiter, plan flavors.Plan, fitOnly bool) string {
	s, ok := k.(stateful)
	if !ok || w.Like == "" || w.Request.Refusal != nil || k.Known(w.Workload) {
		return ""
	}
	state := s.State(w.ClusterQueue.Name)
	if state == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(w.Like)
	fmt.Fprintf(&b, "%t %s %s %q %q", fitOnly, w.Request.Policy.Name, w.Request.Policy.Revision, state, plan.Allowed)
	for _, podSet := range slices.Sorted(maps.Keys(plan.AllowedFor)) {
		fmt.Fprintf(&b, " %q=%q", podSet, plan.AllowedFor[podSet])
	}
	for _, podSet := range slices.Sorted(maps.Keys(plan.Charge)) {
		fmt.Fprintf(&b, " %q %d", podSet, plan.Charge[podSet])
	}
	return b.String()
}

// withouts are copies of one snapshot, each without some Workloads: of waiters many ask about the same.
type withouts struct {
	of     *ledger.Snapshot
	copies map[string]*ledger.Snapshot
}

// maxWithouts bounds the copies; each takes as much as the nodes that are not the same in it.
const maxWithouts = 64

// from returns a snapshot without some Workloads.
func (x *withouts) from(s *ledger.Snapshot, gone map[types.UID]bool) *ledger.Snapshot {
	var b strings.Builder
	for _, uid := range slices.Sorted(maps.Keys(gone)) {
		if gone[uid] {
			b.WriteString(string(uid))
			b.WriteByte('\n')
		}
	}
	key := b.String()
	if key == "" {
		return s
	}
	if x.of != s || len(x.copies) >= maxWithouts {
		x.of, x.copies = s, map[string]*ledger.Snapshot{}
	}
	if x.copies[key] == nil {
		x.copies[key] = s.Without(gone)
	}
	return x.copies[key]
}
