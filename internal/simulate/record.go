package simulate

import (
	"cmp"
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// track is what happened to a Job, or to a Workload that nobody owns.
type track struct {
	submitted *time.Time
	deleted   bool
	// workload is the newest, last its entry at its last admission, and decided the last decision on it.
	workload types.NamespacedName
	last     *report.Entry
	decided  *v1alpha1.DecisionRecord
	// done is the newest as it ended; nil where it has not, or came again since. It may be gone by now.
	done       *kueue.Workload
	admissions []stay
}

// stay is one admission.
type stay struct {
	at    time.Time
	ended *time.Time
	end   string
	// began is what the Workload itself told when it was let in: flavors and charge. entry is what was reported when something
	// about it changed last; nil until the end of the instant, and for good where it ended by then.
	began report.Entry
	entry *report.Entry
}

// told is the most that is known of an admission.
func (s *stay) told() *report.Entry {
	if s.entry == nil {
		return &s.began
	}
	return s.entry
}

// over says whether a Workload of a dump had run before the start, and nothing was reported of that yet.
func (t *track) over(wl *kueue.Workload) bool {
	n := len(t.admissions)
	return n > 0 && t.admissions[n-1].entry == nil && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)
}

// recorder follows Jobs and Workloads.
type recorder struct {
	client client.Client
	now    func() time.Time
	start  time.Time
	tracks map[simulate.Key]*track
	// changed are those whose admission may have changed at this instant.
	changed map[simulate.Key]types.NamespacedName
	queues  map[string]queueTerms // by ClusterQueue
	log     []simulate.Event
	// finished counts those that ended, and finishedAt is when the last did.
	finished   int
	finishedAt time.Time
}

func newRecorder(c client.Client, now func() time.Time) *recorder {
	return &recorder{client: c, now: now, start: now(), tracks: map[simulate.Key]*track{}, changed: map[simulate.Key]types.NamespacedName{}, queues: map[string]queueTerms{}}
}

func keyOf(wl *kueue.Workload) simulate.Key {
	if ref := metav1.GetControllerOfNoCopy(wl); ref != nil {
		return simulate.Key{Kind: ref.Kind, Namespace: wl.Namespace, Name: ref.Name}
	}
	return simulate.Key{Kind: "Workload", Namespace: wl.Namespace, Name: wl.Name}
}

func (r *recorder) track(id simulate.Key) *track {
	t := r.tracks[id]
	if t == nil {
		t = &track{}
		r.tracks[id] = t
	}
	return t
}

// see is told of every event.
func (r *recorder) see(e store.Event) {
	o := e.New
	if o == nil {
		o = e.Old
	}
	switch o := o.(type) {
	case *batchv1.Job:
		r.object(simulate.Key{Kind: "Job", Namespace: o.Namespace, Name: o.Name}, o, e.New == nil)
	case *kueue.Workload:
		if metav1.GetControllerOfNoCopy(o) == nil {
			r.object(keyOf(o), o, e.New == nil)
		}
		old, _ := e.Old.(*kueue.Workload)
		now, _ := e.New.(*kueue.Workload)
		r.workload(old, now)
	case *v1alpha1.Placement:
		r.touch(o)
	case *corev1.Pod:
		old, _ := e.Old.(*corev1.Pod)
		if e.New != nil && o.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "") {
			r.bound(o)
		}
	case *kueue.ClusterQueue, *kueue.AdmissionCheck, *v1alpha1.DevicePolicy:
		clear(r.queues)
	}
}

// object follows what was submitted itself.
func (r *recorder) object(id simulate.Key, o client.Object, gone bool) {
	t := r.track(id)
	if gone {
		t.deleted = true
		r.note(simulate.EventDeleted, id)
		return
	}
	at := o.GetCreationTimestamp().Time
	switch {
	case t.submitted == nil:
		t.submitted = &at
	case !t.deleted:
		return
	}
	t.deleted, t.done = false, nil
	r.noteAt(at, simulate.EventArrived, id)
}

// note adds to the log what happens now.
func (r *recorder) note(what simulate.EventKind, id simulate.Key) { r.noteAt(r.now(), what, id) }

// noteAt adds to the log what happened at a time, which for a dump may be before the start.
func (r *recorder) noteAt(at time.Time, what simulate.EventKind, id simulate.Key) {
	r.log = append(r.log, simulate.Event{At: at.Sub(r.start), Kind: what, Workload: id})
}

// admitted says whether Kueue lets a Workload run, as the report counts it.
func admitted(wl *kueue.Workload) bool {
	return wl != nil && wl.Status.Admission != nil && (&report.Input{Workload: wl}).Admitted() && !ended(wl)
}

func (r *recorder) workload(old, now *kueue.Workload) {
	wl := now
	if wl == nil {
		wl = old
	}
	id := keyOf(wl)
	t := r.track(id)
	if now != nil {
		t.workload = client.ObjectKeyFromObject(now)
		r.changed[id] = client.ObjectKeyFromObject(now)
	}
	if old == nil {
		r.arrived(id, t, now)
		return
	}
	switch was, is := admitted(old), admitted(now); {
	case !was && is:
		t.admissions = append(t.admissions, stay{at: r.now(), began: r.began(now)})
		r.note(simulate.EventAdmitted, id)
	case was && !is:
		a := &t.admissions[len(t.admissions)-1]
		a.ended, a.end = ptr.To(r.now()), endOf(now)
		if now != nil && !ended(now) {
			r.note(simulate.EventEvicted, id)
		}
	}
	if now != nil && ended(now) && !ended(old) {
		r.finished, r.finishedAt, t.done = r.finished+1, r.now(), now
		r.note(simulate.EventFinished, id)
	}
}

// began reports what an admitted Workload tells by itself.
func (r *recorder) began(wl *kueue.Workload) report.Entry {
	terms, err := r.terms(context.Background(), string(wl.Status.Admission.ClusterQueue))
	if err != nil {
		terms = queueTerms{} // settled reads it again, and returns what is wrong
	}
	return report.Workload(report.Input{Start: r.start, Workload: wl, Quota: terms.quota})
}

// arrived follows a Workload that is new; one of a dump may have been let in, evicted or have ended before.
func (r *recorder) arrived(id simulate.Key, t *track, wl *kueue.Workload) {
	since := func(condition string) *time.Time {
		c := meta.FindStatusCondition(wl.Status.Conditions, condition)
		if c == nil || c.Status != metav1.ConditionTrue {
			return nil
		}
		return &c.LastTransitionTime.Time
	}
	evicted, finished := since(kueue.WorkloadEvicted), since(kueue.WorkloadFinished)
	if at := since(kueue.WorkloadAdmitted); at != nil && wl.Status.Admission != nil {
		s := stay{at: *at, began: r.began(wl)}
		r.noteAt(*at, simulate.EventAdmitted, id)
		switch {
		case finished != nil:
			s.ended, s.end = finished, endOf(wl)
		case evicted != nil:
			s.ended, s.end = evicted, endOf(wl)
			r.noteAt(*evicted, simulate.EventEvicted, id)
		}
		t.admissions = append(t.admissions, s)
	}
	if finished != nil {
		r.finished, t.done = r.finished+1, wl
		if finished.After(r.finishedAt) {
			r.finishedAt = *finished
		}
		r.noteAt(*finished, simulate.EventFinished, id)
	}
}

func ended(wl *kueue.Workload) bool {
	return meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
}

func endOf(wl *kueue.Workload) string {
	if wl == nil {
		return string(report.OutcomeDeleted)
	}
	if ended(wl) {
		return kueue.WorkloadFinished
	}
	if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		return c.Reason
	}
	return ""
}

// touch marks a Workload whose promise or decision changed.
func (r *recorder) touch(p *v1alpha1.Placement) {
	wl := &kueue.Workload{}
	key := client.ObjectKeyFromObject(p)
	if r.client.Get(context.Background(), key, wl, client.UnsafeDisableDeepCopy) == nil && wl.UID == observe.ControllerOf(p) {
		r.changed[keyOf(wl)] = key
		if p.Status.Record != nil {
			r.track(keyOf(wl)).decided = p.Status.Record
		}
	}
}

// bound marks the Workload of a pod that has got its node.
func (r *recorder) bound(p *corev1.Pod) {
	for _, wl := range r.owned(observe.ControllerOf(p), p.Namespace) {
		r.changed[keyOf(wl)] = client.ObjectKeyFromObject(wl)
	}
}

func (r *recorder) owned(owner types.UID, namespace string) []*kueue.Workload {
	if owner == "" {
		return nil
	}
	list := &kueue.WorkloadList{}
	if r.client.List(context.Background(), list, client.InNamespace(namespace), client.MatchingFields{observe.WorkloadByOwner: string(owner)}, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	out := make([]*kueue.Workload, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// settled keeps, at the end of an instant, what the admissions that changed have come to.
func (r *recorder) settled(ctx context.Context) error {
	for id, key := range r.changed {
		wl := &kueue.Workload{}
		if err := r.client.Get(ctx, key, wl, client.UnsafeDisableDeepCopy); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			continue
		}
		t := r.track(id)
		if !admitted(wl) && !t.over(wl) {
			continue
		}
		e, err := r.report(ctx, wl)
		if err != nil {
			return err
		}
		a := &t.admissions[len(t.admissions)-1]
		if a.entry != nil {
			e.Pods = keep(a.entry.Pods, e.Pods)
		}
		t.last, a.entry = e, e
	}
	clear(r.changed)
	return nil
}

// keep returns the places of an admission that were those and are these now: of each podset the more. A slot that is given
// back while others still run was a place all the same.
func keep(was, now []report.Pod) []report.Pod {
	more := map[string]int{}
	for i := range now {
		more[now[i].PodSet]++
	}
	for i := range was {
		more[was[i].PodSet]--
	}
	out := slices.DeleteFunc(slices.Clone(now), func(p report.Pod) bool { return more[p.PodSet] < 0 })
	out = append(out, slices.DeleteFunc(slices.Clone(was), func(p report.Pod) bool { return more[p.PodSet] >= 0 })...)
	slices.SortFunc(out, func(a, b report.Pod) int {
		return cmp.Or(cmp.Compare(a.PodSet, b.PodSet), cmp.Compare(a.Index, b.Index))
	})
	return out
}

// report makes a Workload's entry as the objects are now.
func (r *recorder) report(ctx context.Context, wl *kueue.Workload) (*report.Entry, error) {
	in := report.Input{Start: r.start, Now: r.now(), Workload: wl}
	p := &v1alpha1.Placement{}
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(wl), p, client.UnsafeDisableDeepCopy); err == nil && observe.ControllerOf(p) == wl.UID {
		in.Placement = p
	} else if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	lq := &kueue.LocalQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}, lq); err == nil {
		in.LocalQueue = lq
	} else {
		in.QueueMissing = true
	}
	terms, err := r.terms(ctx, in.ClusterQueue())
	if err != nil {
		return nil, err
	}
	in.Checks, in.Quota = terms.checks, terms.quota
	if owner := observe.ControllerOf(wl); owner != "" && (in.Placement == nil || in.Placement.Spec.Key == nil) {
		list := &corev1.PodList{}
		if err := r.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{observe.PodByController: string(owner)}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		in.Pods = list.Items
		r.ofPods(ctx, &in)
	}
	e := report.Workload(in)
	e.History = nil
	return &e, nil
}

// ofPods adds the claims of pods, and the templates that were made for them: those outlive the claims of a pod that has ended.
func (r *recorder) ofPods(ctx context.Context, in *report.Input) {
	for i := range in.Pods {
		p := &in.Pods[i]
		for _, s := range p.Status.ResourceClaimStatuses {
			claim := &resourcev1.ResourceClaim{}
			if s.ResourceClaimName != nil && r.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: *s.ResourceClaimName}, claim) == nil {
				in.Claims = append(in.Claims, *claim)
			}
		}
		for _, c := range p.Spec.ResourceClaims {
			template := &resourcev1.ResourceClaimTemplate{}
			if c.ResourceClaimTemplateName != nil && r.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: *c.ResourceClaimTemplateName}, template) == nil {
				in.Templates = append(in.Templates, *template)
			}
		}
	}
}

// queueTerms are what a report wants to know of a ClusterQueue: the names of our checks, and the policy's quotaResource.
type queueTerms struct {
	checks []string
	quota  corev1.ResourceName
}

func (r *recorder) terms(ctx context.Context, queue string) (queueTerms, error) {
	if terms, ok := r.queues[queue]; ok {
		return terms, nil
	}
	terms := queueTerms{checks: []string{}}
	cq := &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
		r.queues[queue] = terms
		return terms, client.IgnoreNotFound(err)
	}
	resolver := &policies.Resolver{Client: r.client}
	checks, err := resolver.OwnChecks(ctx, cq)
	if err != nil {
		return terms, err
	}
	for _, c := range checks {
		terms.checks = append(terms.checks, c.Name)
	}
	if len(checks) > 0 {
		policy := &v1alpha1.DevicePolicy{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: policies.PolicyOf(checks[0])}, policy); client.IgnoreNotFound(err) != nil {
			return terms, err
		}
		terms.quota = corev1.ResourceName(policy.Spec.QuotaResource)
	}
	r.queues[queue] = terms
	return terms, nil
}
