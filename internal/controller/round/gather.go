package round

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// gather lists the Workloads that a round has something to do for, those that hold quota first: all that have not finished,
// and of those that have the ones that a promise is left of. What it returns is shared with the cache.
func (r *round) gather(ctx context.Context) ([]*kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{observe.WorkloadState: observe.Unfinished}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list workloads: %w", err)
	}
	workloads, unfinished := make([]*kueue.Workload, 0, len(list.Items)), make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		workloads = append(workloads, &list.Items[i])
		unfinished[list.Items[i].UID] = true
	}
	promises := &v1alpha1.PlacementList{}
	if err := r.Client.List(ctx, promises, client.MatchingFields{observe.PlacementUse: observe.Promise}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list placements: %w", err)
	}
	r.promises = make(map[types.UID]*v1alpha1.Placement, len(promises.Items))
	for i := range promises.Items {
		p := &promises.Items[i]
		owner := observe.ControllerOf(p)
		r.promises[owner] = p
		if unfinished[owner] {
			continue
		}
		wl := &kueue.Workload{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(p), wl, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get workload: %w", err)
		} else if err == nil && wl.UID == owner && finished(wl) {
			workloads = append(workloads, wl)
		}
	}
	return inOrder(workloads), nil
}

// inOrder sorts Workloads by firstComeFirstServed.
func inOrder(workloads []*kueue.Workload) []*kueue.Workload {
	type at struct {
		*kueue.Workload
		reserved int64
	}
	sorted := make([]at, len(workloads))
	for i, wl := range workloads {
		sorted[i] = at{wl, reservedAt(wl)}
	}
	slices.SortFunc(sorted, func(a, b at) int { return firstComeFirstServed(a.Workload, b.Workload, a.reserved, b.reserved) })
	for i := range sorted {
		workloads[i] = sorted[i].Workload
	}
	return workloads
}

// settled is a holder that a round had nothing to do for, and has nothing to do for as long as all of this is the same.
type settled struct {
	inputs              int64
	workload, placement string
	promise             types.UID
}

// settle notes that nothing is to be done for a Workload whose check is Ready on a promise that is kept.
func (r *round) settle(wl *kueue.Workload, placement *v1alpha1.Placement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.still == nil {
		r.still = map[types.UID]settled{}
	}
	r.still[wl.UID] = settled{inputs: r.inputs, workload: wl.ResourceVersion, placement: placement.ResourceVersion, promise: placement.UID}
}

// isSettled says whether a Workload is one for which nothing is to be done.
func (r *round) isSettled(wl *kueue.Workload) bool {
	p := r.promises[wl.UID]
	if p == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.still[wl.UID]
	return ok && s.inputs == r.inputs && s.workload == wl.ResourceVersion && s.placement == p.ResourceVersion && s.promise == p.UID
}
