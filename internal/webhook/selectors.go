package webhook

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

const (
	// shownValue and shownReason are how much of a value, and of a compiler's complaint, an answer repeats, in bytes.
	shownValue  = 128
	shownReason = 512
)

const howToWrite = `write CEL over device.driver, device.attributes and device.capacity that yields true or false, such as device.driver == "gpu.nvidia.com"`

// selectorChecker compiles device selectors as the API server does for a DeviceClass.
type selectorChecker struct {
	// compile returns what an expression may cost at most, or why it does not compile. stored is true for one that was
	// accepted before, and may use what the API server takes from storage only.
	compile func(expression string, stored bool) (maxCost uint64, err error)
}

func compileSelector(expression string, stored bool) (uint64, error) {
	env := environment.NewExpressions
	if stored {
		env = environment.StoredExpressions
	}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	result := compiler.CompileCELExpression(expression, cel.Options{EnvType: &env})
	if result.Error != nil {
		return 0, result.Error
	}
	return result.MaxCost, nil
}

// check returns all that is wrong with a list of selectors.
func (c *selectorChecker) check(selectors []resourcev1.DeviceSelector, path *field.Path, stored map[string]bool) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range selectors {
		at := path.Index(i).Child("cel")
		if selectors[i].CEL == nil {
			errs = append(errs, field.Required(at, howToWrite))
			continue
		}
		expression := selectors[i].CEL.Expression
		at = at.Child("expression")
		if seen[expression] {
			errs = append(errs, field.Duplicate(at, short(expression)))
			continue
		}
		seen[expression] = true
		if err := c.checkExpression(expression, at, stored[expression]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (c *selectorChecker) checkExpression(expression string, at *field.Path, stored bool) *field.Error {
	if strings.TrimSpace(expression) == "" {
		return field.Required(at, howToWrite)
	}
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		err := field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)
		err.Detail += ": split it over several selectors, which must all be true"
		return err
	}
	cost, err := c.compile(expression, stored)
	if err != nil {
		return field.Invalid(at, short(expression), cut(err.Error(), shownReason)+": "+howToWrite)
	}
	if cost > resourcev1.CELSelectorExpressionMaxCost && !stored {
		return field.Forbidden(at, fmt.Sprintf(
			"may cost %d to evaluate, more than the %d that the scheduler allows: compare single attributes instead of looping over all, or split it over several selectors",
			cost, resourcev1.CELSelectorExpressionMaxCost))
	}
	return nil
}

func short(s string) string { return cut(s, shownValue) }

// cut shortens a text to n bytes, and says so.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
