package quota

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// reads is what Kueue's code reads beside its cache.
type reads struct {
	namespaces lent[string, *corev1.Namespace]
	classes    lent[string, *nodev1.RuntimeClass]
	// ranges are a namespace's LimitRanges, by name. A list is replaced, never changed.
	ranges lent[string, []*corev1.LimitRange]
}

// reader stands in for Kueue's client over objects that do not change. The embedded interface is nil: every call but the two
// reads below panics, and so would every write.
type reader struct {
	client.Client
	namespaces map[string]*corev1.Namespace
	classes    map[string]*nodev1.RuntimeClass
	ranges     map[string][]*corev1.LimitRange
}

func (r *reads) lend() *reader {
	return &reader{namespaces: r.namespaces.lend(), classes: r.classes.lend(), ranges: r.ranges.lend()}
}

// Get gives a namespace or a runtime class, which share their memory with the book's.
func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Namespace:
		if found, ok := r.namespaces[key.Name]; ok {
			*into = *found
			return nil
		}
	case *nodev1.RuntimeClass:
		if found, ok := r.classes[key.Name]; ok {
			*into = *found
			return nil
		}
	default:
		return fmt.Errorf("%T is not among what quota depends on", into)
	}
	return fmt.Errorf("%s is not known", key.Name)
}

// List gives the limit ranges of a namespace. To Kueue's cache, which asks for what has come before a queue, it gives
// nothing: the book adds that itself.
func (r *reader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch list := list.(type) {
	case *corev1.LimitRangeList:
		for _, found := range r.ranges[o.Namespace] {
			list.Items = append(list.Items, *found)
		}
	case *kueue.LocalQueueList, *kueue.WorkloadList:
	default:
		return fmt.Errorf("%T is not among what quota depends on", list)
	}
	return nil
}

// newest is later than any reservation: what is taken in a round counts as reserved after all that holds quota.
var newest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// still is a clock that stands still: the same question has the same answer, whenever it is asked.
type still struct{ clock.Clock }

// Now returns a time after any reservation.
func (still) Now() time.Time { return newest }
