package simulate

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/workload"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/kube"
)

// others are the controllers that stand for what is not here: other admission checks, and whoever made a Workload that no
// Job owns.
func (w *cluster) others() []parts.Controller {
	return []parts.Controller{
		{Name: "checks", Reconciler: reconcile.Func(w.activate), Watches: []parts.Watch{{Kind: &kueue.AdmissionCheck{}, Requests: parts.Itself}}},
		{Name: "answers", Reconciler: reconcile.Func(w.answer), Watches: []parts.Watch{{Kind: &kueue.Workload{}, Requests: parts.Itself}}},
		{Name: "bare", Reconciler: reconcile.Func(w.bare), Watches: []parts.Watch{{Kind: &kueue.Workload{}, Requests: parts.Itself}}},
	}
}

// activate lets the checks of other controllers be Active.
func (w *cluster) activate(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	check := &kueue.AdmissionCheck{}
	if err := w.client.Get(ctx, r.NamespacedName, check); err != nil || check.Spec.ControllerName == v1alpha1.ControllerName {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	changed := meta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: check.Generation,
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	if !changed {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, w.client.Status().Update(ctx, check)
}

// answer turns the checks of other controllers Ready.
func (w *cluster) answer(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	wl := &kueue.Workload{}
	if err := w.client.Get(ctx, r.NamespacedName, wl); err != nil || !workload.HasQuotaReservation(wl) || workload.IsFinished(wl) || workload.IsEvicted(wl) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	changed := false
	for i := range wl.Status.AdmissionChecks {
		c := &wl.Status.AdmissionChecks[i]
		check := &kueue.AdmissionCheck{}
		if c.State == kueue.CheckStateReady || w.client.Get(ctx, client.ObjectKey{Name: string(c.Name)}, check) != nil || check.Spec.ControllerName == v1alpha1.ControllerName {
			continue
		}
		c.State, c.LastTransitionTime, changed = kueue.CheckStateReady, metav1.NewTime(w.clock.Now()), true
	}
	if !changed {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, w.client.Status().Update(ctx, wl)
}

// bare runs a Workload that nobody owns: from admission for as long as it says. It gives its quota back at once when it is
// evicted, as the controller of a Job does when its pods have ended.
func (w *cluster) bare(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	wl := &kueue.Workload{}
	if err := w.client.Get(ctx, r.NamespacedName, wl); err != nil || metav1.GetControllerOfNoCopy(wl) != nil || workload.IsFinished(wl) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		if !workload.HasQuotaReservation(wl) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, workload.PatchAdmissionStatus(ctx, w.client, wl, w.clock, func(wl *kueue.Workload) (bool, error) {
			requeued := c.Reason == kueue.WorkloadEvictedByPreemption || c.Reason == kueue.WorkloadEvictedDueToNodeFailures
			workload.SetRequeuedCondition(wl, c.Reason, c.Message, requeued)
			workload.UnsetQuotaReservationWithCondition(wl, "Pending", c.Message, w.clock.Now())
			return true, nil
		})
	}
	if !workload.IsAdmitted(wl) {
		return reconcile.Result{}, nil
	}
	duration, err := time.ParseDuration(wl.Annotations[kube.DurationAnnotation])
	if err != nil { // it runs for ever; the input has refused what does not parse
		return reconcile.Result{}, nil
	}
	since := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime
	if left := since.Add(duration).Sub(w.clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, workload.Finish(ctx, w.client, wl, kueue.WorkloadFinishedReasonSucceeded, "it has run for as long as it was to", w.clock)
}

// jobWatches wake Kueue's reconciler of Jobs.
func (w *cluster) jobWatches() []parts.Watch {
	ofWorkload := func(_ context.Context, o client.Object) []reconcile.Request {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil || ref.Kind != "Job" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}}}
	}
	return []parts.Watch{{Kind: &batchv1.Job{}, Requests: parts.Itself}, {Kind: &kueue.Workload{}, Requests: ofWorkload}}
}

// workloadWatches wake Kueue's reconciler of Workloads.
func (w *cluster) workloadWatches() []parts.Watch {
	all := func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := &kueue.WorkloadList{}
		if w.client.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			if !workload.IsFinished(&list.Items[i]) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	}
	return []parts.Watch{
		{Kind: &kueue.Workload{}, Requests: parts.Itself},
		{Kind: &kueue.LocalQueue{}, When: parts.ChangedSpec, Requests: all},
		{Kind: &kueue.ClusterQueue{}, When: parts.ChangedSpec, Requests: all},
		{Kind: &kueue.AdmissionCheck{}, Requests: all},
	}
}

// queueWatches wake what says on a LocalQueue whether it takes anything.
func (w *cluster) queueWatches() []parts.Watch {
	all := func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := &kueue.LocalQueueList{}
		if w.client.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return out
	}
	return []parts.Watch{
		{Kind: &kueue.LocalQueue{}, When: parts.ChangedSpec, Requests: parts.Itself},
		{Kind: &kueue.ClusterQueue{}, When: parts.ChangedSpec, Requests: all},
		{Kind: &kueue.AdmissionCheck{}, Requests: all},
		{Kind: &kueue.ResourceFlavor{}, When: parts.ChangedSpec, Requests: all},
	}
}

// queueStatus is Kueue's own reconciler of LocalQueues, and before it that of their ClusterQueue: what they say of who waits
// and what is used is not brought up to date, only whether they are active.
func (k *kueues) queueStatus(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if err := k.refresh(ctx); err != nil {
		return reconcile.Result{}, err
	}
	lq := &kueue.LocalQueue{}
	if err := k.client.Get(ctx, r.NamespacedName, lq); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	root := k.byQueue[string(lq.Spec.ClusterQueue)]
	if root == nil {
		root = k.rootless
	} else if _, err := core.NewClusterQueueReconciler(k.client, root.queues, root.cache).Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}}); err != nil {
		return reconcile.Result{}, err
	}
	_, err := core.NewLocalQueueReconciler(k.client, root.queues, root.cache, core.WithClock(k.clock)).Reconcile(ctx, r)
	return reconcile.Result{}, err
}

// mute is Kueue's recorder of events: nobody reads them.
type mute struct{}

// Event does nothing.
func (mute) Event(runtime.Object, string, string, string) {}

// Eventf does nothing.
func (mute) Eventf(runtime.Object, string, string, string, ...any) {}

// AnnotatedEventf does nothing.
func (mute) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}

// silent is Plimsoll's.
type silent struct{}

// Eventf does nothing.
func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
