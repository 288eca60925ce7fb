package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/plimsoll-dev/plimsoll/test/lab/internal/manifest"
)

const (
	fieldManager = "lab"
	// applyTimeout bounds the retries of one object.
	applyTimeout = 60 * time.Second
	applyPoll    = 100 * time.Millisecond
	applyWorkers = 8
)

// Apply applies manifests by server-side apply: files, and folders with everything below them. Kinds go in the order of
// their references, Jobs last; what may yet come (a webhook that starts, a CRD that is not established, a namespace) is
// retried for a bounded time. An object's status is applied where the manifest has one: nodes keep the capacity that it
// says. An object with generateName is created anew each time.
func (l *Lab) Apply(ctx context.Context, paths ...string) error {
	objects, err := manifest.Load(paths...)
	if err != nil {
		return err
	}
	return l.applier.applyAll(ctx, objects)
}

// ApplyObjects is Apply for objects in memory. It does not change them.
func (l *Lab) ApplyObjects(ctx context.Context, objects ...*unstructured.Unstructured) error {
	return l.applier.applyAll(ctx, objects)
}

// applier applies objects as the administrator. Safe for concurrent use.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// newApplier needs no server yet.
func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discover))
	return &applier{client: client, mapper: mapper}, nil
}

func (a *applier) applyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, members := range manifest.Group(objects) {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(applyWorkers)
		for _, object := range members {
			group.Go(func() error {
				if err := a.applyRetrying(groupCtx, object); err != nil {
					return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if members[0].GetKind() == "CustomResourceDefinition" {
			if err := a.waitEstablished(ctx, members); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *applier) applyRetrying(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for {
		err := a.apply(ctx, object)
		if err == nil || !a.mayPass(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up retrying: %w", err)
		case <-time.After(applyPoll):
		}
	}
}

// mayPass tells errors that go by themselves, while the control plane comes up, from those that stay.
func (a *applier) mayPass(err error) bool {
	switch {
	case meta.IsNoMatchError(err):
		a.mapper.Reset()
		return true
	case apierrors.IsInternalError(err), // a webhook that does not answer
		apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsTimeout(err), apierrors.IsConflict(err),
		apierrors.IsNotFound(err), // the namespace
		utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err):
		return true
	case apierrors.IsForbidden(err):
		return missingServiceAccount(err)
	}
	return false
}

// missingServiceAccount recognizes a pod in a namespace so new that its default service account is still to come.
func missingServiceAccount(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.Contains(status.Status().Message, "error looking up service account")
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resource(object)
	if err != nil {
		return err
	}
	// The status goes separately, and managedFields must not be sent.
	object = object.DeepCopy()
	object.SetManagedFields(nil)
	status := object.Object["status"]
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}

	switch {
	case object.GetName() == "":
		_, err = resource.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
		return err
	case object.GetKind() == "Node":
		// A node that is born without capacity gets KWOK's before its status can be applied. Only creation keeps status.
		_, err = resource.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsAlreadyExists(err) {
			_, err = resource.Apply(ctx, object.GetName(), object, options)
		}
	default:
		delete(object.Object, "status")
		_, err = resource.Apply(ctx, object.GetName(), object, options)
	}
	if err != nil || status == nil {
		return err
	}
	update := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	update.SetGroupVersionKind(object.GroupVersionKind())
	update.SetName(object.GetName())
	update.SetNamespace(object.GetNamespace())
	_, err = resource.ApplyStatus(ctx, object.GetName(), update, options)
	return err
}

func (a *applier) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return a.client.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.client.Resource(mapping.Resource).Namespace(namespace), nil
}

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// waitEstablished waits until the API server serves the CRDs' kinds.
func (a *applier) waitEstablished(ctx context.Context, crds []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for _, crd := range crds {
		for {
			current, err := a.client.Resource(crdResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil && !a.mayPass(err) {
				return fmt.Errorf("wait for CRD %s: %w", crd.GetName(), err)
			}
			if err == nil && conditionTrue(current, "Established") {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for CRD %s: %w", crd.GetName(), ctx.Err())
			case <-time.After(applyPoll):
			}
		}
	}
	a.mapper.Reset()
	return nil
}

func conditionTrue(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		if ok && condition["type"] == kind && condition["status"] == string(metav1.ConditionTrue) {
			return true
		}
	}
	return false
}
