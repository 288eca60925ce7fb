package store

import (
	"maps"
	"reflect"
	"slices"
)

// fieldSet is what a manager applied to an object, as a tree of fields and of items of lists. It is never changed.
type fieldSet struct {
	// children is nil for a leaf: a value that is applied as a whole.
	children map[string]*fieldSet
	value    any
	// list says that the children are items, by their keys.
	list bool
	// keys are the fields that tell the items of a list apart, for the list and for its items.
	keys []string
	// loose is a leaf that is an empty list or an empty struct: it says nothing of what is in it.
	loose bool
}

// fieldsIn returns what a configuration applies. keys is as fieldType gives it.
func fieldsIn(v any, t reflect.Type, keys []string) *fieldSet {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		if !granular(t) {
			break
		}
		set := &fieldSet{value: v, loose: len(v) == 0}
		for name, x := range v {
			field, keys := fieldType(t, name)
			set.add(name, fieldsIn(x, field, keys))
		}
		return set
	case []any:
		if keys == nil {
			break
		}
		set := &fieldSet{value: v, list: true, keys: keys, loose: len(v) == 0}
		for _, x := range v {
			item := fieldsIn(x, t.Elem(), nil)
			item.keys = keys
			set.add(itemKey(x, keys), item)
		}
		return set
	}
	return &fieldSet{value: v}
}

func (s *fieldSet) add(name string, child *fieldSet) {
	if s.children == nil {
		s.children = map[string]*fieldSet{}
	}
	s.children[name] = child
}

// child is nil where there is none.
func (s *fieldSet) child(name string) *fieldSet {
	if s == nil {
		return nil
	}
	return s.children[name]
}

// childrenOf returns the children of that name that there are.
func childrenOf(sets []*fieldSet, name string) []*fieldSet {
	var found []*fieldSet
	for _, s := range sets {
		if c := s.child(name); c != nil {
			found = append(found, c)
		}
	}
	return found
}

// mergeInto lays an applied value over a live one, which it changes in place, and returns what comes of it.
func (s *fieldSet) mergeInto(live, applied any) any {
	if s.children == nil {
		if s.loose && live != nil {
			return live
		}
		return applied
	}
	if s.list {
		items, _ := live.([]any)
		return s.mergeItems(items, applied.([]any))
	}
	fields, _ := live.(map[string]any)
	if fields == nil {
		fields = map[string]any{}
	}
	for name, x := range applied.(map[string]any) {
		fields[name] = s.children[name].mergeInto(fields[name], x)
	}
	return fields
}

// mergeItems merges a list item by item. The order is the API server's (structured-merge-diff, visitListItems): what is in
// both comes as it is applied, and what is in one alone about where it is there.
func (s *fieldSet) mergeItems(live, applied []any) []any {
	before, after := itemKeys(live, s.keys), itemKeys(applied, s.keys)
	var shared []string // that are still to come, as they are applied
	for _, id := range after {
		if slices.Contains(before, id) {
			shared = append(shared, id)
		}
	}
	out := make([]any, 0, max(len(live), len(applied)))
	take := func(r int) {
		id := after[r]
		var item any
		if at := slices.Index(before, id); at >= 0 {
			item = live[at]
		}
		out = append(out, s.children[id].mergeInto(item, applied[r]))
		if len(shared) > 0 && shared[0] == id {
			shared = shared[1:]
		}
	}
	for l, r := 0, 0; l < len(live) || r < len(applied); {
		if l < len(live) {
			at := slices.Index(after, before[l])
			switch {
			case at < 0: // in live alone
				out = append(out, live[l])
				l++
				continue
			case at == r:
				take(r)
				l++
				r++
				continue
			case at < r || r < len(applied) && len(shared) > 0 && shared[0] != before[l]: // taken already, or not its turn
				l++
				continue
			}
		}
		if r < len(applied) {
			take(r)
			r++
		}
	}
	return out
}

func itemKeys(items []any, keys []string) []string {
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = itemKey(items[i], keys)
	}
	return ids
}

// prune takes out of a live value, which it changes in place, what a manager applied before (s) and does not now, unless
// others applied it too or somebody has written another value since. It returns nil when nothing is left.
func (s *fieldSet) prune(live any, now *fieldSet, others []*fieldSet) any {
	free := now == nil && len(others) == 0
	if s.children == nil {
		if free && reflect.DeepEqual(live, s.value) {
			return nil
		}
		return live
	}
	switch live := live.(type) {
	case []any:
		if !s.list {
			return live
		}
		left := slices.DeleteFunc(live, func(item any) bool {
			id := itemKey(item, s.keys)
			p := s.children[id]
			return p != nil && p.prune(item, now.child(id), childrenOf(others, id)) == nil
		})
		if len(left) == 0 && free {
			return nil
		}
		return left
	case map[string]any:
		for name, p := range s.children {
			x, ok := live[name]
			if !ok || slices.Contains(s.keys, name) {
				continue
			}
			if x = p.prune(x, now.child(name), childrenOf(others, name)); x == nil {
				delete(live, name)
			} else {
				live[name] = x
			}
		}
		if free && onlyKeys(live, s.keys) { // or zeros, which a typed object has in fields that nobody set
			return nil
		}
	}
	return live
}

func onlyKeys(fields map[string]any, keys []string) bool {
	for name, x := range fields {
		if !slices.Contains(keys, name) && !empty(x) {
			return false
		}
	}
	return true
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil || reflect.ValueOf(v).IsZero()
}

// conflicts returns the paths of what another manager applied and that holds, where s applies another value.
func (s *fieldSet) conflicts(other *fieldSet, live any, path string) []string {
	if s.children == nil || other.children == nil {
		if !s.loose && !other.loose && !reflect.DeepEqual(s.value, other.value) && reflect.DeepEqual(live, other.value) {
			return []string{path}
		}
		return nil
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(s.children)) {
		o := other.children[name]
		if o == nil {
			continue
		}
		var x any
		switch live := live.(type) {
		case map[string]any:
			x = live[name]
		case []any:
			for _, item := range live {
				if itemKey(item, s.keys) == name {
					x = item
				}
			}
		}
		found = append(found, s.children[name].conflicts(o, x, path+"."+name)...)
	}
	return found
}

// without returns what is left to a manager of what it applied when another applies other values to some of it; nil
// when nothing is.
func (s *fieldSet) without(taken *fieldSet) *fieldSet {
	if s.children == nil || taken.children == nil {
		if !s.loose && !taken.loose && !reflect.DeepEqual(s.value, taken.value) {
			return nil
		}
		return s
	}
	left := *s
	left.children = map[string]*fieldSet{}
	for name, c := range s.children {
		if t := taken.children[name]; t != nil {
			c = c.without(t)
		}
		if c != nil {
			left.children[name] = c
		}
	}
	if len(left.children) == 0 {
		return nil
	}
	return &left
}
