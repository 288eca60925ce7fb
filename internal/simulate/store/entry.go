package store

import (
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// entry is the place of one object, from its creation to its end.
type entry struct {
	kind   *kind
	key    types.NamespacedName
	object client.Object // never changed, only replaced
	owners []types.UID
	values [][]string // by index of the kind
	// applied is what each manager applied last, by manager and subresource; nil until somebody does.
	applied map[string]*fieldSet
}

// ordered holds entries in order of namespace and name.
type ordered struct{ entries []*entry }

// at returns where an entry with the key is or would be.
func (o *ordered) at(key types.NamespacedName) int {
	return sort.Search(len(o.entries), func(i int) bool { return compareKeys(o.entries[i].key, key) >= 0 })
}

func (o *ordered) insert(e *entry) { o.entries = slices.Insert(o.entries, o.at(e.key), e) }

func (o *ordered) remove(e *entry) {
	if i := o.at(e.key); i < len(o.entries) && o.entries[i] == e {
		o.entries = slices.Delete(o.entries, i, i+1)
	}
}

// in returns the entries of a namespace, or all when it is empty. The slice is valid while the store is locked.
func (o *ordered) in(namespace string) []*entry {
	if namespace == "" {
		return o.entries
	}
	from := o.at(types.NamespacedName{Namespace: namespace})
	to := o.at(types.NamespacedName{Namespace: namespace + "\x00"})
	return o.entries[from:to]
}

// index finds the entries of a kind by a value that a function gives for them.
type index struct {
	field string
	f     client.IndexerFunc
	found map[string]*ordered
}

func (k *kind) addIndex(field string, f client.IndexerFunc) {
	if k.index(field) >= 0 {
		return
	}
	k.indexes = append(k.indexes, &index{field: field, f: f, found: map[string]*ordered{}})
	for _, e := range k.all.entries {
		k.reindex(e)
	}
}

// index returns the position of the index on a field, or -1.
func (k *kind) index(field string) int {
	return slices.IndexFunc(k.indexes, func(x *index) bool { return x.field == field })
}

// reindex files an entry under the values of its object.
func (k *kind) reindex(e *entry) {
	for i, x := range k.indexes {
		if i == len(e.values) {
			e.values = append(e.values, nil)
		}
		values := x.f(e.object)
		if slices.Equal(values, e.values[i]) {
			continue
		}
		x.drop(e, e.values[i])
		e.values[i] = slices.Compact(slices.Sorted(slices.Values(values)))
		for _, v := range e.values[i] {
			if x.found[v] == nil {
				x.found[v] = &ordered{}
			}
			x.found[v].insert(e)
		}
	}
}

func (k *kind) unindex(e *entry) {
	for i, values := range e.values {
		k.indexes[i].drop(e, values)
	}
	e.values = nil
}

func (x *index) drop(e *entry, values []string) {
	for _, v := range values {
		if o := x.found[v]; o != nil {
			o.remove(e)
			if len(o.entries) == 0 {
				delete(x.found, v)
			}
		}
	}
}
