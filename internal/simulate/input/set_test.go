package input

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func TestSet(t *testing.T) {
	text := base + job("train", at("1m")) + "---\n" + job("train") + "---\n" + job("a.b")
	cases := map[string]struct {
		set   string
		got   func(t *testing.T, in *Input) any
		wants any
	}{
		"a field that the text does not have": {"clusterqueue/team-a.spec.fairSharing.weight=2", func(t *testing.T, in *Input) any {
			return find[*kueue.ClusterQueue](t, in, "team-a").Spec.FairSharing.Weight.String()
		}, "2"},
		"a plural": {"devicepolicies/gpu.spec.fallback.afterSeconds=30", func(t *testing.T, in *Input) any {
			return *find[*v1alpha1.DevicePolicy](t, in, "gpu").Spec.Fallback.AfterSeconds
		}, int32(30)},
		"a short name": {"dpol/gpu.spec.mode=Shadow", func(t *testing.T, in *Input) any {
			return find[*v1alpha1.DevicePolicy](t, in, "gpu").Spec.Mode
		}, v1alpha1.ModeShadow},
		"an item by its name": {"devicepolicy/gpu.spec.flavors[h100].chargePerDevice=2", func(t *testing.T, in *Input) any {
			return find[*v1alpha1.DevicePolicy](t, in, "gpu").Spec.Flavors[0].ChargePerDevice
		}, int32(2)},
		"an item by its index, and by quoted names": {`cq/team-a.spec.resourceGroups[0].flavors["h100"].resources[gpus].nominalQuota=64`, func(t *testing.T, in *Input) any {
			return find[*kueue.ClusterQueue](t, in, "team-a").Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.String()
		}, "64"},
		"all versions of a namespaced object": {"job/team-a/train.spec.parallelism=4", func(t *testing.T, in *Input) any {
			sum := int32(0)
			for _, o := range in.Objects {
				if j, ok := o.Object.(*batchv1.Job); ok && j.Name == "train" {
					sum += *j.Spec.Parallelism
				}
			}
			return sum
		}, int32(8)},
		"a name alone, with a dot in it": {"job/a.b.spec.parallelism=4", func(t *testing.T, in *Input) any {
			return *find[*batchv1.Job](t, in, "a.b").Spec.Parallelism
		}, int32(4)},
		"an annotation": {`job/a.b.metadata.annotations["simulate.plimsoll.dev/at"]=5m`, func(_ *testing.T, in *Input) any {
			return strings.Contains(names(in), "Job team-a/a.b at 5m0s\n")
		}, true},
		"text that looks like a number": {`job/a.b.metadata.annotations[note]=5`, func(t *testing.T, in *Input) any {
			return find[*batchv1.Job](t, in, "a.b").Annotations["note"]
		}, "5"},
		"JSON": {`job/a.b.spec.template.spec.nodeSelector={"a": "b"}`, func(t *testing.T, in *Input) any {
			return find[*batchv1.Job](t, in, "a.b").Spec.Template.Spec.NodeSelector["a"]
		}, "b"},
		"null takes out": {`job/a.b.metadata.labels=null`, func(t *testing.T, in *Input) any {
			return len(find[*batchv1.Job](t, in, "a.b").Labels)
		}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.got(t, read(t, Options{Set: []string{c.set}}, text)); got != c.wants {
				t.Errorf("got %v, want %v", got, c.wants)
			}
		})
	}
	t.Run("the last one holds", func(t *testing.T) {
		in := read(t, Options{Set: []string{"job/a.b.spec.parallelism=4", "job/a.b.spec.parallelism=5"}}, text)
		if got := *find[*batchv1.Job](t, in, "a.b").Spec.Parallelism; got != 5 {
			t.Errorf("got %d", got)
		}
	})
}

func TestSetIsRefused(t *testing.T) {
	text := base + job("train") + "---\n" + job("a.b") + "---\n" + strings.ReplaceAll(job("a.b"), "namespace: team-a\n  labels: {kueue.x-k8s.io/queue-name: main}", "namespace: team-b")
	cases := map[string]struct{ set, want string }{
		"no value":                    {"job/train.spec.parallelism", "has no value: " + howToSet},
		"no object":                   {"job=1", "names no object: " + howToSet},
		"no field":                    {"job/train=1", "names no field: " + howToSet},
		"a kind that is not":          {"jab/train.spec.parallelism=1", `no kind is called "jab"`},
		"an object that is not":       {"job/trains.spec.parallelism=1", "the input has no Job that is called so"},
		"another namespace":           {"job/team-b/train.spec.parallelism=1", "the input has no Job that is called so"},
		"two objects of the name":     {"job/a.b.spec.parallelism=1", "could mean any of team-a/a.b, team-b/a.b"},
		"a field that is not":         {"job/train.spec.paralelism=1", "there is no field spec.paralelism"},
		"a field of a number":         {"job/train.spec.parallelism.x=1", "spec.parallelism has no fields"},
		"a field of a quantity":       {"cq/team-a.spec.fairSharing.weight.x=1", "spec.fairSharing.weight has no fields"},
		"an item that is not":         {"devicepolicy/gpu.spec.flavors[b200].chargePerDevice=1", "spec.flavors has no item [b200]"},
		"an item beyond the end":      {"devicepolicy/gpu.spec.flavors[1].chargePerDevice=1", "spec.flavors has no item [1]"},
		"a list without brackets":     {"devicepolicy/gpu.spec.flavors.h100.chargePerDevice=1", "spec.flavors is a list: write an index or a name in brackets"},
		"a wrong type":                {"job/train.spec.parallelism=many", `spec.parallelism: must be a whole number, not "many"`},
		"an unknown field in a value": {`job/train.spec.template.spec={"containrs": []}`, "spec.template.spec.containrs: unknown field"},
		"a name":                      {"job/train.metadata.name=x", "metadata.name cannot be set: it says which object this is"},
		"a value that is no YAML":     {"job/train.spec.parallelism=[", "the value is neither YAML nor JSON: did not find expected node content"},
		"a bracket without an end":    {"job/train.spec[x=1", "has no value: " + howToSet},
		"a step without a name":       {"job/train.spec..x=1", "has an empty step in its path"},
		"what validation refuses":     {"job/train.spec.parallelism=-1", "Job team-a/train: spec.parallelism: Invalid value: -1: must be greater than or equal to 0"},
		"what the definition refuses": {"dpol/gpu.spec.fallback.afterSeconds=-1", "DevicePolicy gpu: spec.fallback.afterSeconds: Invalid value: -1: spec.fallback.afterSeconds in body should be greater than or equal to 0"},
		"a reference":                 {"lq/main.spec.clusterQueue=x", `LocalQueue team-a/main: spec.clusterQueue: no ClusterQueue "x" in the input`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(filesOf([]string{text}), Options{Set: []string{c.set}})
			if got := refusals(t, err); got != "--set "+c.set+": "+c.want {
				t.Errorf("got\n%s\nwant\n%s", got, "--set "+c.set+": "+c.want)
			}
		})
	}
}
