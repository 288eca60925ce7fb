package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusName is the one subresource that the store has.
const statusName = "status"

// create stores a new object as an API server would: whatever of its identity, its times and its status the caller gave
// is replaced.
func (s *Store) create(ctx context.Context, obj client.Object, dryRun bool) (client.Object, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	next := obj.DeepCopyObject().(client.Object)
	k.normalize(next)
	m := k.metaOf(next)
	m.UID, m.CreationTimestamp, m.Generation, m.ManagedFields = "", metav1.Time{}, 0, nil
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	if !k.keepsStatusOnCreate() {
		k.clearStatus(next)
	}
	s.mu.Lock()
	if m.Name == "" && m.GenerateName != "" {
		m.Name = k.generateName(m.Namespace, m.GenerateName)
	}
	key := client.ObjectKeyFromObject(next)
	exists := k.entries[key] != nil
	s.fillNew(k, next)
	hooks := k.hooks
	s.mu.Unlock()
	if err := k.checkName(next); err != nil {
		return nil, err
	}
	if exists {
		return nil, apierrors.NewAlreadyExists(k.resource, key.Name)
	}
	for _, h := range hooks {
		if err := h(ctx, Create, "", nil, next); err != nil {
			return nil, err
		}
	}
	k.wholeSeconds(next)

	s.mu.Lock()
	defer s.mu.Unlock()
	if k.entries[key] != nil {
		return nil, apierrors.NewAlreadyExists(k.resource, key.Name)
	}
	m = k.metaOf(next)
	m.Name, m.Namespace, m.UID, m.CreationTimestamp, m.Generation = key.Name, key.Namespace, "", metav1.Time{}, 0
	s.fillNew(k, next)
	if !dryRun {
		s.add(k, key, next)
	}
	return next, nil
}

// keepsStatusOnCreate is so for nodes, which the kubelet creates with their status.
func (k *kind) keepsStatusOnCreate() bool { return k.gvk.Group == "" && k.gvk.Kind == "Node" }

// fillNew gives an object what of its identity is missing. The lock is held.
func (s *Store) fillNew(k *kind, obj client.Object) {
	m := k.metaOf(obj)
	if m.UID == "" {
		m.UID = uidOf(k, client.ObjectKeyFromObject(obj), k.made[client.ObjectKeyFromObject(obj)]+1)
	}
	if m.CreationTimestamp.IsZero() {
		m.CreationTimestamp = metav1.NewTime(s.now().Add(time.Duration(s.created + 1)))
	}
	if m.Generation == 0 {
		m.Generation = 1
	}
}

// uidOf returns the uid of the nth object of a name.
func uidOf(k *kind, key types.NamespacedName, nth int) types.UID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%d", k.gvk.Group, k.gvk.Kind, key.Namespace, key.Name, nth))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8, whose content is one's own
	x := hex.EncodeToString(sum[:16])
	return types.UID(x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:])
}

// generateName returns a name that is free. The lock is held.
func (k *kind) generateName(namespace, prefix string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	for {
		counter := namespace + "/" + prefix
		k.generated[counter]++
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", k.gvk.Kind, counter, k.generated[counter]))
		name := []byte(prefix)
		for _, b := range sum[:5] {
			name = append(name, letters[int(b)%len(letters)])
		}
		if k.entries[k.key(namespace, string(name))] == nil {
			return string(name)
		}
	}
}

// write is a change of an object that is there.
type write struct {
	kind        *kind
	key         types.NamespacedName
	subresource string
	dryRun      bool
	// next makes of what is stored the object as the caller wants it. It must not change old, and may share with it what it
	// leaves as it is. It is called again when another write came between.
	next func(old client.Object) (client.Object, error)
	// stored, when set, is called under the lock with the entry once the write holds, changed or not.
	stored func(*entry)
}

// update changes an object that is there, and returns what is stored then.
func (s *Store) update(ctx context.Context, w *write) (client.Object, error) {
	for {
		s.mu.RLock()
		e := w.kind.entries[w.key]
		if e == nil {
			s.mu.RUnlock()
			return nil, w.kind.notFound(w.key)
		}
		old, hooks := e.object, w.kind.hooks
		s.mu.RUnlock()

		next, err := w.next(old)
		if err != nil {
			return nil, err
		}
		if next, err = w.settle(old, next); err != nil {
			return nil, err
		}
		d := difference{}
		if len(hooks) > 0 {
			if next, err = w.callHooks(ctx, hooks, old, next); err != nil {
				return nil, err
			}
			w.kind.wholeSeconds(next)
			d = w.kind.compare(old, next)
		} else {
			w.kind.wholeSeconds(next)
			d = w.compare(old, next)
		}
		if d.rest {
			next.SetGeneration(old.GetGeneration() + 1)
		}
		if stored, done := s.commit(w, e, old, next, d); done {
			if d.any() && !w.dryRun && ended(next) {
				s.collect(ctx, next.GetUID())
			}
			return stored, nil
		}
	}
}

// commit stores a write unless another came between.
func (s *Store) commit(w *write, e *entry, old, next client.Object, d difference) (stored client.Object, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.kind.entries[w.key] != e || e.object != old {
		return nil, false
	}
	switch {
	case w.dryRun:
		return next, true
	case !d.any():
		if w.stored != nil {
			w.stored(e)
		}
		return old, true
	case ended(next):
		s.remove(e)
		return next, true
	}
	s.replace(e, next)
	if w.stored != nil {
		w.stored(e)
	}
	return next, true
}

// ended says whether an object that is stored like this is gone: it is being deleted, nobody holds it, and no grace runs.
func ended(obj client.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// settle checks what version the caller had, and takes from the stored object all that the write does not reach.
func (w *write) settle(old, next client.Object) (client.Object, error) {
	k := w.kind
	om, nm := k.metaOf(old), k.metaOf(next)
	if nm.UID != "" && nm.UID != om.UID {
		return nil, k.conflict(w.key, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", nm.UID, om.UID))
	}
	if nm.ResourceVersion != "" && nm.ResourceVersion != om.ResourceVersion {
		return nil, k.conflict(w.key, "the object has been modified; please apply your changes to the latest version and try again")
	}
	if w.subresource == statusName {
		from := next
		next = k.shallow(old)
		k.takeStatus(next, from)
		return next, nil
	}
	k.takeStatus(next, old)
	k.keepIdentity(old, next)
	return next, nil
}

// keepIdentity restores in an object what no caller and no hook changes.
func (k *kind) keepIdentity(old, next client.Object) {
	next.GetObjectKind().SetGroupVersionKind(k.gvk)
	om, nm := k.metaOf(old), k.metaOf(next)
	nm.Name, nm.Namespace, nm.GenerateName = om.Name, om.Namespace, om.GenerateName
	nm.UID, nm.ResourceVersion, nm.Generation, nm.ManagedFields = om.UID, om.ResourceVersion, om.Generation, om.ManagedFields
	nm.CreationTimestamp = om.CreationTimestamp
	nm.DeletionTimestamp, nm.DeletionGracePeriodSeconds = om.DeletionTimestamp, om.DeletionGracePeriodSeconds
}

// callHooks lets the hooks change an object. It is theirs alone, since they change it in place.
func (w *write) callHooks(ctx context.Context, hooks []Hook, old, next client.Object) (client.Object, error) {
	next = next.DeepCopyObject().(client.Object)
	for _, h := range hooks {
		if err := h(ctx, Update, w.subresource, old, next); err != nil {
			return nil, err
		}
	}
	w.kind.keepIdentity(old, next)
	return next, nil
}

// compare looks only at what the write reaches.
func (w *write) compare(old, next client.Object) difference {
	k := w.kind
	vo, vn := reflect.ValueOf(old).Elem(), reflect.ValueOf(next).Elem()
	if w.subresource == statusName {
		return difference{status: k.differ(vo, vn, k.status)}
	}
	return difference{rest: k.differ(vo, vn, k.rest...), meta: !sameMeta(k.metaOf(old), k.metaOf(next))}
}
