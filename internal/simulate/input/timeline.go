package input

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultStart is time 0 of an input that has no times in it.
var defaultStart = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

// longAgo is for how long, at the start, Nodes have been as they are: longer than any grace or window.
const longAgo = 25 * time.Hour

// arrange brings the entries into their order and holds the versions of one object against each other.
func (r *reader) arrange() {
	slices.SortStableFunc(r.entries, func(a, b *entry) int {
		order := cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.is.rank, b.is.rank))
		if order == 0 && a.is.timed {
			order = created(a).Compare(created(b))
		}
		return cmp.Or(order, cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
			cmp.Compare(a.file, b.file), cmp.Compare(a.line(), b.line()))
	})
	last := map[key]*entry{}
	for _, e := range r.entries {
		k := key{e.is.name, e.namespace, e.name}
		before := last[k]
		last[k] = e
		switch {
		case before == nil:
		case before.at == e.at:
			r.fault(e.wrong("", fmt.Sprintf("is given twice for %s: here and at %s", e.at, before.source())))
		case before.deleteAt != nil && *before.deleteAt > e.at:
			r.fault(e.wrong("metadata.annotations["+atAnnotation+"]", fmt.Sprintf(
				"is %s, before the delete-at %s of the version at %s: a later version has its own delete-at", e.at, *before.deleteAt, before.source())))
		}
	}
	r.inNamespaces()
}

// inNamespaces refuses what comes while its Namespace is not there. One that nobody lists always is.
func (r *reader) inNamespaces() {
	versions := map[string][]*entry{}
	for _, e := range r.entries {
		if e.is.name == "Namespace" {
			versions[e.name] = append(versions[e.name], e)
		}
	}
	for _, e := range r.entries {
		var last *entry
		for _, v := range versions[e.namespace] {
			if v.at <= e.at {
				last = v
			}
		}
		switch of := versions[e.namespace]; {
		case !e.is.namespaced || len(of) == 0:
		case last == nil:
			r.fault(e.wrong("metadata.namespace", fmt.Sprintf("is not there before %s", of[0].at)))
		case last.deleteAt != nil && *last.deleteAt <= e.at:
			r.fault(e.wrong("metadata.namespace", fmt.Sprintf("is not there any more: it is deleted at %s", *last.deleteAt)))
		}
	}
}

func created(e *entry) time.Time { return e.object.GetCreationTimestamp().Time }

// input gives what was read, with what nobody lists and with what has been so for long.
func (r *reader) input() *Input {
	in := &Input{Kueue: r.kueue, Start: r.start(), Warnings: sortedLines(r.warnings)}
	r.ready(in.Start)
	listed, used := map[string]bool{}, map[string]bool{}
	for _, e := range r.entries {
		if e.is.name == "Namespace" {
			listed[e.name] = true
		}
		if e.is.namespaced {
			used[e.namespace] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if listed[name] {
			continue
		}
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.SetGroupVersionKind(kinds[0].gvk())
		defaultNamespace(n)
		in.Objects = append(in.Objects, Object{Object: n})
	}
	added := len(in.Objects)
	for _, e := range r.entries {
		in.Objects = append(in.Objects, Object{Object: e.object, Source: e.source(), At: e.at, DeleteAt: e.deleteAt})
		if e.at == 0 && e.is.name == "Namespace" {
			added = len(in.Objects)
		}
	}
	slices.SortFunc(in.Objects[:added], func(a, b Object) int { return cmp.Compare(a.Object.GetName(), b.Object.GetName()) })
	return in
}

// start is the latest time that the input has in its metadata and statuses, in whole seconds.
func (r *reader) start() time.Time {
	var latest time.Time
	for _, e := range r.entries {
		if e.latest.After(latest) {
			latest = e.latest
		}
	}
	if latest.IsZero() {
		return defaultStart
	}
	if rounded := latest.Truncate(time.Second); !rounded.Equal(latest) {
		latest = rounded.Add(time.Second)
	}
	return latest.UTC()
}

// notPast are the fields whose times lie ahead, and those that hold text of others.
var notPast = map[string]bool{
	"deletionTimestamp": true, "requeueAt": true, "notBefore": true, "until": true, "annotations": true, "labels": true,
	"message": true, "reason": true,
}

// latestIn returns the latest time in a parsed value.
func latestIn(v any) time.Time {
	var latest time.Time
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if notPast[name] {
				continue
			}
			if t := latestIn(inner); t.After(latest) {
				latest = t
			}
		}
	case []any:
		for _, inner := range v {
			if t := latestIn(inner); t.After(latest) {
				latest = t
			}
		}
	case string:
		if len(v) >= len("2006-01-02T15:04:05Z") && v[4] == '-' && strings.Contains(v, "T") {
			if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
				return t
			}
		}
	}
	return latest
}

// ready gives Nodes the Ready condition that their kubelets would, and says since when they are as they are.
func (r *reader) ready(start time.Time) {
	last := map[string]*corev1.Node{}
	for _, e := range r.entries {
		n, ok := e.object.(*corev1.Node)
		if !ok {
			continue
		}
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			})
		}
		for i := range n.Status.Conditions {
			since(&n.Status.Conditions[i], last[n.Name], start, e.at)
		}
		last[n.Name] = n
	}
}

func since(c *corev1.NodeCondition, before *corev1.Node, start time.Time, at time.Duration) {
	if at == 0 {
		c.LastTransitionTime = metav1.NewTime(start.Add(-longAgo))
		return
	}
	if before != nil {
		for _, old := range before.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
				return
			}
		}
	}
	c.LastTransitionTime = metav1.NewTime(start.Add(at))
}
