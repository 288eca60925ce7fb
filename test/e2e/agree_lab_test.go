package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// Many scenarios are played at once, each in a goroutine of its own: what is wrong is returned, not expected.

// The annotations of a scenario that the lab does not know by these names.
const (
	simulateDomain     = "simulate.plimsoll.dev/"
	durationAnnotation = simulateDomain + "duration"
	graceAnnotation    = simulateDomain + "grace"
)

// labObject returns an object as the lab takes it: without what a server fills in, with the lab's own annotations for how
// long pods run and take to end.
func labObject(o client.Object) (*unstructured.Unstructured, error) {
	o = o.DeepCopyObject().(client.Object)
	var err error
	seconds := func(on *metav1.ObjectMeta, from, to string, over int32) {
		text, found := o.GetAnnotations()[from]
		if !found {
			return
		}
		d, problem := time.ParseDuration(text)
		if problem != nil {
			err = fmt.Errorf("read %s: %w", from, problem)
		}
		metav1.SetMetaDataAnnotation(on, to, strconv.FormatFloat(d.Seconds()/float64(over), 'f', -1, 64))
	}
	switch o := o.(type) {
	case *batchv1.Job:
		completions, parallelism := ptr.Deref(o.Spec.Completions, 1), ptr.Deref(o.Spec.Parallelism, 1)
		seconds(&o.Spec.Template.ObjectMeta, durationAnnotation, lab.RunSecondsAnnotation, (completions+parallelism-1)/parallelism)
		seconds(&o.Spec.Template.ObjectMeta, graceAnnotation, lab.GraceSecondsAnnotation, 1)
	case *kueue.Workload:
		return nil, fmt.Errorf("Workload %s/%s: on the lab nobody ends a Workload without a Job", o.Namespace, o.Name)
	case *corev1.Pod:
		seconds(&o.ObjectMeta, graceAnnotation, lab.GraceSecondsAnnotation, 1)
	case *corev1.Node:
		if i := slices.IndexFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); i >= 0 && o.Status.Conditions[i].Status != corev1.ConditionTrue {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, lab.LostAnnotation, "true")
		}
		o.Status.Conditions = nil // KWOK's
	}
	if err != nil {
		return nil, err
	}
	annotations := o.GetAnnotations()
	for k := range annotations {
		if strings.HasPrefix(k, simulateDomain) {
			delete(annotations, k)
		}
	}
	o.SetAnnotations(annotations)
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetCreationTimestamp(metav1.Time{})
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	if _, node := o.(*corev1.Node); !node {
		delete(m, "status")
	}
	return &unstructured.Unstructured{Object: m}, nil
}

// deed is something that a scenario does at a time.
type deed struct {
	at     time.Duration
	gone   bool
	object *unstructured.Unstructured
}

// early says whether a deed makes part of what is there when the scenario begins.
func (d deed) early() bool { return d.at == 0 && !d.gone && d.object.GetKind() != "Job" }

// deedsOf returns all that is to be done, in order: what is applied at one time in the input's order, then what is deleted.
func deedsOf(in *input.Input) ([]deed, error) {
	var out []deed
	for _, o := range in.Objects {
		object, err := labObject(o.Object)
		if err != nil {
			return nil, err
		}
		out = append(out, deed{at: o.At, object: object})
		if o.DeleteAt != nil {
			out = append(out, deed{at: *o.DeleteAt, gone: true, object: object})
		}
	}
	slices.SortStableFunc(out, func(a, b deed) int {
		rank := func(d deed) int {
			if d.gone {
				return 1
			}
			return 0
		}
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return rank(a) - rank(b)
	})
	return out, nil
}

// stage does on the lab what a scenario says, and returns when its time 0 was: all that is there from the start was applied,
// but for the Jobs, and what they need is at work. Before it does something, ready waits until all that has come before
// that; what is done later is then put off by as long.
func (c *cluster) stage(ctx context.Context, in *input.Input, ready func(ctx context.Context, at time.Duration) error) (start time.Time, err error) {
	deeds, err := deedsOf(in)
	if err != nil {
		return start, err
	}
	var first []*unstructured.Unstructured
	for _, d := range deeds {
		if d.early() {
			first = append(first, d.object)
		}
	}
	if err := c.ApplyObjects(ctx, first...); err != nil {
		return start, err
	}
	for _, o := range first {
		if err := c.atWork(ctx, o); err != nil {
			return start, err
		}
	}
	start = time.Now()
	zero := start
	for _, d := range deeds {
		if d.early() {
			continue
		}
		if err := until(ctx, zero.Add(d.at)); err != nil {
			return start, err
		}
		if err := ready(ctx, d.at); err != nil {
			return start, err
		}
		if late := time.Since(zero.Add(d.at)); late > 0 {
			zero = zero.Add(late)
		}
		if err := c.do(ctx, d); err != nil {
			return start, fmt.Errorf("%s %s at %s: %w", d.object.GetKind(), d.object.GetName(), d.at, err)
		}
	}
	return start, nil
}

func until(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// do applies or deletes one object. One that is there already is replaced whole: a node was created, not applied, so what it
// has not any more would stay.
func (c *cluster) do(ctx context.Context, d deed) error {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(d.object.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(d.object), have)
	switch {
	case d.gone:
		return client.IgnoreNotFound(c.Delete(ctx, d.object.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	case d.object.GetKind() != "Node", apierrors.IsNotFound(err):
		return c.ApplyObjects(ctx, d.object)
	case err != nil:
		return err
	}
	next := d.object.DeepCopy()
	next.SetResourceVersion(have.GetResourceVersion())
	next.SetUID(have.GetUID())
	next.SetFinalizers(have.GetFinalizers())
	next.SetManagedFields(nil)
	if err := c.Update(ctx, next); err != nil {
		return err
	}
	status, found := d.object.Object["status"]
	if !found {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, next, client.RawPatch(types.MergePatchType, patch))
}

// atWork waits until what others count on is ready for it. What is not after a while is not meant to be: one that is
// stopped, or waits for what comes later.
func (c *cluster) atWork(ctx context.Context, o *unstructured.Unstructured) error {
	want := map[string]string{"ClusterQueue": kueue.ClusterQueueActive, "LocalQueue": kueue.LocalQueueActive, "DevicePolicy": v1alpha1.PolicyReady}[o.GetKind()]
	if want == "" {
		return nil
	}
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(o.GroupVersionKind())
	err := wait.PollUntilContextTimeout(ctx, 2*often, soon, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
			return false, nil // it may be there at the next look
		}
		conditions, _, _ := unstructured.NestedSlice(have.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(x any) bool {
			condition, _ := x.(map[string]any)
			return condition["type"] == want && condition["status"] == string(metav1.ConditionTrue)
		}), nil
	})
	if wait.Interrupted(err) {
		return ctx.Err()
	}
	return err
}

// allRun says whether all pods in a namespace that may run do, and all Jobs that may have pods have some.
func (c *cluster) allRun(ctx context.Context, namespace string) bool {
	jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
	if c.List(ctx, jobs, client.InNamespace(namespace)) != nil || c.List(ctx, pods, client.InNamespace(namespace)) != nil {
		return false
	}
	return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodPending || p.Status.Phase == "")
	}) && !slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool {
		return !ptr.Deref(j.Spec.Suspend, false) && j.Status.CompletionTime == nil && j.Status.Active == 0 && j.Status.Succeeded == 0 && j.Status.Failed == 0
	})
}

// came returns what has become of Jobs on the lab by now, as explain tells it, and what happened to them since a moment.
func (c *cluster) came(ctx context.Context, d *diary, keys []simulate.Key, start time.Time) (course, error) {
	out := course{entries: map[simulate.Key]report.Entry{}, ran: map[simulate.Key]map[string]int{}, waves: map[simulate.Key]bool{}}
	for _, key := range keys {
		events := d.of(key, start)
		out.events = append(out.events, events...)
		s, err := explain.Gather(ctx, c.Client, explain.Target{Kind: explain.KindJob, Namespace: key.Namespace, Name: key.Name}, time.Now())
		if err == nil {
			s.Start = start
			out.entries[key] = report.Workload(s.Input)
			out.ran[key] = map[string]int{}
			for i := range s.Pods {
				if p := &s.Pods[i]; p.Status.Phase == corev1.PodSucceeded {
					out.ran[key][podsOn(p.Labels[report.PodSetLabel], p.Spec.NodeName)]++
				}
			}
			job := &batchv1.Job{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, job); err != nil {
				return out, err
			}
			out.waves[key] = ptr.Deref(job.Spec.Completions, 1) > ptr.Deref(job.Spec.Parallelism, 1)
			continue
		}
		if got := c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &batchv1.Job{}); !apierrors.IsNotFound(got) {
			return out, fmt.Errorf("explain %s/%s: %w", key.Namespace, key.Name, err)
		}
		e := report.Entry{Namespace: key.Namespace, Name: key.Name, Kind: key.Kind, Outcome: report.OutcomeNotSubmitted}
		if len(events) > 0 {
			e.Outcome = report.OutcomeDeleted
		}
		out.entries[key] = e
	}
	return out, nil
}
