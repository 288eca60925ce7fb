package input

import (
	"fmt"
	"strings"
	"testing"
)

// base is a small cluster in one file: what a queue needs, and a Job.
const base = `# a cluster
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
---
apiVersion: plimsoll.dev/v1alpha1
kind: DevicePolicy
metadata: {name: gpu}
spec:
  quotaResource: gpus
  flavors:
  - name: h100
    selectors: [{cel: {expression: device.driver == "gpu.nvidia.com"}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: plimsoll}
spec:
  controllerName: plimsoll.dev/ledger
  parameters: {apiGroup: plimsoll.dev, kind: DevicePolicy, name: gpu}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: plimsoll}]}
  resourceGroups:
  - coveredResources: [gpus]
    flavors:
    - name: h100
      resources: [{name: gpus, nominalQuota: 8}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: team-a}
---
`

// job is a Job as short as a server takes it, with lines to be put into metadata and into the whole.
func job(name string, metadata ...string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata:
  name: %s
  namespace: team-a
  labels: {kueue.x-k8s.io/queue-name: main}
%sspec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: train
`, name, indented(metadata))
}

func indented(lines []string) string {
	text := ""
	for _, line := range lines {
		text += "  " + line + "\n"
	}
	return text
}

func at(when string) string { return `annotations: {simulate.plimsoll.dev/at: ` + when + `}` }

func read(t *testing.T, o Options, texts ...string) *Input {
	t.Helper()
	in, err := Read(filesOf(texts), o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// filesOf names texts a.yaml, b.yaml and so on.
func filesOf(texts []string) []File {
	var files []File
	for i, text := range texts {
		files = append(files, File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
	}
	return files
}

func find[T any](t *testing.T, in *Input, name string) T {
	t.Helper()
	for _, o := range in.Objects {
		if typed, ok := o.Object.(T); ok && o.Object.GetName() == name {
			return typed
		}
	}
	t.Fatalf("no %T %s", *new(T), name)
	return *new(T)
}

// names lists the objects, one a line, with what is not the default of their times.
func names(in *Input) string {
	var b strings.Builder
	for _, o := range in.Objects {
		fmt.Fprintf(&b, "%s %s", o.Object.GetObjectKind().GroupVersionKind().Kind, strings.TrimPrefix(o.Object.GetNamespace()+"/"+o.Object.GetName(), "/"))
		if o.At > 0 {
			fmt.Fprintf(&b, " at %s", o.At)
		}
		if o.DeleteAt != nil {
			fmt.Fprintf(&b, " until %s", *o.DeleteAt)
		}
		b.WriteString("\n")
	}
	return b.String()
}
