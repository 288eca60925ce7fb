package steering_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
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

func TestLeavingTakesOutAllThatWasWritten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	policy := &flavors.Policy{Name: "gpu", Flavors: []flavors.Flavor{{Name: "h100", NodeLabels: map[string]string{"gpu": "h100"}}}}
	policy.Spec.QuotaResource = "gpus"
	user := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}
	user.Spec.Active = ptr.To(true)
	user.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	user.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	for name, change := range map[string]func(*kueue.Workload){
		"waiting": func(*kueue.Workload) {},
		"deactivated by us": func(wl *kueue.Workload) {
			wl.Spec.Active = ptr.To(false)
			wl.Annotations[v1alpha1.SteeringAnnotation] = "nonce"
		},
	} {
		t.Run(name, func(t *testing.T) {
			wl := user.DeepCopy()
			if err := policy.Steer(wl, flavors.Plan{Charge: map[string]int64{"main": 8}}); err != nil {
				t.Fatal(err)
			}
			change(wl)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(wl).Build()
			w := &steering.Writer{Client: c, Now: time.Now}
			for _, want := range []bool{true, false} {
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(user), wl); err != nil {
					t.Fatal(err)
				}
				if written, err := w.Leave(t.Context(), wl); err != nil || written != want {
					t.Fatalf("written: %v, %v, want %v", written, err, want)
				}
			}
			if diff := cmp.Diff(user.Spec, wl.Spec); diff != "" || len(wl.Annotations) > 0 {
				t.Errorf("annotations %v, spec (-user's +left):\n%s", wl.Annotations, diff)
			}
		})
	}
	t.Run("deactivated by an admin", func(t *testing.T) {
		wl := user.DeepCopy()
		wl.Spec.Active = ptr.To(false)
		w := &steering.Writer{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(wl).Build(), Now: time.Now}
		if written, err := w.Leave(t.Context(), wl); err != nil || written {
			t.Errorf("written: %v, %v, want nothing", written, err)
		}
	})
}
