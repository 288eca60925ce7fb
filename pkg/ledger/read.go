package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The bounds of what is read as an export. The book of 5,000 nodes with eight devices each has about 60 MiB.
const (
	maxExportBytes = 1 << 30
	maxLineBytes   = 4 << 20
	maxExportLines = 4 << 20
)

// Export is an export as it was read.
type Export struct {
	Header Header
	// Entries are in the order in which they were written, each Key once.
	Entries []Entry
}

// Entry is a line of an export with its bytes.
type Entry struct {
	Line
	// Raw is the line as it was written, without its end.
	Raw []byte
}

// ReadExport reads what Export wrote. What is not one, is cut off, has been edited or is larger than any cluster is an error,
// which says at which line. The caller must not use what was returned with an error.
func ReadExport(r io.Reader) (*Export, error) {
	limited := &io.LimitedReader{R: r, N: maxExportBytes + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	e := &Export{}
	h, counts, seen := sha256.New(), map[string]int{}, map[string]bool{}
	for at := 1; lines.Scan(); at++ {
		raw := bytes.Clone(lines.Bytes())
		if at == 1 {
			if err := e.Header.read(raw); err != nil {
				return nil, err
			}
			continue
		}
		kind, l, err := parseLine(raw)
		if err != nil {
			return nil, fmt.Errorf("line %d is not one of a ledger's export: %w", at, err)
		}
		if seen[l.Key()] {
			return nil, fmt.Errorf("line %d is not one of a ledger's export: %s is there twice", at, quoted(l.Key()))
		}
		if at > maxExportLines {
			return nil, fmt.Errorf("the export has more than %d lines", maxExportLines)
		}
		seen[l.Key()] = true
		counts[kind]++
		if !l.History() {
			h.Write(raw)
			h.Write([]byte{'\n'})
		}
		e.Entries = append(e.Entries, Entry{l, raw})
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, fmt.Errorf("line %d is longer than %d MiB: this is not a ledger's export", len(e.Entries)+2, maxLineBytes>>20)
		}
		return nil, fmt.Errorf("read export: %w", err)
	}
	return e, e.Header.holds(limited.N <= 0, hex.EncodeToString(h.Sum(nil)), counts)
}

// read reads the first line.
func (h *Header) read(raw []byte) error {
	if err := strictly(raw, h); err != nil {
		return fmt.Errorf("this is not a ledger's export: its first line is not a header: %w", err)
	}
	if h.Format != ExportFormat {
		return fmt.Errorf("the export has format %s: this reads %s; use the kubectl-plimsoll of the manager's release", quoted(h.Format), ExportFormat)
	}
	return nil
}

// holds says what is wrong with what followed the header.
func (h *Header) holds(cut bool, digest string, counts map[string]int) error {
	switch {
	case h.Format == "":
		return errors.New("this is not a ledger's export: it is empty")
	case cut:
		return fmt.Errorf("the export is larger than %d MiB", maxExportBytes>>20)
	case !maps.Equal(h.Counts, counts):
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			if h.Counts[kind] != counts[kind] {
				return fmt.Errorf("the export is not whole: its header says %d lines of %s, it has %d", h.Counts[kind], kind, counts[kind])
			}
		}
		return errors.New("the export's header counts lines of a kind that is not known")
	case h.Digest != "sha256:"+digest:
		return fmt.Errorf("the export was changed: its digest is sha256:%s, its header says %s", digest, quoted(h.Digest))
	}
	return nil
}

// kinds makes an empty line of each kind.
var kinds = map[string]func() Line{
	lineClass:     func() Line { return &ClassLine{} },
	lineNode:      func() Line { return &NodeLine{} },
	lineUse:       func() Line { return &UseLine{} },
	linePool:      func() Line { return &PoolLine{} },
	lineDevice:    func() Line { return &DeviceLine{} },
	lineShown:     func() Line { return &ShownLine{} },
	lineCounter:   func() Line { return &CounterLine{} },
	lineZone:      func() Line { return &ZoneLine{} },
	lineFlag:      func() Line { return &FlagLine{} },
	lineMapped:    func() Line { return &MappedLine{} },
	lineAgent:     func() Line { return &AgentLine{} },
	lineRule:      func() Line { return &RuleLine{} },
	lineRegressed: func() Line { return &RegressedLine{} },
	lineNotReady:  func() Line { return &NotReadyLine{} },
	lineLost:      func() Line { return &LostLine{} },
	lineGone:      func() Line { return &GoneLine{} },
	lineDeparted:  func() Line { return &DepartedLine{} },
}

// hostile finds numbers that take for ever to read as a quantity: with a large exponent, or very long.
var hostile = regexp.MustCompile(`(?:^|[:,\[]\s*"?)[+-]?(?:[0-9.]+[eE][+-]?[0-9]{3,}|[0-9.]{100,})[A-Za-z]*"?\s*(?:[,\]}]|$)`)

// quantityOf reads a quantity of a bounded size.
func quantityOf(text string) (resource.Quantity, error) {
	if hostile.MatchString(text) {
		return resource.Quantity{}, fmt.Errorf("%s is no quantity of a device", quoted(text))
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, fmt.Errorf("%s is no quantity: %w", quoted(text), err)
	}
	return q, nil
}

func parseLine(raw []byte) (string, Line, error) {
	if n := hostile.Find(raw); n != nil {
		return "", nil, fmt.Errorf("%s is no quantity of a device", quoted(string(n)))
	}
	var what struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &what); err != nil {
		return "", nil, err
	}
	made, known := kinds[what.Kind]
	if !known {
		return "", nil, fmt.Errorf("kind %s is not known", quoted(what.Kind))
	}
	l := made()
	if err := strictly(raw, l); err != nil {
		return "", nil, err
	}
	return what.Kind, l, nil
}

// strictly decodes one JSON value that has no other fields than into.
func strictly(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the object")
	}
	return nil
}

// quoted quotes what somebody else wrote, in bounds.
func quoted(s string) string { return fmt.Sprintf("%.80q", s) }

// Difference is a thing of which two exports say something else.
type Difference struct {
	// Key is that of the lines.
	Key string
	// A and B are what each says; nil where it knows no such thing.
	A, B []byte
}

// Compare returns what the accounts in two exports differ in, in order of the keys. History is not looked at.
func (e *Export) Compare(other *Export) []Difference {
	mine, theirs := e.accounts(), other.accounts()
	var out []Difference
	for key, a := range mine {
		if b := theirs[key]; !bytes.Equal(a, b) {
			out = append(out, Difference{key, a, b})
		}
	}
	for key, b := range theirs {
		if _, known := mine[key]; !known {
			out = append(out, Difference{key, nil, b})
		}
	}
	slices.SortFunc(out, func(x, y Difference) int { return cmp.Compare(x.Key, y.Key) })
	return out
}

func (e *Export) accounts() map[string][]byte {
	out := make(map[string][]byte, len(e.Entries))
	for i := range e.Entries {
		if l := &e.Entries[i]; !l.History() {
			out[l.Key()] = l.Raw
		}
	}
	return out
}

// Write writes an export as it was read.
func (e *Export) Write(w io.Writer) error {
	if _, err := w.Write(bytesOf(e.Header)); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for i := range e.Entries {
		if _, err := w.Write(append(slices.Clip(e.Entries[i].Raw), '\n')); err != nil {
			return fmt.Errorf("write line: %w", err)
		}
	}
	return nil
}
