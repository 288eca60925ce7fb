package input

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parse reads all files, by name, into entries.
func (r *reader) parse(files []File) {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Data, b.Data))
	})
	left := maxBytes
	for _, f := range files {
		if len(f.Data) > left {
			r.fault(fault{file: f.Name, text: fmt.Sprintf("the input is larger than %d MiB in all", maxBytes>>20)})
			return
		}
		left -= len(f.Data)
		for _, p := range split(f.Data) {
			r.parsePart(f.Name, p)
		}
	}
}

// part is a piece of a file that is parsed on its own, so that what is wrong in one does not hide the others.
type part struct {
	text []byte
	line int // how many lines of the file lie before it
}

// split cuts a file into its documents: JSON values that follow each other, or YAML between lines of dashes.
func split(data []byte) []part {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		if parts := splitJSON(data); parts != nil {
			return parts
		}
	}
	return splitYAML(data)
}

func splitJSON(data []byte) []part {
	var parts []part
	decoder := json.NewDecoder(bytes.NewReader(data))
	line, counted := 0, int64(0)
	for {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			return nil // not JSON all the way: YAML's parser says where
		}
		begin := decoder.InputOffset() - int64(len(text))
		line += bytes.Count(data[counted:begin], []byte("\n"))
		counted = begin
		parts = append(parts, part{text: unescape(text), line: line})
	}
}

// unescape writes out what JSON escapes in ways that YAML does not know: slashes, and characters in two halves.
func unescape(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\/`)) && !bytes.Contains(text, []byte(`\ud`)) && !bytes.Contains(text, []byte(`\uD`)) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		switch high, ok := half(text[i:]); {
		case text[i+1] == '/':
			out = append(out, '/')
			i++
		case ok && utf16.IsSurrogate(high):
			low, _ := half(text[i+6:])
			c := utf16.DecodeRune(high, low)
			out = utf8.AppendRune(out, c)
			if i += 5; c != utf8.RuneError {
				i += 6
			}
		default:
			out = append(out, text[i], text[i+1])
			i++
		}
	}
	return out
}

// half reads the escape that a text begins with.
func half(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

func splitYAML(data []byte) []part {
	var parts []part
	begin, beginLine, line := 0, 0, 0
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		text := data[at:end]
		if bytes.HasPrefix(text, []byte("---")) && (len(text) == 3 || strings.IndexByte(" \t\r\n", text[3]) >= 0) {
			if at > begin && !isBlank(data[begin:at]) {
				parts = append(parts, part{data[begin:at], beginLine})
			}
			begin, beginLine = at, line
		}
		at = end
		line++
	}
	if !isBlank(data[begin:]) {
		parts = append(parts, part{data[begin:], beginLine})
	}
	return parts
}

// isBlank says that YAML has nothing but comments and directives.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func (r *reader) parsePart(file string, p part) {
	decoder := yaml.NewDecoder(bytes.NewReader(p.text))
	for {
		node, err := decode(decoder)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			line, text := yamlProblem(err)
			r.fault(fault{file: file, line: p.line + line, text: text})
			return
		}
		c := &converter{offset: p.line, report: func(line int, field, text string) {
			r.fault(fault{file: file, line: line, field: field, text: text})
		}}
		before := len(r.faults) + r.dropped
		value := c.value(node, "", 0)
		if len(r.faults)+r.dropped > before || value == nil {
			continue
		}
		r.addDocument(document{file: file, offset: p.line, node: node, value: value}, 0)
	}
}

// decode reads one document. The library is known to have panicked on odd text.
func decode(d *yaml.Decoder) (node *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			node, err = nil, errors.New("cannot be parsed")
		}
	}()
	node = &yaml.Node{}
	return node, d.Decode(node)
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// yamlProblem takes the line out of what the library says.
func yamlProblem(err error) (line int, text string) {
	text = err.Error()
	match := yamlLine.FindStringSubmatch(text)
	line = 1
	if match[1] != "" {
		line, _ = strconv.Atoi(match[1])
	}
	return line, "is neither YAML nor JSON: " + text[len(match[0]):]
}

// converter turns parsed YAML into what JSON would be: maps by text, lists, text, bool, int64, float64 and nil.
type converter struct {
	offset  int
	aliased int
	stopped bool
	inAlias int
	report  func(line int, field, text string)
}

func (c *converter) problem(n *yaml.Node, field, text string) any {
	c.report(c.offset+n.Line, field, text)
	return nil
}

func (c *converter) value(n *yaml.Node, at string, depth int) any {
	if c.stopped {
		return nil
	}
	if depth > maxDepth {
		c.stopped = true
		return c.problem(n, "", fmt.Sprintf("is nested more than %d deep", maxDepth))
	}
	if c.inAlias > 0 {
		if c.aliased++; c.aliased > maxAliased {
			c.stopped = true
			return c.problem(n, "", fmt.Sprintf("repeats more than %d values through aliases", maxAliased))
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil
		}
		return c.value(n.Content[0], at, depth)
	case yaml.AliasNode:
		c.inAlias++
		defer func() { c.inAlias-- }()
		return c.value(n.Alias, at, depth+1) // a cycle ends at maxDepth
	case yaml.MappingNode:
		return c.mapping(n, at, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			list = append(list, c.value(item, fmt.Sprintf("%s[%d]", at, i), depth+1))
		}
		return list
	case yaml.ScalarNode:
		return c.scalar(n, at)
	}
	return nil
}

func (c *converter) mapping(n *yaml.Node, at string, depth int) any {
	m := make(map[string]any, len(n.Content)/2)
	var merged []map[string]any
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			switch v := c.value(value, at, depth+1).(type) {
			case map[string]any:
				merged = append(merged, v)
			case []any:
				for _, item := range v {
					if item, ok := item.(map[string]any); ok {
						merged = append(merged, item)
					}
				}
			}
			continue
		}
		name, ok := keyOf(key)
		if !ok {
			c.problem(n.Content[i], at, "has a key that is not text")
			continue
		}
		path := join(at, name)
		if _, twice := m[name]; twice {
			c.problem(n.Content[i], path, "is given twice")
			continue
		}
		m[name] = c.value(value, path, depth+1)
	}
	for _, from := range merged {
		for name, v := range from {
			if _, own := m[name]; !own {
				m[name] = v
			}
		}
	}
	return m
}

// keyOf returns a key as text: numbers and booleans are taken as they are written, as a server takes them.
func keyOf(key *yaml.Node) (string, bool) {
	if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" {
		return "", false
	}
	return key.Value, true
}

// oldBools are what YAML 1.1 calls a bool, and with it every tool of Kubernetes.
var oldBools = map[string]bool{
	"yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

func (c *converter) scalar(n *yaml.Node, at string) any {
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp", "!!merge":
		if b, ok := oldBools[n.Value]; ok && plain {
			return b
		}
		return n.Value
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return i
		}
		var f float64
		if n.Decode(&f) == nil {
			return f
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	case "!!binary":
		if b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), "")); err == nil {
			return string(b)
		}
	default:
		return c.problem(n, at, "has the tag "+short(tag)+", which is not read")
	}
	return c.problem(n, at, short(n.Value)+" cannot be read")
}
