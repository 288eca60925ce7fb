package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const (
	taintRuleKind     = "DeviceTaintRule"
	taintRuleResource = "devicetaintrules"
)

// taintRuleVersions are the versions of DeviceTaintRules that are read, the one that is read first of those that are served.
// All serve the same objects, and kube-scheduler of a release reads the newest of its own.
var taintRuleVersions = []string{"v1", "v1beta2", "v1alpha3"}

// ServedResources says what a server serves of one group and version; a discovery client does.
type ServedResources interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// TaintRules feeds an Observer with DeviceTaintRules. They are an optional API, off by default in Kubernetes 1.36, and what a
// rule means depends on the version in which it is served: so it looks what is served, at the start and again ever after, and
// follows a change. A server that serves none has no rules.
type TaintRules struct {
	observer  *Observer
	informers cache.Cache
	served    ServedResources
	every     time.Duration

	mu sync.Mutex
	// looked is set once it is known what is served.
	looked bool
	from   *taintRuleSource
}

// taintRuleSource is one version's informer.
type taintRuleSource struct {
	version string
	handler toolscache.ResourceEventHandlerRegistration

	mu   sync.Mutex
	seen map[types.UID]metav1.Object
}

// TaintRules has the Observer take DeviceTaintRules too, by the informers of a cache. Start what it returns, and the cache;
// until what is served is known and has been seen, the Observer is not synced. every is how long after one look the next is due:
// for how long rules may count for nothing that were not served before. Call it once, before anything is started.
func (o *Observer) TaintRules(informers cache.Cache, served ServedResources, every time.Duration) *TaintRules {
	o.rules = &TaintRules{observer: o, informers: informers, served: served, every: every}
	return o.rules
}

// Start follows what is served until ctx ends.
func (t *TaintRules) Start(ctx context.Context) error {
	for {
		err, next := t.look(ctx), t.every
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Did not find out whether DeviceTaintRules are served")
			next /= 30 // nothing is decided before it is known
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}

// NeedLeaderElection is false: whoever may lead soon has to know the rules.
func (t *TaintRules) NeedLeaderElection() bool { return false }

func (t *TaintRules) synced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.looked && (t.from == nil || t.from.handler.HasSynced())
}

// look finds out what is served, and changes over to that. The rules of the version before count until those of the next have
// been seen.
func (t *TaintRules) look(ctx context.Context) error {
	version, err := t.version()
	if err != nil {
		return err
	}
	if t.from != nil && t.from.version == version || t.from == nil && version == "" {
		t.set(t.from)
		return nil
	}
	var next *taintRuleSource
	if version != "" {
		if next, err = t.source(ctx, version); err != nil {
			return err
		}
	}
	last := t.from
	if last == nil {
		t.set(next)
		return nil
	}
	if next != nil && !toolscache.WaitForCacheSync(ctx.Done(), next.handler.HasSynced) {
		return errors.New("stopped before the DeviceTaintRules were seen")
	}
	t.set(next)
	err = t.informers.RemoveInformer(ctx, taintRuleOf(last.version))
	last.forget(t.observer)
	if err != nil {
		return fmt.Errorf("stop watching DeviceTaintRules %s: %w", last.version, err)
	}
	return nil
}

func (t *TaintRules) set(s *taintRuleSource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked, t.from = true, s
}

// version returns the version to read; empty where none is served.
func (t *TaintRules) version() (string, error) {
	for _, v := range taintRuleVersions {
		list, err := t.served.ServerResourcesForGroupVersion(resourcev1.GroupName + "/" + v)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("discover %s/%s: %w", resourcev1.GroupName, v, err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == taintRuleResource }) {
			return v, nil
		}
	}
	return "", nil
}

func taintRuleOf(version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(resourcev1.GroupName + "/" + version)
	u.SetKind(taintRuleKind)
	return u
}

func (t *TaintRules) source(ctx context.Context, version string) (*taintRuleSource, error) {
	informer, err := t.informers.GetInformer(ctx, taintRuleOf(version), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("get informer for DeviceTaintRules %s: %w", version, err)
	}
	s := &taintRuleSource{version: version, seen: map[types.UID]metav1.Object{}}
	s.handler, err = informer.AddEventHandler(handler(func(obj any, gone bool) { s.see(t.observer, obj, gone) }))
	if err != nil {
		return nil, fmt.Errorf("watch DeviceTaintRules %s: %w", version, err)
	}
	return s, nil
}

func (s *taintRuleSource) see(o *Observer, obj any, gone bool) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	s.mu.Lock()
	s.seen[m.GetUID()] = m
	if gone {
		delete(s.seen, m.GetUID())
	}
	s.mu.Unlock()
	o.Apply(m, gone)
}

// forget takes back every rule that was seen.
func (s *taintRuleSource) forget(o *Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.seen {
		o.Apply(m, true)
	}
	clear(s.seen)
}

// taintRule returns a rule as it is served in a version, of the group's that are read.
func taintRule(u *unstructured.Unstructured) (*ledger.TaintRule, error) {
	rule := &resourcev1beta2.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, rule); err != nil {
		return nil, fmt.Errorf("read DeviceTaintRule %s: %w", u.GetName(), err)
	}
	return taintRuleIn(u.GroupVersionKind().Version, rule), nil
}

// taintRuleIn returns a rule as it counts in a version. Without a deviceSelector it taints every device for kube-scheduler
// 1.36, which reads the versions before v1, and none for that of 1.37, which reads v1.
func taintRuleIn(version string, rule *resourcev1beta2.DeviceTaintRule) *ledger.TaintRule {
	t := &rule.Spec.Taint
	out := &ledger.TaintRule{Name: rule.Name, Version: version, Taint: resourcev1.DeviceTaint{
		Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffect(t.Effect), TimeAdded: t.TimeAdded,
	}}
	s := rule.Spec.DeviceSelector
	if s == nil {
		out.All, out.None = version != "v1", version == "v1"
		return out
	}
	out.Driver, out.Pool, out.Device = ptr.Deref(s.Driver, ""), ptr.Deref(s.Pool, ""), ptr.Deref(s.Device, "")
	out.All = *s == (resourcev1beta2.DeviceTaintSelector{})
	out.None = slices.ContainsFunc([]*string{s.Driver, s.Pool, s.Device}, func(name *string) bool { return name != nil && *name == "" })
	return out
}
