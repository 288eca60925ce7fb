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
	asked, err := c.askIfManaged(ctx, wl)
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
	var follow []func()
	gone := 0
	for i := range podSets {
		all, err := slotsOf(&podSets[i])
		if err != nil {
			return false, err
		}
		var usable, broken []slot
		for _, s := range all {
			ps := asked[podSets[i].Name]
			switch {
			case live[a.holds[s.key()].pod] != nil:
			case ps != nil && s.place().Trouble(snapshot, ps, wl.UID, placement.UID, c.Clock.Now()) != nil:
				broken = append(broken, s)
			default:
				usable = append(usable, s)
			}
		}
		slices.Reverse(usable)
		drop := append(broken, usable...)
		drop = drop[:min(len(drop), surplus[podSets[i].Name])]
		if len(drop) == 0 {
			continue
		}
		kept := slices.DeleteFunc(all, func(s slot) bool {
			return slices.ContainsFunc(drop, func(d slot) bool { return d.key() == s.key() })
		})
		nodes, now, err := regroup(kept)
		if err != nil {
			return false, err
		}
		podSets[i].Nodes = nodes
		gone += len(drop)
		follow = append(follow, func() {
			for _, s := range drop {
				delete(a.holds, s.key())
			}
			a.renumber(kept, now)
		})
	}
	if gone == 0 {
		return false, nil
	}
	written, err := c.Store.Amend(ctx, placement, podSets)
	if err != nil {
		return false, err
	}
	for _, f := range follow {
		f()
	}
	a.generation = written.Generation
	log.FromContext(ctx).V(2).Info("Gave slots back", "workload", client.ObjectKeyFromObject(wl), "slots", gone)
	return true, nil
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

// askIfManaged returns a Workload's podsets as admission decides on them; none where no policy does any more.
func (c *Controller) askIfManaged(ctx context.Context, wl *kueue.Workload) (map[string]*admission.PodSet, error) {
	m, err := c.Policies.ForQueue(ctx, wl.Namespace, string(wl.Spec.QueueName))
	if err != nil || m == nil || m.Policy == nil {
		return nil, err
	}
	asked, _, err := c.ask(ctx, wl, m.Policy)
	return asked, err
}
