package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// columns is how many of a table's last columns are numbers, which stand to the right.
const columns = 9

// Words tells a status on a screen.
func (s *Status) Words(now time.Time) string {
	var b strings.Builder
	b.WriteString(s.title(now) + "\n\n")
	t := table{{"POLICY", "FLAVOR", "NODES", "TOTAL", "FREE", "HELD", "RESERVED", "UNHEALTHY", "STALE", "NOT-SERVING", "FLAGS"}}
	for _, f := range s.Flavors {
		t = append(t, append([]string{name(f.Policy), name(f.Flavor), strconv.Itoa(f.Nodes)}, f.figures(f.Flags)...))
	}
	if len(s.Flavors) > 0 {
		t.write(&b)
	} else {
		b.WriteString("There is no DevicePolicy, and no device.\n")
	}
	if len(s.Nodes) > 0 {
		b.WriteString("\n")
		t = table{{"NODE", "POLICY", "FLAVOR", "TOTAL", "FREE", "HELD", "RESERVED", "UNHEALTHY", "STALE", "NOT-SERVING", "FLAGS"}}
		for _, n := range s.Nodes {
			t = append(t, append([]string{n.Node, name(n.Policy), name(n.Flavor)}, n.figures(len(n.Flags))...))
		}
		t.write(&b)
		s.why(&b)
	}
	flags := 0
	for _, f := range s.Flavors {
		flags += f.Flags
	}
	if flags > 0 && len(s.Nodes) == 0 {
		b.WriteString("\nFlags are what is odd about nodes: --nodes says what.\n")
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "Note: %s\n", report.Printable(n))
	}
	return b.String()
}

func (s *Status) title(now time.Time) string {
	if s.Source == ledger.SourceAPI {
		return fmt.Sprintf("Ledger computed from the API server, %s", s.Digest)
	}
	who := "a manager that does not lead"
	if s.Leader {
		who = "the leading manager"
	}
	return fmt.Sprintf("Ledger version %d of %s, %s ago, %s", s.Version, who, duration.HumanDuration(max(0, now.Sub(s.Time))), report.Printable(s.Digest))
}

// why lists what the columns cannot hold.
func (s *Status) why(b *strings.Builder) {
	first := true
	line := func(format string, args ...any) {
		if first {
			b.WriteString("\n")
		}
		first = false
		b.WriteString(report.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	for i, n := range s.Nodes {
		for _, w := range n.Why {
			line("%s: %s %s: %s", n.Node, report.Plural(int(w.Devices), "device"), said(w.State), w.Message)
		}
		if i > 0 && s.Nodes[i-1].Node == n.Node {
			continue // a node's flags are those of all its rows
		}
		for _, f := range n.Flags {
			object := ""
			if f.Object != "" {
				object = f.Object + ": "
			}
			line("%s: %s: %s%s", n.Node, f.Reason, object, f.Message)
		}
	}
}

func (c *Counts) figures(flags int) []string {
	var out []string
	for _, n := range []int64{c.Total, c.Free, c.Held, c.Reserved, c.Unhealthy, c.Stale, c.NotServing, int64(flags)} {
		out = append(out, strconv.FormatInt(n, 10))
	}
	return out
}

// said is a state in words.
func said(s admission.DeviceState) string {
	if s == admission.DeviceNotServing {
		return "not served"
	}
	return strings.ToLower(string(s))
}

func name(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// table is rows of cells, all of the same length.
type table [][]string

func (t table) write(b *strings.Builder) {
	width := map[int]int{}
	for _, row := range t {
		for i, cell := range row {
			row[i] = report.Printable(cell)
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if _, err := strconv.Atoi(t[min(1, len(t)-1)][i]); err == nil && i >= len(row)-columns {
				cell, pad = pad+cell, ""
			}
			line.WriteString(cell + pad + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
