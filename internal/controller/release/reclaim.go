package release

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// reclaim gives back the slots whose quota Kueue takes back while the Workload still runs: a Placement holds as many as the
// Workload has pods to run. A slot that a pod has stays; those that could not be used go first. given says whether the
// Placement was amended.
func (c *Controller) reclaim(ctx context.Context, wl *kueue.Workload, placement *v1alpha1.Placement, owner types.UID) (given bool, err error) {
	surplus := surplusOf(wl, placement)
	if len(surplus) == 0 {
		return false, nil
	}
	live, err := c.siblings(ctx, wl.Namespace, owner)
	if err != nil {
		return false, err
	}
	a, err := c.assignment(ctx, wl, placement, live)
	if err != nil {
		return false, err
	}
	asked, policy, err := c.askIfManaged(ctx, wl)
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if placement.Generation < a.generation {
		return false, nil // its event comes
	}
	snapshot := c.Book.Snapshot()
	podSets := slices.Clone(placement.Spec.PodSets)
	var done []func()
	for i := range podSets {
		ps := &podSets[i]
		all, err := slotsOf(ps)
		if err != nil {
			return false, err
		}
		ours := admission.Ours{Workload: wl.UID, Placement: placement.UID, Policy: policy, Now: c.Clock.Now()}
		broken := func(s slot) bool {
			return asked[ps.Name] != nil && s.place().Trouble(snapshot, asked[ps.Name], ours) != nil
		}
		kept := keep(all, surplus[ps.Name], func(s slot) bool { return live[a.holds[s.key()].pod] == nil }, broken)
		if len(kept) == len(all) {
			continue
		}
		nodes, now, err := regroup(kept)
		if err != nil {
			return false, err
		}
		ps.Nodes = nodes
		done = append(done, func() { a.renumber(kept, now) })
	}
	if len(done) == 0 {
		return false, nil
	}
	written, err := c.Store.Amend(ctx, placement, podSets)
	if err != nil {
		return false, err
	}
	for _, f := range done {
		f()
	}
	a.generation = written.Generation
	log.FromContext(ctx).V(2).Info("Gave slots back", "workload", client.ObjectKeyFromObject(wl))
	return true, nil
}

// keep returns slots in their order, less so many of the open ones: those that are broken first, then from the last on.
func keep(all []slot, less int, open, broken func(slot) bool) []slot {
	drop := map[slotKey]bool{}
	for _, which := range []func(slot) bool{broken, func(slot) bool { return true }} {
		for _, s := range slices.Backward(all) {
			if len(drop) < less && open(s) && which(s) {
				drop[s.key()] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s slot) bool { return drop[s.key()] })
}

// surplusOf returns by podset how many slots more a Placement holds than the Workload has pods to run. A Workload that has
// none to run is about to finish, and its Placement with it.
func surplusOf(wl *kueue.Workload, placement *v1alpha1.Placement) map[string]int {
	out := map[string]int{}
	left := 0
	for _, ps := range placement.Spec.PodSets {
		slots := 0
		for _, n := range ps.Nodes {
			slots += int(n.Slots)
		}
		reclaimable := slices.IndexFunc(wl.Status.ReclaimablePods, func(r kueue.ReclaimablePod) bool { return string(r.Name) == ps.Name })
		granted := grantedTo(wl, ps.Name)
		if reclaimable < 0 || granted < 0 {
			left += slots
			continue
		}
		want := max(0, granted-int(wl.Status.ReclaimablePods[reclaimable].Count))
		if slots > want {
			out[ps.Name] = slots - want
		}
		left += want
	}
	if left == 0 {
		return nil
	}
	return out
}

// grantedTo returns how many pods of a podset Kueue gave quota to; -1 where it gave none.
func grantedTo(wl *kueue.Workload, podSet string) int {
	if wl.Status.Admission == nil {
		return -1
	}
	for i := range wl.Status.Admission.PodSetAssignments {
		a := &wl.Status.Admission.PodSetAssignments[i]
		if string(a.Name) != podSet {
			continue
		}
		if a.Count != nil {
			return int(*a.Count)
		}
		for j := range wl.Spec.PodSets {
			if string(wl.Spec.PodSets[j].Name) == podSet {
				return int(wl.Spec.PodSets[j].Count)
			}
		}
	}
	return -1
}

// askIfManaged returns a Workload's podsets as admission decides on them, and the policy that does; none where none does any
// more.
func (c *Controller) askIfManaged(ctx context.Context, wl *kueue.Workload) (map[string]*admission.PodSet, *flavors.Policy, error) {
	m, err := c.Policies.ForQueue(ctx, wl.Namespace, string(wl.Spec.QueueName))
	if err != nil || m == nil || m.Policy == nil {
		return nil, nil, err
	}
	asked, _, err := c.ask(ctx, wl, m.Policy)
	return asked, m.Policy, err
}
