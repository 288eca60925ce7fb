package simulate

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const (
	// pageWidth is what no line for people exceeds, in characters.
	pageWidth = 110
	// columnGap is the space between two columns.
	columnGap = 2
	// noteIndent is how far a note under a row is indented.
	noteIndent = 4
)

// grid is a table under construction. Its columns are as wide as what is in them; where a line would be longer than
// pageWidth the widest columns give way, and what does not fit loses its middle. Nothing that is put into a cell or a
// note can move the cursor, colour the terminal or forge a line.
type grid struct {
	head []string
	rows [][]string
	// notes holds, by row, a text that is wrapped under it.
	notes map[int]string
}

// row adds a row. An empty cell is printed as "-".
func (g *grid) row(cells ...string) {
	for i, c := range cells {
		if cells[i] = report.Printable(c); c == "" {
			cells[i] = "-"
		}
	}
	g.rows = append(g.rows, cells)
}

// note adds a text under the last row.
func (g *grid) note(text string) {
	if g.notes == nil {
		g.notes = map[int]string{}
	}
	g.notes[len(g.rows)-1] = report.Printable(text)
}

// write prints the table; without rows, nothing.
func (g *grid) write(w io.Writer) error {
	if len(g.rows) == 0 {
		return nil
	}
	widths := g.widths()
	var b strings.Builder
	line(&b, g.head, widths)
	for i, cells := range g.rows {
		line(&b, cells, widths)
		if text := g.notes[i]; text != "" {
			wrap(&b, noteIndent, text)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func (g *grid) widths() []int {
	widths := make([]int, len(g.head))
	for _, cells := range append([][]string{g.head}, g.rows...) {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	total := columnGap * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; total > pageWidth; total-- {
		widest := 0
		for i, n := range widths {
			if n > widths[widest] {
				widest = i
			}
		}
		widths[widest]--
	}
	return widths
}

func line(b *strings.Builder, cells []string, widths []int) {
	var text strings.Builder
	for i, c := range cells {
		c = shorten(c, widths[i])
		text.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+columnGap))
	}
	b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
}

// shorten takes the middle out of what is longer than width characters: names differ most often at their ends.
func shorten(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	tail := (width - 1) / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// wrap writes text, indented, in lines of at most pageWidth; a longer word is cut.
func wrap(b *strings.Builder, indent int, text string) {
	room := pageWidth - indent
	var current []rune
	flush := func() {
		if len(current) > 0 {
			b.WriteString(strings.Repeat(" ", indent) + string(current) + "\n")
		}
		current = current[:0]
	}
	for _, word := range strings.Fields(text) {
		runes := []rune(word)
		if len(current) > 0 && len(current)+1+len(runes) > room {
			flush()
		}
		if len(current) > 0 {
			current = append(current, ' ')
		}
		for ; len(current)+len(runes) > room; runes = runes[room:] {
			b.WriteString(strings.Repeat(" ", indent) + string(runes[:room]) + "\n")
		}
		current = append(current, runes...)
	}
	flush()
}
