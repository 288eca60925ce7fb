package store_test

import (
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a store, its client and its clock.
type world struct {
	t   testing.TB
	now time.Time
	*store.Store
	c client.Client
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, now: start}
	w.Store = store.New(scheme(), func() time.Time { return w.now })
	w.c = w.Client()
	return w
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, o := range objs {
		if err := w.c.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// workload returns what is stored of a Workload in namespace ns.
func (w *world) workload(name string) *kueue.Workload {
	w.t.Helper()
	wl := &kueue.Workload{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, wl); err != nil {
		w.t.Fatal(err)
	}
	return wl
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }

func newWorkload(name string) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: meta(name)}
	wl.Spec.QueueName = "q"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
	wl.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return wl
}

func newJob(name string) *batchv1.Job { return &batchv1.Job{ObjectMeta: meta(name)} }

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

var metaZero metav1.Time
