package simulate

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const weightLine = "weight"

// figureLines are the lines of the table for each tenant and flavor, in their order. An empty text is one that there is
// nothing to say about.
var figureLines = []struct {
	name string
	text func(*Figures) string
}{
	{"admitted", func(f *Figures) string { return strconv.FormatInt(f.Admitted, 10) }},
	{"waiting", func(f *Figures) string { return strconv.FormatInt(f.Waiting, 10) }},
	{"mean wait", func(f *Figures) string { return clockText(f.MeanWait) }},
	{"p95 wait", func(f *Figures) string { return clockText(f.P95Wait) }},
	{"longest wait", func(f *Figures) string { return clockText(f.LongestWait) }},
	{"device-hours", func(f *Figures) string { return f.DeviceHours.String() }},
	{"share of device-hours", func(f *Figures) string { return percent(f.DeviceShare) }},
	{weightLine, func(f *Figures) string {
		if f.Weight == nil {
			return ""
		}
		return f.Weight.String()
	}},
	{"share of device-hours / weight", func(f *Figures) string { return percent(f.DeviceSharePerWeight) }},
	{"Kueue's weighted share", func(f *Figures) string {
		if f.Share == nil {
			return ""
		}
		return shareText(*f.Share)
	}},
	{"fallback rate", func(f *Figures) string { return percent(f.FallbackRate) }},
}

// Table prints the comparison for people, in lines of at most 110 characters: the figures of each tenant over all
// flavors and on each, then the workloads that changed. It fails only where w does.
func (c *Comparison) Table(w io.Writer) error {
	intro := fmt.Sprintf("Simulated %s before and %s after; figures are until %s. What still waits has waited until then.\n\n",
		c.Ended.Before, c.Ended.After, max(c.Ended.Before, c.Ended.After))
	if _, err := io.WriteString(w, intro); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if err := c.figures().write(w); err != nil {
		return err
	}
	outro := "\nNo workload came to anything else.\n"
	if n := len(c.Changed); n > 0 {
		outro = fmt.Sprintf("\n%s came to something else:\n\n", report.Plural(n, "workload"))
	}
	if _, err := io.WriteString(w, outro); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return c.changed().write(w)
}

func (c *Comparison) figures() *grid {
	g := &grid{head: []string{"CLUSTERQUEUE", "FLAVOR", "FIGURE", "BEFORE", "AFTER", "DIFFERENCE"}}
	for i := range c.Tenants {
		t := &c.Tenants[i]
		flavor := t.Flavor
		if flavor == "" {
			flavor = "(all)"
		}
		for _, l := range figureLines {
			if l.name == weightLine && t.Flavor != "" {
				continue // it is the same on every flavor
			}
			before, after := l.text(&t.Before), l.text(&t.After)
			if before != "" || after != "" {
				g.row(t.ClusterQueue, flavor, l.name, before, after, signed(l.text(&t.Difference)))
			}
		}
	}
	return g
}

func (c *Comparison) changed() *grid {
	g := &grid{head: []string{"WORKLOAD", "OUTCOME", "FLAVOR", "NODES", "STARTED", "ENDED"}}
	for i := range c.Changed {
		ch := &c.Changed[i]
		change := func(text func(*Got) string) string {
			before, after := "", ""
			if ch.Before != nil {
				before = text(ch.Before)
			}
			if ch.After != nil {
				after = text(ch.After)
			}
			return fromTo(before, after)
		}
		g.row(ch.Namespace+"/"+ch.Name,
			change(func(g *Got) string { return string(g.Outcome) }),
			change(func(g *Got) string { return flavorText(g.Flavors) }),
			change(func(g *Got) string { return nodeText(g.Nodes) }),
			change(func(g *Got) string { return clockText(g.AdmittedAt) }),
			change(func(g *Got) string { return clockText(g.FinishedAt) }))
	}
	return g
}

// fromTo says a change, or the one thing that did not change.
func fromTo(before, after string) string {
	if before == after {
		return before
	}
	if before == "" {
		before = "-"
	}
	if after == "" {
		after = "-"
	}
	return before + " -> " + after
}

// percent writes permille as percent with one digit.
func percent(permille *int64) string {
	if permille == nil {
		return ""
	}
	n, sign := *permille, ""
	if n < 0 {
		n, sign = -n, "-"
	}
	return fmt.Sprintf("%s%d.%d%%", sign, n/10, n%10)
}

// signed puts a plus before what is above 0.
func signed(number string) string {
	if number == "" || number[0] == '-' || strings.Trim(number, "0.s%") == "" {
		return number
	}
	return "+" + number
}
