package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func names(read []manifest, folder string) (out []string) {
	for _, m := range read {
		out = append(out, strings.TrimPrefix(m.name, folder+"/")+"="+string(m.data))
	}
	return out
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderIsReadWithAllBelowIt(t *testing.T) {
	folder := t.TempDir()
	file(t, folder, "b.yml", "2")
	file(t, folder, "a.yaml", "1")
	file(t, folder, "sub/deep/c.json", "3")
	file(t, folder, "sub/README.md", "no")
	file(t, folder, ".hidden.yaml", "no")
	file(t, folder, ".git/d.yaml", "no")
	elsewhere := file(t, t.TempDir(), "e", "4")
	link(t, elsewhere, filepath.Join(folder, "z.yaml"))
	link(t, folder, filepath.Join(folder, "sub/loop"))      // a loop
	link(t, folder, filepath.Join(folder, "sub/loop.yaml")) // one that is named like a file
	got, err := readManifests([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a.yaml=1", "b.yml=2", "sub/deep/c.json=3", "z.yaml=4"}; !slices.Equal(names(got, folder), want) {
		t.Errorf("read %v, want %v", names(got, folder), want)
	}
}

func TestWhatIsNamedIsReadWhateverItsEnding(t *testing.T) {
	folder := t.TempDir()
	plain := file(t, folder, "dump", "1")
	other := t.TempDir()
	file(t, other, "a.yaml", "2")
	link(t, other, filepath.Join(folder, "link"))
	got, err := readManifests([]string{plain, filepath.Join(folder, "link"), "-"}, strings.NewReader("3"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"dump=1", "link/a.yaml=2", "stdin=3"}; !slices.Equal(names(got, folder), want) {
		t.Errorf("read %v, want %v", names(got, folder), want)
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	folder := t.TempDir()
	link(t, "nowhere", filepath.Join(folder, "gone.yaml"))
	link(t, "round.yaml", filepath.Join(folder, "round.yaml"))
	link(t, os.DevNull, filepath.Join(folder, "zero.yaml"))
	_, err := readManifests([]string{folder, "-"}, reader(func([]byte) (int, error) { return 0, errors.New("torn") }))
	var got badInput
	if !errors.As(err, &got) {
		t.Fatalf("error %v, want a badInput", err)
	}
	want := []string{"gone.yaml: no such file or directory", "round.yaml: too many levels of symbolic links", "zero.yaml: it is no file", "read stdin: torn"}
	if len(got) != len(want) {
		t.Fatalf("faults %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasSuffix(got[i], want[i]) {
			t.Errorf("fault %q does not end in %q", got[i], want[i])
		}
	}
}

func TestReadingIsBounded(t *testing.T) {
	endless := reader(func(p []byte) (int, error) { return len(p), nil })
	cases := map[string]struct {
		m    *manifests
		want string
	}{
		"bytes of one":        {&manifests{left: 10}, "MiB in all"},
		"files":               {&manifests{left: 10, read: make([]manifest, maxManifests)}, "more than 10000 files"},
		"what was said first": {&manifests{full: true, faults: badInput{"said"}}, "said"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := len(c.m.read)
			c.m.take("x", io.LimitReader(endless, 1<<20))
			c.m.take("y", strings.NewReader(""))
			if len(c.m.read) != before || len(c.m.faults) != 1 || !strings.Contains(c.m.faults[0], c.want) {
				t.Errorf("read %d more, faults %q, want one that says %q", len(c.m.read)-before, c.m.faults, c.want)
			}
		})
	}
	t.Run("bytes of all together", func(t *testing.T) {
		m := &manifests{left: 10}
		m.take("x", strings.NewReader("123456"))
		m.take("y", strings.NewReader("1234"))
		m.take("z", strings.NewReader("1"))
		if len(m.read) != 2 || len(m.faults) != 1 || !strings.Contains(m.faults[0], "read z: more than") {
			t.Errorf("read %d, faults %q", len(m.read), m.faults)
		}
	})
	t.Run("entries of a folder", func(t *testing.T) {
		folder := t.TempDir()
		file(t, folder, "a.txt", "")
		file(t, folder, "b.yaml", "1")
		m := &manifests{left: 10, entries: maxEntries - 1}
		m.path(folder)
		if len(m.read) > 0 || len(m.faults) != 1 || !strings.Contains(m.faults[0], "files and folders to look at") {
			t.Errorf("read %d, faults %q", len(m.read), m.faults)
		}
	})
}

func TestProgressIsForTerminals(t *testing.T) {
	var b strings.Builder
	now := time.Unix(0, 0)
	p := newProgress(&b, func() time.Time { return now })
	p.tell(time.Second, 1, 2)
	p.end()
	if b.Len() > 0 {
		t.Errorf("what is no terminal got %q", b.String())
	}
	if f, err := os.Create(filepath.Join(t.TempDir(), "log")); err != nil || isTerminal(f) {
		t.Errorf("a file is taken for a terminal (%v)", err)
	}
}

func TestProgressIsShownTwiceASecondAtMost(t *testing.T) {
	var b strings.Builder
	now := time.Unix(0, 0)
	p := &progress{out: &b, now: func() time.Time { return now }}
	for range 20 {
		p.tell(90*time.Second+time.Millisecond, 1, 2)
		now = now.Add(100 * time.Millisecond)
	}
	if got := strings.Count(b.String(), "at 1m30s, 1 of 2 workloads done"); got != 4 {
		t.Errorf("%d lines in two seconds, want 4: %q", got, b.String())
	}
	p.end()
	cleared := b.String()
	if !strings.HasSuffix(cleared, "\r\x1b[K") {
		t.Errorf("the line is left on the screen: %q", cleared)
	}
	now = now.Add(time.Hour)
	p.tell(0, 2, 2)
	p.end()
	if b.String() != cleared {
		t.Errorf("something was shown after the end: %q", b.String()[len(cleared):])
	}
}
