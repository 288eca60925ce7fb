package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestStripDescriptions(t *testing.T) {
	crd := func(described func(schema map[string]any) map[string]any) map[string]any {
		schema := described(map[string]any{"type": "object", "properties": map[string]any{
			"description": described(map[string]any{"type": "string"}),
			"list":        described(map[string]any{"type": "array", "items": described(map[string]any{"type": "string", "pattern": "a"})}),
			"map":         described(map[string]any{"type": "object", "additionalProperties": described(map[string]any{"type": "integer"})}),
			"open":        described(map[string]any{"type": "object", "additionalProperties": true}),
		}})
		versions := []any{
			map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": schema}, "additionalPrinterColumns": []any{map[string]any{"description": "stays"}}},
			map[string]any{"name": "v2"},
		}
		return map[string]any{"versions": versions}
	}
	plain := func(schema map[string]any) map[string]any { return schema }
	verbose := func(schema map[string]any) map[string]any {
		schema["description"] = "says something"
		return schema
	}
	got := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "a", "spec", crd(verbose))
	other := object("example.com/v1", "Other", "b", "spec", crd(verbose))
	empty := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "c")
	StripDescriptions([]*unstructured.Unstructured{got, other, empty})
	if diff := cmp.Diff(crd(plain), got.Object["spec"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(crd(verbose), other.Object["spec"]); diff != "" {
		t.Errorf("what is no CRD has changed (-want +got)\n%s", diff)
	}
}
