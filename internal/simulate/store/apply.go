package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configuration is what a manager applies to an object.
type configuration struct {
	kind    *kind
	key     types.NamespacedName
	version string // that the caller saw, or ""
	uid     types.UID
	// content is without what names the object, and with its status or all but that.
	content map[string]any
	set     *fieldSet
	manager string // with the subresource
	force   bool
}

// applyPatch applies a typed object that is patched with client.Apply.
func (c *storeClient) applyPatch(ctx context.Context, obj client.Object, data []byte, o patchOptions) error {
	stored, cfg, err := c.applyText(ctx, data, o)
	if err != nil {
		return err
	}
	cfg.kind.fill(obj, stored, false)
	return nil
}

// apply applies a configuration, and gives it what is stored then.
func (c *storeClient) apply(ctx context.Context, obj runtime.ApplyConfiguration, o patchOptions) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	stored, _, err := c.applyText(ctx, data, o)
	if err != nil {
		return err
	}
	if u, ok := obj.(interface{ SetUnstructuredContent(map[string]any) }); ok {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
		if err != nil {
			return fmt.Errorf("decode what was applied: %w", err)
		}
		u.SetUnstructuredContent(content)
		return nil
	}
	if data, err = json.Marshal(stored); err != nil {
		return fmt.Errorf("encode what was applied: %w", err)
	}
	if err := json.Unmarshal(data, obj); err != nil {
		return fmt.Errorf("decode what was applied: %w", err)
	}
	return nil
}

func (c *storeClient) applyText(ctx context.Context, data []byte, o patchOptions) (client.Object, *configuration, error) {
	cfg, err := c.store.readConfiguration(data, o)
	if err != nil {
		return nil, nil, err
	}
	probe := &metav1.PartialObjectMetadata{}
	probe.SetGroupVersionKind(cfg.kind.gvk)
	probe.Namespace, probe.Name = cfg.key.Namespace, cfg.key.Name
	w, err := c.write(probe, o.subresource, o.dryRun)
	if err != nil {
		return nil, nil, err
	}
	w.next = func(old client.Object) (client.Object, error) { return c.store.applyTo(old, cfg, o.subresource) }
	w.stored = func(e *entry) { e.apply(cfg) }
	stored, err := c.store.update(ctx, w)
	if o.subresource == "" && apierrors.IsNotFound(err) {
		stored, err = c.store.applyNew(ctx, cfg, o)
		if apierrors.IsAlreadyExists(err) {
			stored, err = c.store.update(ctx, w)
		}
	}
	return stored, cfg, err
}

func (s *Store) readConfiguration(data []byte, o patchOptions) (*configuration, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read configuration: %v", err))
	}
	dropNulls(content)
	u := unstructured.Unstructured{Object: content}
	k := s.byGVK[u.GroupVersionKind()]
	if k == nil {
		return nil, runtime.NewNotRegisteredErrForKind(s.scheme.Name(), u.GroupVersionKind())
	}
	cfg := &configuration{
		kind: k, key: k.key(u.GetNamespace(), u.GetName()), version: u.GetResourceVersion(), uid: u.GetUID(), content: content,
		manager: o.manager + "/" + o.subresource, force: o.force,
	}
	switch {
	case o.manager == "":
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	case cfg.key.Name == "":
		return nil, apierrors.NewBadRequest("metadata.name is required for apply patch")
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	if o.subresource == statusName {
		maps.DeleteFunc(content, func(name string, _ any) bool { return name != statusName })
	} else {
		if k.status >= 0 {
			delete(content, statusName)
		}
		dropIdentity(content)
	}
	cfg.set = fieldsIn(content, k.typ, nil)
	return cfg, nil
}

// dropIdentity leaves in the metadata what can be applied.
func dropIdentity(content map[string]any) {
	m, ok := content["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, name := range strings.Fields("name namespace generateName uid resourceVersion generation selfLink managedFields" +
		" creationTimestamp deletionTimestamp deletionGracePeriodSeconds") {
		delete(m, name)
	}
	if len(m) == 0 {
		delete(content, "metadata")
	}
}

func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, x any) bool { return x == nil })
		for _, x := range v {
			dropNulls(x)
		}
	case []any:
		for _, x := range v {
			dropNulls(x)
		}
	}
}

// applyTo returns the object with a configuration applied to it.
func (s *Store) applyTo(old client.Object, cfg *configuration, subresource string) (client.Object, error) {
	k := cfg.kind
	mine, others := s.appliedTo(cfg)
	live, err := k.content(old, subresource)
	if err != nil {
		return nil, err
	}
	if !cfg.force {
		for _, manager := range slices.Sorted(maps.Keys(others)) {
			if paths := cfg.set.conflicts(others[manager], live, ""); len(paths) > 0 {
				return nil, applyConflict(manager, paths)
			}
		}
	}
	if mine != nil {
		live, _ = mine.prune(live, cfg.set, slices.Collect(maps.Values(others))).(map[string]any)
	}
	// A copy, since what is applied would be changed by the next attempt.
	live, _ = cfg.set.mergeInto(live, runtime.DeepCopyJSON(cfg.content)).(map[string]any)

	next := reflect.New(k.typ)
	target := next.Interface()
	if subresource == statusName {
		next.Elem().Set(reflect.ValueOf(old).Elem())
		status := next.Elem().Field(k.status)
		status.SetZero()
		target = status.Addr().Interface()
		live, _ = live[statusName].(map[string]any)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live, target); err != nil {
		return nil, k.unprocessable(old, err)
	}
	obj := next.Interface().(client.Object)
	obj.SetResourceVersion(cfg.version)
	obj.SetUID(cfg.uid)
	return obj, nil
}

// content returns the part of an object that an apply reaches.
func (k *kind) content(obj client.Object, subresource string) (map[string]any, error) {
	if subresource == statusName {
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(reflect.ValueOf(obj).Elem().Field(k.status).Addr().Interface())
		if err != nil {
			return nil, fmt.Errorf("encode status of %s: %w", k.gvk.Kind, err)
		}
		return map[string]any{statusName: status}, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.gvk.Kind, err)
	}
	return content, nil
}

// appliedTo returns what the manager of a configuration applied last, and what others did.
func (s *Store) appliedTo(cfg *configuration) (mine *fieldSet, others map[string]*fieldSet) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := cfg.kind.entries[cfg.key]
	if e == nil {
		return nil, nil
	}
	others = maps.Clone(e.applied)
	mine = others[cfg.manager]
	delete(others, cfg.manager)
	return mine, others
}

// apply records what a manager applied. The lock is held.
func (e *entry) apply(cfg *configuration) {
	applied := map[string]*fieldSet{}
	for manager, set := range e.applied {
		if left := set.without(cfg.set); left != nil {
			applied[manager] = left
		}
	}
	applied[cfg.manager] = cfg.set
	e.applied = applied
}

// applyNew creates what is applied and is not there.
func (s *Store) applyNew(ctx context.Context, cfg *configuration, o patchOptions) (client.Object, error) {
	k := cfg.kind
	if cfg.version != "" || cfg.uid != "" {
		return nil, k.conflict(cfg.key, "the object to be changed is not there")
	}
	obj := reflect.New(k.typ).Interface().(client.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(cfg.content, obj); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read configuration: %v", err))
	}
	obj.SetNamespace(cfg.key.Namespace)
	obj.SetName(cfg.key.Name)
	stored, err := s.create(ctx, obj, o.dryRun)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := k.entries[cfg.key]; e != nil && e.object.GetUID() == stored.GetUID() {
		e.apply(cfg)
	}
	return stored, nil
}

func applyConflict(manager string, paths []string) error {
	name, _, _ := strings.Cut(manager, "/")
	causes := make([]metav1.StatusCause, 0, len(paths))
	for _, p := range paths {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: fmt.Sprintf("conflict with %q", name), Field: p})
	}
	return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with %d conflicts with %q: %s", len(paths), name, strings.Join(paths, ", ")))
}
