// Package store is an API server in memory: it keeps typed objects, and does to them on each write what an API server
// does: identity, versions, generations, the status apart, finalizers, garbage collection, every kind of patch. It
// validates nothing and defaults nothing: hooks do. The same writes in the same order, at the same times, give the same
// objects and the same events, byte for byte.
package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Op is what a write does to an object.
type Op string

// The operations. Taking the last finalizer from an object that is being deleted is an Update.
const (
	Create Op = "Create"
	Update Op = "Update"
	Delete Op = "Delete"
)

// Hook is called before a write is stored, with the object as it will be (to be changed in place) and as it was (nil on
// Create; read-only). On Delete new is nil. subresource is "" or "status". An error refuses the write, and the caller gets
// it. No lock is held: a hook may read and write the store. It may be called again for one write, when another write came
// between.
type Hook func(ctx context.Context, op Op, subresource string, old, new client.Object) error

// ErrHandled is what a hook returns on Delete where it has done itself what is to be done: the caller gets no error and the
// object stays as the hook left it. So a pod lives on for its grace.
var ErrHandled = errors.New("the hook has handled the deletion")

// Event is one write that changed something. Objects are shared and read-only.
type Event struct {
	// Old is what was stored, nil when the object was created.
	Old client.Object
	// New is what is stored, nil when the object was deleted.
	New client.Object
}

// Store keeps the objects. Stored objects are never changed: a write stores another object. It is safe for concurrent use;
// what it gives is deterministic for writes that follow one another.
type Store struct {
	scheme *runtime.Scheme
	now    func() time.Time
	mapper meta.RESTMapper

	// The kinds are those of the scheme, and do not change.
	byGVK  map[schema.GroupVersionKind]*kind
	byType map[reflect.Type]*kind // of objects and of lists

	mu      sync.RWMutex
	version int64
	created int64 // objects so far, to tell their times of creation apart
	uids    map[types.UID]*entry
	owned   map[types.UID]map[*entry]bool
	log     []change
}

// change is an event and what it is sorted by.
type change struct {
	kind *kind
	key  types.NamespacedName
	Event
}

// New returns an empty store for the kinds of a scheme. A version of a kind is a kind of its own: nothing is converted.
// now gives the time of creation and of deletion.
func New(scheme *runtime.Scheme, now func() time.Time) *Store {
	s := &Store{
		scheme: scheme, now: now,
		byGVK: map[schema.GroupVersionKind]*kind{}, byType: map[reflect.Type]*kind{},
		uids: map[types.UID]*entry{}, owned: map[types.UID]map[*entry]bool{},
	}
	s.addKinds()
	return s
}

// Client returns a client of the store, which is the live reader too.
func (s *Store) Client() client.Client { return &storeClient{store: s} }

// Index declares an index, so that a list may ask for a field; objects that are there already are indexed too. Declared
// again, the field keeps its first function.
func (s *Store) Index(obj client.Object, field string, f client.IndexerFunc) {
	k, err := s.kindOf(obj)
	if err != nil {
		panic(err) // of a kind that the scheme does not have: a mistake in the program
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.addIndex(field, f)
}

// Hook adds a hook on the writes to a kind, after those that are there.
func (s *Store) Hook(obj client.Object, h Hook) {
	k, err := s.kindOf(obj)
	if err != nil {
		panic(err) // of a kind that the scheme does not have: a mistake in the program
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.hooks = append(slices.Clip(k.hooks), h)
}

// Events returns the writes since the last call, ordered by kind, namespace and name, those of one object in the order
// of writing.
func (s *Store) Events() []Event {
	s.mu.Lock()
	log := s.log
	s.log = nil
	s.mu.Unlock()
	slices.SortStableFunc(log, func(a, b change) int {
		if a.kind != b.kind {
			return compareKinds(a.kind, b.kind)
		}
		return compareKeys(a.key, b.key)
	})
	events := make([]Event, len(log))
	for i := range log {
		events[i] = log[i].Event
	}
	return events
}

// Version counts the writes that changed something.
func (s *Store) Version() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.version
}

// Put creates an object or replaces it whole, as given: status, uid, times and generation too. What of these is missing
// is kept from what is stored, or filled in; the resource version is always the store's. No hook is called, and what the
// object owns stays.
func (s *Store) Put(obj client.Object) error {
	k, err := s.kindOf(obj)
	if err != nil {
		return err
	}
	next := obj.DeepCopyObject().(client.Object)
	key := k.normalize(next)
	if err := k.checkName(next); err != nil {
		return err
	}
	k.wholeSeconds(next)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := k.entries[key]
	if e == nil {
		s.fillNew(k, next)
		s.add(k, key, next)
		return nil
	}
	old := e.object
	next.SetResourceVersion(old.GetResourceVersion())
	if next.GetUID() == "" {
		next.SetUID(old.GetUID())
	}
	if created := next.GetCreationTimestamp(); created.IsZero() {
		next.SetCreationTimestamp(old.GetCreationTimestamp())
	}
	d := k.compare(old, next)
	if next.GetGeneration() == 0 {
		next.SetGeneration(old.GetGeneration())
		if d.rest {
			next.SetGeneration(old.GetGeneration() + 1)
		}
		d = k.compare(old, next)
	}
	if d.any() {
		e.applied = nil
		s.replace(e, next)
	}
	return nil
}

// add stores a new object. The lock is held.
func (s *Store) add(k *kind, key types.NamespacedName, obj client.Object) {
	e := &entry{kind: k, key: key}
	k.entries[key] = e
	k.made[key]++
	k.all.insert(e)
	s.created++
	s.set(e, obj)
	s.log = append(s.log, change{kind: k, key: key, Event: Event{New: obj}})
}

// replace stores an object in place of another. The lock is held.
func (s *Store) replace(e *entry, obj client.Object) {
	old := e.object
	s.set(e, obj)
	s.log = append(s.log, change{kind: e.kind, key: e.key, Event: Event{Old: old, New: obj}})
}

// set makes obj what an entry holds, with a version of its own.
func (s *Store) set(e *entry, obj client.Object) {
	s.version++
	obj.SetResourceVersion(fmt.Sprint(s.version))
	if old := e.object; old == nil || old.GetUID() != obj.GetUID() {
		if old != nil && s.uids[old.GetUID()] == e {
			delete(s.uids, old.GetUID())
		}
		s.uids[obj.GetUID()] = e
	}
	s.own(e, ownersOf(obj))
	e.object = obj
	e.kind.reindex(e)
}

// remove takes an entry out. The lock is held.
func (s *Store) remove(e *entry) {
	s.version++
	delete(e.kind.entries, e.key)
	e.kind.all.remove(e)
	e.kind.unindex(e)
	if s.uids[e.object.GetUID()] == e {
		delete(s.uids, e.object.GetUID())
	}
	s.own(e, nil)
	s.log = append(s.log, change{kind: e.kind, key: e.key, Event: Event{Old: e.object}})
}

// own records who owns an entry.
func (s *Store) own(e *entry, owners []types.UID) {
	if slices.Equal(e.owners, owners) {
		return
	}
	for _, uid := range e.owners {
		delete(s.owned[uid], e)
		if len(s.owned[uid]) == 0 {
			delete(s.owned, uid)
		}
	}
	for _, uid := range owners {
		if s.owned[uid] == nil {
			s.owned[uid] = map[*entry]bool{}
		}
		s.owned[uid][e] = true
	}
	e.owners = owners
}

func ownersOf(obj client.Object) []types.UID {
	references := obj.GetOwnerReferences()
	if len(references) == 0 {
		return nil
	}
	uids := make([]types.UID, 0, len(references))
	for i := range references {
		uids = append(uids, references[i].UID)
	}
	return uids
}

func compareKinds(a, b *kind) int {
	if c := strings.Compare(a.gvk.Kind, b.gvk.Kind); c != 0 {
		return c
	}
	if c := strings.Compare(a.gvk.Group, b.gvk.Group); c != 0 {
		return c
	}
	return strings.Compare(a.gvk.Version, b.gvk.Version)
}

func compareKeys(a, b types.NamespacedName) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
