package simulate

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"

	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// result tells what the run came to.
func (r *run) result(ctx context.Context, in *input.Input) (*simulate.Result, error) {
	out := &simulate.Result{Version: simulate.Version, Ended: r.clock.Since(in.Start), FirstFlavors: map[string]string{}, Log: r.recorder.log}
	told := map[simulate.Key]bool{}
	for i := range in.Objects {
		id, queue, ok := subject(in.Objects[i].Object)
		if !ok || told[id] {
			continue
		}
		told[id] = true
		w, err := r.workload(ctx, id, queue)
		if err != nil {
			return nil, err
		}
		out.Workloads = append(out.Workloads, *w)
	}
	if err := r.shares(ctx, out); err != nil {
		return nil, err
	}
	out.Ledger.Digest = r.parts.Observer.Book.Snapshot().Digest()
	return out, nil
}

// subject says whom an object is, if it is a Job or a Workload that nobody owns, and its queue.
func subject(o client.Object) (id simulate.Key, queue string, ok bool) {
	switch o := o.(type) {
	case *batchv1.Job:
		return simulate.Key{Kind: "Job", Namespace: o.Namespace, Name: o.Name}, o.Labels[controllerconstants.QueueLabel], true
	case *kueue.Workload:
		return keyOf(o), string(o.Spec.QueueName), metav1.GetControllerOfNoCopy(o) == nil
	}
	return id, "", false
}

// workload is one entry.
func (r *run) workload(ctx context.Context, id simulate.Key, queue string) (*simulate.Workload, error) {
	e := report.Entry{
		Namespace: id.Namespace, Name: id.Name, Kind: id.Kind, Queue: queue, Outcome: report.OutcomeNotSubmitted,
		Message: "the run ended before it was submitted",
	}
	lq := &kueue.LocalQueue{}
	if r.client.Get(ctx, client.ObjectKey{Namespace: id.Namespace, Name: queue}, lq) == nil {
		e.ClusterQueue = string(lq.Spec.ClusterQueue)
	}
	t := r.recorder.tracks[id]
	if t == nil {
		return &simulate.Workload{Entry: e}, nil
	}
	wl := &kueue.Workload{}
	err := r.client.Get(ctx, t.workload, wl, client.UnsafeDisableDeepCopy)
	if t.deleted && t.done != nil {
		wl, err = t.done, nil
	}
	switch {
	case err == nil && keyOf(wl) == id && (!t.deleted || t.done != nil):
		now, err := r.recorder.report(ctx, wl)
		if err != nil {
			return nil, err
		}
		e = *now
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("get workload: %w", err)
	case t.deleted:
		e.Outcome, e.Message = report.OutcomeDeleted, "it was deleted"
		e.Standings = report.Standings(t.decided)
		if t.last != nil {
			e.ClusterQueue = t.last.ClusterQueue
		}
	default:
		e.Outcome, e.Message = report.OutcomeWaiting, "Kueue does not manage it"
		if at := r.finishedJob(ctx, id); at != nil {
			e.Outcome, e.Message, e.FinishedAt = report.OutcomeFinished, "it has finished, and its Workload is gone", ptr.To(r.at(*at))
		}
	}
	if t.submitted != nil {
		e.SubmittedAt = ptr.To(r.at(*t.submitted))
	}
	return r.stays(e, t), nil
}

// finishedJob returns when a Job ended; nil for one that did not.
func (r *run) finishedJob(ctx context.Context, id simulate.Key) *time.Time {
	job := &batchv1.Job{}
	if id.Kind != "Job" || r.client.Get(ctx, client.ObjectKey{Namespace: id.Namespace, Name: id.Name}, job) != nil {
		return nil
	}
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	return nil
}

// stays fills in an entry's admissions, and what the last one gave.
func (r *run) stays(e report.Entry, t *track) *simulate.Workload {
	out := &simulate.Workload{}
	e.Admissions, e.AdmittedAt, e.Flavors, e.Charged, e.Pods = []report.Admission{}, nil, nil, nil, nil
	for i := range t.admissions {
		s := &t.admissions[i]
		told := s.told()
		a := report.Admission{At: r.at(s.at), Flavors: told.Flavors}
		e.Flavors, e.Charged, e.Pods = told.Flavors, told.Charged, told.Pods
		out.Held = append(out.Held, held(i, told)...)
		if s.ended != nil {
			a.EndedAt, a.End = ptr.To(r.at(*s.ended)), &s.end
		}
		e.Admissions, e.AdmittedAt = append(e.Admissions, a), &a.At
	}
	out.Entry = e
	return out
}

// held says what each podset held in an admission.
func held(admission int, e *report.Entry) []simulate.Held {
	devices := map[string]int64{}
	for i := range e.Pods {
		devices[e.Pods[i].PodSet] += int64(len(e.Pods[i].Devices))
	}
	var out []simulate.Held
	for podSet, flavor := range e.Flavors {
		out = append(out, simulate.Held{Admission: admission, PodSet: podSet, Flavor: flavor, Devices: devices[podSet]})
	}
	return out
}

// at is a time on the run's clock, in whole seconds, rounded down.
func (r *run) at(t time.Time) report.Clock {
	return report.ClockOf(r.recorder.start, t)
}

// shares adds what Kueue counts as each queue's and cohort's share, and the first flavor of each queue's policy.
func (r *run) shares(ctx context.Context, out *simulate.Result) error {
	if err := r.kueue.refresh(ctx); err != nil {
		return err
	}
	resolver := &policies.Resolver{Client: r.client}
	for _, root := range r.kueue.roots {
		shares, err := root.shares(ctx)
		if err != nil {
			return err
		}
		out.Shares = append(out.Shares, shares...)
	}
	list := &kueue.ClusterQueueList{}
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("list cluster queues: %w", err)
	}
	for i := range list.Items {
		m, err := resolver.ForClusterQueue(ctx, &list.Items[i])
		if err != nil {
			return err
		}
		if m != nil && m.Policy != nil && len(m.Policy.Spec.Flavors) > 0 {
			out.FirstFlavors[list.Items[i].Name] = m.Policy.Spec.Flavors[0].Name
		}
	}
	return nil
}

// shares returns Kueue's weighted share of each queue and cohort below a root; all are 0 without fair sharing.
func (r *root) shares(ctx context.Context) ([]simulate.Share, error) {
	var out []simulate.Share
	add := func(kind, name string, fair *kueue.FairSharing, share float64) {
		weight := "1"
		if fair != nil && fair.Weight != nil {
			weight = fair.Weight.String()
		}
		out = append(out, simulate.Share{Name: name, Kind: kind, Weight: weight, Share: core.WeightedShare(share)})
	}
	for _, q := range r.world.roots[r.name] {
		stats, err := r.cache.Usage(q)
		if err != nil {
			return nil, fmt.Errorf("usage of ClusterQueue %s: %w", q.Name, err)
		}
		add("ClusterQueue", q.Name, q.Spec.FairSharing, stats.WeightedShare)
	}
	for i := range r.world.cohorts.Items {
		c := &r.world.cohorts.Items[i]
		if r.world.rootOf(c.Name) != r.name {
			continue
		}
		stats, err := r.cache.CohortStats(c)
		if err != nil {
			return nil, fmt.Errorf("usage of Cohort %s: %w", c.Name, err)
		}
		add("Cohort", c.Name, c.Spec.FairSharing, stats.WeightedShare)
	}
	return out, nil
}
