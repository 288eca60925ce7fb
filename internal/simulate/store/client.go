package store

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// storeClient is the client of a store.
type storeClient struct{ store *Store }

var _ client.Client = &storeClient{}

// Scheme returns the store's.
func (c *storeClient) Scheme() *runtime.Scheme { return c.store.scheme }

// RESTMapper knows the kinds of the scheme.
func (c *storeClient) RESTMapper() meta.RESTMapper { return c.store.mapper }

// GroupVersionKindFor returns the kind of an object.
func (c *storeClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	k, err := c.store.kindOf(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return k.gvk, nil
}

// IsObjectNamespaced says whether objects of a kind have a namespace.
func (c *storeClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	k, err := c.store.kindOf(obj)
	if err != nil {
		return false, err
	}
	return k.namespaced, nil
}

// Get gives a copy, or with UnsafeDisableDeepCopy what the stored object holds.
func (c *storeClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	o := client.GetOptions{}
	o.ApplyOptions(opts)
	k, err := c.store.kindOf(obj)
	if err != nil {
		return err
	}
	c.store.mu.RLock()
	e := k.entries[k.key(key.Namespace, key.Name)]
	if e == nil {
		c.store.mu.RUnlock()
		return k.notFound(key)
	}
	stored := e.object
	c.store.mu.RUnlock()
	k.fill(obj, stored, ptr.Deref(o.UnsafeDisableDeepCopy, false))
	return nil
}

// List lists by namespace and name. Limits are ignored: a list is always whole.
func (c *storeClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	k, err := c.store.kindOf(list)
	if err != nil {
		return err
	}
	found, version, err := c.store.list(k, &o)
	if err != nil {
		return err
	}
	shared := ptr.Deref(o.UnsafeDisableDeepCopy, false)
	list.SetResourceVersion(fmt.Sprint(version))
	if partial, ok := list.(*metav1.PartialObjectMetadataList); ok {
		partial.Items = make([]metav1.PartialObjectMetadata, len(found))
		for i := range found {
			k.fill(&partial.Items[i], found[i], shared)
		}
		return nil
	}
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	if !items.IsValid() || items.Kind() != reflect.Slice || items.Type().Elem() != k.typ {
		return fmt.Errorf("%T holds no list of %s", list, k.typ)
	}
	all := reflect.MakeSlice(items.Type(), len(found), len(found))
	for i, obj := range found {
		if !shared {
			obj = obj.DeepCopyObject().(client.Object)
		}
		all.Index(i).Set(reflect.ValueOf(obj).Elem())
	}
	items.Set(all)
	return nil
}

// list returns the stored objects that a list asks for, and the version that it saw.
func (s *Store) list(k *kind, o *client.ListOptions) ([]client.Object, int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	namespace := o.Namespace
	if !k.namespaced {
		namespace = ""
	}
	entries, err := s.candidates(k, o, namespace)
	if err != nil {
		return nil, 0, err
	}
	found := make([]client.Object, 0, len(entries))
	for _, e := range entries {
		if o.LabelSelector == nil || o.LabelSelector.Empty() || o.LabelSelector.Matches(labels.Set(e.object.GetLabels())) {
			found = append(found, e.object)
		}
	}
	return found, s.version, nil
}

// candidates returns the entries of a namespace that have the fields that are asked for.
func (s *Store) candidates(k *kind, o *client.ListOptions, namespace string) ([]*entry, error) {
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		return k.all.in(namespace), nil
	}
	var entries []*entry
	for i, r := range o.FieldSelector.Requirements() {
		at := k.index(r.Field)
		if at < 0 {
			return nil, fmt.Errorf("%s has no index on field %q", k.gvk.Kind, r.Field)
		}
		if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field %q: operator %q is not supported", r.Field, r.Operator))
		}
		if i == 0 {
			if o := k.indexes[at].found[r.Value]; o != nil {
				entries = slices.Clone(o.in(namespace))
			}
			continue
		}
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return !slices.Contains(e.values[at], r.Value) })
	}
	return entries, nil
}

// Create stores an object that is not there yet.
func (c *storeClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	o := client.CreateOptions{}
	o.ApplyOptions(opts)
	stored, err := c.store.create(ctx, obj, len(o.DryRun) > 0)
	if err != nil {
		return err
	}
	k, err := c.store.kindOf(obj)
	if err != nil {
		return err
	}
	k.fill(obj, stored, false)
	return nil
}

// Update replaces an object, or a part of it.
func (c *storeClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	o := client.UpdateOptions{}
	o.ApplyOptions(opts)
	return c.update(ctx, obj, obj, "", len(o.DryRun) > 0)
}

// update stores body as the object, or its status.
func (c *storeClient) update(ctx context.Context, obj, body client.Object, subresource string, dryRun bool) error {
	w, err := c.write(obj, subresource, dryRun)
	if err != nil {
		return err
	}
	if reflect.TypeOf(body) != reflect.PointerTo(w.kind.typ) {
		return fmt.Errorf("update %s with %T: only its own type can be", w.kind.gvk.Kind, body)
	}
	w.next = func(client.Object) (client.Object, error) { return body.DeepCopyObject().(client.Object), nil }
	return c.run(ctx, w, obj)
}

// write begins a write to an object that is there.
func (c *storeClient) write(obj client.Object, subresource string, dryRun bool) (*write, error) {
	k, err := c.store.kindOf(obj)
	if err != nil {
		return nil, err
	}
	if subresource != "" && (subresource != statusName || k.status < 0) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.resource.Group, Resource: k.resource.Resource + "/" + subresource}, obj.GetName())
	}
	return &write{kind: k, key: k.key(obj.GetNamespace(), obj.GetName()), subresource: subresource, dryRun: dryRun}, nil
}

func (c *storeClient) run(ctx context.Context, w *write, obj client.Object) error {
	stored, err := c.store.update(ctx, w)
	if err != nil {
		return err
	}
	w.kind.fill(obj, stored, false)
	return nil
}

// Delete takes an object away, or marks it where it has finalizers.
func (c *storeClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := client.DeleteOptions{}
	o.ApplyOptions(opts)
	k, err := c.store.kindOf(obj)
	if err != nil {
		return err
	}
	return c.store.delete(ctx, k, k.key(obj.GetNamespace(), obj.GetName()), deletionOf(&o))
}

func deletionOf(o *client.DeleteOptions) deletion {
	return deletion{
		dryRun:        len(o.DryRun) > 0,
		orphan:        ptr.Deref(o.PropagationPolicy, metav1.DeletePropagationBackground) == metav1.DeletePropagationOrphan,
		preconditions: ptr.Deref(o.Preconditions, metav1.Preconditions{}),
	}
}

// DeleteAllOf deletes in order of namespace and name. What is gone by its turn is left out.
func (c *storeClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	o := client.DeleteAllOfOptions{}
	o.ApplyOptions(opts)
	k, err := c.store.kindOf(obj)
	if err != nil {
		return err
	}
	found, _, err := c.store.list(k, &o.ListOptions)
	if err != nil {
		return err
	}
	for _, old := range found {
		key := types.NamespacedName{Namespace: old.GetNamespace(), Name: old.GetName()}
		if err := c.store.delete(ctx, k, key, deletionOf(&o.DeleteOptions)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// Patch changes an object by a patch of any type.
func (c *storeClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	o := client.PatchOptions{}
	o.ApplyOptions(opts)
	return c.patch(ctx, obj, obj, patch, patchOptions{
		dryRun: len(o.DryRun) > 0, manager: o.FieldManager, force: ptr.Deref(o.Force, false),
	})
}

// Apply is server-side apply.
func (c *storeClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := client.ApplyOptions{}
	o.ApplyOptions(opts)
	return c.apply(ctx, obj, patchOptions{dryRun: len(o.DryRun) > 0, manager: o.FieldManager, force: ptr.Deref(o.Force, false)})
}

// Status writes the status alone.
func (c *storeClient) Status() client.SubResourceWriter { return c.SubResource(statusName) }
