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
