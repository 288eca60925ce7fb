package input

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1beta2 "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func TestForms(t *testing.T) {
	namespace := func(name string) string { return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}" }
	object := func(name string) string {
		return `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + name + `"}}`
	}
	cases := map[string]string{
		"YAML with comments and empty documents": "# first\n---\n---\n" + namespace("a") + "\n---\n# nothing\n---\n" + namespace("b") + "\n...\n",
		"a directive":                            "%YAML 1.1\n---\n" + namespace("a") + "\n---\n" + namespace("b") + "\n",
		"carriage returns":                       namespace("a") + "\r\n---\r\n" + namespace("b") + "\r\n",
		"a list":                                 "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- " + namespace("a") + "\n- " + namespace("b") + "\n",
		"a typed list":                           "apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
		"a list in a list":                       "apiVersion: v1\nkind: List\nitems:\n- " + namespace("a") + "\n- apiVersion: v1\n  kind: List\n  items: [" + namespace("b") + "]\n",
		"JSON":                                   `{"apiVersion": "v1", "kind": "List", "items": [` + object("a") + ",\n\t" + object("b") + "]}",
		"JSON after JSON":                        object("a") + object("b") + "\n",
		"JSON in YAML":                           object("a") + "\n---\n" + object("b") + "\n",
		"an alias":                               "apiVersion: v1\nkind: List\nitems:\n- &a\n  apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n- {<<: *a, metadata: {name: b}}\n",
		"a byte order mark":                      "\ufeff" + namespace("a") + "\n---\n" + namespace("b"),
		"an empty list and a null field":         "apiVersion: v1\nkind: List\nitems:\n---\n" + namespace("a") + "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: b, labels: null}}\n",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			if got := names(read(t, Options{}, text)); got != "Namespace a\nNamespace b\n" {
				t.Errorf("got\n%s", got)
			}
		})
	}
	if got := names(read(t, Options{}, "", "# nothing\n---\n")); got != "" {
		t.Errorf("nothing gives %s", got)
	}
}

func TestJSONEscapes(t *testing.T) {
	text := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "annotations": {"x": "\ud83d\ude00 \\ud83d\\ude00 \/ \ud83dx \\\ud83d\ude00"}}}`
	if got := find[*corev1.Namespace](t, read(t, Options{}, text), "a").Annotations["x"]; got != "\U0001F600 \\ud83d\\ude00 / \ufffdx \\\U0001F600" {
		t.Errorf("got %q", got)
	}
}

func TestDefaults(t *testing.T) {
	in := read(t, Options{}, base+job("train")+"        resources: {limits: {cpu: 2}}\n"+`---
apiVersion: v1
kind: Pod
metadata: {name: single, namespace: team-a}
spec: {containers: [{name: main, image: train, resources: {limits: {cpu: 2}}}]}
`)
	j := find[*batchv1.Job](t, in, "train")
	if *j.Spec.Parallelism != 1 || *j.Spec.Completions != 1 || *j.Spec.BackoffLimit != 6 || *j.Spec.CompletionMode != batchv1.NonIndexedCompletion || *j.Spec.Suspend {
		t.Errorf("Job: %+v", j.Spec)
	}
	// as on a server, where a template stays as it was written
	if q := j.Spec.Template.Spec.Containers[0].Resources.Requests; len(q) > 0 {
		t.Errorf("requests of the Job's template: %v", q)
	}
	if q := find[*corev1.Pod](t, in, "single").Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; q.String() != "2" {
		t.Errorf("requests of the Pod: %s", q.String())
	}
	cq := find[*kueue.ClusterQueue](t, in, "team-a")
	if cq.Spec.QueueingStrategy != kueue.BestEffortFIFO || cq.Spec.Preemption == nil || cq.Spec.Preemption.WithinClusterQueue != kueue.PreemptionPolicyNever ||
		cq.Spec.FlavorFungibility == nil || *cq.Spec.StopPolicy != kueue.None {
		t.Errorf("ClusterQueue: %+v", cq.Spec)
	}
	p := find[*v1alpha1.DevicePolicy](t, in, "gpu")
	if p.Spec.Mode != v1alpha1.ModeEnforce || *p.Spec.Fallback.AfterSeconds != 60 || p.Spec.Flavors[0].ChargePerDevice != 1 || *p.Spec.Freshness.WindowSeconds != 180 {
		t.Errorf("DevicePolicy: %+v", p.Spec)
	}
	if k := p.GroupVersionKind().String(); k != "plimsoll.dev/v1alpha1, Kind=DevicePolicy" {
		t.Errorf("kind %s", k)
	}
}

func TestVersions(t *testing.T) {
	in := read(t, Options{Strict: true}, base+`
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: all}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-b}
spec:
  cohort: all
  admissionChecks: [plimsoll]
  flavorFungibility: {whenCanBorrow: Borrow}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: team-b}
spec: {clusterQueue: team-b}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: old}
spec: {nodeLabels: {a: b}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: old}
value: 7
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: old}
spec: {controllerName: example.com/check}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: old}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: old, namespace: team-b}
spec:
  queueName: main
  priorityClassSource: kueue.x-k8s.io/workloadpriorityclass
  priorityClassName: old
  priority: 7
  podSets: [{name: main, count: 2, template: {spec: {containers: [{name: a, image: b}]}}}]
---
apiVersion: resource.k8s.io/v1beta1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'true'}}]}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: team-b}
spec: {spec: {devices: {requests: [{name: gpu, deviceClassName: gpu, count: 2}]}}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: slice}
spec:
  driver: gpu.nvidia.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, basic: {attributes: {model: {string: H100}}, capacity: {memory: {value: 80Gi}}}}]
---
apiVersion: resource.k8s.io/v1beta2
kind: ResourceClaim
metadata: {name: two, namespace: team-b}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
`)
	cq := find[*kueue.ClusterQueue](t, in, "team-b")
	if cq.Spec.CohortName != "all" || cq.Spec.AdmissionChecksStrategy == nil || cq.Spec.AdmissionChecksStrategy.AdmissionChecks[0].Name != "plimsoll" ||
		cq.Spec.FlavorFungibility.WhenCanBorrow != kueue.MayStopSearch || cq.Spec.QueueingStrategy != kueue.BestEffortFIFO {
		t.Errorf("ClusterQueue: %+v", cq.Spec)
	}
	if w := find[*kueue.Workload](t, in, "old"); w.Spec.PriorityClassRef == nil || w.Spec.PriorityClassRef.Name != "old" || w.Spec.PodSets[0].Count != 2 {
		t.Errorf("Workload: %+v", w.Spec)
	}
	template := find[*resourcev1.ResourceClaimTemplate](t, in, "one").Spec.Spec.Devices.Requests[0].Exactly
	if template == nil || template.Count != 2 || template.AllocationMode != resourcev1.DeviceAllocationModeExactCount {
		t.Errorf("template: %+v", template)
	}
	d := find[*resourcev1.ResourceSlice](t, in, "slice").Spec.Devices[0]
	if *d.Attributes["model"].StringValue != "H100" {
		t.Errorf("device: %+v", d)
	}
	if x := find[*resourcev1.ResourceClaim](t, in, "two").Spec.Devices.Requests[0].Exactly; x.Count != 1 {
		t.Errorf("claim: %+v", x)
	}
	for _, o := range in.Objects {
		if v := o.Object.GetObjectKind().GroupVersionKind().Version; strings.HasPrefix(v, "v1beta1") {
			t.Errorf("%s is %s", o.Object.GetName(), v)
		}
	}
}

func TestOrder(t *testing.T) {
	parts := strings.SplitAfter(base+
		strings.ReplaceAll(job("b"), "  name: b\n", "  name: b\n  creationTimestamp: 2029-01-01T00:00:05Z\n")+"---\n"+
		strings.ReplaceAll(job("c"), "  name: c\n", "  name: c\n  creationTimestamp: 2029-01-01T00:00:04Z\n")+"---\n"+
		job("z")+"---\n"+job("a", at("30s"))+"---\n"+
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: zoo}\n---\n"+
		"apiVersion: v1\nkind: Node\nmetadata: {name: n, annotations: {simulate.plimsoll.dev/at: 30s, simulate.plimsoll.dev/delete-at: 1m}}\n---\n"+
		"apiVersion: v1\nkind: Node\nmetadata: {name: n, annotations: {simulate.plimsoll.dev/at: 1m}}\n", "---\n")
	want := `Namespace team-a
Namespace zoo
ResourceFlavor a100
ResourceFlavor h100
DevicePolicy gpu
AdmissionCheck plimsoll
ClusterQueue team-a
LocalQueue team-a/main
Job team-a/z
Job team-a/c
Job team-a/b
Node n at 30s until 1m0s
Job team-a/a at 30s
Node n at 1m0s
`
	for range len(parts) {
		if diff := cmp.Diff(want, names(read(t, Options{}, strings.TrimSuffix(strings.Join(parts, ""), "---\n")))); diff != "" {
			t.Error(diff)
		}
		if last := len(parts) - 1; !strings.HasSuffix(parts[last], "---\n") {
			parts[last] += "---\n"
		}
		parts = append(parts[1:], parts[0])
	}
	if diff := cmp.Diff(want, names(read(t, Options{}, parts...))); diff != "" {
		t.Error(diff)
	}
	in := read(t, Options{}, base)
	if in.Objects[0].Source != "" || in.Objects[len(in.Objects)-1].Source != "a.yaml:38" {
		t.Errorf("from %q to %q", in.Objects[0].Source, in.Objects[len(in.Objects)-1].Source)
	}
}

func TestStart(t *testing.T) {
	node := func(rest string) string { return "apiVersion: v1\nkind: Node\nmetadata: {name: n" + rest + "\n" }
	cases := map[string]struct{ text, want string }{
		"no times":         {node("}"), "2030-01-01T00:00:00Z"},
		"created":          {node(", creationTimestamp: 2026-05-01T10:00:00Z}"), "2026-05-01T10:00:00Z"},
		"managed":          {node(", managedFields: [{time: 2026-05-01T11:00:00Z}]}"), "2026-05-01T11:00:00Z"},
		"rounded up":       {node("}") + "status: {conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-05-01T12:00:00.25Z'}]}", "2026-05-01T12:00:01Z"},
		"another zone":     {node("}") + "status: {conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-05-01T12:00:00+02:00'}]}", "2026-05-01T10:00:00Z"},
		"what lies ahead":  {node(", deletionTimestamp: 2027-05-01T10:00:00Z, creationTimestamp: 2026-05-01T10:00:00Z}"), "2026-05-01T10:00:00Z"},
		"words":            {node("}") + "status: {conditions: [{type: Ready, status: 'True', reason: '2099-05-01T10:00:00Z', message: '2099-05-01T10:00:00Z'}]}", "2030-01-01T00:00:00Z"},
		"text of somebody": {node(", annotations: {expires: 2099-05-01T10:00:00Z}}"), "2030-01-01T00:00:00Z"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := read(t, Options{}, c.text).Start.Format(time.RFC3339Nano); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNodesAreReady(t *testing.T) {
	in := read(t, Options{}, `
apiVersion: v1
kind: Node
metadata: {name: a, creationTimestamp: 2026-05-01T10:00:00Z}
status: {capacity: {cpu: 4}}
---
apiVersion: v1
kind: Node
metadata: {name: b}
status: {conditions: [{type: Ready, status: "False", lastTransitionTime: 2026-05-01T10:00:00Z}]}
---
apiVersion: v1
kind: Node
metadata: {name: a, annotations: {simulate.plimsoll.dev/at: 1m}}
status: {conditions: [{type: Ready, status: "Unknown"}]}
---
apiVersion: v1
kind: Node
metadata: {name: a, annotations: {simulate.plimsoll.dev/at: 2m}}
status: {conditions: [{type: Ready, status: "Unknown"}]}
`)
	var got []string
	for _, o := range in.Objects {
		c := o.Object.(*corev1.Node).Status.Conditions[0]
		got = append(got, o.Object.GetName()+" "+string(c.Status)+" "+c.LastTransitionTime.UTC().Format(time.RFC3339))
	}
	want := []string{
		"a True 2026-04-30T09:00:00Z", "b False 2026-04-30T09:00:00Z", "a Unknown 2026-05-01T10:01:00Z", "a Unknown 2026-05-01T10:01:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := in.Objects[0].Object.(*corev1.Node); n.Status.Allocatable.Cpu().String() != "4" || n.Labels[corev1.LabelHostname] != "a" {
		t.Errorf("%+v", n)
	}
}

func TestDump(t *testing.T) {
	in := read(t, Options{}, base+`
apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: Job
  metadata:
    name: train
    namespace: team-a
    uid: "1234"
    labels: {kueue.x-k8s.io/queue-name: main}
    annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
    managedFields: [{manager: kubectl, fieldsV1: {f:metadata: {f:labels: {}}}}]
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: train}]}}}
  status: {active: 1}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: Workload
  metadata:
    name: job-train
    namespace: team-a
    ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: "1234", controller: true}]
  spec: {queueName: main, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: main, image: train}]}}}]}
  status:
    conditions: [{type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: 2026-05-01T10:00:00Z}]
    admission: {clusterQueue: team-a, podSetAssignments: [{name: main, flavors: {gpus: h100}, resourceUsage: {gpus: 1}, count: 1}]}
`)
	j := find[*batchv1.Job](t, in, "train")
	w := find[*kueue.Workload](t, in, "job-train")
	if j.Status.Active != 1 || j.UID != "1234" || w.Status.Admission == nil || w.Status.Admission.PodSetAssignments[0].Flavors["gpus"] != "h100" ||
		!metav1.IsControlledBy(w, j) || j.ManagedFields != nil {
		t.Errorf("%+v %+v %q", j.Status, w.Status, in.Warnings)
	}
	if len(in.Warnings) != 1 || !strings.Contains(in.Warnings[0], "Job team-a/train: status.active: 1 pods of it run and none is in the input") {
		t.Errorf("warnings: %q", in.Warnings)
	}
	if in.Start.Format(time.RFC3339) != "2026-05-01T10:00:00Z" {
		t.Errorf("start %s", in.Start)
	}
}

func TestConfiguration(t *testing.T) {
	in := read(t, Options{}, "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nfairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}\n")
	if in.Kueue == nil || in.Kueue.FairSharing == nil || in.Kueue.FairSharing.PreemptionStrategies[0] != configv1beta2.LessThanInitialShare ||
		in.Kueue.ManageJobsWithoutQueueName || in.Kueue.Namespace == nil {
		t.Errorf("%+v", in.Kueue)
	}
	if in := read(t, Options{}, ""); in.Kueue != nil {
		t.Error("a Configuration out of nothing")
	}
}

// TestExamples reads the examples, which a server takes, as strictly as can be.
func TestExamples(t *testing.T) {
	var files []File
	err := filepath.WalkDir("../../../examples", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "expected.yaml" {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, File{Name: filepath.Base(name), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := Read(files, Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Objects) < 50 || len(in.Warnings) > 0 {
		t.Errorf("%d objects of %d files, %q", len(in.Objects), len(files), in.Warnings)
	}
}

// TestWhatWasReadIsReadAgain writes a cluster as kubectl would dump it: a second reading changes nothing.
func TestWhatWasReadIsReadAgain(t *testing.T) {
	text := base + job("train", at("1m")) + `---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: team-a}
spec: {queueName: main, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: main, image: train}]}}}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-a}
spec: {containers: [{name: main, image: train}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: team-a}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Placement
metadata: {name: w, namespace: team-a}
`
	first := read(t, Options{}, text)
	var items []any
	for _, o := range first.Objects {
		items = append(items, o.Object)
	}
	dump, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	again := read(t, Options{Strict: true}, string(dump))
	ignoreSource := cmpopts.IgnoreFields(Object{}, "Source")
	if diff := cmp.Diff(first.Objects, again.Objects, ignoreSource); diff != "" {
		t.Error(diff)
	}
}
