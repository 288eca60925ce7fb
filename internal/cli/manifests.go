package cli

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
)

// What is read is bounded.
const (
	maxManifestBytes = 256 << 20 // of all files together
	maxManifests     = 10_000
	maxEntries       = 200_000 // files and folders that are looked at
)

// manifestSuffixes are the files of a folder that are read.
var manifestSuffixes = []string{".yaml", ".yml", ".json"}

// manifest is one file, and how it was named.
type manifest struct {
	name string
	data []byte
}

// readManifests reads files, folders with all below them, and stdin for "-". Of a folder it reads what ends in .yaml,
// .yml or .json; it leaves out names that begin with a dot, and follows links to files but none to folders, of which
// one could lead back. All of it together may not be empty: a command that failed may be at the other end of the pipe.
// The error is a badInput with all faults.
func readManifests(paths []string, stdin io.Reader) ([]manifest, error) {
	m := &manifests{left: maxManifestBytes, stdin: stdin}
	for _, path := range paths {
		m.path(path)
	}
	if len(m.faults) == 0 && !slices.ContainsFunc(m.read, func(f manifest) bool { return len(bytes.TrimSpace(f.data)) > 0 }) {
		m.fault("there is nothing in %s", strings.Join(paths, ", "))
	}
	if len(m.faults) > 0 {
		return nil, m.faults
	}
	return m.read, nil
}

// manifests is one reading.
type manifests struct {
	read    []manifest
	faults  badInput
	left    int64 // bytes
	entries int
	full    bool // a bound was reached and said
	stdin   io.Reader
}

func (m *manifests) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// stop says once that a bound was reached, after which nothing is read.
func (m *manifests) stop(format string, args ...any) {
	if !m.full {
		m.full = true
		m.fault(format, args...)
	}
}

func (m *manifests) path(path string) {
	if path == "-" {
		if m.stdin == nil {
			m.fault("-f -: stdin can be read only once")
			return
		}
		m.take("stdin", m.stdin)
		m.stdin = nil
		return
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		m.fault("read %s: %s", path, cause(err))
	case info.IsDir():
		before := len(m.read) + len(m.faults)
		m.folder(path)
		if len(m.read)+len(m.faults) == before && !m.full {
			m.fault("read %s: the folder has no file that ends in %s", path, strings.Join(manifestSuffixes, ", "))
		}
	default:
		m.file(path)
	}
}

func (m *manifests) folder(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		m.fault("read %s: %s", path, cause(err))
		return
	}
	for _, e := range entries {
		if m.entries++; m.entries > maxEntries {
			m.stop("read %s: more than %d files and folders to look at", path, maxEntries)
		}
		name := filepath.Join(path, e.Name())
		switch {
		case m.full:
			return
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			m.folder(name)
		case slices.Contains(manifestSuffixes, filepath.Ext(e.Name())):
			m.entry(name)
		}
	}
}

// entry reads what is named like a manifest.
func (m *manifests) entry(name string) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		m.fault("read %s: %s", name, cause(err))
	case info.Mode().IsRegular():
		m.file(name)
	case info.IsDir(): // through a link
	default:
		m.fault("read %s: it is no file", name)
	}
}

func (m *manifests) file(name string) {
	f, err := os.Open(name)
	if err != nil {
		m.fault("read %s: %s", name, cause(err))
		return
	}
	defer f.Close()
	m.take(name, f)
}

func (m *manifests) take(name string, from io.Reader) {
	if m.full {
		return
	}
	if len(m.read) == maxManifests {
		m.stop("read %s: more than %d files", name, maxManifests)
		return
	}
	data, err := io.ReadAll(io.LimitReader(from, m.left+1))
	switch {
	case err != nil:
		m.fault("read %s: %s", name, cause(err))
	case int64(len(data)) > m.left:
		m.stop("read %s: more than %d MiB in all", name, maxManifestBytes>>20)
	default:
		m.left -= int64(len(data))
		m.read = append(m.read, manifest{name: name, data: data})
	}
}

// cause is an error without the operation and the path, which the fault names itself.
func cause(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
