package quota

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/workload"
)

// silent is the logger that Kueue's code insists on.
var silent = logr.Discard()

// follow brings what is derived from an object up to date: from old to now, either of which may be nil.
//
// Holders of quota come and go all the time and are fed to Kueue's cache one by one. All else is rare, and Kueue's cache is
// built anew for it: it forgets Workloads that come before their queue, and remembers relations that are no more.
func (b *Book) follow(k kind, old, now client.Object) {
	b.turn(k, old, now)
	switch k {
	case kindWorkload:
		b.followHolder(old, now)
	case kindClusterQueue:
		if now == nil {
			b.queues.delete(old.GetName())
			if b.cache != nil {
				b.cache.DeleteClusterQueue(old.(*kueue.ClusterQueue)) // clears the queue's metrics, which are global
			}
		} else {
			b.queues.set(now.GetName(), now.(*kueue.ClusterQueue))
		}
		b.cache = nil
	case kindCohort, kindFlavor, kindCheck:
		b.cache = nil
	case kindLocalQueue:
		follow(&b.local, old, now, nameOf)
	case kindNamespace:
		follow(&b.reads.namespaces, old, now, client.Object.GetName)
	case kindRuntimeClass:
		follow(&b.reads.classes, old, now, client.Object.GetName)
	case kindLimitRange:
		b.followRange(old, now)
	}
}

func follow[T client.Object](m *lent[string, T], old, now client.Object, key func(client.Object) string) {
	if now == nil {
		m.delete(key(old))
		return
	}
	m.set(key(now), now.(T))
}

func (b *Book) followHolder(old, now client.Object) {
	if old != nil {
		b.holders.delete(old.GetUID())
	}
	if now == nil {
		if b.cache != nil {
			_ = b.cache.DeleteWorkload(silent, workload.Key(old.(*kueue.Workload))) // fails where its queue is not known
		}
		return
	}
	w := now.(*kueue.Workload)
	b.holders.set(w.UID, workload.Key(w))
	if b.cache == nil {
		return
	}
	if b.cache.AddOrUpdateWorkload(silent, w); old != nil && old.(*kueue.Workload).Status.Admission.ClusterQueue != w.Status.Admission.ClusterQueue {
		b.cache = nil // where the new queue is not known Kueue keeps it in the old one
	}
}

func (b *Book) followRange(old, now client.Object) {
	gone := cmp.Or(old, now)
	var list []*corev1.LimitRange
	for _, r := range b.reads.ranges.m[gone.GetNamespace()] {
		if r.Name != gone.GetName() {
			list = append(list, r)
		}
	}
	if now != nil {
		list = append(list, now.(*corev1.LimitRange))
	}
	slices.SortFunc(list, func(a, b *corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	if len(list) == 0 {
		b.reads.ranges.delete(gone.GetNamespace())
		return
	}
	b.reads.ranges.set(gone.GetNamespace(), list)
}

// build makes Kueue's cache from the objects, each kind after those that it refers to.
func (b *Book) build(ctx context.Context) {
	c := schdcache.New(&reader{}, b.rules.cache...)
	b.faults, b.roots = map[string]string{}, b.rootsOf()
	for _, o := range b.objects[kindFlavor] {
		c.AddOrUpdateResourceFlavor(silent, o.(*kueue.ResourceFlavor))
	}
	for _, o := range b.objects[kindCheck] {
		c.AddOrUpdateAdmissionCheck(silent, o.(*kueue.AdmissionCheck))
	}
	for _, name := range slices.Sorted(maps.Keys(b.objects[kindCohort])) {
		if !b.inCycle(kueue.CohortReference(name)) {
			_ = c.AddOrUpdateCohort(b.objects[kindCohort][name].(*kueue.Cohort)) // fails for a cycle only
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.objects[kindClusterQueue])) {
		q := b.objects[kindClusterQueue][name].(*kueue.ClusterQueue)
		if b.inCycle(q.Spec.CohortName) {
			b.faults[name] = fmt.Sprintf("cohort %s is in a cycle of cohorts.", q.Spec.CohortName)
			continue
		}
		if err := c.AddClusterQueue(ctx, q); err != nil { // then Kueue has it too, as inactive
			b.faults[name] = err.Error() + "."
		}
		if q.DeletionTimestamp != nil {
			c.TerminateClusterQueue(kueue.ClusterQueueReference(name))
		}
	}
	for _, o := range b.objects[kindWorkload] {
		c.AddOrUpdateWorkload(silent, o.(*kueue.Workload)) // does nothing where its queue is not known
	}
	b.cache = c
}

// inCycle says whether a cohort has no root: its way up comes to a place where it was before. Adding usage there would
// make Kueue's cache call itself without end.
func (b *Book) inCycle(name kueue.CohortReference) bool {
	been := map[kueue.CohortReference]bool{}
	for name != "" {
		if been[name] {
			return true
		}
		been[name] = true
		c, ok := b.objects[kindCohort][string(name)].(*kueue.Cohort)
		if !ok {
			return false
		}
		name = c.Spec.ParentName
	}
	return false
}
