package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
)

// Controller is one reconciler with what wakes it. A request is served by Reconcile whose RequeueAfter, if it is not zero,
// is exactly how long from now it wants to look again; an earlier wish for the same request is then void. Controllers are
// not safe for concurrent use.
type Controller struct {
	Name string
	reconcile.Reconciler
	Watches []Watch
}

// Watch is a kind that wakes a controller.
type Watch struct {
	Kind client.Object
	// Requests says what an event is about. was is nil for an object that was created, is for one that was deleted; it
	// changes neither.
	Requests func(ctx context.Context, was, is client.Object) []reconcile.Request
}

// Controllers returns the controllers in the order in which they are best run: nodes first, then what their pods lose by it,
// then what is made anew.
func Controllers(c client.Client, now clock.PassiveClock) []Controller {
	return []Controller{
		(&nodes{client: c, clock: now, since: map[string]map[taintKey]since{}}).controller(),
		(&evictor{client: c, clock: now, seen: map[seenTaint]since{}}).controller(),
		(&kubelet{client: c, clock: now, pods: map[types.NamespacedName]running{}}).controller(),
		(&claims{client: c}).controller(),
		(&podClaims{client: c}).controller(),
		(&jobs{client: c, clock: now, state: map[types.NamespacedName]*jobState{}}).controller(),
	}
}

// Index is a field by which the parts of this package list a kind.
type Index struct {
	Kind  client.Object
	Field string
	Func  client.IndexerFunc
}

// The fields that are indexed, beside observe.PodByController.
const (
	// podByNode is the node that a pod is bound to.
	podByNode = "simulate.plimsoll.dev/node"
	// podByTemplate are the claim templates that a pod names.
	podByTemplate = "simulate.plimsoll.dev/claim-template"
	// sliceByPool is a slice's driver/pool.
	sliceByPool = "simulate.plimsoll.dev/pool"
)

// Indexes returns the indexes that the client must have. observe.PodByController is among them.
func Indexes() []Index {
	return []Index{
		{&corev1.Pod{}, observe.PodByController, func(o client.Object) []string { return present(string(observe.ControllerOf(o))) }},
		{&corev1.Pod{}, podByNode, func(o client.Object) []string { return present(o.(*corev1.Pod).Spec.NodeName) }},
		{&corev1.Pod{}, podByTemplate, func(o client.Object) []string { return templatesOf(o.(*corev1.Pod)) }},
		{&resourcev1.ResourceSlice{}, sliceByPool, func(o client.Object) []string {
			s := o.(*resourcev1.ResourceSlice)
			return []string{s.Spec.Driver + "/" + s.Spec.Pool.Name}
		}},
	}
}

// Setup gives a store the indexes and the hooks that this package needs. The hooks come before those of webhooks if it is
// called first, as the API server has it.
func Setup(s *store.Store, now clock.PassiveClock) {
	for _, x := range Indexes() {
		s.Index(x.Kind, x.Field, x.Func)
	}
	s.Hook(&corev1.Pod{}, admitted(s.Client()))
	s.Hook(&corev1.Pod{}, graceful(s, now))
}

func present(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// itself wakes a controller for the object of the event.
func itself(_ context.Context, was, is client.Object) []reconcile.Request {
	if is == nil {
		is = was
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(is)}}
}

// podsOn returns requests for the pods that are bound to a node.
func podsOn(ctx context.Context, c client.Client, node string) []reconcile.Request {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.MatchingFields{podByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return requests(list.Items)
}

func requests(pods []corev1.Pod) []reconcile.Request {
	var out []reconcile.Request
	for i := range pods {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods[i])})
	}
	return out
}
