// Package day makes the manifests of a cluster that is busy for a day, of any size, from a seed: what simulate is measured
// with, and held to printing the same bytes for.
package day

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
)

// World says how big a day is. The same World gives the same manifests.
type World struct {
	Seed uint64
	// Nodes have 8 devices each: two in five are H100, as many A100, the rest L40S.
	Nodes int
	Jobs  int
	// Hours is how long Jobs arrive for.
	Hours int
	// Load is what all Jobs ask for, as a part of what the devices could do in that time.
	Load float64
}

// Full is the day that the release is measured with, and Short the one for every change.
var (
	Full  = World{Seed: 5, Nodes: 1000, Jobs: 5000, Hours: 24, Load: 0.6}
	Short = World{Seed: 5, Nodes: 40, Jobs: 120, Hours: 4, Load: 0.86}
)

const (
	perNode  = 8
	shortest = 5 * time.Minute
	longest  = 8 * time.Hour
	// spread is the deviation of a duration's logarithm.
	spread = 0.8
)

var (
	flavors  = []string{"h100", "a100", "l40s"}
	products = map[string]string{"h100": "NVIDIA H100 80GB HBM3", "a100": "NVIDIA A100-SXM4-80GB", "l40s": "NVIDIA L40S"}
	memories = map[string]string{"h100": "81559Mi", "a100": "81920Mi", "l40s": "46068Mi"}
	zones    = []string{"a", "b", "c"}
	sizes    = []int{1, 2, 4, 8}
)

// tenant is a team with its namespace and queues.
type tenant struct {
	name, cohort string
	// part is its part of every flavor, in percent, and weight its weight among others.
	part       int
	weight     string
	preemption string
}

var tenants = []tenant{
	{"team-a", "company", 20, "1", "{reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}"},
	{"team-b", "company", 15, "2", "{reclaimWithinCohort: LowerPriority}"},
	{"team-c", "company", 15, "1", "{withinClusterQueue: LowerPriority}"},
	{"team-d", "company", 10, "1", "{}"},
	{"team-e", "company", 10, "1", "{reclaimWithinCohort: Any}"},
	{"team-f", "company", 10, "500m", "{}"},
	{"team-g", "company", 5, "1", "{}"},
	{"lab-a", "research", 10, "1", "{reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}"},
	{"lab-b", "research", 5, "1", "{}"},
}

// Files returns the manifests, an object a document, in an order that shuffle picks; 0 for the order in which they are made.
func (w World) Files(shuffle uint64) []input.File {
	objects := w.Objects()
	if shuffle != 0 {
		random := rand.New(rand.NewPCG(shuffle, 0))
		random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	}
	return []input.File{{Name: "day.yaml", Data: []byte(strings.Join(objects, "---\n"))}}
}

// Objects returns the manifests, one each.
func (w World) Objects() []string {
	out := slices.Concat(w.shared(), w.queues(), w.inventory())
	return append(out, w.jobs()...)
}

// shared are the objects that everybody refers to.
func (w World) shared() []string {
	out := []string{
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.nvidia.com}\nspec:\n  selectors:\n" +
			"  - cel: {expression: 'device.driver == \"gpu.nvidia.com\" && device.attributes[\"gpu.nvidia.com\"].type == \"gpu\"'}\n",
		"apiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: plimsoll}\nspec:\n" +
			"  controllerName: plimsoll.dev/ledger\n  parameters: {apiGroup: plimsoll.dev, kind: DevicePolicy, name: gpu}\n",
	}
	policy := "apiVersion: plimsoll.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {name: gpu}\nspec:\n  quotaResource: gpus\n" +
		"  fallback: {afterSeconds: 120}\n  flavors:\n"
	for _, f := range flavors {
		out = append(out, fmt.Sprintf("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: %s}\nspec:\n"+
			"  nodeLabels: {plimsoll.dev/flavor-%s: \"true\"}\n", f, f))
		policy += fmt.Sprintf("  - name: %s\n    selectors:\n    - cel: {expression: '%s'}\n", f, product(f))
	}
	for name, value := range map[string]int{"low": -100, "normal": 0, "high": 100} {
		out = append(out, fmt.Sprintf("apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: %s}\nvalue: %d\n", name, value))
	}
	slices.Sort(out)
	return append(out, policy)
}

func product(flavor string) string {
	return fmt.Sprintf(`device.attributes["gpu.nvidia.com"].productName == "%s"`, products[flavor])
}

// queues are what the tenants have: together about as much quota as there are devices.
func (w World) queues() []string {
	out := []string{
		"apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: company}\nspec: {}\n",
		"apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: research}\nspec: {}\n",
	}
	for _, t := range tenants {
		queue := fmt.Sprintf("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: %s}\nspec:\n  cohortName: %s\n"+
			"  namespaceSelector: {}\n  fairSharing: {weight: %s}\n  preemption: %s\n"+
			"  admissionChecksStrategy: {admissionChecks: [{name: plimsoll}]}\n"+
			"  resourceGroups:\n  - coveredResources: [cpu, memory, gpus]\n    flavors:\n", t.name, t.cohort, t.weight, t.preemption)
		for i, f := range flavors {
			queue += fmt.Sprintf("    - name: %s\n      resources:\n      - {name: cpu, nominalQuota: \"100000\"}\n"+
				"      - {name: memory, nominalQuota: 400Ti}\n      - {name: gpus, nominalQuota: \"%d\"}\n", f, w.nodesOf(i)*perNode*t.part/100)
		}
		out = append(out, queue,
			fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", t.name),
			fmt.Sprintf("apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {namespace: %s, name: gpus}\nspec: {clusterQueue: %s}\n", t.name, t.name))
		for _, n := range sizes {
			for _, shape := range shapes(n) {
				out = append(out, fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {namespace: %s, name: %s-%d}\n"+
					"spec:\n  spec:\n    devices:\n      requests:\n      - name: gpu\n%s", t.name, shape.name, n, shape.request))
			}
		}
	}
	return out
}

// shape is a way to ask for n devices.
type shape struct{ name, request string }

func shapes(n int) []shape {
	exactly := func(expression string) string {
		s := fmt.Sprintf("        exactly:\n          deviceClassName: gpu.nvidia.com\n          count: %d\n", n)
		if expression != "" {
			s += fmt.Sprintf("          selectors:\n          - cel: {expression: '%s'}\n", expression)
		}
		return s
	}
	either := "        firstAvailable:\n"
	for _, f := range flavors[:2] {
		either += fmt.Sprintf("        - name: %s\n          deviceClassName: gpu.nvidia.com\n          count: %d\n"+
			"          selectors:\n          - cel: {expression: '%s'}\n", f, n, product(f))
	}
	return []shape{
		{"any", exactly("")},
		{"h100", exactly(product("h100"))},
		{"big", exactly(`device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("60Gi"))`)},
		{"either", either},
	}
}

// nodesOf returns how many nodes have the flavor of an index.
func (w World) nodesOf(flavor int) int {
	if flavor == 2 {
		return w.Nodes - 2*w.nodesOf(0)
	}
	return w.Nodes * 2 / 5
}

// inventory are the nodes and what they publish, and what becomes of some: one in a hundred is cordoned, is not Ready, or
// goes away, for an hour or two.
func (w World) inventory() []string {
	random := rand.New(rand.NewPCG(w.Seed, 1))
	var out []string
	for f, flavor := range flavors {
		for i := range w.nodesOf(f) {
			name := fmt.Sprintf("%s-%03d", flavor, i)
			zone := zones[i%len(zones)]
			begin := time.Duration(random.IntN(w.Hours*2700)+600) * time.Second
			end := begin + time.Duration(random.IntN(3600)+1800)*time.Second
			switch what := random.IntN(300); what {
			case 0:
				out = append(out, node(name, flavor, zone, always, ""), node(name, flavor, zone, from(begin), "cordoned"), node(name, flavor, zone, from(end), ""))
			case 1:
				out = append(out, node(name, flavor, zone, always, ""), node(name, flavor, zone, from(begin), "lost"), node(name, flavor, zone, from(end), ""))
			case 2:
				out = append(out, node(name, flavor, zone, span{gone: begin}, ""), node(name, flavor, zone, from(end), ""),
					slice(name, flavor, span{gone: begin}), slice(name, flavor, from(end)))
				continue
			default:
				out = append(out, node(name, flavor, zone, always, ""))
			}
			out = append(out, slice(name, flavor, always))
		}
	}
	return out
}

// span is from when to when an object is there; 0 for the start and for ever.
type span struct{ at, gone time.Duration }

var always span

func from(at time.Duration) span { return span{at: at} }

// annotations say so.
func (s span) annotations() string {
	var all []string
	if s.at > 0 {
		all = append(all, "simulate.plimsoll.dev/at: "+s.at.String())
	}
	if s.gone > 0 {
		all = append(all, "simulate.plimsoll.dev/delete-at: "+s.gone.String())
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func node(name, flavor, zone string, there span, state string) string {
	s := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n  labels: {kubernetes.io/hostname: %s, zone: %s, plimsoll.dev/flavor-%s: \"true\"}\n  annotations: %s\n",
		name, name, zone, flavor, there.annotations())
	if state == "cordoned" {
		s += "spec: {unschedulable: true}\n"
	}
	const has = "{cpu: \"96\", memory: 1Ti, pods: \"110\"}"
	s += fmt.Sprintf("status:\n  capacity: %s\n  allocatable: %s\n", has, has)
	if state == "lost" {
		s += "  conditions:\n  - {type: Ready, status: \"False\", reason: KubeletNotReady}\n"
	}
	return s
}

func slice(node, flavor string, there span) string {
	var s strings.Builder
	fmt.Fprintf(&s, "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: %s-gpus, annotations: %s}\nspec:\n  driver: gpu.nvidia.com\n  nodeName: %s\n"+
		"  pool: {name: %s, generation: 1, resourceSliceCount: 1}\n  devices:\n", node, there.annotations(), node, node)
	for i := range perNode {
		fmt.Fprintf(&s, "  - name: gpu-%d\n    attributes: {type: {string: gpu}, uuid: {string: GPU-%s-%d}, productName: {string: %s}, driverVersion: {version: 580.105.8}, "+
			"resource.kubernetes.io/numaNode: {int: %d}}\n    capacity: {memory: {value: %s}}\n", i, node, i, products[flavor], i*2/perNode, memories[flavor])
	}
	return s.String()
}

// job is what is random about one.
type job struct {
	at, duration time.Duration
	tenant       string
	pods, size   int
	shape        string
	priority     string
	zone         string
}

// jobs arrive in bursts, more by day than by night.
func (w World) jobs() []string {
	random := rand.New(rand.NewPCG(w.Seed, 2))
	all := make([]job, w.Jobs)
	var burst time.Duration
	left := 0
	devices := 0.0
	for i := range all {
		if left == 0 {
			burst, left = w.arrival(random), 1+random.IntN(8)
		}
		left--
		all[i] = w.job(random)
		all[i].at = burst + time.Duration(random.IntN(60))*time.Second
		devices += float64(all[i].pods*all[i].size) * all[i].duration.Seconds()
	}
	scale := w.Load * float64(w.Nodes*perNode*w.Hours*3600) / devices
	var out []string
	for i := range all {
		j := &all[i]
		j.duration = min(longest, max(shortest, time.Duration(float64(j.duration)*scale))).Round(time.Second)
		out = append(out, j.manifest(i))
	}
	return out
}

// arrival picks a time; at two in the afternoon of the day there are five times as many as twelve hours from it.
func (w World) arrival(random *rand.Rand) time.Duration {
	for {
		part := random.Float64()
		if random.Float64() < 0.6+0.4*math.Sin(2*math.Pi*(part-14.0/24+0.25)) {
			return time.Duration(part * float64(w.Hours) * float64(time.Hour)).Truncate(time.Second)
		}
	}
}

func pick[T any](random *rand.Rand, weights []int, of []T) T {
	total := 0
	for _, w := range weights {
		total += w
	}
	n := random.IntN(total)
	for i, w := range weights {
		if n < w {
			return of[i]
		}
		n -= w
	}
	panic("weights do not sum up")
}

func (w World) job(random *rand.Rand) job {
	parts := make([]int, len(tenants))
	for i := range tenants {
		parts[i] = tenants[i].part
	}
	j := job{
		duration: time.Duration(math.Exp(random.NormFloat64()*spread) * float64(2*time.Hour)),
		tenant:   pick(random, parts, tenants).name,
		pods:     1,
		size:     pick(random, []int{15, 15, 25, 45}, sizes),
		shape:    pick(random, []int{60, 10, 15, 15}, []string{"any", "h100", "big", "either"}),
		priority: pick(random, []int{20, 65, 15}, []string{"low", "normal", "high"}),
	}
	if random.IntN(10) == 0 {
		j.pods = 2 + random.IntN(15)
	}
	if random.IntN(10) == 0 {
		j.zone = zones[random.IntN(len(zones))]
	}
	return j
}

func (j *job) manifest(i int) string {
	selector := "{}"
	if j.zone != "" {
		selector = "{zone: " + j.zone + "}"
	}
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata:
  namespace: %s
  name: job-%04d
  labels: {kueue.x-k8s.io/queue-name: gpus, kueue.x-k8s.io/priority-class: %s}
  annotations: {simulate.plimsoll.dev/at: %s, simulate.plimsoll.dev/duration: %s}
spec:
  suspend: true
  parallelism: %d
  completions: %d
  completionMode: Indexed
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      nodeSelector: %s
      resourceClaims:
      - {name: gpus, resourceClaimTemplateName: %s-%d}
      containers:
      - name: main
        image: registry.k8s.io/pause:3.10
        resources:
          requests: {cpu: "%d", memory: %dGi}
          claims: [{name: gpus}]
`, j.tenant, i, j.priority, j.at, j.duration, j.pods, j.pods, selector, j.shape, j.size, 4*j.size, 32*j.size)
}
