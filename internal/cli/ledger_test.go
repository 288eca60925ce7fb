package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/internal/inspect"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// exportOf returns the export of a book of one node of that name.
func exportOf(t *testing.T, node string, source ledger.Source) *ledger.Export {
	t.Helper()
	book := ledger.New()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "a"}}
	book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: "a", ResourceVersion: 1}, Node: object})
	var out bytes.Buffer
	if err := book.Snapshot().Export(&out, ledger.Header{Time: time.Unix(1800000000, 0), Source: source}); err != nil {
		t.Fatal(err)
	}
	e, err := ledger.ReadExport(&out)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fixed gives the same export each time; nil fails.
func fixed(e *ledger.Export) func(context.Context) (*ledger.Export, error) {
	return func(context.Context) (*ledger.Export, error) {
		if e == nil {
			return nil, errors.New("no \x1b[2J route")
		}
		return e, nil
	}
}

func TestLedger(t *testing.T) {
	live, cold, other := exportOf(t, "a", ledger.SourceManager), exportOf(t, "a", ledger.SourceAPI), exportOf(t, "b", ledger.SourceAPI)
	cases := map[string]struct {
		args       []string
		live, cold *ledger.Export
		status     int
		stdout     string
		stderr     string
	}{
		"export prints the manager's":                 {[]string{"export"}, live, nil, 0, `"source":"manager"`, ""},
		"export without a manager":                    {[]string{"export"}, nil, cold, 0, `"source":"api"`, `Note: computed from the API server, since the manager's own ledger could not be read: no \x1b[2J route`},
		"export that is to be cold":                   {[]string{"export", "--cold"}, live, cold, 0, `"source":"api"`, ""},
		"export from a manager that was named":        {[]string{"export", "--manager", "https://x:1"}, nil, cold, 1, "", `Error: no \x1b[2J route`},
		"export without anything":                     {[]string{"export"}, nil, nil, 1, "", "Error: no"},
		"status counts":                               {[]string{"status"}, live, nil, 0, "of a manager that does not lead", ""},
		"status as JSON":                              {[]string{"status", "-o", "json"}, live, nil, 0, `"source": "manager"`, ""},
		"status as YAML":                              {[]string{"status", "-o", "yaml"}, live, nil, 0, "source: manager", ""},
		"status in a format that nobody knows":        {[]string{"status", "-o", "xml"}, live, nil, 1, "", "-o xml is not known"},
		"status of a node that has nothing":           {[]string{"status", "--node", "a"}, live, nil, 1, "", "node a has no device in the ledger"},
		"verify of what is equal":                     {[]string{"verify"}, live, cold, 0, live.Header.Digest, ""},
		"verify of what differs prints it both ways":  {[]string{"verify"}, live, other, 1, "node a\n  live: {\"kind\":\"node\",\"node\":\"a\"", "differs from the cluster in 4 lines"},
		"verify says what the live book lacks":        {[]string{"verify"}, live, other, 1, "node b\n  live: nothing\n", "differs"},
		"verify without a manager cannot tell":        {[]string{"verify"}, nil, cold, 2, "", "no \\x1b[2J route"},
		"verify without an API server cannot tell":    {[]string{"verify"}, live, nil, 2, "", "compute from the API server"},
		"verify with a flag that is none cannot tell": {[]string{"verify", "--frob"}, live, cold, 2, "", "unknown flag"},
		"verify has nothing to be told":               {[]string{"verify", "x"}, live, cold, 1, "", "unknown command"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := &ledgerFlags{now: func() time.Time { return time.Unix(1800000003, 0) }, tries: 4, pause: time.Nanosecond}
			f.open = func() (*source, error) {
				return &source{live: fixed(c.live), cold: fixed(c.cold), policies: func(context.Context) ([]*flavors.Policy, []string, error) { return nil, nil, nil }}, nil
			}
			root := newRoot(nil)
			root.RemoveCommand(root.Commands()...)
			root.AddCommand(f.command())
			var stdout, stderr bytes.Buffer
			root.SetArgs(append([]string{"ledger"}, c.args...))
			root.SetOut(&stdout)
			root.SetErr(&stderr)
			if status := execute(t.Context(), root); status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			if !strings.Contains(stdout.String(), c.stdout) || c.stdout == "" && stdout.Len() > 0 {
				t.Errorf("stdout %q, want %q in it", stdout.String(), c.stdout)
			}
			if !strings.Contains(stderr.String(), c.stderr) || c.stderr == "" && stderr.Len() > 0 || strings.Contains(stderr.String(), "\x1b") {
				t.Errorf("stderr %q, want %q in it", stderr.String(), c.stderr)
			}
		})
	}
}

func TestAnExportOnTheScreenIsOne(t *testing.T) {
	e := exportOf(t, "a", ledger.SourceManager)
	f := &ledgerFlags{now: time.Now, open: func() (*source, error) { return &source{live: fixed(e)}, nil }}
	cmd := f.command()
	var out bytes.Buffer
	cmd.SetArgs([]string{"export"})
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := ledger.ReadExport(&out)
	if err != nil {
		t.Fatal(err)
	}
	if d := e.Compare(again); len(d) > 0 || again.Header.Digest != e.Header.Digest {
		t.Errorf("read again, it differs: %v", d)
	}
}

func TestAStatusInJSONHasEveryColumn(t *testing.T) {
	s, err := inspect.Of(exportOf(t, "a", ledger.SourceManager), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Flavors = append(s.Flavors, inspect.FlavorCount{Policy: "gpu", Flavor: "h100"})
	var out bytes.Buffer
	if err := printValue(&out, s, "json"); err != nil {
		t.Fatal(err)
	}
	var got struct{ Flavors []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"policy", "flavor", "nodes", "total", "free", "held", "reserved", "unhealthy", "stale", "notServing", "flags"} {
		if _, ok := got.Flavors[0][column]; !ok {
			t.Errorf("%s is missing in %s", column, out.String())
		}
	}
}
