package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BenchmarkDay runs a hundred Jobs of four pods with eight devices each, of which some are always running.
func BenchmarkDay(b *testing.B) {
	for _, pinned := range []bool{true, false} {
		b.Run(fmt.Sprintf("nodes=1000/pinned=%t", pinned), func(b *testing.B) {
			objects := []client.Object{newClass(), newTemplate("all", 8)}
			for i := range 1000 {
				name := fmt.Sprintf("node-%04d", i)
				objects = append(objects, newNode(name), newSlice(name, 8))
			}
			for b.Loop() {
				w := newWorld(b, objects...)
				for i := range 100 {
					w.until(time.Duration(i) * time.Minute)
					w.put(newJob(fmt.Sprintf("job-%d", i), 4, annotated(DurationAnnotation, "30m"), func(j *batchv1.Job) {
						claiming(&j.Spec.Template.Spec, "all")
						if pinned {
							j.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("node-%04d", i%200)}
							j.Spec.Parallelism, j.Spec.Completions = new(int32), new(int32)
							*j.Spec.Parallelism, *j.Spec.Completions = 1, 4
						}
					}))
					w.settle()
				}
				w.until(4 * time.Hour)
			}
		})
	}
}

// BenchmarkWaiting looks for room for pods of four devices on nodes that have so many left, of eight.
func BenchmarkWaiting(b *testing.B) {
	for _, left := range []int{0, 3} {
		b.Run(fmt.Sprintf("nodes=1000/left=%d", left), func(b *testing.B) {
			objects := []client.Object{newClass(), newTemplate("four", 4, `device.attributes["gpu.example.com"].uuid != ""`)}
			for i := range 1000 {
				name := fmt.Sprintf("node-%04d", i)
				held := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: claimSpec(int64(8 - left))}
				held.Status.Allocation = &resourcev1.AllocationResult{}
				for k := range 8 - left {
					held.Status.Allocation.Devices.Results = append(held.Status.Allocation.Devices.Results,
						resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "gpu.example.com", Pool: name, Device: fmt.Sprintf("gpu-%d", k)})
				}
				objects = append(objects, newNode(name), newSlice(name, 8), held)
			}
			for i := range 10 {
				objects = append(objects, newPod(fmt.Sprintf("pod-%d", i), claims1("four")))
			}
			w := newWorld(b, objects...)
			if got := w.pods(); len(got) != 10 || !strings.HasSuffix(got[0], " Pending") {
				b.Fatal(got)
			}
			b.ReportAllocs()
			for b.Loop() {
				w.scheduler.version++
				if changed, err := w.scheduler.Schedule(b.Context()); changed || err != nil {
					b.Fatal(changed, err)
				}
			}
		})
	}
}
