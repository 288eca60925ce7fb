package ledger

import (
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Amounts holds, by resource, exact whole numbers: cpu in thousandths, everything else in its own unit (bytes,
// pods). A resource that is absent is zero. Sums saturate.
type Amounts map[corev1.ResourceName]int64

// AmountsOf converts a resource list. Quantities are rounded up, as kube-scheduler does.
func AmountsOf(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			a[name] = q.MilliValue()
			continue
		}
		a[name] = q.Value()
	}
	return a
}

// beyond returns what of a is more than b; nil for nothing.
func (a Amounts) beyond(b Amounts) Amounts {
	var out Amounts
	for name, v := range a {
		if v > b[name] {
			if out == nil {
				out = Amounts{}
			}
			out[name] = v - b[name]
		}
	}
	return out
}

// Add adds n times b to a, in place.
func (a Amounts) Add(b Amounts, n int64) {
	for name, v := range b {
		a[name] = saturatingAdd(a[name], saturatingMul(v, n))
	}
}

// Clone returns a copy; a nil Amounts gives an empty one.
func (a Amounts) Clone() Amounts {
	if a == nil {
		return Amounts{}
	}
	return maps.Clone(a)
}

// Times returns how many pods that ask for b fit into a, at most limit, and the resource that bounds them: the
// scarcest, the first in name order of equals; empty when none bounds below limit. Pods of b count as one each.
func (a Amounts) Times(b Amounts, limit int64) (int64, corev1.ResourceName) {
	n, by := limit, corev1.ResourceName("")
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if b[name] <= 0 {
			continue
		}
		if fit := max(a[name], 0) / b[name]; fit < n {
			n, by = fit, name
		}
	}
	return n, by
}

func saturatingAdd(a, b int64) int64 {
	switch {
	case a > 0 && b > math.MaxInt64-a:
		return math.MaxInt64
	case a < 0 && b < math.MinInt64-a:
		return math.MinInt64
	}
	return a + b
}

func saturatingMul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	p := a * b
	if p/b != a || (a == math.MinInt64 && b == -1) || (b == math.MinInt64 && a == -1) {
		if (a > 0) == (b > 0) {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return p
}

// maxAlike is how many different requests are held once each.
const maxAlike = 1024

// alike returns amounts that equal a: those of the first pod that asked for as much, so that the pods of a Job, and of many,
// share them.
func (b *Book) alike(a Amounts) Amounts {
	key := make([]byte, 0, 64)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		key = append(append(key, name...), 0)
		key = append(strconv.AppendInt(key, a[name], 10), 0)
	}
	if known, ok := b.amounts[string(key)]; ok {
		return known
	}
	if len(b.amounts) >= maxAlike {
		clear(b.amounts)
	}
	b.amounts[string(key)] = a
	return a
}
