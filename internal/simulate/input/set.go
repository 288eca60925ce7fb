package input

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// setting is one --set, taken apart as far as it can be without knowing the objects.
type setting struct {
	argument string
	is       *kind
	target   string // namespace, name and path
	value    any
	raw      string // the value as it was written
}

// element is one step of a path: a key, or what stands in brackets.
type element struct {
	key     string
	bracket bool
	quoted  bool
}

func (r *reader) parseSets(arguments []string) []setting {
	var sets []setting
	for _, argument := range arguments {
		s, problem := parseSetting(argument)
		if problem != "" {
			f := ofSetting(argument)
			f.text = problem
			r.fault(f)
			continue
		}
		sets = append(sets, s)
	}
	return sets
}

const howToSet = "write kind/name.path.to.field=value, or kind/namespace/name.path=value"

func parseSetting(argument string) (setting, string) {
	cut := equalsOf(argument)
	if cut < 0 {
		return setting{}, "has no value: " + howToSet
	}
	kindName, target, ok := strings.Cut(argument[:cut], "/")
	if !ok || target == "" {
		return setting{}, "names no object: " + howToSet
	}
	is := kindByWord(kindName)
	if is == nil {
		return setting{}, "no kind is called " + short(kindName)
	}
	s := setting{argument: argument, is: is, target: target, raw: argument[cut+1:]}
	var node yaml.Node
	problem := ""
	func() {
		defer func() {
			if recover() != nil {
				problem = "the value cannot be parsed"
			}
		}()
		if err := yaml.Unmarshal([]byte(s.raw), &node); err != nil {
			_, problem = yamlProblem(err)
			problem = "the value " + problem
		}
	}()
	if problem != "" {
		return setting{}, problem
	}
	c := &converter{report: func(_ int, field, text string) {
		problem = "the value: " + strings.TrimPrefix(field+": ", ": ") + text
	}}
	s.value = c.value(&node, "", 0)
	return s, problem
}

// equalsOf finds the first = that is not in brackets.
func equalsOf(text string) int {
	depth, quoted := 0, false
	for i, c := range text {
		switch {
		case c == '"' && depth > 0:
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '=' && depth == 0:
			return i
		}
	}
	return -1
}

func kindByWord(word string) *kind {
	word = strings.ToLower(word)
	for _, k := range kinds {
		if word == strings.ToLower(k.name) || word == k.plural || slices.Contains(k.short, word) {
			return k
		}
	}
	return nil
}

// applySets writes what --set says into the fields of all versions of the objects that it names.
func (r *reader) applySets(sets []setting) {
	for _, s := range sets {
		if problem := r.applySet(s); problem != "" {
			f := ofSetting(s.argument)
			f.text = problem
			r.fault(f)
		}
	}
}

// target is an object that a --set may mean, and the path in it.
type target struct {
	id   string // namespace and name
	path string
}

func (r *reader) applySet(s setting) string {
	targets, near := r.targetsOf(s)
	if len(targets) == 0 {
		if near {
			return "names no field: " + howToSet
		}
		return fmt.Sprintf("the input has no %s that is called so", s.is.name)
	}
	var fitting []target
	first := ""
	for _, t := range targets {
		elements, problem := parsePath(t.path)
		if problem == "" {
			problem = r.trySet(s, t, elements, false)
		}
		if problem == "" {
			fitting = append(fitting, t)
		} else if first == "" {
			first = problem
		}
	}
	switch len(fitting) {
	case 0:
		return first
	case 1:
		elements, _ := parsePath(fitting[0].path)
		return r.trySet(s, fitting[0], elements, true)
	}
	var ids []string
	for _, t := range fitting {
		ids = append(ids, t.id)
	}
	return "could mean any of " + strings.Join(ids, ", ")
}

// targetsOf finds the objects whose name the target begins with, each once. near says that a name stands alone.
func (r *reader) targetsOf(s setting) (targets []target, near bool) {
	seen := map[target]bool{}
	for _, e := range r.entries {
		if e.is != s.is || e.name == "" {
			continue
		}
		id, names := e.name, []string{e.name}
		if e.is.namespaced {
			id = e.namespace + "/" + e.name
			names = append(names, id)
		}
		for _, name := range names {
			rest, ok := strings.CutPrefix(s.target, name)
			if ok && rest == "" {
				near = true
			}
			path, ok := strings.CutPrefix(rest, ".")
			if !ok || path == rest {
				continue
			}
			if t := (target{id, path}); !seen[t] {
				seen[t] = true
				targets = append(targets, t)
			}
		}
	}
	slices.SortFunc(targets, func(a, b target) int { return strings.Compare(a.id, b.id) })
	return targets, near
}

// trySet sets the field in all versions of one object, or, without write, says whether it could in at least one.
func (r *reader) trySet(s setting, t target, elements []element, write bool) string {
	problem := ""
	set := 0
	for _, e := range r.entries {
		if e.is != s.is || (e.name != t.id && e.namespace+"/"+e.name != t.id) {
			continue
		}
		w := &setter{value: s.value, raw: s.raw, write: write}
		if p := w.walk(e.fields, e.is.typeOf(e.version), elements, ""); p != "" {
			if problem == "" {
				problem = p
			}
			continue
		}
		set++
		if write {
			e.set = append(e.set, applied{w.at, s.argument})
		}
	}
	if set > 0 {
		return "" // a version of the object without the list item has nothing to change
	}
	return problem
}

func parsePath(path string) ([]element, string) {
	var elements []element
	for path != "" {
		if path[0] == '[' {
			e, rest, ok := bracket(path[1:])
			if !ok {
				return nil, "has a [ that nothing ends"
			}
			elements = append(elements, e)
			path = rest
			if path != "" && path[0] != '[' {
				if path[0] != '.' {
					return nil, "has " + short(path) + " after a ]"
				}
				path = path[1:]
				if path == "" {
					return nil, "ends with a dot"
				}
			}
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		if end == 0 {
			return nil, "has an empty step in its path"
		}
		elements = append(elements, element{key: path[:end]})
		path = path[end:]
		if path != "" && path[0] == '.' {
			path = path[1:]
			if path == "" {
				return nil, "ends with a dot"
			}
		}
	}
	if len(elements) == 0 {
		return nil, "names no field"
	}
	return elements, ""
}

func bracket(text string) (e element, rest string, ok bool) {
	if inner, quoted := strings.CutPrefix(text, `"`); quoted {
		key, rest, ok := strings.Cut(inner, `"]`)
		return element{key: key, bracket: true, quoted: true}, rest, ok
	}
	key, rest, ok := strings.Cut(text, "]")
	return element{key: key, bracket: true}, rest, ok && key != ""
}

// setter writes one value at a path that the type has.
type setter struct {
	value any
	raw   string
	write bool
	at    string // the path that was walked, as faults have it
}

// walk goes down from a map or list. It returns what is wrong.
func (w *setter) walk(v any, t reflect.Type, path []element, at string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	step := path[0]
	switch t.Kind() {
	case reflect.Slice:
		return w.walkList(v, t, path, at)
	case reflect.Struct, reflect.Map:
		if opaque[t] || t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(unmarshaler) {
			return fmt.Sprintf("%s has no fields", at)
		}
	default:
		return fmt.Sprintf("%s has no fields", at)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s is not a map in the input", at)
	}
	inner, ok := stepType(t, step.key)
	if !ok {
		return fmt.Sprintf("there is no field %s", join(at, step.key))
	}
	at = join(at, step.key)
	if at == "apiVersion" || at == "kind" || at == "metadata.name" || at == "metadata.namespace" {
		return at + " cannot be set: it says which object this is"
	}
	if len(path) == 1 {
		w.at = at
		return w.put(inner, at, func(v any) {
			if v == nil {
				delete(m, step.key)
			} else {
				m[step.key] = v
			}
		})
	}
	next := m[step.key]
	if next == nil {
		next = map[string]any{}
		if isList(inner) {
			next = []any{}
		}
		if w.write {
			m[step.key] = next
		}
	}
	return w.walk(next, inner, path[1:], at)
}

// stepType returns the type below a key of a map or a struct.
func stepType(t reflect.Type, key string) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	inner, ok := fieldsOf(t)[key]
	return inner, ok
}

func isList(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Slice
}

func (w *setter) walkList(v any, t reflect.Type, path []element, at string) string {
	items, ok := v.([]any)
	if !ok || t.Elem().Kind() == reflect.Uint8 {
		return fmt.Sprintf("%s is not a list in the input", at)
	}
	if !path[0].bracket {
		return fmt.Sprintf("%s is a list: write an index or a name in brackets", at)
	}
	i := itemOf(items, path[0])
	if i < 0 {
		return fmt.Sprintf("%s has no item [%s]", at, path[0].key)
	}
	at = fmt.Sprintf("%s[%d]", at, i)
	if len(path) == 1 {
		w.at = at
		if w.value == nil {
			return at + " cannot be null"
		}
		return w.put(t.Elem(), at, func(v any) { items[i] = v })
	}
	return w.walk(items[i], t.Elem(), path[1:], at)
}

// itemOf finds a list's item by its name, or by its index.
func itemOf(items []any, e element) int {
	for i, item := range items {
		if m, ok := item.(map[string]any); ok && m["name"] == e.key {
			return i
		}
	}
	if i, err := strconv.Atoi(e.key); err == nil && !e.quoted && i >= 0 && i < len(items) {
		return i
	}
	return -1
}

// put writes the value if it is of the type.
func (w *setter) put(t reflect.Type, at string, write func(any)) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := copyValue(w.value)
	if _, text := v.(string); t.Kind() == reflect.String && !text && v != nil {
		v = w.raw // 5 and true are text where text is wanted
	}
	problem := ""
	note := func(at, text string) {
		if problem == "" {
			problem = strings.TrimPrefix(at+": ", ": ") + text
		}
	}
	if v != nil {
		typeCheck{unknown: func(at string) { note(at, "unknown field") }, wrong: note}.value(v, t, at)
	}
	if problem == "" && w.write {
		write(v)
	}
	return problem
}

func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, inner := range v {
			m[key] = copyValue(inner)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, inner := range v {
			list[i] = copyValue(inner)
		}
		return list
	}
	return v
}
