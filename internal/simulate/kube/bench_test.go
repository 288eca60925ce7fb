package kube

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
