package input

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/config/crd"
)

// kueueBases are Kueue's own CustomResourceDefinitions of the pinned version, cut to the version that is read and to what
// decides: no descriptions, and no schema of pod templates, whose fields are held against the types.
//
//go:embed crds/*.yaml
var kueueBases embed.FS

// definition is what a CustomResourceDefinition says of one kind. It is safe for concurrent use.
type definition struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *schemacel.Validator
}

var (
	definitionsLock sync.Mutex
	definitions     = map[string]*definition{}
)

// definitionOf returns a kind's definition, which is compiled when it is first asked for.
func definitionOf(k *kind) (*definition, error) {
	definitionsLock.Lock()
	defer definitionsLock.Unlock()
	if d, ok := definitions[k.name]; ok {
		return d, nil
	}
	files, folder := fs.FS(kueueBases), "crds/"
	if k.ours {
		files, folder = crd.Bases, "bases/"
	}
	text, err := fs.ReadFile(files, folder+k.group+"_"+k.plural+".yaml")
	if err != nil {
		return nil, err
	}
	d, err := compileDefinition(text, k.versions[0].name)
	if err != nil {
		return nil, err
	}
	definitions[k.name] = d
	return d, nil
}

func compileDefinition(text []byte, version string) (*definition, error) {
	var c apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	for _, v := range c.Spec.Versions {
		if v.Name != version || v.Schema == nil {
			continue
		}
		var props apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &props, nil); err != nil {
			return nil, err
		}
		structural, err := structuralschema.NewStructural(&props)
		if err != nil {
			return nil, err
		}
		schema, _, err := validation.NewSchemaValidator(&props)
		if err != nil {
			return nil, err
		}
		return &definition{structural, schema, schemacel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
	}
	return nil, fmt.Errorf("no version %s", version)
}

// applyDefinition sets the defaults of the kind's definition and validates by it.
func (r *reader) applyDefinition(e *entry) bool {
	d, err := definitionOf(e.is)
	if err != nil {
		r.fault(e.wrong("", "the definition of the kind cannot be read: "+err.Error()))
		return false
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(e.fields, d.structural)
	defaulting.Default(e.fields, d.structural)
	errs := validation.ValidateCustomResource(nil, e.fields, d.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, e.fields)...)
	if len(errs) == 0 && d.rules != nil {
		found, _ := d.rules.Validate(context.Background(), nil, d.structural, e.fields, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, found...)
	}
	for _, err := range errs {
		r.fault(e.wrong(strings.TrimPrefix(fieldOf(err), "."), err.ErrorBody()))
	}
	return len(errs) == 0
}

// fieldOf returns a fault's field; the root of an object is called <nil>.
func fieldOf(err *field.Error) string {
	if err.Field == "<nil>" {
		return ""
	}
	return strings.TrimPrefix(err.Field, "<nil>.")
}
