package arch

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxLines is how long a file written by hand may be.
const maxLines = 500

// document is any file of the repository.
type document struct {
	path string // relative to the repository, with slashes
	text []byte
}

func (d document) isText() bool { return bytes.IndexByte(d.text, 0) < 0 }

// readDocuments reads all files that git tracks or would track. Outside a git work tree, as in an unpacked archive,
// it reads all but bin/ and .lab/.
func readDocuments(root string) ([]document, error) {
	names, err := listGit(root)
	if err != nil {
		if names, err = listFolder(root); err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
	}
	var documents []document
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted and not yet committed, or a link
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("read documents: %w", err)
		}
		documents = append(documents, document{path: name, text: text})
	}
	return documents, nil
}

func listGit(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

func listFolder(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			names = append(names, filepath.ToSlash(relative))
		} else if relative == "bin" || relative == ".git" || relative == ".lab" {
			return fs.SkipDir
		}
		return nil
	})
	return names, err
}

var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc"}

// nameBreaches finds folders and files with a name that says nothing: a helper lives with the noun it serves.
func nameBreaches(documents []document) []string {
	found := map[string]bool{}
	for _, d := range documents {
		elements := strings.Split(d.path, "/")
		for i, element := range elements {
			name := strings.TrimSuffix(strings.TrimSuffix(element, path.Ext(element)), "_test")
			if slices.Contains(vagueNames, strings.ToLower(name)) {
				found[strings.Join(elements[:i+1], "/")+": the name says nothing; name it after the noun that it serves"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// machinePath finds absolute paths below folders that belong to one machine. The names are put together here so that
// this file does not contain what it looks for.
var machinePath = regexp.MustCompile("(?:^|[\\s\"'`=:,;([{<>|/])(/(?:" + strings.Join([]string{"root", "home", "work"}, "|") + ")/[\\w.-]*)")

// pathBreaches finds text files that name places on somebody's machine.
func pathBreaches(documents []document) []string {
	var breaches []string
	for _, d := range documents {
		if !d.isText() {
			continue
		}
		for i, line := range strings.Split(string(d.text), "\n") {
			if match := machinePath.FindStringSubmatch(line); match != nil {
				breaches = append(breaches, fmt.Sprintf("%s:%d: names the path %s", d.path, i+1, match[1]))
			}
		}
	}
	slices.Sort(breaches)
	return breaches
}

var generatedHeader = regexp.MustCompile(`(?m)^(?://|#|<!--) Code generated .* DO NOT EDIT\.`)

// writtenByMachine knows the long files that nobody writes by hand, or reads as a whole: by Go's own header, which
// other kinds of file can carry too, or by name.
func writtenByMachine(d document) bool {
	base := path.Base(d.path)
	return base == "go.mod" || base == "go.sum" || d.path == "LICENSE" ||
		within(d.path, "config/crd/bases") ||
		within(d.path, "examples") && path.Ext(d.path) == ".yaml" || // a cluster as a dump would give it
		strings.Contains("/"+d.path, "/testdata/") ||
		generatedHeader.Match(d.text)
}

// lengthBreaches finds files that have grown too long to be read in one go.
func lengthBreaches(documents []document) []string {
	var breaches []string
	for _, d := range documents {
		lines := bytes.Count(d.text, []byte("\n"))
		if lines > maxLines && d.isText() && !writtenByMachine(d) {
			breaches = append(breaches, fmt.Sprintf("%s: has %d lines, more than %d; split it", d.path, lines, maxLines))
		}
	}
	slices.Sort(breaches)
	return breaches
}

// installBreaches finds directives in go.mod with which `go install` of the commands would be refused.
func installBreaches(goMod string) []string {
	var breaches []string
	for i, line := range strings.Split(goMod, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 && (fields[0] == "replace" || fields[0] == "exclude") {
			breaches = append(breaches, fmt.Sprintf("go.mod:%d: %s makes go install refuse the commands", i+1, fields[0]))
		}
	}
	return breaches
}
