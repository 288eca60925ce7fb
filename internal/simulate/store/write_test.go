package store_test

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestCreate(t *testing.T) {
	w := newWorld(t)
	a, b := newWorkload("a"), newWorkload("b")
	a.UID, a.Generation, a.CreationTimestamp = "mine", 7, metav1.NewTime(start.Add(-time.Hour))
	a.Status.ClusterName = ptr.To("dropped")
	w.create(a, b)
	if a.UID == "" || a.UID == "mine" || a.UID == b.UID || len(a.UID) != 36 {
		t.Errorf("uids: %q and %q", a.UID, b.UID)
	}
	if a.Generation != 1 || a.Status.ClusterName != nil || a.ResourceVersion != "1" || b.ResourceVersion != "2" {
		t.Errorf("created: %+v", a)
	}
	if got := a.CreationTimestamp.Sub(start); got != 1 {
		t.Errorf("the first was created %v after the start", got)
	}
	if got := b.CreationTimestamp.Sub(start); got != 2 {
		t.Errorf("the second was created %v after the start", got)
	}
	if err := w.c.Create(t.Context(), newWorkload("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	first := a.UID
	w.must(w.c.Delete(t.Context(), a))
	again := newWorkload("a")
	w.create(again)
	if again.UID == first {
		t.Error("an object created again has the uid of the first")
	}
}

func TestUpdateLeavesTheStatusAndStatusLeavesTheRest(t *testing.T) {
	w := newWorld(t)
	wl := newWorkload("a")
	w.create(wl)
	created := wl.CreationTimestamp

	wl.Status.ClusterName = ptr.To("c")
	wl.Spec.QueueName = "not this"
	w.must(w.c.Status().Update(t.Context(), wl))
	if got := w.workload("a"); *got.Status.ClusterName != "c" || got.Spec.QueueName != "q" || got.Generation != 1 {
		t.Errorf("after a status write: %+v", got)
	}
	wl.Status.ClusterName = ptr.To("not this")
	wl.Spec.QueueName = "other"
	w.must(w.c.Update(t.Context(), wl))
	if got := w.workload("a"); *got.Status.ClusterName != "c" || got.Spec.QueueName != "other" || got.Generation != 2 {
		t.Errorf("after a write: %+v", got)
	}
	wl.Labels = map[string]string{"a": "b"}
	w.must(w.c.Update(t.Context(), wl))
	if wl.Generation != 2 {
		t.Errorf("metadata made generation %d", wl.Generation)
	}
	w.must(w.c.Patch(t.Context(), wl, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"creationTimestamp":null,"labels":{"a":"c"}}}`))))
	if !wl.CreationTimestamp.Equal(&created) || wl.Labels["a"] != "c" {
		t.Errorf("creation went from %v to %v, labels %v", created, wl.CreationTimestamp, wl.Labels)
	}
}

func TestStaleVersions(t *testing.T) {
	w := newWorld(t)
	wl := newWorkload("a")
	w.create(wl)
	stale := wl.DeepCopy()
	wl.Spec.QueueName = "other"
	w.must(w.c.Update(t.Context(), wl))

	stale.Spec.QueueName = "third"
	if err := w.c.Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("update: %v", err)
	}
	if err := w.c.Status().Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("status update: %v", err)
	}
	changed := stale.DeepCopy()
	changed.Spec.QueueName = "fourth"
	lock := client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{})
	if err := w.c.Patch(t.Context(), changed.DeepCopy(), lock); !apierrors.IsConflict(err) {
		t.Errorf("patch with a lock: %v", err)
	}
	w.must(w.c.Patch(t.Context(), changed, client.MergeFrom(stale)))
	if got := w.workload("a").Spec.QueueName; got != "fourth" {
		t.Errorf("patched to %s", got)
	}
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "none"}, &kueue.Workload{}); !apierrors.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
}

func TestAWriteThatChangesNothing(t *testing.T) {
	w := newWorld(t)
	wl := newWorkload("a")
	w.create(wl)
	w.Events()
	v := w.Version()
	for name, write := range map[string]func(*kueue.Workload) error{
		"update":        func(wl *kueue.Workload) error { return w.c.Update(t.Context(), wl) },
		"status update": func(wl *kueue.Workload) error { return w.c.Status().Update(t.Context(), wl) },
		"empty list for none": func(wl *kueue.Workload) error {
			wl.Labels = map[string]string{}
			return w.c.Update(t.Context(), wl)
		},
		"merge patch": func(wl *kueue.Workload) error {
			return w.c.Patch(t.Context(), wl, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"queueName":"q"}}`)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.workload("a")
			w.must(write(c))
			if c.ResourceVersion != wl.ResourceVersion || w.Version() != v || len(w.Events()) > 0 {
				t.Errorf("version %s after %s", c.ResourceVersion, wl.ResourceVersion)
			}
		})
	}
}
