package manager

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
)

// add lets the manager run a controller. changes, if there are any, ask it to look at everything.
func add(mgr ctrl.Manager, c parts.Controller, changes chan event.GenericEvent) error {
	b := ctrl.NewControllerManagedBy(mgr).Named(c.Name).WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers})
	for _, w := range c.Watches {
		var options []builder.WatchesOption
		if w.When != nil {
			options = append(options, builder.WithPredicates(w.When))
		}
		b = b.Watches(w.Kind, handler.EnqueueRequestsFromMapFunc(w.Requests), options...)
	}
	if changes != nil {
		b = b.WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(parts.Whole)))
	}
	if err := b.Complete(c.Reconciler); err != nil {
		return fmt.Errorf("add controller %s: %w", c.Name, err)
	}
	return nil
}
