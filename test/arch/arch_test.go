package arch

import (
	"os"
	"path/filepath"
	"testing"
)

// root is the repository, seen from this package's folder, where go test runs it.
const root = "../.."

func report(t *testing.T, breaches []string) {
	t.Helper()
	for _, breach := range breaches {
		t.Error(breach)
	}
}

func TestModule(t *testing.T) {
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files were found: the checks would prove nothing", len(files))
	}
	t.Run("imports follow the table", func(t *testing.T) { report(t, importBreaches(table, files)) })
	t.Run("the core is pure", func(t *testing.T) { report(t, purityBreaches(table, files)) })
	t.Run("tests neither sleep nor skip", func(t *testing.T) { report(t, testBreaches(files)) })
	t.Run("every package says what it is for", func(t *testing.T) { report(t, docBreaches(files)) })
	t.Run("functions are short", func(t *testing.T) { report(t, functionBreaches(files)) })
}

// TestNestedModules: what may not be in the module's own graph keeps to its rules all the same, but for what it imports.
func TestNestedModules(t *testing.T) {
	files, err := readNested(root)
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	tests := 0
	for _, f := range files {
		folders[f.folder()] = true
		if f.isTest() {
			tests++
		}
	}
	if !folders["test/oracle"] || !folders["test/oracle/world"] || tests < 4 {
		t.Fatalf("files of %v were found, %d of tests: the checks would prove nothing", folders, tests)
	}
	t.Run("tests neither sleep nor skip", func(t *testing.T) { report(t, testBreaches(files)) })
	t.Run("every package says what it is for", func(t *testing.T) { report(t, docBreaches(files)) })
	t.Run("functions are short", func(t *testing.T) { report(t, functionBreaches(files)) })
}

func TestFiles(t *testing.T) {
	documents, err := readDocuments(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) < 20 {
		t.Fatalf("only %d files were found: the checks would prove nothing", len(documents))
	}
	t.Run("names say something", func(t *testing.T) { report(t, nameBreaches(documents)) })
	t.Run("no file names a place on one machine", func(t *testing.T) { report(t, pathBreaches(documents)) })
	t.Run("files are short", func(t *testing.T) { report(t, lengthBreaches(documents)) })
}

func TestCommandsCanBeInstalled(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, installBreaches(string(text)))
}
