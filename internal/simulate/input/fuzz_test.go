package input

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// FuzzRead looks for text that makes the reading panic, or say something that is not a line each.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		base + job("train", at("1m")), bomb(), "a: &a [*a]\n", "{\"a\": 1}{", "%YAML 1.1\n---\n", "? [a]\n: b\n", "<<: [{a: b}]\n",
		"apiVersion: v1\nkind: List\nitems: [null, 1, {}]\n",
		"apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: [], annotations: 1, creationTimestamp: x}\nstatus: 1\n",
		"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: 1\n",
		"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\nmetadata: {name: a}\nspec: {devices: [{name: a}]}\n",
	} {
		f.Add([]byte(text), "job/team-a/train.spec.parallelism=4")
	}
	for _, set := range []string{`a/b.c[0]["d"]=e`, "node/a.metadata.labels[x]={y: [z]}", "=", "node/a.=", "node/a.b[=", "lq/main.spec=null", "cq/team-a.spec.resourceGroups[0].flavors[0]=1"} {
		f.Add([]byte(base), set)
	}
	f.Fuzz(func(t *testing.T, data []byte, set string) {
		in, err := Read([]File{{"a.yaml", data}}, Options{Set: []string{set}})
		if (in == nil) == (err == nil) {
			t.Fatalf("both or neither: %v %v", in, err)
		}
		for _, line := range strings.Split(refusals(t, err), "\n") {
			if err != nil && (line == "" || len(line) > 2100 || strings.IndexFunc(line, unicode.IsControl) >= 0) {
				t.Errorf("not a line: %q", line)
			}
		}
		if err == nil {
			for _, o := range in.Objects {
				if o.Object.GetName() == "" || o.At < 0 || o.DeleteAt != nil && *o.DeleteAt <= o.At {
					t.Errorf("%+v", o)
				}
			}
		}
	})
}

// TestOrderDoesNotMatter shuffles documents over files and lists.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		documents := strings.Split(strings.TrimSuffix(base, "---\n"), "---\n")
		n := rapid.IntRange(0, 6).Draw(t, "jobs")
		for i := range n {
			seconds := rapid.SampledFrom([]string{"0s", "5s", "10s"}).Draw(t, "at")
			documents = append(documents, job("job-"+string(rune('a'+i)), at(seconds)))
		}
		if rapid.Bool().Draw(t, "with a fault") {
			documents = append(documents, job("wrong")+"  parallelism: -1\n")
		}
		text := func(seed uint64) (string, string) {
			order := rand.New(rand.NewPCG(seed, 0)).Perm(len(documents)) //nolint:gosec // a test's order
			var files []File
			list := "apiVersion: v1\nkind: List\nitems:\n"
			for i, d := range order {
				if i%2 == 0 {
					list += "-\n" + "  " + strings.ReplaceAll(strings.TrimRight(documents[d], "\n"), "\n", "\n  ") + "\n"
					continue
				}
				files = append(files, File{Name: "x.yaml", Data: []byte(documents[d])})
			}
			in, err := Read(append(files, File{Name: "x.yaml", Data: []byte(list)}), Options{})
			if err != nil {
				_, what, _ := strings.Cut(err.Error(), ": ")
				return "", what
			}
			return names(in), ""
		}
		seed := rapid.Uint64().Draw(t, "seed")
		got, gotFault := text(seed)
		want, wantFault := text(0)
		if diff := cmp.Diff(want+wantFault, got+gotFault); diff != "" {
			t.Error(diff)
		}
	})
}
