package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const (
	// jobUIDLabel is Kueue's label on a Workload that holds the uid of its Job. It only narrows the search: what
	// counts is the owner reference.
	jobUIDLabel = "kueue.x-k8s.io/job-uid"
	// maxOwners bounds the way up from a pod.
	maxOwners = 8
)

// Subject is all that was found about a target.
type Subject struct {
	report.Input
	// Pod is the name of the pod that was asked about, if it was one.
	Pod string
	// Notes say what could not be read, a sentence each. What is missing is left out of the answer.
	Notes []string
}

// Gather reads a target's Workload and what belongs to it. Without the Workload or the right to read its Placement
// there is no answer; everything else may be missing. The error is a sentence for the person who asked.
func Gather(ctx context.Context, c client.Reader, t Target, now time.Time) (*Subject, error) {
	g := &gatherer{Reader: c, subject: &Subject{Input: report.Input{Now: now}}}
	wl, err := g.workload(ctx, t)
	if err != nil {
		return nil, err
	}
	g.subject.Workload = wl
	if err := g.placement(ctx); err != nil {
		return nil, err
	}
	g.job(ctx)
	g.queue(ctx)
	g.pods(ctx)
	g.templates(ctx)
	return g.subject, nil
}

type gatherer struct {
	client.Reader
	subject *Subject
}

// note keeps what could not be read; what does not exist is no matter.
func (g *gatherer) note(what string, err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		g.subject.Notes = append(g.subject.Notes, sentence("read "+what, err))
	}
}

// workload finds the target's Workload.
func (g *gatherer) workload(ctx context.Context, t Target) (*kueue.Workload, error) {
	key := client.ObjectKey{Namespace: t.Namespace, Name: t.Name}
	switch t.Kind {
	case KindJob:
		job := partial(batchv1.SchemeGroupVersion.WithKind("Job"))
		if err := g.Get(ctx, key, job); err != nil {
			return nil, wrap(t, err)
		}
		return g.ofOwner(ctx, t, job)
	case KindPod:
		pod := partial(corev1.SchemeGroupVersion.WithKind("Pod"))
		if err := g.Get(ctx, key, pod); err != nil {
			return nil, wrap(t, err)
		}
		g.subject.Pod = pod.Name
		return g.ofPod(ctx, t, pod)
	}
	wl := &kueue.Workload{}
	if err := g.Get(ctx, key, wl); err != nil {
		return nil, wrap(t, err)
	}
	return wl, nil
}

// ofPod climbs from a pod over its controllers to the one that has a Workload.
func (g *gatherer) ofPod(ctx context.Context, t Target, pod *metav1.PartialObjectMetadata) (*kueue.Workload, error) {
	object := pod
	for range maxOwners {
		ref := metav1.GetControllerOf(object)
		if ref == nil {
			return nil, fmt.Errorf("%s does not belong to a Workload of Kueue: nothing keeps it waiting but kube-scheduler (kubectl describe pod %s says what)", t, t.Name)
		}
		wl, err := g.owned(ctx, t.Namespace, ref.UID)
		if err != nil {
			return nil, wrap(t, err)
		}
		if wl != nil {
			return wl, nil
		}
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return nil, wrap(t, err)
		}
		object = partial(gv.WithKind(ref.Kind))
		if err := g.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: ref.Name}, object); err != nil {
			return nil, wrap(t, err)
		}
		if object.UID != ref.UID {
			return nil, fmt.Errorf("%s belonged to a %s that is gone", t, ref.Kind)
		}
	}
	return nil, fmt.Errorf("%s has more than %d owners above each other", t, maxOwners)
}

func (g *gatherer) ofOwner(ctx context.Context, t Target, owner *metav1.PartialObjectMetadata) (*kueue.Workload, error) {
	wl, err := g.owned(ctx, owner.Namespace, owner.UID)
	if err != nil {
		return nil, wrap(t, err)
	}
	if wl == nil {
		if _, queued := owner.Labels["kueue.x-k8s.io/queue-name"]; !queued {
			return nil, fmt.Errorf("%s has no Workload: it lacks the label kueue.x-k8s.io/queue-name, so Kueue does not manage it", t)
		}
		return nil, fmt.Errorf("%s has no Workload yet: Kueue makes it within a second or so; if it stays, see kubectl describe %s %s", t, t.Kind, t.Name)
	}
	return wl, nil
}

// owned returns the Workload that an object of this uid controls or owns, or nil. Of several it is the newest that has
// not finished.
func (g *gatherer) owned(ctx context.Context, namespace string, uid types.UID) (*kueue.Workload, error) {
	for _, narrowed := range []bool{true, false} {
		options := []client.ListOption{client.InNamespace(namespace)}
		if narrowed {
			options = append(options, client.MatchingLabels{jobUIDLabel: string(uid)})
		}
		list := &kueue.WorkloadList{}
		if err := g.List(ctx, list, options...); err != nil {
			return nil, err
		}
		owned := slices.DeleteFunc(list.Items, func(wl kueue.Workload) bool {
			return !slices.ContainsFunc(wl.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == uid })
		})
		if len(owned) > 0 {
			return new(slices.MaxFunc(owned, byCurrency)), nil
		}
	}
	return nil, nil
}

// byCurrency sorts finished Workloads before those that have not, and older before newer.
func byCurrency(a, b kueue.Workload) int {
	finished := func(wl *kueue.Workload) bool {
		return meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
	}
	switch {
	case finished(&a) != finished(&b):
		if finished(&a) {
			return -1
		}
		return 1
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}
	if a.Name < b.Name {
		return -1
	}
	return 1
}

func (g *gatherer) placement(ctx context.Context) error {
	wl, p := g.subject.Workload, &v1alpha1.Placement{}
	err := g.Get(ctx, client.ObjectKeyFromObject(wl), p)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return errors.New(sentence("read the Placement of workload/"+wl.Name, err))
	}
	// One that was made for an earlier Workload of this name is on its way to the garbage collector.
	if slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == wl.UID }) {
		g.subject.Placement = p
	}
	return nil
}

func (g *gatherer) job(ctx context.Context) {
	ref := metav1.GetControllerOf(g.subject.Workload)
	if ref == nil {
		return
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return
	}
	job := partial(gv.WithKind(ref.Kind))
	if err = g.Get(ctx, client.ObjectKey{Namespace: g.subject.Workload.Namespace, Name: ref.Name}, job); err == nil && job.UID == ref.UID {
		g.subject.Job = job
	}
	g.note(ref.Kind+" "+ref.Name, err)
}

// queue reads the LocalQueue, and of the ClusterQueue, which tenants may not be able to read, only whether it has our
// check.
func (g *gatherer) queue(ctx context.Context) {
	s := g.subject
	q := &kueue.LocalQueue{}
	err := g.Get(ctx, client.ObjectKey{Namespace: s.Workload.Namespace, Name: string(s.Workload.Spec.QueueName)}, q)
	switch {
	case err == nil:
		s.LocalQueue = q
	case apierrors.IsNotFound(err):
		s.QueueMissing = true
	default:
		g.note("LocalQueue "+string(s.Workload.Spec.QueueName), err)
	}
	s.Checks = g.checks(ctx)
}

// checks returns the names of our checks of the Workload's ClusterQueue, or nil where they cannot be looked up.
func (g *gatherer) checks(ctx context.Context) []string {
	cq := &kueue.ClusterQueue{}
	name := g.subject.ClusterQueue()
	if name == "" || g.Get(ctx, client.ObjectKey{Name: name}, cq) != nil {
		return nil
	}
	resolver := &policies.Resolver{Client: g.Reader}
	checks, err := resolver.OwnChecks(ctx, cq)
	if err != nil {
		return nil
	}
	ours := []string{}
	for _, c := range checks {
		ours = append(ours, c.Name)
	}
	return ours
}

// pods reads the pods from which a chain of controllers leads to the Workload's owner.
func (g *gatherer) pods(ctx context.Context) {
	s := g.subject
	owner := metav1.GetControllerOf(s.Workload)
	if owner == nil {
		return
	}
	// Labels only narrow the search.
	var narrowed client.ListOption = client.HasLabels{report.PodSetLabel}
	if owner.Kind == "Job" {
		narrowed = client.MatchingLabels{batchv1.ControllerUidLabel: string(owner.UID)}
	}
	list := &corev1.PodList{}
	err := g.List(ctx, list, client.InNamespace(s.Workload.Namespace), narrowed)
	g.note("the pods", err)
	if err != nil {
		return
	}
	descends := map[types.UID]bool{owner.UID: true}
	for i := range list.Items {
		pod := &list.Items[i]
		ref := metav1.GetControllerOf(pod)
		if ref == nil {
			continue
		}
		if _, known := descends[ref.UID]; !known {
			descends[ref.UID] = g.descends(ctx, ref, owner.UID)
		}
		if descends[ref.UID] {
			s.Pods = append(s.Pods, *pod)
		}
	}
	slices.SortFunc(s.Pods, func(a, b corev1.Pod) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// descends says whether the chain of controllers from ref leads to an object of this uid.
func (g *gatherer) descends(ctx context.Context, ref *metav1.OwnerReference, uid types.UID) bool {
	for range maxOwners {
		if ref == nil || ref.UID == uid {
			return ref != nil
		}
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return false
		}
		object := partial(gv.WithKind(ref.Kind))
		if err := g.Get(ctx, client.ObjectKey{Namespace: g.subject.Workload.Namespace, Name: ref.Name}, object); err != nil || object.UID != ref.UID {
			return false
		}
		ref = metav1.GetControllerOf(object)
	}
	return false
}

// templates reads the claim templates that were made for the pods. While the promise stands it says the same.
func (g *gatherer) templates(ctx context.Context) {
	s := g.subject
	if s.Placement != nil && s.Placement.Spec.Key != nil {
		return
	}
	if !slices.ContainsFunc(s.Pods, func(p corev1.Pod) bool { return len(p.Spec.ResourceClaims) > 0 }) {
		return
	}
	list := &resourcev1.ResourceClaimTemplateList{}
	err := g.List(ctx, list, client.InNamespace(s.Workload.Namespace), client.MatchingLabels{v1alpha1.OwnedLabel: "true"})
	g.note("the pods' claim templates", err)
	s.Templates = list.Items
}

func partial(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}
