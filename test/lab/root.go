package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var moduleLine = regexp.MustCompile(`(?m)^module github\.com/plimsoll-dev/plimsoll$`)

// FindRoot returns the repository's folder: the closest one, from the working folder upwards, whose go.mod is Plimsoll's.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleLine.Match(data) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find repository: not inside a checkout of github.com/plimsoll-dev/plimsoll")
		}
		dir = parent
	}
}

func resolveRoot(root string) (string, error) {
	if root == "" {
		return FindRoot()
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	return abs, nil
}
