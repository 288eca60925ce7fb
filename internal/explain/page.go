package explain

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

const (
	// pageWidth is where lines break, pageIndent where the text beside a label begins.
	pageWidth  = 110
	pageIndent = 12
)

// page is text under construction: labels on the left, wrapped text beside them. Nothing that is put into it can move
// the cursor, colour the terminal or forge a line.
type page struct{ strings.Builder }

// field starts a line with a label, and goes on beside it.
func (p *page) field(label, format string, args ...any) {
	p.wrapped(fmt.Sprintf("%-*s", pageIndent, Printable(label)), pageIndent, format, args...)
}

// item is a line of its own under the last field, indented by depth more; what does not fit goes on four deeper.
func (p *page) item(depth int, format string, args ...any) {
	p.wrapped(strings.Repeat(" ", pageIndent+depth), pageIndent+depth+4, format, args...)
}

func (p *page) wrapped(first string, hang int, format string, args ...any) {
	line, empty := first, true
	for _, word := range strings.Split(Printable(fmt.Sprintf(format, args...)), " ") {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > pageWidth {
			p.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = strings.Repeat(" ", hang), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.WriteString(strings.TrimRight(line, " ") + "\n")
}

// Printable writes every character of s that a terminal would act on, and every invalid byte, as an escape.
func Printable(s string) string { return report.Printable(s) }
