package ledger

import (
	"iter"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Template is what a podset's pods are made of.
type Template struct {
	// Spec is the podset's; owned by the observer. Its overhead does not count, since a charge may stand there.
	Spec *corev1.PodSpec
	// Overhead is its overhead without a charge; nil for none.
	Overhead corev1.ResourceList
}

// Additions are what admission plugins of the API server add to pods when they are created. The zero value is nothing.
type Additions struct {
	// Default is what each container asks for that says nothing of a resource; see DefaultRequests.
	Default corev1.ResourceList
	// Overhead is what the pods' RuntimeClass fixes.
	Overhead corev1.ResourceList
}

// DefaultRequests returns what a container is made to ask for by the LimitRanges of its namespace where it says nothing; nil for
// nothing. Of several it is the most: the API server takes them in any order, and nobody may be promised less than their pods
// will ask for.
func DefaultRequests(limits iter.Seq[*corev1.LimitRange]) corev1.ResourceList {
	var most corev1.ResourceList
	for l := range limits {
		for i := range l.Spec.Limits {
			item := &l.Spec.Limits[i]
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			// The defaults of the API, which only what came by the API server has for certain.
			most = atLeast(most, item.DefaultRequest, nil)
			most = atLeast(most, item.Default, func(name corev1.ResourceName) bool { return has(name, item.DefaultRequest) })
			most = atLeast(most, item.Max, func(name corev1.ResourceName) bool { return has(name, item.DefaultRequest, item.Default) })
			most = atLeast(most, item.Min, func(name corev1.ResourceName) bool { return has(name, item.DefaultRequest, item.Default, item.Max) })
		}
	}
	return most
}

func has(name corev1.ResourceName, lists ...corev1.ResourceList) bool {
	for _, l := range lists {
		if _, ok := l[name]; ok {
			return true
		}
	}
	return false
}

// atLeast returns a list with at least as much as another has, but for what is to be left out. It changes neither.
func atLeast(list, other corev1.ResourceList, except func(corev1.ResourceName) bool) corev1.ResourceList {
	out, copied := list, false
	for name, q := range other {
		if have, ok := out[name]; ok && have.Cmp(q) >= 0 || except != nil && except(name) {
			continue
		}
		if !copied {
			out, copied = maps.Clone(out), true
			if out == nil {
				out = corev1.ResourceList{}
			}
		}
		out[name] = q
	}
	return out
}

// RequestsOfTemplate returns what kube-scheduler will count for a pod that is made of a template, with one of pods.
func RequestsOfTemplate(t Template, add Additions) Amounts {
	pod := &corev1.Pod{Spec: *t.Spec}
	pod.Spec.Overhead = atLeast(t.Overhead, add.Overhead, nil) // a pod with another overhead than its RuntimeClass's is not let in
	if len(add.Default) == 0 {
		return RequestsOf(pod, false)
	}
	if same := limitsAsRequests(pod); same == pod {
		pod = &corev1.Pod{Spec: *pod.Spec.DeepCopy()}
	} else {
		pod = same
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			fill(&containers[i], add.Default)
		}
	}
	return RequestsOf(pod, false)
}

// asks returns what a pod of a Workload's podset asks for once it is created; nil for a podset that there is not.
func (b *Book) asks(uid types.UID, podSet string) Amounts {
	if with, ok := b.created[uid]; ok {
		return with[podSet]
	}
	return b.workloads[uid].Requests[podSet]
}

// create works out what is added to the pods of a Workload, and says whether that changed. What is kept are only those to which
// anything is.
func (b *Book) create(uid types.UID) bool {
	before := b.created[uid]
	delete(b.created, uid)
	if w := b.workloads[uid]; w != nil {
		defaults := DefaultRequests(b.limitsOf(w.Namespace))
		for podSet, t := range w.Templates {
			add := Additions{Default: defaults, Overhead: b.overheadOf(t.Spec.RuntimeClassName)}
			if len(add.Default) == 0 && len(add.Overhead) == 0 {
				continue
			}
			if b.created[uid] == nil {
				b.created[uid] = maps.Clone(w.Requests)
			}
			b.created[uid][podSet] = RequestsOfTemplate(t, add)
		}
	}
	return !reflect.DeepEqual(before, b.created[uid])
}

func (b *Book) limitsOf(namespace string) iter.Seq[*corev1.LimitRange] {
	return func(yield func(*corev1.LimitRange) bool) {
		for uid := range b.limitsIn[namespace].all() {
			if !yield(b.limits[uid]) {
				return
			}
		}
	}
}

// overheadOf returns what a RuntimeClass fixes. Of two of one name it is the newer: the other is gone, which was not seen yet.
func (b *Book) overheadOf(name *string) corev1.ResourceList {
	if name == nil || *name == "" {
		return nil
	}
	var newest *Observation
	for _, o := range b.runtimes { // they are few
		if o.RuntimeClass.Name == *name && (newest == nil || o.Ref.newerThan(newest.Ref)) {
			newest = o
		}
	}
	if newest == nil || newest.RuntimeClass.Overhead == nil {
		return nil
	}
	return newest.RuntimeClass.Overhead.PodFixed
}

func (b *Book) applyLimitRange(uid types.UID, l *corev1.LimitRange) bool {
	old := b.limits[uid]
	if old == nil && l == nil {
		return false
	}
	if old != nil {
		unlink(b.limitsIn, old.Namespace, uid)
		delete(b.limits, uid)
	}
	if l != nil {
		b.limits[uid] = l
		link(b.limitsIn, l.Namespace, uid)
	}
	return b.createAll(func(w *Workload) bool {
		return old != nil && w.Namespace == old.Namespace || l != nil && w.Namespace == l.Namespace
	})
}

func (b *Book) applyRuntimeClass(o Observation) bool {
	if b.runtimes[o.Ref.UID] == nil && o.RuntimeClass == nil {
		return false
	}
	delete(b.runtimes, o.Ref.UID)
	if o.RuntimeClass != nil {
		b.runtimes[o.Ref.UID] = &o
	}
	return b.createAll(func(*Workload) bool { return true })
}

// createAll works out what is added to the pods of some Workloads, and says whether that changed for any.
func (b *Book) createAll(of func(*Workload) bool) (changed bool) {
	for uid, w := range b.workloads { // such changes are seldom
		if of(w) && b.create(uid) {
			b.touchPromised(uid)
			changed = true
		}
	}
	return changed
}
