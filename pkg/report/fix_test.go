package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// declaredReasons reads the constants of type Reason from the API's source, so that a new one cannot be forgotten here.
func declaredReasons(t *testing.T) []v1alpha1.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []v1alpha1.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			value, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, v1alpha1.Reason(value))
		}
		return true
	})
	if len(reasons) < 20 {
		t.Fatalf("found %d reasons in the API, expected all of them", len(reasons))
	}
	return reasons
}

func TestEveryReasonSaysWhatToDo(t *testing.T) {
	declared := map[v1alpha1.Reason]bool{}
	for _, r := range declaredReasons(t) {
		declared[r] = true
		if fix := Fix(r); !strings.HasSuffix(fix, ".") {
			t.Errorf("Fix(%s) = %q, want at least one whole sentence", r, fix)
		}
	}
	for r := range fixes {
		if !declared[r] {
			t.Errorf("there is a fix for %s, which is no reason of the API", r)
		}
	}
}
