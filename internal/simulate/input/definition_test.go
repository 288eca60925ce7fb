package input

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the cut definitions anew")

// TestKueueDefinitions holds the definitions in crds/ against those of the Kueue version in go.mod.
func TestKueueDefinitions(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, k := range kinds {
		if k.group != kueueGroup {
			continue
		}
		n++
		name := k.group + "_" + k.plural + ".yaml"
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "config/components/crd/bases", name))
		if err != nil {
			t.Fatal(err)
		}
		want := cutDefinition(t, text, k.versions[0].name)
		file := filepath.Join("crds", name)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil { //nolint:gosec // a source file
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what Kueue's definition gives: go test ./internal/simulate/input -run TestKueueDefinitions -update", file)
		}
	}
	if n != 8 {
		t.Errorf("%d kinds of Kueue were compared, not 8", n)
	}
}

func cutDefinition(t *testing.T, text []byte, version string) []byte {
	t.Helper()
	var c map[string]any
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	spec := c["spec"].(map[string]any)
	for _, v := range spec["versions"].([]any) {
		v := v.(map[string]any)
		if v["name"] != version {
			continue
		}
		schema := v["schema"].(map[string]any)
		cutSchema(schema["openAPIV3Schema"], "")
		cut, err := yaml.Marshal(map[string]any{
			"apiVersion": c["apiVersion"], "kind": c["kind"], "metadata": map[string]any{"name": c["metadata"].(map[string]any)["name"]},
			"spec": map[string]any{"versions": []any{map[string]any{"name": version, "schema": schema}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte("# Code generated from Kueue's definitions by TestKueueDefinitions -update. DO NOT EDIT.\n"), cut...)
	}
	t.Fatalf("no version %s", version)
	return nil
}

// cutSchema takes out descriptions, and what a pod template may hold.
func cutSchema(v any, at string) {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for key, inner := range v {
			if strings.HasSuffix(at, "/podSets/items/properties") && key == "template" {
				v[key] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
				continue
			}
			cutSchema(inner, at+"/"+key)
		}
	case []any:
		for _, inner := range v {
			cutSchema(inner, at)
		}
	}
}
