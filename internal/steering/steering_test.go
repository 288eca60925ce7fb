package steering_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

func TestWhoseDeactivationItIs(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}).Build()
	w := &steering.Writer{Client: c, Now: time.Now}
	get := func() *kueue.Workload {
		t.Helper()
		wl := &kueue.Workload{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "wl"}, wl); err != nil {
			t.Fatal(err)
		}
		return wl
	}
	admin := func(active bool) {
		t.Helper()
		wl := get()
		wl.Spec.Active = ptr.To(active)
		if err := c.Update(t.Context(), wl); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, deactivated, takenOver bool) {
		t.Helper()
		wl := get()
		if got := steering.Deactivated(wl); got != deactivated {
			t.Errorf("%s: deactivated by us: %v, want %v", when, got, deactivated)
		}
		if got := steering.TakenOver(wl); got != takenOver {
			t.Errorf("%s: taken over: %v, want %v", when, got, takenOver)
		}
	}

	expect("untouched", false, false)
	admin(false)
	expect("deactivated by an admin", false, false)
	admin(true)
	if err := w.Deactivate(t.Context(), get()); err != nil {
		t.Fatal(err)
	}
	expect("deactivated by us", true, false)
	if err := w.Reactivate(t.Context(), get(), nil, flavors.Plan{}); err != nil {
		t.Fatal(err)
	}
	expect("reactivated by us", false, false)
	if err := w.Deactivate(t.Context(), get()); err != nil {
		t.Fatal(err)
	}
	admin(true)
	expect("deactivated by us, activated by an admin", false, true)
	if err := w.Forget(t.Context(), get()); err != nil {
		t.Fatal(err)
	}
	expect("forgotten", false, false)
	admin(false)
	expect("deactivated by an admin after that", false, false)
}
