package input

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is all that is wrong with an input.
type Error struct {
	// Lines are the faults, one a line, each with its place, sorted by place; at most 50.
	Lines []string
	// More is how many faults are not in Lines.
	More int
}

// Error returns the faults, one a line.
func (e *Error) Error() string {
	text := strings.Join(e.Lines, "\n")
	if e.More > 0 {
		text += fmt.Sprintf("\nand %d more", e.More)
	}
	return text
}

// fault is one thing that is wrong, or that is warned of.
type fault struct {
	file   string // or the --set argument
	line   int    // 0 where the fault has none
	object string // "Job team-a/train", or nothing
	field  string
	text   string
}

func (f fault) String() string {
	var b strings.Builder
	b.WriteString(f.file)
	if f.line > 0 {
		fmt.Fprintf(&b, ":%d", f.line)
	}
	for _, part := range []string{f.object, f.field, f.text} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	return oneLine(b.String())
}

func compareFaults(a, b fault) int {
	return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.object, b.object),
		cmp.Compare(a.field, b.field), cmp.Compare(a.text, b.text))
}

// ofSetting is a fault of a --set.
func ofSetting(argument string) fault {
	if quoted := short(argument); len(argument) > shownValue {
		argument = quoted
	}
	return fault{file: "--set " + argument}
}

func (r *reader) fault(f fault) {
	if len(r.faults) >= keptFaults {
		r.dropped++
		return
	}
	r.faults = append(r.faults, f)
}

// warn keeps a warning, which is a fault where the reading is strict.
func (r *reader) warn(f fault) {
	if r.strict {
		r.fault(f)
		return
	}
	r.note(f)
}

// note keeps a warning that is none of the user's doing, strict or not.
func (r *reader) note(f fault) {
	if len(r.warnings) < keptFaults {
		r.warnings = append(r.warnings, f)
	}
}

func (r *reader) failed() bool { return len(r.faults) > 0 }

func (r *reader) err() error {
	if !r.failed() {
		return nil
	}
	lines := sortedLines(r.faults)
	more := r.dropped
	if len(lines) > shownFaults {
		more += len(lines) - shownFaults
		lines = lines[:shownFaults]
	}
	return &Error{Lines: lines, More: more}
}

func sortedLines(faults []fault) []string {
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, compareFaults)
	lines := make([]string, 0, len(faults))
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	return slices.Compact(lines)
}

// short returns at most shownValue bytes of a value, quoted.
func short(value string) string {
	if len(value) > shownValue {
		cut := shownValue
		for cut > 0 && !utf8.RuneStart(value[cut]) {
			cut--
		}
		value = value[:cut] + "..."
	}
	return fmt.Sprintf("%q", value)
}

// oneLine keeps a message on one line of a terminal, and free of control characters.
func oneLine(text string) string {
	const most = 2048
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '\u2028' || c == '\u2029' || unicode.Is(unicode.Cf, c) {
			return ' '
		}
		return c
	}, text)
}
