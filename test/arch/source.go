package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is one Go file, whatever its build tags.
type source struct {
	path   string // relative to the repository, with slashes
	syntax *ast.File
	set    *token.FileSet
}

func (s source) folder() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// at is where a node is, as editors understand it.
func (s source) at(node ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.set.Position(node.Pos()).Line)
}

// imported maps the name by which the file knows a package to its import path. Where an import has no name of its
// own it is taken to be the last element of the path, which holds for all that is asked about here.
func (s source) imported() map[string]string {
	names := map[string]string{}
	for _, spec := range s.syntax.Imports {
		name := path.Base(importPath(spec))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = importPath(spec)
	}
	return names
}

func importPath(spec *ast.ImportSpec) string {
	result, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser lets nothing else through
	}
	return result
}

// parse reads one Go file from its text.
func parse(name, text string) (source, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("parse: %w", err)
	}
	return source{path: name, syntax: syntax, set: set}, nil
}

// readModule parses every Go file of the module at root. Nested modules and what the go command ignores are left out.
func readModule(root string) ([]source, error) { return readBelow(root, root) }

// readNested parses every Go file of the modules that are nested in the one at root, each by its path there.
func readNested(root string) ([]source, error) {
	var sources []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != root && ignored(entry.Name()) {
			return fs.SkipDir
		}
		if entry.IsDir() || entry.Name() != "go.mod" || filepath.Dir(name) == filepath.Clean(root) {
			return nil
		}
		files, err := readBelow(root, filepath.Dir(name))
		sources = append(sources, files...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read nested modules: %w", err)
	}
	return sources, nil
}

// readBelow is readModule for the module in a folder, whose files go by their paths from root.
func readBelow(root, folder string) ([]source, error) {
	var sources []source
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(folder, name, entry.Name())
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parse(filepath.ToSlash(relative), string(text))
		if err != nil {
			return err
		}
		sources = append(sources, file)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	return sources, nil
}

func skipFolder(root, name, base string) error {
	if name == root {
		return nil
	}
	if ignored(base) {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// ignored says whether a folder is none of a module's.
func ignored(base string) bool {
	return slices.Contains([]string{"bin", "testdata", "vendor"}, base) || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// matches tells whether an import path is named by a pattern: the path itself, or with "/..." all below it too.
func matches(pattern, importPath string) bool {
	if parent, all := strings.CutSuffix(pattern, "/..."); all {
		return within(importPath, parent)
	}
	return pattern == importPath
}

func matchesAny(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, importPath) })
}

// within tells whether a path with slashes is parent or lies below it.
func within(name, parent string) bool {
	return name == parent || strings.HasPrefix(name, parent+"/")
}

// standard tells whether an import path is one of the standard library's: those have no dot in their first element.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
