package observe

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// Wire reads ResourceSlices and pods so that nothing is lost of what Kubernetes 1.36 or 1.37 says of node allocatable
// resources, whichever serves them. The types are those of 1.36: of a pod's status both releases end in the same field, of a
// ResourceSlice what 1.37 says is in an annotation. Slices are read as JSON. Pods are read as they otherwise are until one of
// them says what only JSON shows, and as JSON from then on: few clusters have such pods, and all have many. It is safe for
// concurrent use.
type Wire struct {
	core, resource rest.Interface
	// podsJSON is set once a pod was seen that must be read as JSON.
	podsJSON atomic.Bool
}

// NewWire returns a Wire to a server.
func NewWire(cfg *rest.Config) (*Wire, error) {
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make http client: %w", err)
	}
	w := &Wire{}
	for _, x := range []struct {
		client *rest.Interface
		path   string
		gv     schema.GroupVersion
	}{{&w.core, "/api", corev1.SchemeGroupVersion}, {&w.resource, "/apis", resourcev1.SchemeGroupVersion}} {
		c := rest.CopyConfig(cfg)
		c.APIPath, c.GroupVersion, c.NegotiatedSerializer = x.path, &x.gv, keepingSerializer()
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if *x.client, err = rest.RESTClientForConfigAndClient(c, h); err != nil {
			return nil, fmt.Errorf("make client of %s: %w", x.gv, err)
		}
	}
	return w, nil
}

// ListWatch returns what an informer of o's kind should read through instead of lw: lw itself for most kinds.
func (w *Wire) ListWatch(lw toolscache.ListerWatcher, o runtime.Object) toolscache.ListerWatcher {
	switch o.(type) {
	case *resourcev1.ResourceSlice:
		return w.slices()
	case *corev1.Pod:
		return w.pods(toolscache.ToListerWatcherWithContext(lw))
	}
	return lw
}

func (w *Wire) slices() *toolscache.ListWatch {
	return jsonOf(w.resource, "resourceslices", func() runtime.Object { return &resourcev1.ResourceSliceList{} })
}

// jsonOf lists and watches all objects of a resource.
func jsonOf(c rest.Interface, resource string, list func() runtime.Object) *toolscache.ListWatch {
	request := func(options *metav1.ListOptions) *rest.Request {
		return c.Get().Resource(resource).VersionedParams(options, clientgoscheme.ParameterCodec)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			out := list()
			if err := request(&options).Do(ctx).Into(out); err != nil {
				return nil, err
			}
			return out, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch, options.AllowWatchBookmarks = true, true
			return request(&options).Watch(ctx)
		},
	}
}

// pods reads through lw for as long as no pod says what that loses.
func (w *Wire) pods(lw toolscache.ListerWatcherWithContext) *toolscache.ListWatch {
	inFull := jsonOf(w.core, "pods", func() runtime.Object { return &corev1.PodList{} })
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if !w.podsJSON.Load() {
				out, err := lw.ListWithContext(ctx, options)
				if err != nil || !w.loses(out) {
					return out, err
				}
			}
			return inFull.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if w.podsJSON.Load() {
				return inFull.WatchWithContext(ctx, options)
			}
			in, err := lw.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(in, func(e watch.Event) (watch.Event, bool) {
				if e.Type == watch.Error || !w.loses(e.Object) {
					return e, true
				}
				expired := apierrors.NewResourceExpired("a pod has to be read as JSON")
				return watch.Event{Type: watch.Error, Object: &expired.ErrStatus}, true // all are listed again
			}), nil
		},
	}
}

// loses says whether any of these pods was read in part, and if so sees to it that none is from now on.
func (w *Wire) loses(o runtime.Object) bool {
	lost := false
	switch x := o.(type) {
	case *corev1.Pod:
		lost = unread(x)
	case *corev1.PodList:
		for i := range x.Items {
			lost = lost || unread(&x.Items[i])
		}
	}
	if lost {
		w.podsJSON.Store(true)
	}
	return lost
}
