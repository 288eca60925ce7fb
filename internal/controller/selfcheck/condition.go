package selfcheck

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// maxSaid is how many differences a condition names.
const maxSaid = 5

// start finds the Placements that an earlier process said to differ.
func (c *Controller) start(ctx context.Context) error {
	list := &v1alpha1.PlacementList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list placements: %w", err)
	}
	c.found, c.marked, c.version = map[string][]finding{}, map[types.NamespacedName]struct{}{}, -1
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.PlacementDiverged) {
			c.marked[client.ObjectKeyFromObject(&list.Items[i])] = struct{}{}
		}
	}
	c.started = true
	return nil
}

// mark brings the condition Diverged up to date on every Placement that a difference concerns, or did.
func (c *Controller) mark(ctx context.Context, now time.Time) error {
	of := map[types.NamespacedName][]finding{}
	standing := map[types.NamespacedName]bool{}
	for _, f := range c.inOrder() {
		name := f.placement()
		if name == (types.NamespacedName{}) {
			continue
		}
		standing[name] = true
		if c.sightings[f].said {
			of[name] = append(of[name], f)
			c.marked[name] = struct{}{}
		}
	}
	for name := range c.marked {
		done, err := c.markOne(ctx, now, name, of[name], standing[name])
		if err != nil {
			return err
		}
		if done {
			delete(c.marked, name)
		}
	}
	return nil
}

// markOne sets one Placement's condition. It is done with a Placement that is gone, or says that nothing differs. standing says
// that something differs that was not said yet.
func (c *Controller) markOne(ctx context.Context, now time.Time, name types.NamespacedName, differ []finding, standing bool) (bool, error) {
	p := &v1alpha1.Placement{}
	if err := c.Client.Get(ctx, name, p); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	old := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementDiverged)
	told := old != nil && old.Status == metav1.ConditionTrue
	want := metav1.Condition{Type: v1alpha1.PlacementDiverged, Status: metav1.ConditionFalse, Reason: "Agrees", Message: "nothing differs any more", ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now)}
	switch {
	case len(differ) > 0 && p.Spec.Key != nil && p.Spec.Key.WorkloadUID == differ[0].difference.WorkloadUID:
		want.Status, want.Reason, want.Message = metav1.ConditionTrue, reasonOf(differ), messageOf(differ)
		for _, f := range differ {
			if x := c.sightings[f]; !x.told {
				x.told = true
				if !told || !said(old.Message, f) {
					c.differs(p, f)
				}
			}
		}
	case len(differ) > 0: // a Placement of an earlier or a later Workload of the name
		return true, nil
	case !told:
		return true, nil
	case standing:
		return false, nil
	default: // who said it may have seen more than the ledger has by now
		if until := old.LastTransitionTime.Add(stands); now.Before(until) {
			c.at(until)
			return false, nil
		}
	}
	err := c.Store.UpdateStatus(ctx, name, func(s *v1alpha1.PlacementStatus) { meta.SetStatusCondition(&s.Conditions, want) })
	if err != nil {
		return false, fmt.Errorf("update placement status: %w", err)
	}
	return want.Status == metav1.ConditionFalse, nil
}

// said says whether a condition tells of a difference already: it was told by an earlier process, or when the pod was bound.
func said(message string, f finding) bool {
	return strings.Contains(message, f.difference.Message) ||
		promised(f.difference.Kind) && strings.HasPrefix(message, "pod "+f.difference.Pod+" ")
}

// promised says that a difference is one from what was promised.
func promised(k ledger.DivergenceKind) bool {
	return k == ledger.DivergedDevices || k == ledger.DivergedNode
}

// reasonOf is NotAsPromised where any pod has another place than promised, else NotAsCounted.
func reasonOf(differ []finding) string {
	for _, f := range differ {
		if promised(f.difference.Kind) {
			return v1alpha1.DivergedNotAsPromised
		}
	}
	return v1alpha1.DivergedNotAsCounted
}

func messageOf(differ []finding) string {
	parts := make([]string, 0, maxSaid+1)
	for i, f := range differ {
		if i == maxSaid {
			parts = append(parts, fmt.Sprintf("and %d more", len(differ)-maxSaid))
			break
		}
		parts = append(parts, cut(f.message(), maxNote))
	}
	return strings.Join(parts, "; ")
}
