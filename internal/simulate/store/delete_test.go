package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

func TestFinalizersHoldAnObject(t *testing.T) {
	w := newWorld(t)
	wl := newWorkload("a")
	wl.Finalizers = []string{"x/y"}
	w.create(wl)
	w.now = start.Add(90 * time.Second)
	w.must(w.c.Delete(t.Context(), wl))
	w.must(w.c.Delete(t.Context(), wl)) // again: nothing more happens
	got := w.workload("a")
	if got.DeletionTimestamp == nil || !got.DeletionTimestamp.Time.Equal(w.now) || got.Generation != 2 {
		t.Fatalf("while a finalizer holds it: %+v", got.ObjectMeta)
	}
	version := w.Version()
	got.Finalizers, got.DeletionTimestamp = nil, nil
	w.must(w.c.Update(t.Context(), got))
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); !apierrors.IsNotFound(err) {
		t.Errorf("after its last finalizer: %v", err)
	}
	if w.Version() != version+1 {
		t.Errorf("%d writes, not one", w.Version()-version)
	}
	events := w.Events()
	if last := events[len(events)-1]; last.New != nil || last.Old.GetName() != "a" {
		t.Errorf("the last event is %+v", last)
	}
}

func TestAPodLivesOnForItsGrace(t *testing.T) {
	w := newWorld(t)
	w.create(newPod("p"))
	w.Hook(&corev1.Pod{}, func(_ context.Context, op store.Op, _ string, old, _ client.Object) error {
		if op != store.Delete || old.GetDeletionTimestamp() != nil {
			return nil
		}
		dying := old.DeepCopyObject().(client.Object)
		dying.SetDeletionTimestamp(&metav1.Time{Time: start.Add(30 * time.Second)})
		dying.SetDeletionGracePeriodSeconds(ptr.To[int64](30))
		if err := w.Put(dying); err != nil {
			return err
		}
		return store.ErrHandled
	})
	pod := newPod("p")
	w.must(w.c.Delete(t.Context(), pod))
	w.must(w.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Status.Phase = corev1.PodFailed
	w.must(w.c.Status().Update(t.Context(), pod))
	w.must(w.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	w.must(w.c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		t.Errorf("after its grace: %v", err)
	}
}

func TestDeletePreconditions(t *testing.T) {
	for name, tc := range map[string]struct {
		preconditions func(*metav1.ObjectMeta) client.Preconditions
		conflict      bool
	}{
		"the uid": {preconditions: func(m *metav1.ObjectMeta) client.Preconditions { return client.Preconditions{UID: &m.UID} }},
		"another uid": {preconditions: func(*metav1.ObjectMeta) client.Preconditions {
			return client.Preconditions{UID: ptr.To[types.UID]("x")}
		}, conflict: true},
		"the version": {preconditions: func(m *metav1.ObjectMeta) client.Preconditions {
			return client.Preconditions{ResourceVersion: &m.ResourceVersion}
		}},
		"an older version": {preconditions: func(*metav1.ObjectMeta) client.Preconditions {
			return client.Preconditions{ResourceVersion: ptr.To("0")}
		}, conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			wl := newWorkload("a")
			w.create(wl)
			err := w.c.Delete(t.Context(), newWorkload("a"), tc.preconditions(&wl.ObjectMeta))
			if apierrors.IsConflict(err) != tc.conflict || (err != nil) != tc.conflict {
				t.Errorf("got %v", err)
			}
		})
	}
}

func ownedBy(obj client.Object, owners ...client.Object) client.Object {
	var references []metav1.OwnerReference
	for _, o := range owners {
		references = append(references, metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: o.GetName(), UID: o.GetUID()})
	}
	obj.SetOwnerReferences(references)
	return obj
}

func TestGarbageIsCollected(t *testing.T) {
	setup := func(w *world) (a, b *batchv1.Job) {
		a, b = newJob("a"), newJob("b")
		w.create(a, b)
		w.create(ownedBy(newPod("of-a-2"), a), ownedBy(newPod("of-a-1"), a), ownedBy(newPod("of-both"), a, b), newPod("of-none"))
		wl := newWorkload("of-a")
		w.create(ownedBy(wl, a))
		w.create(ownedBy(newPod("of-wl"), wl))
		w.Events()
		return a, b
	}
	for name, tc := range map[string]struct {
		do   func(w *world, a, b *batchv1.Job)
		want []string
	}{
		"what the owner owned goes, and what that owned; another owner keeps it": {
			do:   func(w *world, a, _ *batchv1.Job) { w.must(w.c.Delete(w.t.Context(), a)) },
			want: []string{"-Job a", "-Pod of-a-1", "-Pod of-a-2", "=Pod of-both b", "-Pod of-wl", "-Workload of-a"},
		},
		"when its last owner goes, it goes": {
			do: func(w *world, a, b *batchv1.Job) {
				w.must(w.c.Delete(w.t.Context(), a))
				w.Events()
				w.must(w.c.Delete(w.t.Context(), b))
			},
			want: []string{"-Job b", "-Pod of-both"},
		},
		"orphans stay and forget": {
			do: func(w *world, a, _ *batchv1.Job) {
				w.must(w.c.Delete(w.t.Context(), a, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
			},
			want: []string{"-Job a", "=Pod of-a-1", "=Pod of-a-2", "=Pod of-both b", "=Workload of-a"},
		},
		"an owner that is held keeps what it owns until it is gone": {
			do: func(w *world, a, _ *batchv1.Job) {
				a.Finalizers = []string{"x/y"}
				w.must(w.c.Update(w.t.Context(), a))
				w.must(w.c.Delete(w.t.Context(), a))
				if len(w.Events()) != 2 {
					w.t.Error("more than the owner changed")
				}
				w.must(w.c.Patch(w.t.Context(), a, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			},
			want: []string{"-Job a", "-Pod of-a-1", "-Pod of-a-2", "=Pod of-both b", "-Pod of-wl", "-Workload of-a"},
		},
		"what a hook refuses to delete stays": {
			do: func(w *world, a, _ *batchv1.Job) {
				w.Hook(&corev1.Pod{}, func(context.Context, store.Op, string, client.Object, client.Object) error { return errors.New("no") })
				w.must(w.c.Delete(w.t.Context(), a))
			},
			want: []string{"-Job a", "=Pod of-both b", "-Workload of-a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := setup(w)
			tc.do(w, a, b)
			if diff := cmp.Diff(tc.want, describe(w.Events())); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// describe tells events: created (+), changed (=) and deleted (-), with the owners that are left.
func describe(events []store.Event) []string {
	var all []string
	for _, e := range events {
		sign, obj := "=", e.New
		switch {
		case e.Old == nil:
			sign = "+"
		case e.New == nil:
			sign, obj = "-", e.Old
		}
		text := fmt.Sprintf("%s%s %s", sign, obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName())
		if sign == "=" {
			for _, r := range obj.GetOwnerReferences() {
				text += " " + r.Name
			}
		}
		all = append(all, text)
	}
	return all
}

func TestDeleteAllOf(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"c", "a", "b"} {
		p := newPod(name)
		p.Labels = map[string]string{"keep": fmt.Sprint(name == "b")}
		w.create(p)
	}
	w.Events()
	w.must(w.c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("ns"), client.MatchingLabels{"keep": "false"}))
	if diff := cmp.Diff([]string{"-Pod a", "-Pod c"}, describe(w.Events())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if err := w.c.Delete(t.Context(), newPod("a")); !apierrors.IsNotFound(err) {
		t.Errorf("deleted again: %v", err)
	}
}
