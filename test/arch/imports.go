package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// rowOf returns the row that holds for a folder: the one with the longest name that it lies in.
func rowOf(rows []row, folder string) (row, bool) {
	var best row
	found := false
	for _, r := range rows {
		if within(folder, r.folder) && len(r.folder) >= len(best.folder) {
			best, found = r, true
		}
	}
	return best, found
}

// importBreaches holds the direct imports of every file against the table. Each breach is a sentence that begins with
// its place; the result is sorted.
func importBreaches(rows []row, files []source) []string {
	var breaches []string
	for _, file := range files {
		r, found := rowOf(rows, file.folder())
		if !found {
			breaches = append(breaches, fmt.Sprintf("%s: folder %s has no row in test/arch/table.go", file.path, file.folder()))
			continue
		}
		for _, spec := range file.syntax.Imports {
			if problem := r.judge(file, importPath(spec)); problem != "" {
				breaches = append(breaches, fmt.Sprintf("%s: %s", file.at(spec), problem))
			}
		}
	}
	slices.Sort(breaches)
	return breaches
}

// judge says what is wrong with one import, or nothing.
func (r row) judge(file source, imported string) string {
	if matchesAny(heavy, imported) {
		return fmt.Sprintf("imports %s, which belongs in a nested module", imported)
	}
	if within(imported, module) {
		return r.judgeOwn(file, strings.TrimPrefix(strings.TrimPrefix(imported, module), "/"))
	}
	if file.isTest() {
		return ""
	}
	if standard(imported) {
		if r.pure && matchesAny(impure, imported) {
			return fmt.Sprintf("imports %s, but %s does no I/O, reads no clock, logs nothing and draws no random numbers",
				imported, r.folder)
		}
		if r.repeatable && matchesAny(random, imported) {
			return fmt.Sprintf("imports %s, but %s does the same each time", imported, r.folder)
		}
		return ""
	}
	if r.elsewhere != nil && !matchesAny(r.elsewhere, imported) {
		return fmt.Sprintf("imports %s, which is not among what %s may import from elsewhere", imported, r.folder)
	}
	return ""
}

func (r row) judgeOwn(file source, folder string) string {
	if within(folder, r.folder) {
		return ""
	}
	allowed := r.own
	if file.isTest() {
		allowed = append(slices.Clone(allowed), "internal/testing")
	}
	for _, own := range allowed {
		if within(folder, own) {
			return ""
		}
	}
	return fmt.Sprintf("imports %s, which %s may not", folder, r.folder)
}

// purityBreaches finds what pure and repeatable packages mention that is impure though its package is not: the clock and
// the standard output. Mentioning is enough, since a function value is called later.
func purityBreaches(rows []row, files []source) []string {
	var breaches []string
	for _, file := range files {
		r, found := rowOf(rows, file.folder())
		if !found || !r.pure && !r.repeatable || file.isTest() {
			continue
		}
		for _, use := range uses(file, impureCalls) {
			breaches = append(breaches, fmt.Sprintf("%s: uses %s, but %s reads no clock and prints nothing: take it as data",
				use.at, use.name, r.folder))
		}
		for _, call := range calls(file, "print", "println") {
			breaches = append(breaches, fmt.Sprintf("%s: uses the built-in %s, but %s prints nothing", call.at, call.name, r.folder))
		}
	}
	slices.Sort(breaches)
	return breaches
}

// use is one mention of a function.
type use struct {
	at, name string
}

// uses finds every mention of the named functions, by import path, also where the import has another name.
func uses(file source, functions map[string][]string) []use {
	names := file.imported()
	var found []use
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		qualifier, ok := selector.X.(*ast.Ident)
		if ok && slices.Contains(functions[names[qualifier.Name]], selector.Sel.Name) {
			found = append(found, use{at: file.at(selector), name: qualifier.Name + "." + selector.Sel.Name})
		}
		return true
	})
	return found
}

// calls finds every call of a function that is known by one of these names alone, without a package or a value before
// it: a built-in, one of the file's own package, or one of a package whose names are imported with a dot.
func calls(file source, functions ...string) []use {
	var found []use
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.Ident); ok && slices.Contains(functions, name.Name) {
				found = append(found, use{at: file.at(call), name: name.Name})
			}
		}
		return true
	})
	return found
}
