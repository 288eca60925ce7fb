package input

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// document is a parsed value with the place that it has in its file.
type document struct {
	file   string
	offset int
	node   *yaml.Node
	value  any
	// apiVersion and kind are what a typed list says about an item that says nothing itself.
	apiVersion, kind string
}

func (d document) line() int {
	n := resolve(d.node)
	if n == nil {
		return d.offset + 1
	}
	return d.offset + max(n.Line, 1)
}

// entry is one object of the input on its way from text to a typed object.
type entry struct {
	document
	is              *kind
	version         string
	fields          map[string]any
	namespace, name string
	set             []applied
	object          client.Object
	// later is what of a ResourceSlice's devices the types lack, by device.
	later    map[string]later
	at       time.Duration
	deleteAt *time.Duration
	// latest is the latest time in its metadata and status.
	latest time.Time
	built  bool
}

// applied is a field that --set wrote.
type applied struct{ field, argument string }

func (e *entry) String() string {
	if e.is.namespaced {
		return e.is.name + " " + e.namespace + "/" + e.name
	}
	return strings.TrimSpace(e.is.name + " " + e.name)
}

func (e *entry) source() string { return fmt.Sprintf("%s:%d", e.file, e.line()) }

// wrong is a fault of a field of the entry, at the field's line, or at the --set that wrote it.
func (e *entry) wrong(field, text string) fault {
	for i := len(e.set) - 1; i >= 0; i-- {
		if within(field, e.set[i].field) {
			f := ofSetting(e.set[i].argument)
			f.object, f.field, f.text = e.String(), field, text
			return f
		}
	}
	return fault{file: e.file, line: e.lineOf(field), object: e.String(), field: field, text: text}
}

func within(field, outer string) bool {
	rest, ok := strings.CutPrefix(field, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// lineOf returns the line of a field, or of the nearest that the text has around it.
func (e *entry) lineOf(field string) int {
	n := resolve(e.node)
	line := e.line()
	for n != nil && field != "" {
		var next *yaml.Node
		next, field = step(n, field)
		if next == nil {
			return line
		}
		line = e.offset + next.Line
		n = resolve(valueOf(n, next))
	}
	return line
}

// resolve follows documents and aliases to what they stand for.
func resolve(n *yaml.Node) *yaml.Node {
	for i := 0; n != nil && i < maxDepth; i++ {
		switch {
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		default:
			return n
		}
	}
	return nil
}

// step finds the key (of a map) or the item (of a list) that a field path goes on with, and what is left of the path.
func step(n *yaml.Node, field string) (*yaml.Node, string) {
	if inner, ok := strings.CutPrefix(field, "["); ok {
		key, rest, ok := strings.Cut(inner, "]")
		if !ok {
			return nil, ""
		}
		rest = strings.TrimPrefix(rest, ".")
		if n.Kind == yaml.SequenceNode {
			if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
				return n.Content[i], rest
			}
			return nil, ""
		}
		return keyNode(n, key), rest
	}
	// Keys may have dots in them, so the longest that fits is taken.
	for end := len(field); end > 0; {
		if k := keyNode(n, field[:end]); k != nil {
			return k, strings.TrimPrefix(field[end:], ".")
		}
		end = strings.LastIndexAny(field[:end], ".[")
	}
	return nil, ""
}

func keyNode(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return k
		}
	}
	return nil
}

// valueOf returns what a key or an item of a node holds.
func valueOf(n, next *yaml.Node) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i] == next {
				return n.Content[i+1]
			}
		}
	}
	return next
}

// join continues a field path by a key.
func join(path, key string) string {
	if strings.ContainsAny(key, "./[] ") || key == "" {
		return path + "[" + key + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// addDocument keeps an object, or all that a list holds.
func (r *reader) addDocument(d document, depth int) {
	wrong := func(object, field, text string) {
		r.fault(fault{file: d.file, line: d.line(), object: object, field: field, text: text})
	}
	fields, ok := d.value.(map[string]any)
	if !ok {
		wrong("", "", "is not an object: a manifest has apiVersion, kind and metadata")
		return
	}
	apiVersion, ok1 := textOf(fields, "apiVersion", d.apiVersion)
	name, ok2 := textOf(fields, "kind", d.kind)
	if !ok1 || !ok2 {
		wrong("", "", "apiVersion and kind must be text")
		return
	}
	if apiVersion == "" || name == "" {
		wrong("", "", "apiVersion and kind must be given")
		return
	}
	if items, ok := fields["items"]; ok && strings.HasSuffix(name, "List") {
		r.addItems(d, apiVersion, strings.TrimSuffix(name, "List"), items, depth)
		return
	}
	if r.objects++; r.objects > maxObjects {
		if r.objects == maxObjects+1 {
			wrong("", "", fmt.Sprintf("the input has more than %d objects", maxObjects))
		}
		return
	}
	if isConfiguration(apiVersion) {
		r.readConfiguration(d, fields, name)
		return
	}
	metadata, _ := fields["metadata"].(map[string]any)
	e := &entry{document: d, fields: fields}
	e.name, _ = metadata["name"].(string)
	e.namespace, _ = metadata["namespace"].(string)
	k, version, problem := kindOf(apiVersion, name)
	if problem != "" {
		shown := strings.TrimSpace(oneLine(name) + " " + strings.TrimPrefix(e.namespace+"/"+e.name, "/"))
		wrong(shown, "", problem)
		return
	}
	e.is, e.version = k, version
	fields["apiVersion"], fields["kind"] = apiVersion, name
	if k.namespaced && e.namespace == "" {
		e.namespace = "default"
		if metadata != nil {
			metadata["namespace"] = e.namespace
		}
	}
	r.entries = append(r.entries, e)
}

func textOf(fields map[string]any, key, otherwise string) (string, bool) {
	v, given := fields[key]
	if !given || v == nil {
		return otherwise, true
	}
	s, ok := v.(string)
	return s, ok
}

func (r *reader) addItems(d document, apiVersion, kind string, items any, depth int) {
	list, ok := items.([]any)
	if items != nil && !ok {
		r.fault(fault{file: d.file, line: d.line(), object: kind + "List", field: "items", text: "must be a list"})
		return
	}
	if depth >= 4 {
		r.fault(fault{file: d.file, line: d.line(), text: "has lists in lists, more than 4 deep"})
		return
	}
	n := resolve(d.node)
	key := keyNode(n, "items")
	var node *yaml.Node
	if key != nil {
		node = resolve(valueOf(n, key))
	}
	for i, item := range list {
		inner := document{file: d.file, offset: d.offset, node: d.node, value: item}
		if node != nil && node.Kind == yaml.SequenceNode && i < len(node.Content) {
			inner.node = node.Content[i]
		}
		if kind != "" {
			inner.apiVersion, inner.kind = apiVersion, kind
		}
		r.addDocument(inner, depth+1)
	}
}
