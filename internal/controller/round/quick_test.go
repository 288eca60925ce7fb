package round

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
)

// quick is a client for benchmarks: reads cost next to nothing, and a write keeps the object as the writer left it. The embedded
// interface is nil: what a round does not do panics.
type quick struct {
	client.Client
	shelves map[reflect.Type]*shelf
	version int
	writes  int
	// wrote is called with what was written.
	wrote func(client.Object)
}

// shelf holds the objects of one kind; sorted holds those under each value of an index that was asked for.
type shelf struct {
	byKey  map[client.ObjectKey]client.Object
	sorted map[string][]client.Object
}

func newQuick() *quick { return &quick{shelves: map[reflect.Type]*shelf{}} }

func (q *quick) shelf(o any) *shelf {
	kind := reflect.TypeOf(o)
	if q.shelves[kind] == nil {
		q.shelves[kind] = &shelf{byKey: map[client.ObjectKey]client.Object{}}
	}
	return q.shelves[kind]
}

func (q *quick) put(o client.Object) {
	q.version++
	o.SetResourceVersion(strconv.Itoa(q.version))
	o = o.DeepCopyObject().(client.Object)
	s := q.shelf(o)
	key := client.ObjectKeyFromObject(o)
	s.turn(s.byKey[key], o)
	s.byKey[key] = o
	if q.wrote != nil {
		q.wrote(o)
	}
}

func (q *quick) drop(o client.Object) {
	s := q.shelf(o)
	s.turn(s.byKey[client.ObjectKeyFromObject(o)], nil)
	delete(s.byKey, client.ObjectKeyFromObject(o))
}

// turn has one object be listed instead of another; either may be nil.
func (s *shelf) turn(old, now client.Object) {
	for use := range s.sorted {
		if old != nil {
			s.sorted[use] = slices.DeleteFunc(s.sorted[use], func(o client.Object) bool { return o == old })
		}
		if now != nil && slices.Contains(usesOf(now), use) {
			s.sorted[use] = append(s.sorted[use], now)
		}
	}
}

// usesOf returns the values under which the indexes have an object, and the empty one.
func usesOf(o client.Object) []string {
	out := []string{""}
	for _, i := range observe.Indexes() {
		if reflect.TypeOf(i.Object) == reflect.TypeOf(o) {
			out = append(out, i.Of(o)...)
		}
	}
	return out
}

// list returns the objects that an index has under a value, as observe.Indexes says; all for none.
func (s *shelf) list(use string) []client.Object {
	if _, listed := s.sorted[use]; !listed {
		if s.sorted == nil {
			s.sorted = map[string][]client.Object{}
		}
		s.sorted[use] = nil
		for _, o := range s.byKey {
			if slices.Contains(usesOf(o), use) {
				s.sorted[use] = append(s.sorted[use], o)
			}
		}
	}
	return s.sorted[use]
}

func (q *quick) Get(_ context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	o, ok := q.shelf(into).byKey[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
	}
	options := client.GetOptions{}
	options.ApplyOptions(opts)
	if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
		o = o.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
	return nil
}

func (q *quick) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	use := ""
	if options.FieldSelector != nil {
		use = options.FieldSelector.Requirements()[0].Value
	}
	switch list := list.(type) {
	case *kueue.WorkloadList:
		fill(&list.Items, q.shelf(&kueue.Workload{}), use)
	case *v1alpha1.PlacementList:
		fill(&list.Items, q.shelf(&v1alpha1.Placement{}), use)
	case *corev1.PodList:
	default:
		return fmt.Errorf("%T is not listed by a round", list)
	}
	return nil
}

func fill[T any](items *[]T, s *shelf, use string) {
	all := s.list(use)
	*items = make([]T, len(all))
	for i, o := range all {
		(*items)[i] = *any(o).(*T)
	}
}

func (q *quick) write(o client.Object) error {
	q.writes++
	q.put(o)
	return nil
}

func (q *quick) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return q.write(o)
}
func (q *quick) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return q.write(o)
}

func (q *quick) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	if _, err := p.Data(o); err != nil { // as a client would
		return err
	}
	return q.write(o)
}

func (q *quick) Status() client.SubResourceWriter { return quickStatus{quick: q} }

type quickStatus struct {
	client.SubResourceWriter
	*quick
}

func (q quickStatus) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return q.quick.Patch(ctx, o, p)
}

func (q quickStatus) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	panic("not written by a round")
}

func (q quickStatus) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	panic("not written by a round")
}

func (q quickStatus) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	q.writes++
	return nil
}
