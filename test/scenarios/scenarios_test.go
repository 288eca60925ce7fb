// Package scenarios runs every folder beside it through simulate and holds the result against the folder's expected.json.
package scenarios

import (
	"bytes"
	"context"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	result "github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

var update = flag.Bool("update", false, "write what simulate says now to every expected.json")

func TestScenarios(t *testing.T) {
	folders, err := filepath.Glob("*/input.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) < 30 {
		t.Fatalf("found %d scenarios, there are more", len(folders))
	}
	for _, f := range folders {
		folder := filepath.Dir(f)
		t.Run(folder, func(t *testing.T) {
			got := run(t, folder, nil).JSON()
			file := filepath.Join(folder, "expected.json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; write it with -update, and read what was written", err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("-expected +got; if it is meant so, run with -update:\n%s", cmp.Diff(string(want), string(got)))
			}
			if text, err := os.ReadFile(filepath.Join(folder, "README.md")); err != nil || len(bytes.TrimSpace(text)) == 0 {
				t.Errorf("README.md does not say what this shows: %v", err)
			}
		})
	}
}

// run simulates a folder's manifests up to a time; to the end if it is nil.
func run(t *testing.T, folder string, until *time.Duration) *result.Result {
	t.Helper()
	var files []input.File
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		files = append(files, input.File{Name: path, Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := input.Read(files, input.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(context.Background(), in, simulate.Options{Until: until, Warn: func(s string) { t.Error(s) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
