package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deletion is how an object is deleted.
type deletion struct {
	dryRun        bool
	orphan        bool
	preconditions metav1.Preconditions
}

// delete deletes an object: at once, or marked only while finalizers hold it. What it owned goes with it.
func (s *Store) delete(ctx context.Context, k *kind, key types.NamespacedName, d deletion) error {
	for {
		s.mu.RLock()
		e := k.entries[key]
		if e == nil {
			s.mu.RUnlock()
			return k.notFound(key)
		}
		old, hooks := e.object, k.hooks
		s.mu.RUnlock()
		if uid := d.preconditions.UID; uid != nil && *uid != old.GetUID() {
			return k.conflict(key, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *uid, old.GetUID()))
		}
		if v := d.preconditions.ResourceVersion; v != nil && *v != old.GetResourceVersion() {
			return k.conflict(key, fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", *v, old.GetResourceVersion()))
		}
		for _, h := range hooks {
			err := h(ctx, Delete, "", old, nil)
			if errors.Is(err, ErrHandled) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if d.dryRun {
			return nil
		}
		removed, done := s.end(e, old, d.orphan)
		if !done {
			continue
		}
		if removed {
			s.collect(ctx, old.GetUID())
		}
		return nil
	}
}

// end removes an object or marks it as being deleted, unless another write came between.
func (s *Store) end(e *entry, old client.Object, orphan bool) (removed, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.kind.entries[e.key] != e || e.object != old {
		return false, false
	}
	if orphan {
		for _, child := range s.children(old.GetUID()) {
			s.disown(child, old.GetUID())
		}
	}
	if len(old.GetFinalizers()) == 0 {
		s.remove(e)
		return true, true
	}
	if old.GetDeletionTimestamp() != nil {
		return false, true
	}
	next := e.kind.shallow(old)
	m := e.kind.metaOf(next)
	m.DeletionTimestamp = ptr.To(metav1.NewTime(s.now().Truncate(time.Second)))
	m.DeletionGracePeriodSeconds = ptr.To[int64](0)
	m.Generation++
	s.replace(e, next)
	return false, true
}

// children returns what an owner owns, by kind, namespace and name. The lock is held.
func (s *Store) children(owner types.UID) []*entry {
	children := make([]*entry, 0, len(s.owned[owner]))
	for e := range s.owned[owner] {
		children = append(children, e)
	}
	slices.SortFunc(children, func(a, b *entry) int {
		if a.kind != b.kind {
			return compareKinds(a.kind, b.kind)
		}
		return compareKeys(a.key, b.key)
	})
	return children
}

// disown takes the references to an owner out of what it owns. The lock is held.
func (s *Store) disown(e *entry, owner types.UID) {
	next := e.kind.shallow(e.object)
	var left []metav1.OwnerReference
	for _, r := range next.GetOwnerReferences() {
		if r.UID != owner {
			left = append(left, r)
		}
	}
	e.kind.metaOf(next).OwnerReferences = left
	s.replace(e, next)
}

// collect deletes what an object that is gone owned, and leaves to their other owners what has some that live. What a
// hook refuses to delete stays.
func (s *Store) collect(ctx context.Context, owner types.UID) {
	s.mu.Lock()
	var dead []*entry
	var uids []types.UID
	for _, child := range s.children(owner) {
		if slices.ContainsFunc(child.owners, func(uid types.UID) bool { return s.uids[uid] != nil }) {
			s.disown(child, owner)
		} else {
			dead, uids = append(dead, child), append(uids, child.object.GetUID())
		}
	}
	s.mu.Unlock()
	for i, child := range dead {
		// It may be gone by now, with an owner before it, or refused: there is nobody to tell.
		_ = s.delete(ctx, child.kind, child.key, deletion{preconditions: metav1.Preconditions{UID: &uids[i]}})
	}
}
