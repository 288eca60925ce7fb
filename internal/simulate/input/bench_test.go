package input

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkRead reads a cluster of 1,000 nodes of 8 devices with 5,000 Jobs and their Workloads.
func BenchmarkRead(b *testing.B) {
	var text strings.Builder
	text.WriteString(base)
	for i := range 1000 {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Node\nmetadata: {name: n%d}\nstatus: {capacity: {cpu: 64, memory: 512Gi, pods: 110}}\n---\n", i)
		fmt.Fprintf(&text, "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: n%d}\nspec:\n  driver: gpu.nvidia.com\n  nodeName: n%d\n  pool: {name: n%d, generation: 1, resourceSliceCount: 1}\n  devices:\n", i, i, i)
		for d := range 8 {
			fmt.Fprintf(&text, "  - {name: gpu-%d, attributes: {model: {string: H100}}, capacity: {memory: {value: 80Gi}}}\n", d)
		}
		text.WriteString("---\n")
	}
	for i := range 5000 {
		text.WriteString(job(fmt.Sprintf("job-%d", i), at(fmt.Sprintf("%ds", i))) + "---\n")
		fmt.Fprintf(&text, `apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: w-%d
  namespace: team-a
spec: {queueName: main, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: main, image: train}]}}}]}
---
`, i)
	}
	files := filesOf([]string{text.String()})
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		in, err := Read(files, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if len(in.Objects) != 12_007 {
			b.Fatal(len(in.Objects))
		}
	}
}
