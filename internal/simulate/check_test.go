package simulate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
)

func TestOurCheckIsApplied(t *testing.T) {
	now := func() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) }
	c := store.New(parts.Scheme(), now).Client()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1}}},
	}
	if err := c.Create(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "other", State: "Pending"}, {Name: "ours", State: "Pending"}}
	if err := c.Status().Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	writer := &steering.Writer{Client: c, Now: now}
	for _, a := range []steering.Answer{{State: kueue.CheckStateReady, Message: "m"}, {State: kueue.CheckStatePending, Message: "n"}} {
		written, err := writer.Check(t.Context(), wl, "ours", a)
		if err != nil || !written {
			t.Fatalf("%v, %v", written, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
		checks := wl.Status.AdmissionChecks
		if len(checks) != 2 || checks[0].Name != "other" || checks[1].State != a.State || checks[1].Message != a.Message {
			t.Fatalf("checks: %+v", checks)
		}
		if want := map[kueue.CheckState]int{kueue.CheckStateReady: 1}[a.State]; len(checks[1].PodSetUpdates) != want {
			t.Fatalf("updates: %+v", checks[1].PodSetUpdates)
		}
	}
}
