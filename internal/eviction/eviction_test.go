package eviction_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// bench is an Evictor on one Workload that holds quota since a whole second.
type bench struct {
	*testing.T
	client.Client
	*eviction.Evictor
	now time.Time
	// dies makes the manager end before the deactivating patch.
	dies bool
}

var (
	key    = client.ObjectKey{Namespace: "ns", Name: "wl"}
	policy = &flavors.Policy{Spec: v1alpha1.DevicePolicySpec{}}
)

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{T: t, now: time.Unix(1_000_000, 0)}
	b.Client = fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}}).
		WithStatusSubresource(&kueue.Workload{}, &v1alpha1.Placement{}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if b.dies {
				return context.Canceled
			}
			return c.Patch(ctx, o, p, opts...)
		}}).Build()
	now := func() time.Time { return b.now }
	b.Evictor = &eviction.Evictor{
		Writer: &steering.Writer{Client: b.Client, Now: now},
		Store: &placements.Store{Client: b.Client, Live: b.Client, Written: func(*v1alpha1.Placement) {},
			Epoch: func(context.Context) (int64, error) { return 1, nil }},
		Events: events.NewFakeRecorder(100), Metrics: metrics.New(prometheus.NewRegistry()), Now: now,
	}
	b.reserve()
	return b
}

func (b *bench) workload() *kueue.Workload {
	b.Helper()
	wl := &kueue.Workload{}
	if err := b.Get(b.Context(), key, wl); err != nil {
		b.Fatal(err)
	}
	return wl
}

// reserve has Kueue give quota to the Workload, active, now.
func (b *bench) reserve() {
	b.Helper()
	wl := b.workload()
	wl.Spec.Active, wl.Annotations = ptr.To(true), nil
	if err := b.Update(b.Context(), wl); err != nil {
		b.Fatal(err)
	}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: "True", Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(b.now)}}
	if err := b.Status().Update(b.Context(), wl); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) retry() v1alpha1.PlacementRetry {
	b.Helper()
	p := &v1alpha1.Placement{}
	if err := b.Get(b.Context(), key, p); err != nil {
		b.Fatal(err)
	}
	return ptr.Deref(p.Status.Retry, v1alpha1.PlacementRetry{})
}

func TestAnEvictionIsCountedOnce(t *testing.T) {
	for name, evict := range map[string]func(*bench) error{
		"without a place": func(b *bench) error {
			return b.Evict(b.Context(), b.workload(), policy, v1alpha1.ReasonReleaseTimeout, "no slot")
		},
		"on flavors that are refused": func(b *bench) error {
			return b.Refuse(b.Context(), b.workload(), policy, []string{"h100"}, flavors.Refusal{Reason: v1alpha1.ReasonDevicesInUse, Message: "in use"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.dies = true
			if err := evict(b); err == nil {
				t.Fatal("the deactivating patch was made")
			}
			b.dies = false
			b.now = b.now.Add(time.Minute) // longer than the backoff that was noted
			if err := evict(b); err != nil {
				t.Fatal(err)
			}
			if n := b.retry().Count; n != 1 {
				t.Errorf("counted %d times, want once", n)
			}
			if !steering.Deactivated(b.workload()) {
				t.Error("it was not evicted")
			}

			b.now = b.now.Add(time.Minute)
			b.reserve()
			if err := evict(b); err != nil {
				t.Fatal(err)
			}
			if n := b.retry().Count; n != 2 {
				t.Errorf("the next eviction makes %d, want two", n)
			}
		})
	}
}

func TestAnEvictionThatBeganLongAgoStartsItsBackoffAnew(t *testing.T) {
	b := newBench(t)
	b.dies = true
	if err := b.Evict(b.Context(), b.workload(), policy, v1alpha1.ReasonReleaseTimeout, "no slot"); err == nil {
		t.Fatal("the deactivating patch was made")
	}
	b.dies = false
	b.now = b.now.Add(time.Minute)
	if err := b.Evict(b.Context(), b.workload(), policy, v1alpha1.ReasonReleaseTimeout, "no slot"); err != nil {
		t.Fatal(err)
	}
	if until := b.retry().NotBefore; until == nil || !until.After(b.now) {
		t.Errorf("not before %v, want later than %v", until, b.now)
	}
}

func TestAnAdminsDeactivationIsNotMadeOurs(t *testing.T) {
	b := newBench(t)
	wl := b.workload()
	wl.Spec.Active = ptr.To(false)
	if err := b.Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	if err := b.Evict(t.Context(), b.workload(), policy, v1alpha1.ReasonReleaseTimeout, "no slot"); err != nil {
		t.Fatal(err)
	}
	if wl := b.workload(); steering.Deactivated(wl) || ptr.Deref(wl.Spec.Active, true) {
		t.Errorf("active %v, annotations %v: want it as the admin left it", wl.Spec.Active, wl.Annotations)
	}
}
