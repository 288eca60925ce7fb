package manifest

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// StripDescriptions takes the descriptions out of the schemas of CRDs, in place. They say nothing to a server, but are most
// of what some CRDs consist of, and every write and every list of a CRD has to carry them.
func StripDescriptions(objects []*unstructured.Unstructured) {
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
		for _, entry := range versions {
			version, _ := entry.(map[string]any)
			if schema, ok := version["schema"].(map[string]any); ok {
				strip(schema["openAPIV3Schema"])
			}
		}
		if versions != nil {
			_ = unstructured.SetNestedSlice(object.Object, versions, "spec", "versions")
		}
	}
}

// strip takes the descriptions out of a schema and of those within it. A property may be called description, too.
func strip(schema any) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	delete(s, "description")
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, property := range properties {
			strip(property)
		}
	}
	strip(s["items"])
	strip(s["additionalProperties"])
}
