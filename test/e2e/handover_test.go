package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// A lab takes most of its time and of the machine to come up. One that a container has left is therefore taken over by the
// next, if all that the API server holds can be made what it was when the lab was new; Kueue and the manager begin anew.
// Where that does not come about, or a spec has failed, the next container has a new lab.

// left is the lab that no container uses now, or the one that does; nil where there is none.
var left *estate

// estate is a lab, and what it held when it was new.
type estate struct {
	cluster *cluster
	client  dynamic.Interface
	listing metadata.Interface
	kinds   []schema.GroupVersionResource
	seen    map[schema.GroupVersionResource][]*unstructured.Unstructured // all objects of a kind at the last look
	asNew   world
	spoilt  bool
}

// world is all that an API server holds, by resource, namespace and name.
type world map[string]*unstructured.Unstructured

var _ = ReportAfterEach(func(r SpecReport) {
	if r.Failed() && left != nil {
		left.spoilt = true
	}
})

var _ = AfterSuite(func() {
	if left != nil {
		Expect(left.cluster.Stop()).To(Succeed())
	}
})

// takeOver returns the lab that is left if it is as new; otherwise it stops it and returns nil.
func takeOver(ctx context.Context) *cluster {
	GinkgoHelper()
	if left == nil {
		return nil
	}
	began := time.Now()
	err := errors.New("a spec has failed on it")
	if !left.spoilt {
		err = left.renew(ctx)
	}
	if err == nil {
		GinkgoWriter.Printf("took a lab over in %s\n", time.Since(began).Round(time.Millisecond))
		return left.cluster
	}
	GinkgoWriter.Printf("takes no lab over: %v\n", err)
	old := left
	left = nil
	Expect(old.cluster.Stop()).To(Succeed())
	return nil
}

// leave says what a new lab holds, for who takes it over.
func leave(ctx context.Context, c *cluster) {
	GinkgoHelper()
	e := &estate{cluster: c, seen: map[schema.GroupVersionResource][]*unstructured.Unstructured{}}
	var err error
	e.client, err = dynamic.NewForConfig(c.Admin())
	Expect(err).NotTo(HaveOccurred())
	e.listing, err = metadata.NewForConfig(c.Admin())
	Expect(err).NotTo(HaveOccurred())
	d, err := discovery.NewDiscoveryClientForConfig(c.Admin())
	Expect(err).NotTo(HaveOccurred())
	lists, err := d.ServerPreferredResources()
	Expect(err).NotTo(HaveOccurred())
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range list.APIResources {
			// Leases are renewed all the time, and events are deleted all at once.
			if gvr := gv.WithResource(r.Name); r.Name != "leases" && r.Name != "events" {
				e.kinds = append(e.kinds, gvr)
			}
		}
	}
	Eventually(func(g Gomega) {
		before, err := e.world(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Consistently(func(g Gomega) {
			e.asNew, err = e.world(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.asNew.unlike(before)).To(BeEmpty())
		}).WithTimeout(time.Second).Should(Succeed())
	}).Should(Succeed())
	left = e
}

// world lists all that there is.
func (e *estate) world(ctx context.Context) (world, error) {
	out := world{}
	lists := make([][]*unstructured.Unstructured, len(e.kinds))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, kind := range e.kinds {
		group.Go(func() (err error) {
			lists[i], err = e.all(ctx, kind)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, list := range lists {
		e.seen[e.kinds[i]] = list
		for _, o := range list {
			out[e.kinds[i].String()+" "+o.GetNamespace()+"/"+o.GetName()] = o
		}
	}
	return out, nil
}

// all returns the objects of a kind. It lists them whole only if one is not as it was at the last look, for some of what a lab
// holds is large, as the definitions of Kueue's kinds are.
func (e *estate) all(ctx context.Context, kind schema.GroupVersionResource) ([]*unstructured.Unstructured, error) {
	versions, err := e.listing.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if seen, looked := e.seen[kind]; looked && sameVersions(seen, versions.Items) {
		return seen, nil
	}
	list, err := e.client.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// sameVersions says whether the objects are these and no others, each in this version. Lists are in the order of names.
func sameVersions(objects []*unstructured.Unstructured, versions []metav1.PartialObjectMetadata) bool {
	return slices.EqualFunc(objects, versions, func(o *unstructured.Unstructured, v metav1.PartialObjectMetadata) bool {
		return o.GetUID() == v.UID && o.GetResourceVersion() == v.ResourceVersion
	})
}

// said returns what somebody said that an object should be: without what the server and controllers say of it. What a node
// has is said in its status.
func said(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	delete(out, "metadata")
	delete(out, "status")
	out["labels"], out["annotations"], out["finalizers"] = o.GetLabels(), o.GetAnnotations(), o.GetFinalizers()
	if o.GetKind() == "Node" {
		out["allocatable"], _, _ = unstructured.NestedMap(o.Object, "status", "allocatable")
		out["capacity"], _, _ = unstructured.NestedMap(o.Object, "status", "capacity")
	}
	return out
}

// unlike returns the keys of what is not the same in both, sorted.
func (w world) unlike(other world) []string {
	var out []string
	for key, o := range w {
		if x := other[key]; x == nil || o.GetDeletionTimestamp() != nil || !equality.Semantic.DeepEqual(said(o), said(x)) {
			out = append(out, key)
		}
	}
	for key := range other {
		if w[key] == nil {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// renew makes all that the lab holds what it was when it was new.
func (e *estate) renew(ctx context.Context) error {
	c := e.cluster
	running := c.PIDs()
	for _, name := range []string{lab.ControllerManager, lab.Scheduler, lab.KWOK, lab.Kueue, lab.Manager} {
		if _, is := running[name]; !is {
			if err := c.StartComponent(ctx, name); err != nil {
				return err
			}
		}
	}
	if err := e.restore(ctx); err != nil {
		return err
	}
	if err := both(ctx, c.StopComponent); err != nil {
		return err
	}
	if err := both(ctx, c.StartComponent); err != nil {
		return err
	}
	if err := e.restore(ctx); err != nil { // of what those have said meanwhile
		return err
	}
	namespaces := &corev1.NamespaceList{}
	if err := c.List(ctx, namespaces); err != nil {
		return err
	}
	for i := range namespaces.Items {
		if err := c.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(namespaces.Items[i].Name)); err != nil {
			return err
		}
	}
	return nil
}

// both does something with those who keep in memory what they have seen.
func both(ctx context.Context, do func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{lab.Kueue, lab.Manager} {
		group.Go(func() error { return do(ctx, name) })
	}
	return group.Wait()
}

// restore deletes what is new, and brings back what is gone or changed, until nothing is.
func (e *estate) restore(ctx context.Context) error {
	var unlike []string
	err := wait.PollUntilContextTimeout(ctx, often, soon, true, func(ctx context.Context) (bool, error) {
		now, err := e.world(ctx)
		if err != nil {
			return false, err
		}
		unlike = now.unlike(e.asNew)
		for _, key := range unlike {
			if err := e.put(ctx, key, now[key], e.asNew[key]); err != nil && !passes(err) {
				return false, fmt.Errorf("%s: %w", key, err)
			}
		}
		return len(unlike) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.Join(unlike, ", "))
	}
	return nil
}

// passes tells errors that may be gone at the next try: what belongs to somebody goes with its owner, if nobody else may
// delete it.
func passes(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInternalError(err) || apierrors.IsInvalid(err)
}

// put makes one object what it was; nil for not there.
func (e *estate) put(ctx context.Context, key string, now, was *unstructured.Unstructured) error {
	i := slices.IndexFunc(e.kinds, func(k schema.GroupVersionResource) bool { return strings.HasPrefix(key, k.String()+" ") })
	kind := e.client.Resource(e.kinds[i])
	in := func(o *unstructured.Unstructured) dynamic.ResourceInterface {
		if ns := o.GetNamespace(); ns != "" {
			return kind.Namespace(ns)
		}
		return kind
	}
	switch {
	case was == nil:
		if now.GetDeletionTimestamp() != nil {
			return nil
		}
		background := metav1.DeletePropagationBackground
		return in(now).Delete(ctx, now.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	case now == nil:
		return e.cluster.ApplyObjects(ctx, cleared(was))
	case now.GetDeletionTimestamp() != nil:
		return nil
	}
	next := was.DeepCopy()
	next.SetResourceVersion(now.GetResourceVersion())
	next.SetUID(now.GetUID())
	next.SetManagedFields(nil)
	_, err := in(next).Update(ctx, next, metav1.UpdateOptions{})
	return err
}

// cleared returns an object as it is made: without what the server says of it.
func cleared(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetGeneration(0)
	o.SetCreationTimestamp(metav1.Time{})
	o.SetManagedFields(nil)
	if o.GetKind() == "Node" {
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
		return o
	}
	delete(o.Object, "status")
	return o
}
