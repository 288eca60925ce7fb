package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

func TestHooks(t *testing.T) {
	w := newWorld(t)
	refused := errors.New("refused")
	var calls []string
	w.Hook(&kueue.Workload{}, func(ctx context.Context, op store.Op, subresource string, old, obj client.Object) error {
		call := string(op) + " " + subresource
		if old != nil {
			call += " old"
		}
		calls = append(calls, call)
		if op == store.Delete {
			if obj != nil {
				t.Error("a deletion has a new object")
			}
			return refused
		}
		wl := obj.(*kueue.Workload)
		if wl.Spec.QueueName == "refuse" {
			return refused
		}
		// A hook may read, and what it does to the identity does not hold.
		if err := w.c.List(ctx, &kueue.WorkloadList{}); err != nil {
			return err
		}
		wl.UID, wl.CreationTimestamp, wl.Generation = "x", metav1.Time{}, 9
		wl.Spec.Priority = ptr.To[int32](int32(len(calls)))
		if op == store.Create {
			wl.Labels = map[string]string{"hooked": "true"}
		}
		return nil
	})
	wl := newWorkload("a")
	w.create(wl)
	uid := wl.UID
	if len(uid) != 36 || wl.Labels["hooked"] != "true" || *wl.Spec.Priority != 1 || wl.Generation != 1 || wl.CreationTimestamp.Nanosecond() != 1 {
		t.Errorf("created: %+v", wl)
	}
	wl.Labels["more"] = "x"
	w.must(w.c.Update(t.Context(), wl))
	if *wl.Spec.Priority != 2 || wl.Generation != 2 || wl.UID != uid {
		t.Errorf("updated: %+v", wl)
	}
	w.must(w.c.Status().Patch(t.Context(), wl, merge(`{"status":{"clusterName":"c"}}`)))
	if *wl.Spec.Priority != 3 || *wl.Status.ClusterName != "c" {
		t.Errorf("status: %+v", wl)
	}
	wl.Spec.QueueName = "refuse"
	if err := w.c.Update(t.Context(), wl); !errors.Is(err, refused) {
		t.Errorf("update: %v", err)
	}
	if err := w.c.Create(t.Context(), &kueue.Workload{ObjectMeta: meta("b"), Spec: wl.Spec}); !errors.Is(err, refused) {
		t.Errorf("create: %v", err)
	}
	if err := w.c.Delete(t.Context(), wl); !errors.Is(err, refused) {
		t.Errorf("delete: %v", err)
	}
	if got := w.workload("a"); got.Spec.QueueName != "q" {
		t.Errorf("after what was refused: %+v", got)
	}
	if diff := cmp.Diff([]string{"Create ", "Update  old", "Update status old", "Update  old", "Create ", "Delete  old"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestEventsAreOrdered(t *testing.T) {
	w := newWorld(t)
	b, a := newPod("b"), newPod("a")
	w.create(b, newWorkload("z"), a)
	b.Labels = map[string]string{"x": "y"}
	w.must(w.c.Update(t.Context(), b))
	w.must(w.c.Delete(t.Context(), b))
	w.create(newPod("b"))
	if diff := cmp.Diff([]string{"+Pod a", "+Pod b", "=Pod b", "-Pod b", "+Pod b", "+Workload z"}, describe(w.Events())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(w.Events()) != 0 {
		t.Error("events came twice")
	}
}

func TestPut(t *testing.T) {
	w := newWorld(t)
	given := fullWorkload("a")
	given.UID, given.Generation, given.CreationTimestamp = "u", 5, metav1.NewTime(start.Add(-time.Hour))
	given.ResourceVersion = "77"
	w.must(w.Put(given))
	got := w.workload("a")
	if got.UID != "u" || got.Generation != 5 || !got.CreationTimestamp.Equal(&given.CreationTimestamp) || got.Status.Admission == nil || got.ResourceVersion != "1" {
		t.Errorf("put: %+v", got)
	}
	w.must(w.Put(given))
	if w.Version() != 1 || len(w.Events()) != 1 {
		t.Error("the same again was a write")
	}
	bare := newWorkload("a")
	bare.Spec.QueueName = "other"
	w.must(w.Put(bare))
	got = w.workload("a")
	if got.UID != "u" || got.Generation != 6 || !got.CreationTimestamp.Equal(&given.CreationTimestamp) || got.Status.Admission != nil || got.Labels != nil {
		t.Errorf("replaced: %+v", got)
	}
	w.must(w.Put(newPod("p")))
	pod := &corev1.Pod{}
	w.must(w.c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "p"}, pod))
	if len(pod.UID) != 36 || pod.Generation != 1 || pod.CreationTimestamp.Sub(start) != 2 {
		t.Errorf("filled in: %+v", pod.ObjectMeta)
	}
	if err := w.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}); err == nil {
		t.Error("a pod without a namespace was put")
	}
}

func TestTimesGoInWholeSeconds(t *testing.T) {
	w := newWorld(t)
	w.create(newWorkload("a"))
	wl := w.workload("a")
	odd := metav1.NewTime(start.Add(1500 * time.Millisecond))
	wl.Status.Conditions = []metav1.Condition{{Type: "A", LastTransitionTime: odd}}
	wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: &odd}
	w.must(w.c.Status().Update(t.Context(), wl))
	want := start.Add(time.Second)
	if got := w.workload("a").Status; !got.Conditions[0].LastTransitionTime.Time.Equal(want) || !got.RequeueState.RequeueAt.Time.Equal(want) {
		t.Errorf("stored: %+v", got)
	}
	if odd.Nanosecond() == 0 {
		t.Error("the caller's own time was cut")
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(t)
	w.must(w.c.Create(t.Context(), newWorkload("b"), client.DryRunAll))
	wl := newWorkload("a")
	w.create(wl)
	version := w.Version()
	wl.Spec.QueueName = "other"
	w.must(w.c.Update(t.Context(), wl, client.DryRunAll))
	w.must(w.c.Status().Patch(t.Context(), wl, merge(`{"status":{"clusterName":"c"}}`), client.DryRunAll))
	w.must(w.c.Delete(t.Context(), wl, client.DryRunAll))
	if got := w.workload("a"); w.Version() != version || got.Spec.QueueName != "q" || got.Status.ClusterName != nil {
		t.Errorf("stored: %+v", got)
	}
}

func TestGeneratedNames(t *testing.T) {
	given := func() (all []string) {
		w := newWorld(t)
		for range 20 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "p-"}}
			w.create(p)
			all = append(all, p.Name)
		}
		return all
	}
	first := given()
	seen := map[string]bool{}
	for _, name := range first {
		seen[name] = true
		if len(name) != len("p-")+5 {
			t.Errorf("name %q", name)
		}
	}
	if len(seen) != len(first) {
		t.Errorf("names twice: %v", first)
	}
	if diff := cmp.Diff(first, given()); diff != "" {
		t.Errorf("other names (-first +second):\n%s", diff)
	}
}
