package quota

import "maps"

// lent is a map that can be handed out: what was handed out never changes. The zero value is empty.
type lent[K comparable, V any] struct {
	m   map[K]V
	out bool
}

func (l *lent[K, V]) lend() map[K]V {
	l.out = true
	return l.m
}

func (l *lent[K, V]) own() {
	if l.out || l.m == nil {
		l.m, l.out = maps.Clone(l.m), false
	}
	if l.m == nil {
		l.m = map[K]V{}
	}
}

func (l *lent[K, V]) set(k K, v V) {
	l.own()
	l.m[k] = v
}

func (l *lent[K, V]) delete(k K) {
	l.own()
	delete(l.m, k)
}
