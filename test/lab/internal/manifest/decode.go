// Package manifest reads Kubernetes manifests, puts them into an order in which they can be applied, and turns
// in-cluster webhook references into addresses on this machine. It talks to no cluster.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Decode returns the objects of a YAML or JSON stream in the order in which they stand. Empty documents are skipped and
// lists are taken apart.
func Decode(r io.Reader) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(r, 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode manifest: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" {
			return nil, fmt.Errorf("manifest %q has no apiVersion or no kind", object.GetName())
		}
		if !object.IsList() {
			objects = append(objects, object)
			continue
		}
		err = object.EachListItem(func(item runtime.Object) error {
			objects = append(objects, item.(*unstructured.Unstructured))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("take list apart: %w", err)
		}
	}
}

// Load returns the objects of files, and of folders with everything below them, in the order given and by name within a
// folder. Within a folder only .yaml, .yml and .json files count; kustomization files, and expected.yaml of the demo, do
// not.
func Load(paths ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			read, err := Decode(bytes.NewReader(data))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, read...)
		}
	}
	return objects, nil
}

func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && isManifest(entry.Name()) {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find manifests: %w", err)
	}
	return files, nil
}

func isManifest(name string) bool {
	switch strings.TrimSuffix(name, filepath.Ext(name)) {
	case "kustomization", "expected":
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}
