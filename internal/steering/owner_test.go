package steering_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/steering"
)

func TestWhoSetActiveLast(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	set := func(owner string, active bool) func(*testing.T, client.Client) {
		return func(t *testing.T, c client.Client) {
			wl := &kueue.Workload{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "wl"}, wl); err != nil {
				t.Fatal(err)
			}
			patch := client.MergeFrom(wl.DeepCopy())
			wl.Spec.Active = ptr.To(active)
			if err := c.Patch(t.Context(), wl, patch, client.FieldOwner(owner)); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := func(t *testing.T, c client.Client) {
		wl := &kueue.Workload{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "wl"}, wl); err != nil {
			t.Fatal(err)
		}
		patch := client.MergeFrom(wl.DeepCopy())
		wl.Spec.Priority, wl.Labels = ptr.To[int32](7), map[string]string{"active": "x"}
		if err := c.Patch(t.Context(), wl, patch, client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		writes []func(*testing.T, client.Client)
		want   bool
	}{
		"we deactivated it": {writes: []func(*testing.T, client.Client){set("plimsoll", false)}},
		"an admin wrote the same value: that is no write":          {writes: []func(*testing.T, client.Client){set("plimsoll", false), set("kubectl-edit", false)}},
		"an admin changed something else":                          {writes: []func(*testing.T, client.Client){set("plimsoll", false), other}},
		"an admin activated and deactivated it":                    {writes: []func(*testing.T, client.Client){set("plimsoll", false), set("kubectl-edit", true), set("kubectl-edit", false)}, want: true},
		"we deactivated it again, after an admin had done both":    {writes: []func(*testing.T, client.Client){set("kubectl-edit", false), set("kubectl-edit", true), set("plimsoll", false)}},
		"what nobody is remembered for is left to the nonce alone": {writes: []func(*testing.T, client.Client){set("ancient-changes", false)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().
				WithObjects(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}).Build()
			set("kueue", true)(t, c)
			for _, write := range tc.writes {
				write(t, c)
			}
			wl := &kueue.Workload{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "wl"}, wl); err != nil {
				t.Fatal(err)
			}
			if got := steering.SetByAnother(wl); got != tc.want {
				t.Errorf("set by another: %v, want %v; %v", got, tc.want, wl.ManagedFields)
			}
		})
	}
}
