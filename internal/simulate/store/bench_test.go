package store_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// crowd fills a store with Workloads and a pod each.
func crowd(b *testing.B, n int) *world {
	b.Helper()
	w := newWorld(b)
	w.Index(&kueue.Workload{}, "queue", func(o client.Object) []string { return []string{string(o.(*kueue.Workload).Spec.QueueName)} })
	for i := range n {
		w.must(w.Put(fullWorkload(fmt.Sprintf("w%05d", i))))
		w.create(newPod(fmt.Sprintf("p%05d", i)))
	}
	w.Events()
	return w
}

func BenchmarkStore(b *testing.B) {
	const n = 5000
	w := crowd(b, n)
	name := func(i int) string { return fmt.Sprintf("w%05d", i%n) }
	ctx := b.Context()
	for what, do := range map[string]func(i int) error{
		"get": func(i int) error {
			return w.c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name(i)}, &kueue.Workload{})
		},
		"get shared": func(i int) error {
			return w.c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name(i)}, &kueue.Workload{}, client.UnsafeDisableDeepCopy)
		},
		"merge status": func(i int) error {
			return w.c.Status().Patch(ctx, newWorkload(name(i)), merge(fmt.Sprintf(
				`{"status":{"conditions":[{"type":"A","status":"True","reason":"r%d","message":"m","lastTransitionTime":"2026-02-03T04:05:06Z"}]}}`, i)))
		},
		"apply status": func(i int) error {
			u := statusOf(name(i), "", map[string]any{"admissionChecks": []any{map[string]any{"name": "c", "state": "Pending", "message": fmt.Sprint(i)}}})
			return w.c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("m"), client.ForceOwnership)
		},
		"update": func(i int) error {
			wl := fullWorkload(name(i))
			wl.Spec.QueueName = kueue.LocalQueueName(fmt.Sprint(i))
			return w.c.Update(ctx, wl)
		},
		"create and delete": func(int) error {
			p := newPod("p02500-x")
			if err := w.c.Create(ctx, p); err != nil {
				return err
			}
			return w.c.Delete(ctx, p)
		},
		"list all shared": func(int) error { return w.c.List(ctx, &corev1.PodList{}, client.UnsafeDisableDeepCopy) },
		"list by index": func(int) error {
			return w.c.List(ctx, &kueue.WorkloadList{}, client.MatchingFields{"queue": "none"}, client.InNamespace("ns"))
		},
	} {
		b.Run(fmt.Sprintf("%s/objects=%d", what, 2*n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := do(i); err != nil {
					b.Fatal(err)
				}
				if i%1000 == 0 {
					w.Events()
				}
			}
		})
	}
}
