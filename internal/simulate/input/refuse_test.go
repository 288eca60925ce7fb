package input

import (
	"errors"
	"strings"
	"testing"
)

func refusals(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not an *Error", err)
	}
	if e.Error() == "" {
		t.Error("an error without words")
	}
	return e.Error()
}

func TestDocumentsAreRefused(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"neither YAML nor JSON": {"a: b: c\n", "a.yaml:1: is neither YAML nor JSON: mapping values are not allowed in this context"},
		"one document does not hide the next": {
			"a: [\n---\nkind: Pod\n",
			"a.yaml:1: is neither YAML nor JSON: did not find expected node content\na.yaml:3: apiVersion and kind must be given",
		},
		"text":                    {"hello\n", "a.yaml:1: is not an object: a manifest has apiVersion, kind and metadata"},
		"no kind":                 {"\n\napiVersion: v1\n", "a.yaml:3: apiVersion and kind must be given"},
		"a kind that is a number": {"apiVersion: v1\nkind: 7\n", "a.yaml:1: apiVersion and kind must be text"},
		"a kind that is not read": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: x}\n",
			`a.yaml:1: Service x/web: kind: "Service" of "v1" is not read; what is read: AdmissionCheck, ClusterQueue, Cohort, Configuration (of Kueue), DeviceClass, DevicePolicy, DeviceTaintRule, Job, LimitRange, LocalQueue, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Placement, Pod, PriorityClass, ResourceClaim, ResourceClaimTemplate, ResourceFlavor, ResourceSlice, RuntimeClass, StorageClass, Topology, Workload, WorkloadPriorityClass`,
		},
		"a version that is not read": {
			"apiVersion: kueue.x-k8s.io/v1alpha1\nkind: Cohort\nmetadata: {name: all}\n",
			`a.yaml:1: Cohort all: apiVersion: "kueue.x-k8s.io/v1alpha1" is not read for this kind: write kueue.x-k8s.io/v1beta2, kueue.x-k8s.io/v1beta1`,
		},
		"a group that has no such kind": {
			"apiVersion: v1\nkind: Job\nmetadata: {name: train}\n",
			`a.yaml:1: Job train: apiVersion: "v1" has no such kind that is read: write batch/v1`,
		},
		"a key given twice": {
			"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  name: b\n",
			"a.yaml:5: metadata.name: is given twice",
		},
		"a key that is not text":    {"apiVersion: v1\nkind: Namespace\nmetadata: {[a]: b}\n", "a.yaml:3: metadata: has a key that is not text"},
		"a tag":                     {"apiVersion: v1\nkind: Namespace\nmetadata: {name: !mine a}\n", `a.yaml:3: metadata.name: has the tag "!mine", which is not read`},
		"nesting":                   {"a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "a.yaml:1: is nested more than 100 deep"},
		"an alias of itself":        {"a: &a [*a]\n", "a.yaml:1: is nested more than 100 deep"},
		"aliases of aliases":        {bomb(), "a.yaml:1: repeats more than 100000 values through aliases"},
		"lists in lists":            {strings.Repeat("{apiVersion: v1, kind: List, items: [", 6) + strings.Repeat("]}", 6), "a.yaml:1: has lists in lists, more than 4 deep"},
		"items that are not a list": {"apiVersion: v1\nkind: NodeList\nitems: {}\n", "a.yaml:1: NodeList: items: must be a list"},
		"an item of a list": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: A}\n",
			"a.yaml:6: Namespace A: metadata.name: " + labelRule + `, not "A"`,
		},
		"a whole number that is none": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, generation: 1.5}\n",
			"a.yaml:3: Namespace a: metadata.generation: must be a whole number, not 1.5",
		},
		"two Configurations": {
			"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n---\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n",
			"a.yaml:4: Configuration: the input has a Configuration already, at a.yaml:1",
		},
		"a Configuration with an unknown field": {
			"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairShare: {}\n",
			`a.yaml:1: Configuration: is not a Configuration of Kueue 0.17: strict decoding error: unknown field "fairShare"`,
		},
		"a Configuration with an unknown gate": {
			"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {Fast: true}\n",
			`a.yaml:1: Configuration: featureGates: Kueue 0.17 has no gate Fast; take it out`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(filesOf([]string{c.text}), Options{})
			if got := refusals(t, err); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

const (
	labelRule  = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
	domainRule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)

func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i <= 8; i++ {
		last, next := string(rune('0'+i-1)), string(rune('0'+i))
		text += "a" + next + ": &a" + next + " [" + strings.TrimSuffix(strings.Repeat("*a"+last+", ", 10), ", ") + "]\n"
	}
	return text
}

// TestObjectsAreRefused puts one object after the base, whose next line is 43.
func TestObjectsAreRefused(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"no name":              {"apiVersion: v1\nkind: Node\nmetadata: {generateName: x}\n", "a.yaml:45: Node: metadata.name: must be given; generateName is not read"},
		"no metadata":          {"apiVersion: v1\nkind: Node\n", "a.yaml:43: Node: metadata: must be given, with a name"},
		"a name":               {"apiVersion: v1\nkind: Node\nmetadata: {name: a_b}\n", "a.yaml:45: Node a_b: metadata.name: " + domainRule + `, not "a_b"`},
		"a needless namespace": {"apiVersion: v1\nkind: Node\nmetadata: {name: a, namespace: b}\n", "a.yaml:45: Node a: metadata.namespace: must not be given: the kind has no namespaces"},
		"an unknown field of ours": {
			"apiVersion: plimsoll.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {name: b}\nspec:\n  quotaResource: gpus\n  falback: {}\n  flavors: [{name: h100, selectors: [{cel: {expression: 'true'}}]}]\n",
			"a.yaml:48: DevicePolicy b: spec.falback: unknown field",
		},
		"what the definition refuses": {
			"apiVersion: plimsoll.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {name: b}\nspec:\n  quotaResource: cpu\n  flavors: [{name: h100, chargePerDevice: 0, selectors: [{cel: {expression: 'true'}}]}]\n",
			"a.yaml:48: DevicePolicy b: spec.flavors[0].chargePerDevice: Invalid value: 0: spec.flavors[0].chargePerDevice in body should be greater than or equal to 1",
		},
		"what a rule refuses": {
			"apiVersion: plimsoll.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {name: b}\nspec:\n  quotaResource: cpu\n  flavors: [{name: h100, selectors: [{cel: {expression: 'true'}}]}]\n",
			`a.yaml:47: DevicePolicy b: spec.quotaResource: Invalid value: "cpu": quotaResource must be a name of its own, such as gpus: cpu, memory, pods, ephemeral-storage and hugepages-* mean something else`,
		},
		"a selector that does not compile": {
			"apiVersion: plimsoll.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {name: b}\nspec:\n  quotaResource: gpus\n  flavors:\n  - name: h100\n    selectors: [{cel: {expression: device.}}]\n",
			"a.yaml:50: DevicePolicy b: spec.flavors[0].selectors[0].cel.expression: ",
		},
		"a quota that is no quantity": {
			"apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: b}\nspec:\n  resourceGroups:\n  - coveredResources: [gpus]\n    flavors: [{name: h100, resources: [{name: gpus, nominalQuota: many}]}]\n",
			`a.yaml:49: Cohort b: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: must be a quantity such as 500m or 64Gi, not "many"`,
		},
		"what Kueue's definition refuses": {
			"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: b}\nspec:\n  queueingStrategy: Fast\n",
			`a.yaml:47: ClusterQueue b: spec.queueingStrategy: Unsupported value: "Fast": supported values: "StrictFIFO", "BestEffortFIFO"`,
		},
		"what Kueue's webhook refuses": {
			"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: b}\nspec:\n  fairSharing: {weight: -1}\n",
			`a.yaml:47: ClusterQueue b: spec.fairSharing: Invalid value: "-1": must be greater than or equal to 0`,
		},
		"a wrong type": {
			job("train") + "  parallelism: many\n", `a.yaml:56: Job team-a/train: spec.parallelism: must be a whole number, not "many"`,
		},
		"a number that is too large": {
			job("train") + "  parallelism: 3000000000\n", "a.yaml:56: Job team-a/train: spec.parallelism: must be a number of 32 bits, not 3000000000",
		},
		"a list that is none": {
			job("train") + "  podFailurePolicy: {rules: {}}\n", "a.yaml:56: Job team-a/train: spec.podFailurePolicy.rules: must be a list, not a map",
		},
		"all that is wrong": {
			job("train") + "  parallelism: -1\n  completionMode: Indexed\n",
			"a.yaml:49: Job team-a/train: spec.completions: Required value: when completionMode is Indexed\n" +
				"a.yaml:56: Job team-a/train: spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
		},
		"no restartPolicy": {
			strings.Replace(job("train"), "      restartPolicy: Never\n", "", 1),
			`a.yaml:51: Job team-a/train: spec.template.spec.restartPolicy: Required value: a Job's pods have "OnFailure" or "Never"`,
		},
		"requests above limits": {
			job("train") + "        resources: {requests: {cpu: 2}, limits: {cpu: 1}}\n",
			`a.yaml:56: Job team-a/train: spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`,
		},
		"a claim that the pod does not have": {
			job("train") + "        resources: {claims: [{name: gpu}]}\n",
			`a.yaml:56: Job team-a/train: spec.template.spec.containers[0].resources.claims[0].name: Not found: "gpu"`,
		},
		"a claim request of neither form": {
			"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: one, namespace: team-a}\nspec:\n  spec: {devices: {requests: [{name: gpu}]}}\n",
			`a.yaml:47: ResourceClaimTemplate team-a/one: spec.spec.devices.requests[0]: Invalid value: "gpu": must have one of exactly and firstAvailable`,
		},
		"a slice that no node reaches": {
			"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: one}\nspec: {driver: gpu.nvidia.com, pool: {name: one, generation: 1, resourceSliceCount: 1}}\n",
			"a.yaml:46: ResourceSlice one: spec: Invalid value: 0: must have exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection",
		},
		"a device that no node reaches": {
			"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: one}\nspec:\n  driver: gpu.nvidia.com\n  pool: {name: one, generation: 1, resourceSliceCount: 1}\n  perDeviceNodeSelection: true\n  devices: [{name: a}, {name: a, nodeName: n}]\n",
			"a.yaml:50: ResourceSlice one: spec.devices[0]: Invalid value: 0: must have exactly one of nodeName, nodeSelector and allNodes, for perDeviceNodeSelection\n" +
				`a.yaml:50: ResourceSlice one: spec.devices[1].name: Duplicate value: "a"`,
		},
		"an unknown annotation": {
			job("train", "annotations: {simulate.plimsoll.dev/after: 1s}"),
			"a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/after]: unknown annotation: simulate.plimsoll.dev/ has at, delete-at, duration and grace",
		},
		"a time": {
			job("train", at("soon")), `a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/at]: must be a duration such as 90s or 1h30m, not "soon"`,
		},
		"a time that is not text": {
			job("train", at("90")), `a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/at]: must be text, not 90`,
		},
		"a time before the start": {
			job("train", at("-1s")), `a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/at]: must be 0 or more, not "-1s"`,
		},
		"a time that never comes": {
			job("train", at("1000000h")), `a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/at]: must be at most ten years, not "1000000h"`,
		},
		"a duration of nothing": {
			job("train", "annotations: {simulate.plimsoll.dev/duration: 0s}"),
			`a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/duration]: must be more than 0, not "0s"`,
		},
		"a duration of a Node": {
			"apiVersion: v1\nkind: Node\nmetadata: {name: a, annotations: {simulate.plimsoll.dev/duration: 1s}}\n",
			"a.yaml:45: Node a: metadata.annotations[simulate.plimsoll.dev/duration]: is for Jobs and Workloads",
		},
		"a grace of a Node": {
			"apiVersion: v1\nkind: Node\nmetadata: {name: a, annotations: {simulate.plimsoll.dev/grace: 1s}}\n",
			"a.yaml:45: Node a: metadata.annotations[simulate.plimsoll.dev/grace]: is for Jobs and Pods",
		},
		"gone before it came": {
			job("train", "annotations: {simulate.plimsoll.dev/at: 2s, simulate.plimsoll.dev/delete-at: 2s}"),
			"a.yaml:49: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/delete-at]: must be later than at, which is 2s",
		},
		"the same object twice": {
			job("train") + "---\n" + job("train"), "a.yaml:57: Job team-a/train: is given twice for 0s: here and at a.yaml:43",
		},
		"again before it is gone": {
			job("train", "annotations: {simulate.plimsoll.dev/delete-at: 2m}") + "---\n" + job("train", at("1m")),
			"a.yaml:64: Job team-a/train: metadata.annotations[simulate.plimsoll.dev/at]: is 1m0s, before the delete-at 2m0s of the version at a.yaml:43: a later version has its own delete-at",
		},
		"before its namespace": {
			job("train") + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, annotations: {simulate.plimsoll.dev/at: 1s}}\n",
			"a.yaml:40: LocalQueue team-a/main: metadata.namespace: is not there before 1s\na.yaml:47: Job team-a/train: metadata.namespace: is not there before 1s",
		},
		"after its namespace": {
			job("train", at("5s")) + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, annotations: {simulate.plimsoll.dev/delete-at: 5s}}\n",
			"a.yaml:47: Job team-a/train: metadata.namespace: is not there any more: it is deleted at 5s",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(filesOf([]string{base + c.text}), Options{})
			got := refusals(t, err)
			if got != c.want && (!strings.HasSuffix(c.want, ": ") || !strings.HasPrefix(got, c.want)) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestDanglingReferencesAreRefused(t *testing.T) {
	kueue := "apiVersion: kueue.x-k8s.io/v1beta2\n"
	cases := map[string]struct{ text, want string }{
		"a LocalQueue's ClusterQueue": {
			kueue + "kind: LocalQueue\nmetadata: {name: b, namespace: team-b}\nspec: {clusterQueue: team-x}\n",
			`a.yaml:46: LocalQueue team-b/b: spec.clusterQueue: no ClusterQueue "team-x" in the input`,
		},
		"a ClusterQueue's flavor": {
			kueue + "kind: ClusterQueue\nmetadata: {name: b}\nspec:\n  resourceGroups: [{coveredResources: [cpu], flavors: [{name: x, resources: [{name: cpu, nominalQuota: 1}]}]}]\n",
			`a.yaml:47: ClusterQueue b: spec.resourceGroups[0].flavors[0].name: no ResourceFlavor "x" in the input`,
		},
		"a ClusterQueue's check, and its flavor": {
			kueue + "kind: ClusterQueue\nmetadata: {name: b}\nspec:\n  admissionChecksStrategy: {admissionChecks: [{name: x, onFlavors: [y]}]}\n",
			"a.yaml:47: ClusterQueue b: spec.admissionChecksStrategy.admissionChecks[0].name: no AdmissionCheck \"x\" in the input\n" +
				`a.yaml:47: ClusterQueue b: spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: no ResourceFlavor "y" in the input`,
		},
		"our check's policy": {
			kueue + "kind: AdmissionCheck\nmetadata: {name: b}\nspec:\n  controllerName: plimsoll.dev/ledger\n  parameters: {apiGroup: plimsoll.dev, kind: DevicePolicy, name: x}\n",
			`a.yaml:48: AdmissionCheck b: spec.parameters.name: no DevicePolicy "x" in the input`,
		},
		"our check without a policy": {
			kueue + "kind: AdmissionCheck\nmetadata: {name: b}\nspec:\n  controllerName: plimsoll.dev/ledger\n",
			`a.yaml:46: AdmissionCheck b: spec.parameters: must name a DevicePolicy`,
		},
		"a policy's flavor, and its canary": {
			"apiVersion: plimsoll.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {name: b}\nspec:\n  quotaResource: gpus\n  flavors: [{name: x, selectors: [{cel: {expression: 'true'}}]}]\n  canary: {policyName: y, percent: 1}\n",
			"a.yaml:48: DevicePolicy b: spec.flavors[0].name: no ResourceFlavor \"x\" in the input\n" +
				`a.yaml:49: DevicePolicy b: spec.canary.policyName: no DevicePolicy "y" in the input`,
		},
		"a flavor's topology": {
			kueue + "kind: ResourceFlavor\nmetadata: {name: b}\nspec: {topologyName: x, nodeLabels: {a: b}}\n",
			`a.yaml:46: ResourceFlavor b: spec.topologyName: no Topology "x" in the input`,
		},
		"a Job's queue": {
			strings.Replace(job("train"), ": main}", ": other}", 1),
			`a.yaml:48: Job team-a/train: metadata.labels[kueue.x-k8s.io/queue-name]: no LocalQueue "other" in namespace team-a in the input`,
		},
		"a Job's priority": {
			strings.Replace(job("train"), ": main}", ": main, kueue.x-k8s.io/priority-class: x}", 1),
			`a.yaml:48: Job team-a/train: metadata.labels[kueue.x-k8s.io/priority-class]: no WorkloadPriorityClass "x" in the input`,
		},
		"a pod's classes": {
			job("train") + "      priorityClassName: x\n      runtimeClassName: y\n",
			"a.yaml:56: Job team-a/train: spec.template.spec.priorityClassName: no PriorityClass \"x\" in the input\n" +
				`a.yaml:57: Job team-a/train: spec.template.spec.runtimeClassName: no RuntimeClass "y" in the input`,
		},
		"a Workload's queue": {
			kueue + "kind: Workload\nmetadata: {name: w, namespace: team-a}\nspec:\n  queueName: x\n  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: a, image: b}]}}}]\n",
			`a.yaml:47: Workload team-a/w: spec.queueName: no LocalQueue "x" in namespace team-a in the input`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(filesOf([]string{base + c.text}), Options{})
			if got := refusals(t, err); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

const dumpOfRunning = `apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: team-a, uid: "1"}
spec:
  containers: [{name: main, image: train}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: own}]
  nodeName: gone
status:
  phase: Running
  resourceClaimStatuses: [{name: gpu, resourceClaimName: lost-gpu}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: alone, namespace: team-a, uid: "2"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: train}]}}}
status: {active: 2}
`

const dumpWithoutPlacements = `apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: train, namespace: team-a, uid: "1"}
spec: {queueName: main, podSets: [{name: main, count: 1, template: {spec: {containers: [{name: main, image: train}]}}}]}
status:
  admission: {clusterQueue: team-a, podSetAssignments: [{name: main, flavors: {gpus: h100}, count: 1}]}
  conditions: [{type: Admitted, status: "True", reason: Admitted, message: "", lastTransitionTime: "2026-05-01T10:00:00Z"}]
  admissionChecks:
  - {name: plimsoll, state: Ready, message: "", lastTransitionTime: "2026-05-01T10:00:00Z", podSetUpdates: [{name: main, labels: {plimsoll.dev/managed: "true"}}]}
`

func TestCirclesOfCohortsAreRefused(t *testing.T) {
	cohort := func(name, parent, annotations string) string {
		return "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\nspec: {parentName: " + parent + "}\n"
	}
	const at, deleteAt = "simulate.plimsoll.dev/at: ", "simulate.plimsoll.dev/delete-at: "
	cases := map[string]struct{ text, want string }{
		"none": {cohort("a", "b", "") + cohort("b", "c", ""), ""},
		"of one": {
			cohort("a", "a", ""),
			`a.yaml:46: Cohort a: spec.parentName: the Cohort is above itself: "a", then "a"`,
		},
		"one line for all, and who leads into it is not in it": {
			cohort("a", "b", "") + cohort("b", "c", "") + cohort("c", "b", ""),
			`a.yaml:51: Cohort b: spec.parentName: the Cohort is above itself: "b", then "c", then "b"`,
		},
		"later": {
			cohort("a", "b", "") + cohort("b", "a", at+"5s"),
			`a.yaml:46: Cohort a: spec.parentName: the Cohort is above itself: "a", then "b", then "a"`,
		},
		"never at one time": {cohort("a", "b", deleteAt+"5s") + cohort("b", "a", at+"5s"), ""},
		"until it is replaced": {
			cohort("a", "a", "") + cohort("a", "b", at+"5s"),
			`a.yaml:46: Cohort a: spec.parentName: the Cohort is above itself: "a", then "a"`,
		},
		"turned around at one time": {
			cohort("a", "b", "") + cohort("a", "c", at+"5s") + cohort("b", "a", at+"5s"), "",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(filesOf([]string{base + strings.TrimPrefix(c.text, "---\n")}), Options{})
			if err == nil && c.want == "" {
				return
			}
			if got := refusals(t, err); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	claim := "      resourceClaims: [{name: gpu, resourceClaimTemplateName: later}]\n"
	cases := map[string]struct{ text, want, strict string }{
		"a field that nobody knows": {
			job("train") + "  paralelism: 2\n",
			"a.yaml:56: Job team-a/train: spec.paralelism: unknown field", "a.yaml:56: Job team-a/train: spec.paralelism: unknown field",
		},
		"a template that may come": {
			job("train") + claim,
			`a.yaml:56: Job team-a/train: spec.template.spec.resourceClaims[0].resourceClaimTemplateName: no ResourceClaimTemplate "later" in namespace team-a in the input`, "",
		},
		"a class that may come": {
			"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: one, namespace: team-a}\nspec:\n  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}\n",
			`a.yaml:47: ResourceClaimTemplate team-a/one: spec.spec.devices.requests[0].exactly.deviceClassName: no DeviceClass "gpu" in the input`, "",
		},
		"a dump without what its pods and Jobs have": {
			dumpOfRunning,
			`a.yaml:49: Pod team-a/lost: spec.nodeName: no Node "gone" in the input: it is taken for a pod whose node is gone
a.yaml:52: Pod team-a/lost: status.resourceClaimStatuses: no ResourceClaim "lost-gpu" in namespace team-a in the input: the devices of the pod are taken for free
a.yaml:58: Job team-a/alone: status.active: 2 pods of it run and none is in the input: it is taken for one that has just lost them`,
			`a.yaml:49: Pod team-a/lost: spec.nodeName: no Node "gone" in the input: it is taken for a pod whose node is gone
a.yaml:52: Pod team-a/lost: status.resourceClaimStatuses: no ResourceClaim "lost-gpu" in namespace team-a in the input: the devices of the pod are taken for free
a.yaml:58: Job team-a/alone: status.active: 2 pods of it run and none is in the input: it is taken for one that has just lost them`,
		},
		"a dump without Placements": {
			dumpWithoutPlacements, "a.yaml:43: Workload team-a/train: has no Placement in the input: what it was promised is taken from its pods", "",
		},
		"what a dump's objects name was not there in its cluster either": {
			"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: early, namespace: team-a, uid: \"1\"}\nspec: {clusterQueue: later}\n",
			`a.yaml:46: LocalQueue team-a/early: spec.clusterQueue: no ClusterQueue "later" in the input`, `a.yaml:46: LocalQueue team-a/early: spec.clusterQueue: no ClusterQueue "later" in the input`,
		},
		"a device of a later Kubernetes that cannot be counted with": {
			"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: one}\nspec:\n  driver: gpu.nvidia.com\n  pool: {name: one, generation: 1, resourceSliceCount: 1}\n  allNodes: true\n  devices: [{name: a, nodeAllocatableResources: {memory: {overhead: {perPod: 1Gi, perDay: 1Gi}}, cpu: {}}}]\n",
			"a.yaml:50: ResourceSlice one: spec.devices[0].nodeAllocatableResources: its mapping of cpu has neither a mapping nor an overhead: the device is kept out\na.yaml:50: ResourceSlice one: spec.devices[0].nodeAllocatableResources.memory.overhead.perDay: unknown field",
			"a.yaml:50: ResourceSlice one: spec.devices[0].nodeAllocatableResources.memory.overhead.perDay: unknown field",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := read(t, Options{}, base+c.text)
			if got := strings.Join(in.Warnings, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			_, err := Read(filesOf([]string{base + c.text}), Options{Strict: true})
			if got := refusals(t, err); got != c.strict {
				t.Errorf("strict: got\n%s\nwant\n%s", got, c.strict)
			}
		})
	}
}

func TestFaultsAreBounded(t *testing.T) {
	text := strings.Repeat("---\nkind: Pod\n", 120)
	_, err := Read(filesOf([]string{text}), Options{})
	lines := strings.Split(refusals(t, err), "\n")
	if len(lines) != 51 || lines[0] != "a.yaml:2: apiVersion and kind must be given" || lines[50] != "and 70 more" {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	_, err = Read([]File{{"a.yaml", make([]byte, 40<<20)}, {"b.yaml", make([]byte, 40<<20)}}, Options{})
	if got := refusals(t, err); !strings.HasSuffix(got, "b.yaml: the input is larger than 64 MiB in all") {
		t.Errorf("got %.200s", got)
	}
}
