package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPinnedComponentIsRebuiltWhenItsVersionChanges(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := component{name: "tool", module: "tool", binaries: []string{"tool"}, rendered: "tool.json"}
	write("tool/go.mod", "require example.com/tool v1.0.0")
	write("tool/go.sum", "")
	stamp, err := c.stamp(root, "go1.26.0")
	if err != nil {
		t.Fatal(err)
	}
	if c.upToDate(root, stamp) {
		t.Error("up to date without a binary")
	}
	write("bin/tool", "")
	write("bin/.stamps/tool", stamp)
	if c.upToDate(root, stamp) {
		t.Error("up to date without its rendered file")
	}
	write("bin/tool.json", "")
	if !c.upToDate(root, stamp) {
		t.Error("not up to date with all of its files and its stamp")
	}
	changes := map[string]func() string{
		"another toolchain": func() string { return "go1.26.1" },
		"another version":   func() string { write("tool/go.mod", "require example.com/tool v1.0.1"); return "go1.26.0" },
	}
	for name, change := range changes {
		if changed, err := c.stamp(root, change()); err != nil || c.upToDate(root, changed) {
			t.Errorf("%s: still up to date (%v)", name, err)
		}
	}
}

func TestComponentsOfAReleaseLieApart(t *testing.T) {
	for _, c := range []struct {
		release Release
		name    string
		want    string
	}{
		{Current, Scheduler, "bin/kube-scheduler"},
		{Next, Scheduler, "bin/next/kube-scheduler"},
		{Next, APIServer, "bin/next/kube-apiserver"},
		{Next, Etcd, "bin/etcd"},
		{Next, Manager, "bin/plimsoll"},
	} {
		l := &Lab{root: ".", options: Options{Release: c.release}}
		if got := l.binary(c.name); got != c.want {
			t.Errorf("%s of release %q: %s, want %s", c.name, c.release, got, c.want)
		}
	}
	if _, err := Release("last").pinned(); err == nil {
		t.Error("a release that there is not is built")
	}
	if Next.gates(Scheduler)["DRADeviceCompatibilityGroups"] || !Next.gates(APIServer)["DRADeviceCompatibilityGroups"] || len(Current.gates(APIServer)) != len(featureGates) {
		t.Error("a gate of the next API server alone is another's, or is lost")
	}
}

func TestPinnedComponentIsBuiltAnewWithoutItsFolder(t *testing.T) {
	root := t.TempDir()
	c := component{name: "tool", module: ".", binaries: []string{"tool"}, folder: "apart"}
	for name, want := range map[string]bool{"bin/tool": false, "bin/apart/tool": true} {
		for _, file := range []string{name, "bin/.stamps/tool"} {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("stamp"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.upToDate(root, "stamp"); got != want {
			t.Errorf("with %s: up to date %v, want %v", name, got, want)
		}
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReservedPortsDiffer(t *testing.T) {
	var pool portPool
	defer pool.releaseAll()
	seen := map[int]bool{}
	for range 50 {
		port, err := pool.reserve()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < firstPort || port > lastPort {
			t.Errorf("port %d: reserved twice, or out of range", port)
		}
		seen[port] = true
	}
}

func TestReadAudit(t *testing.T) {
	log := `{"verb":"create","stageTimestamp":"2026-01-01T10:00:00.000000Z"}
{"verb":"update","stageTimestamp":"2026-01-01T10:00:01.000000Z"}
{"verb":"patch","userAgent":"\"stageTimestamp\":\"2026-01-01T09:00:00Z\"","stageTimestamp":"2026-01-01T10:00:02.000000Z"}
{"verb":"del`
	events, err := readAudit(strings.NewReader(log), time.Date(2026, 1, 1, 10, 0, 1, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, event := range events {
		verbs = append(verbs, event.Verb)
	}
	if diff := cmp.Diff([]string{"update", "patch"}, verbs); diff != "" {
		t.Errorf("events since, without the one still being written (-want +got):\n%s", diff)
	}
}

func TestFormatGates(t *testing.T) {
	if got, want := formatGates(map[string]bool{"B": false, "A": true}), "A=true,B=false"; got != want {
		t.Errorf("gates %q, want %q", got, want)
	}
}

func TestFindRoot(t *testing.T) {
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "test", "lab", "root.go")); err != nil {
		t.Errorf("found %s: %v", root, err)
	}
	t.Chdir(t.TempDir())
	if root, err := FindRoot(); err == nil {
		t.Errorf("found %s outside the repository", root)
	}
}
