package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
)

// sleeps are what no test file may use: a test waits for what it wants to see, with a limit, not for time to pass.
var sleeps = map[string][]string{"time": {"Sleep"}}

// skips are the methods of *testing.T and its likes by which a test leaves itself out.
var skips = []string{"Skip", "Skipf", "SkipNow"}

// unfinished are Ginkgo's functions that leave a spec out, or by a focus all others. Suites import them with a dot.
var unfinished = []string{
	"Skip",
	"PDescribe", "PContext", "PWhen", "PIt", "PSpecify", "PEntry", "PDescribeTable",
	"XDescribe", "XContext", "XWhen", "XIt", "XSpecify", "XEntry", "XDescribeTable",
	"FDescribe", "FContext", "FWhen", "FIt", "FSpecify", "FEntry", "FDescribeTable",
}

// testBreaches finds test files that sleep or leave tests out.
func testBreaches(files []source) []string {
	var breaches []string
	for _, file := range files {
		if !file.isTest() {
			continue
		}
		for _, use := range uses(file, sleeps) {
			breaches = append(breaches, fmt.Sprintf("%s: uses %s: wait for the condition instead", use.at, use.name))
		}
		for _, call := range append(calls(file, unfinished...), methodCalls(file, skips...)...) {
			breaches = append(breaches, fmt.Sprintf("%s: calls %s: a test that does not run proves nothing", call.at, call.name))
		}
	}
	slices.Sort(breaches)
	return breaches
}

// maxFunction is how many lines a function may have between its braces, comments aside. Tables of tests are longer at times.
const maxFunction = 80

// functionBreaches finds functions that have grown too long.
func functionBreaches(files []source) []string {
	var breaches []string
	for _, file := range files {
		if file.isTest() || ast.IsGenerated(file.syntax) {
			continue
		}
		for _, decl := range file.syntax.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if lines := file.linesIn(f.Body); lines > maxFunction {
				breaches = append(breaches, fmt.Sprintf("%s: %s has %d lines, more than %d; split it", file.at(f), f.Name.Name, lines, maxFunction))
			}
		}
	}
	slices.Sort(breaches)
	return breaches
}

// linesIn counts the lines between the braces of a body, but for those of comments alone.
func (s source) linesIn(body *ast.BlockStmt) int {
	line := func(p token.Pos) int { return s.set.Position(p).Line }
	coded := map[int]bool{}
	ast.Inspect(body, func(node ast.Node) bool {
		if node != nil {
			coded[line(node.Pos())], coded[line(node.End()-1)] = true, true
		}
		return true
	})
	lines := line(body.Rbrace) - line(body.Lbrace) - 1
	for _, group := range s.syntax.Comments {
		for at := line(group.Pos()); at <= line(group.End()-1) && group.Pos() > body.Lbrace && group.End() <= body.Rbrace; at++ {
			if !coded[at] {
				lines--
			}
		}
	}
	return lines
}

// methodCalls finds every call of a method, or of a package's function, with one of these names.
func methodCalls(file source, methods ...string) []use {
	var found []use
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(methods, selector.Sel.Name) {
				found = append(found, use{at: file.at(call), name: selector.Sel.Name})
			}
		}
		return true
	})
	return found
}

// docBreaches finds packages that do not say what they are for. A folder with test files alone says it in one of them.
func docBreaches(files []source) []string {
	hasCode, documented := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		hasCode[file.folder()] = hasCode[file.folder()] || !file.isTest()
	}
	for _, file := range files {
		speaks := !file.isTest() || !hasCode[file.folder()]
		if speaks && file.syntax.Doc.Text() != "" {
			documented[file.folder()] = true
		}
	}
	var breaches []string
	for folder := range hasCode {
		if !documented[folder] {
			breaches = append(breaches, folder+": no file has a package comment")
		}
	}
	slices.Sort(breaches)
	return breaches
}
