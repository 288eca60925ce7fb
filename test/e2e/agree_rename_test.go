package e2e

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
)

// scenarioLabel tells the nodes of one scenario from those of the others on the same cluster.
const scenarioLabel = "e2e.plimsoll.dev/scenario"

// clusterScoped are the kinds whose names a scenario shares with all others on the cluster.
var clusterScoped = []string{
	"Namespace", "Node", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "ResourceFlavor", "Topology", "Cohort", "ClusterQueue",
	"AdmissionCheck", "DevicePolicy", "PriorityClass", "WorkloadPriorityClass", "RuntimeClass", "StorageClass", "PersistentVolume",
}

// renamer gives all that a scenario shares with others a name of its own: what is cluster-scoped, its DRA drivers and its
// extended resources. References follow.
type renamer struct {
	prefix  string
	drivers []string
	cel     *regexp.Regexp
}

// renamed returns an input of which nothing is shared with another of another prefix. The given one is not changed.
func renamed(in *input.Input, prefix string) (*input.Input, error) {
	objects := make([]map[string]any, len(in.Objects))
	for i, o := range in.Objects {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
		if err != nil {
			return nil, err
		}
		objects[i] = m
	}
	r := newRenamer(prefix, objects)
	out := *in
	out.Objects = slices.Clone(in.Objects)
	for i := range out.Objects {
		typed := reflect.New(reflect.TypeOf(in.Objects[i].Object).Elem()).Interface().(client.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(r.object(objects[i]), typed, true); err != nil {
			return nil, err
		}
		out.Objects[i].Object = typed
	}
	return &out, nil
}

func newRenamer(prefix string, objects []map[string]any) *renamer {
	drivers := map[string]bool{}
	var find func(v any)
	find = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if d, ok := v["driver"].(string); ok {
				drivers[d] = true
			}
			for _, x := range v {
				find(x)
			}
		case []any:
			for _, x := range v {
				find(x)
			}
		}
	}
	for _, o := range objects {
		find(o)
	}
	r := &renamer{prefix: prefix, drivers: slices.Sorted(maps.Keys(drivers))}
	var quoted []string
	for _, d := range r.drivers {
		quoted = append(quoted, regexp.QuoteMeta(d))
	}
	if len(quoted) > 0 { // in a selector they are in quotes, as a domain or a driver's name
		r.cel = regexp.MustCompile(`(["'])(` + strings.Join(quoted, "|") + `)(["'/])`)
	}
	return r
}

func (r *renamer) name(s string) string {
	if s == "" || strings.HasPrefix(s, "system-") {
		return s
	}
	return r.prefix + "-" + s
}

func (r *renamer) domain(s string) string { return r.prefix + "." + s }

// qualified renames an attribute, a capacity or a resource by its domain, where that is not Kubernetes' own.
func (r *renamer) qualified(s string) string {
	domain, rest, found := strings.Cut(s, "/")
	switch {
	case !found, domain == "kubernetes.io", strings.HasSuffix(domain, ".kubernetes.io") && domain != "deviceclass.resource.kubernetes.io":
		return s
	case domain == "deviceclass.resource.kubernetes.io":
		return domain + "/" + r.name(rest)
	}
	return r.domain(domain) + "/" + rest
}

// object renames one object in place and returns it.
func (r *renamer) object(o map[string]any) map[string]any {
	kind := o["kind"].(string)
	r.walk(kind, nil, o)
	metadata := o["metadata"].(map[string]any)
	if slices.Contains(clusterScoped, kind) {
		metadata["name"] = r.name(metadata["name"].(string))
	}
	switch kind {
	case "Node":
		setIn(o, r.prefix, "metadata", "labels", scenarioLabel)
	case "ResourceFlavor":
		setIn(o, r.prefix, "spec", "nodeLabels", scenarioLabel)
	case "Pod":
		setIn(o, r.prefix, "spec", "nodeSelector", scenarioLabel)
	}
	return o
}

func setIn(o map[string]any, value any, path ...string) {
	for _, k := range path[:len(path)-1] {
		next, ok := o[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			o[k] = next
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

// walk renames what is below a value, whose path within an object of the kind is given without indices.
func (r *renamer) walk(kind string, path []string, v any) any {
	switch v := v.(type) {
	case string:
		return r.text(kind, path, v)
	case []any:
		for i := range v {
			v[i] = r.walk(kind, path, v[i])
		}
	case map[string]any:
		r.terms(v)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			value := r.walk(kind, append(slices.Clone(path), k), v[k])
			delete(v, k)
			v[r.key(kind, path, k)] = value
		}
	}
	return v
}

// terms renames the values of a requirement on labels or fields that name nodes and namespaces.
func (r *renamer) terms(m map[string]any) {
	key, _ := m["key"].(string)
	values, _ := m["values"].([]any)
	if key != corev1.LabelHostname && key != corev1.LabelMetadataName && key != "metadata.name" {
		return
	}
	for i := range values {
		values[i] = r.name(values[i].(string))
	}
}

// key renames the keys of maps that are names.
func (r *renamer) key(kind string, path []string, k string) string {
	if len(path) == 0 {
		return k
	}
	switch path[len(path)-1] {
	case "requests", "limits", "allocatable", "overhead", "podFixed":
		return r.qualified(k)
	case "attributes", "capacity":
		if kind != "Node" && slices.Contains(r.drivers, strings.Split(k, "/")[0]) || kind == "Node" {
			return r.qualified(k)
		}
	}
	return k
}

// byField are the fields that hold a name wherever they are.
var byField = []string{
	"namespace", "podNamespace", "nodeName", "pool", "deviceClassName", "priorityClassName", "runtimeClassName", "storageClassName",
	"volumeName", "topologyName", "cohortName", "parentName", "clusterQueue", "policyName", corev1.LabelHostname, corev1.LabelMetadataName,
	"kueue.x-k8s.io/priority-class", "onFlavors",
}

// byPath are the other fields that do, by kind and path.
var byPath = []string{
	"ResourceSlice spec.pool.name",
	"DevicePolicy spec.flavors.name",
	"AdmissionCheck spec.parameters.name",
	"ClusterQueue spec.resourceGroups.flavors.name",
	"Cohort spec.resourceGroups.flavors.name",
	"ClusterQueue spec.admissionChecksStrategy.admissionChecks.name",
}

// text renames one text.
func (r *renamer) text(kind string, path []string, s string) string {
	last, at := path[len(path)-1], kind+" "+strings.Join(path, ".")
	switch {
	case last == "driver", at == "DevicePolicy spec.drivers.name":
		return r.domain(s)
	case last == "expression" && r.cel != nil:
		return r.cel.ReplaceAllString(s, "${1}"+r.prefix+".${2}${3}")
	case last == "matchAttribute", last == "distinctAttribute":
		if slices.Contains(r.drivers, strings.Split(s, "/")[0]) {
			return r.qualified(s)
		}
		return s
	case last == "extendedResourceName", last == "quotaResource", last == "coveredResources",
		strings.HasSuffix(at, " spec.resourceGroups.flavors.resources.name"):
		return r.qualified(s)
	case slices.Contains(byField, last), slices.Contains(byPath, at):
		return r.name(s)
	}
	return s
}
