package store_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// pair is one thing seen through the store and through controller-runtime's fake client.
type pair struct {
	names   [2]string
	clients [2]client.Client
}

func newPair(t testing.TB) *pair {
	w := newWorld(t)
	peer := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(&kueue.Workload{}, &batchv1.Job{}, &corev1.Pod{}).Build()
	return &pair{names: [2]string{"store", "fake"}, clients: [2]client.Client{w.c, peer}}
}

// view is what of an object the two should agree on.
func view(t *rapid.T, obj client.Object) string {
	c := obj.DeepCopyObject().(client.Object)
	c.SetResourceVersion("")
	c.SetUID("")
	c.SetGeneration(0)
	c.SetCreationTimestamp(metaZero)
	c.SetManagedFields(nil)
	if c.GetDeletionTimestamp() != nil {
		c.SetDeletionTimestamp(&metaZero)
	}
	c.SetDeletionGracePeriodSeconds(nil)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "kind")
	delete(fields, "apiVersion")
	if text, err = json.Marshal(tidy(fields)); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tidy leaves out what is empty: whether it is there makes no difference.
func tidy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			if x = tidy(x); x == nil {
				delete(v, name)
			} else {
				v[name] = x
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = tidy(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

func class(err error) string {
	if err == nil {
		return ""
	}
	return string(apierrors.ReasonForError(err))
}

// both does one thing to both, and holds their answers against each other.
func (p *pair) both(t *rapid.T, what string, do func(i int, c client.Client) (client.Object, error)) {
	var answers [2]string
	for i, c := range p.clients {
		obj, err := do(i, c)
		answers[i] = class(err)
		if err == nil && obj != nil {
			answers[i] = view(t, obj)
		}
	}
	if diff := cmp.Diff(answers[1], answers[0]); diff != "" {
		t.Fatalf("%s (-fake +store):\n%s", what, diff)
	}
}

// change makes a write that was not made before.
func change(obj client.Object, field string, nth int) {
	text := fmt.Sprintf("v%d", nth)
	switch o := obj.(type) {
	case *kueue.Workload:
		switch field {
		case "spec":
			o.Spec.QueueName = kueue.LocalQueueName(text)
		case "status":
			o.Status.ClusterName = ptr.To(text)
		}
	case *batchv1.Job:
		switch field {
		case "spec":
			o.Spec.Parallelism = ptr.To(int32(nth))
		case "status":
			o.Status.Active = int32(nth)
		}
	}
	switch field {
	case "labels":
		obj.SetLabels(map[string]string{"nth": text})
	case "no finalizers":
		obj.SetFinalizers(nil)
	}
}

// TestTheStoreAgreesWithTheFakeClient does random operations on both. Only what the fake client does as an API server does
// is compared: every write changes something, and nothing owns anything.
func TestTheStoreAgreesWithTheFakeClient(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newPair(t)
		ctx := t.Context()
		seen := [2]map[string]client.Object{{}, {}} // what was read last, by kind and name
		for nth := range rapid.IntRange(1, 20).Draw(r, "operations") {
			isJob := rapid.Bool().Draw(r, "job")
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "name")
			fresh := func() client.Object {
				if isJob {
					return newJob(name)
				}
				return newWorkload(name)
			}
			key := fmt.Sprint(isJob, name)
			last := func(i int) client.Object {
				if o := seen[i][key]; o != nil {
					return o.DeepCopyObject().(client.Object)
				}
				return nil
			}
			op := rapid.SampledFrom([]string{"create", "get", "get", "update", "status", "patch", "patch status", "delete", "delete version", "list"}).Draw(r, "op")
			field := rapid.SampledFrom([]string{"spec", "status", "labels", "no finalizers"}).Draw(r, "field")
			lock, held := rapid.Bool().Draw(r, "lock"), rapid.Bool().Draw(r, "held")
			if op != "create" && op != "get" && op != "list" && last(0) == nil {
				op = "get"
			}
			if field == "no finalizers" && (op == "update" || op == "patch") && len(last(0).GetFinalizers()) == 0 {
				field = "labels"
			}
			// A write by the wrong door changes nothing, which the fake client takes for a write.
			if (op == "status" || op == "patch status") != (field == "status") {
				field = map[bool]string{true: "status", false: "spec"}[op == "status" || op == "patch status"]
			}
			p.both(r, fmt.Sprintf("%d: %s %s %s", nth, op, key, field), func(i int, c client.Client) (client.Object, error) {
				obj := last(i)
				switch op {
				case "create":
					obj = fresh()
					if held {
						obj.SetFinalizers([]string{"x/y"})
					}
					err := c.Create(ctx, obj)
					if err == nil { // the fake client counts versions anew for each object: one of an object before means nothing
						delete(seen[i], key)
					}
					return obj, err
				case "get":
					obj = fresh()
					err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
					if err == nil {
						seen[i][key] = obj.DeepCopyObject().(client.Object)
					}
					return obj, err
				case "update":
					change(obj, field, nth)
					return obj, c.Update(ctx, obj)
				case "status":
					change(obj, field, nth)
					return obj, c.Status().Update(ctx, obj)
				case "patch", "patch status":
					patch := client.MergeFrom(last(i))
					if lock {
						patch = client.MergeFromWithOptions(last(i), client.MergeFromWithOptimisticLock{})
					}
					change(obj, field, nth)
					if op == "patch" {
						return obj, c.Patch(ctx, obj, patch)
					}
					return obj, c.Status().Patch(ctx, obj, patch)
				case "delete":
					return nil, c.Delete(ctx, obj)
				case "delete version":
					return nil, c.Delete(ctx, obj, client.Preconditions{ResourceVersion: ptr.To(obj.GetResourceVersion())})
				}
				return p.listed(t, r, i), nil
			})
		}
	})
}

// listed returns all that is there as the items of one object.
func (p *pair) listed(t testing.TB, r *rapid.T, i int) client.Object {
	all := map[string]any{}
	jobs, workloads := &batchv1.JobList{}, &kueue.WorkloadList{}
	for _, l := range []client.ObjectList{jobs, workloads} {
		if err := p.clients[i].List(t.Context(), l); err != nil {
			r.Fatal(err)
		}
	}
	for n := range jobs.Items {
		all[fmt.Sprint("job ", n)] = view(r, &jobs.Items[n])
	}
	for n := range workloads.Items {
		all[fmt.Sprint("workload ", n)] = view(r, &workloads.Items[n])
	}
	return &unstructured.Unstructured{Object: all}
}

// podConfiguration draws what a manager applies to a pod, or to its status.
func podConfiguration(r *rapid.T, status bool) map[string]any {
	some := func(what string) bool { return rapid.Bool().Draw(r, what) }
	value := func(what string) string { return rapid.SampledFrom([]string{"1", "2"}).Draw(r, what) }
	content := map[string]any{"apiVersion": "v1", "kind": "Pod"}
	metadata := map[string]any{"namespace": "ns", "name": "p"}
	content["metadata"] = metadata
	if status {
		conditions := []any{}
		for _, kind := range []string{"A", "B"} {
			if some("condition " + kind) {
				c := map[string]any{"type": kind, "status": value("status")}
				if some("message") {
					c["message"] = value("message")
				}
				conditions = append(conditions, c)
			}
		}
		content["status"] = map[string]any{"conditions": conditions}
		if some("reason") {
			content["status"].(map[string]any)["reason"] = value("reason")
		}
		return content
	}
	labels := map[string]any{}
	for _, l := range []string{"a", "b"} {
		if some("label " + l) {
			labels[l] = value("label")
		}
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if some("finalizer") {
		metadata["finalizers"] = []any{"x/" + value("finalizer")}
	}
	containers := []any{}
	for _, name := range []string{"x", "y"} {
		if some("container " + name) {
			c := map[string]any{"name": name}
			if some("image") {
				c["image"] = value("image")
			}
			if some("command") {
				c["command"] = []any{value("command")}
			}
			containers = append(containers, c)
		}
	}
	content["spec"] = map[string]any{"containers": containers}
	if some("node") {
		content["spec"].(map[string]any)["nodeName"] = value("node")
	}
	return content
}

// TestApplyAgreesWithTheFakeClient lets managers apply to one pod, or to its status. The fake client does it as the API
// server does, with the schema of the server; but it takes who applies to the status for an owner of the rest too.
func TestApplyAgreesWithTheFakeClient(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newPair(t)
		status := rapid.Bool().Draw(r, "status")
		if status {
			p.both(r, "create", func(_ int, c client.Client) (client.Object, error) { return nil, c.Create(t.Context(), newPod("p")) })
		}
		for nth := range rapid.IntRange(1, 6).Draw(r, "applies") {
			manager := rapid.SampledFrom([]string{"m", "n"}).Draw(r, "manager")
			force := rapid.Bool().Draw(r, "force")
			content := podConfiguration(r, status)
			p.both(r, fmt.Sprintf("%d: %s applies %v", nth, manager, content), func(_ int, c client.Client) (client.Object, error) {
				u := &unstructured.Unstructured{Object: content}
				ac := client.ApplyConfigurationFromUnstructured(u.DeepCopy())
				var err error
				if status {
					opts := []client.SubResourceApplyOption{client.FieldOwner(manager)}
					if force {
						opts = append(opts, client.ForceOwnership)
					}
					err = c.Status().Apply(t.Context(), ac, opts...)
				} else {
					opts := []client.ApplyOption{client.FieldOwner(manager)}
					if force {
						opts = append(opts, client.ForceOwnership)
					}
					err = c.Apply(t.Context(), ac, opts...)
				}
				if err != nil {
					return nil, err
				}
				pod := newPod("p")
				return pod, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
			})
		}
	})
}
