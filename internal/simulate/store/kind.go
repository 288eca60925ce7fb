package store

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is what the store knows of a kind, and its objects.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   schema.GroupResource
	typ        reflect.Type // the struct
	namespaced bool
	// The fields of the struct: metadata, status (-1 where there is none) and the rest but for the kind itself.
	meta, status int
	rest         []int

	// What follows is guarded by the store's lock.
	hooks     []Hook
	entries   map[types.NamespacedName]*entry
	all       ordered
	indexes   []*index
	made      map[types.NamespacedName]int // how often an object of that name was created
	generated map[string]int               // names given for a prefix, with its namespace
}

// clusterScoped are the kinds without a namespace, of those that any scheme of ours holds.
var clusterScoped = map[string][]string{
	"":                             {"Node", "Namespace", "PersistentVolume", "ComponentStatus"},
	"storage.k8s.io":               {"StorageClass", "VolumeAttachment", "CSIDriver", "CSINode", "VolumeAttributesClass"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"node.k8s.io":                  {"RuntimeClass"},
	"resource.k8s.io":              {"DeviceClass", "ResourceSlice", "DeviceTaintRule", "ResourcePoolStatusRequest"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"networking.k8s.io":            {"IngressClass", "IPAddress", "ServiceCIDR"},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"storagemigration.k8s.io":      {"StorageVersionMigration"},
	"internal.apiserver.k8s.io":    {"StorageVersion"},
	"kueue.x-k8s.io": {
		"ClusterQueue", "Cohort", "ResourceFlavor", "AdmissionCheck", "WorkloadPriorityClass", "Topology",
		"MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig",
	},
	"plimsoll.dev": {"DevicePolicy"},
}

func isNamespaced(gvk schema.GroupVersionKind) bool {
	return gvk.Group != "admissionregistration.k8s.io" && !slices.Contains(clusterScoped[gvk.Group], gvk.Kind)
}

// addKinds learns the kinds of the scheme.
func (s *Store) addKinds() {
	mapper := meta.NewDefaultRESTMapper(s.scheme.PrioritizedVersionsAllGroups())
	known := s.scheme.AllKnownTypes()
	gvks := make([]schema.GroupVersionKind, 0, len(known))
	for gvk := range known {
		gvks = append(gvks, gvk)
	}
	slices.SortFunc(gvks, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	for _, gvk := range gvks {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if _, ok := reflect.New(known[gvk]).Interface().(client.Object); !ok {
			continue
		}
		k := newKind(gvk, known[gvk])
		if k == nil {
			continue
		}
		s.byGVK[gvk] = k
		s.byType[k.typ] = k
		if list, ok := known[gvk.GroupVersion().WithKind(gvk.Kind+"List")]; ok {
			s.byType[list] = k
		}
		scope := meta.RESTScope(meta.RESTScopeRoot)
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(gvk, scope)
	}
	s.mapper = mapper
}

// newKind returns nil for what is no kind of object.
func newKind(gvk schema.GroupVersionKind, typ reflect.Type) *kind {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	k := &kind{
		gvk: gvk, resource: plural.GroupResource(), typ: typ, namespaced: isNamespaced(gvk), meta: -1, status: -1,
		entries: map[types.NamespacedName]*entry{}, made: map[types.NamespacedName]int{}, generated: map[string]int{},
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case f.Type == reflect.TypeFor[metav1.ObjectMeta]():
			k.meta = i
		case f.Name == "Status" && f.Type.Kind() == reflect.Struct:
			k.status = i
		case f.IsExported():
			k.rest = append(k.rest, i)
		}
	}
	if k.meta < 0 {
		return nil
	}
	return k
}

// kindOf returns the kind of an object or of a list.
func (s *Store) kindOf(obj runtime.Object) (*kind, error) {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		gvk := obj.GetObjectKind().GroupVersionKind()
		if _, ok := obj.(*metav1.PartialObjectMetadataList); ok {
			gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		}
		if k := s.byGVK[gvk]; k != nil {
			return k, nil
		}
		return nil, fmt.Errorf("metadata of %v: %w", gvk, runtime.NewNotRegisteredErrForKind(s.scheme.Name(), gvk))
	}
	t := reflect.TypeOf(obj)
	if t != nil && t.Kind() == reflect.Pointer {
		if k := s.byType[t.Elem()]; k != nil {
			return k, nil
		}
	}
	return nil, runtime.NewNotRegisteredErrForType(s.scheme.Name(), t)
}

// key is where an object of the kind is stored.
func (k *kind) key(namespace, name string) types.NamespacedName {
	if !k.namespaced {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// normalize makes an object that is to be stored say its kind, and no namespace where the kind has none.
func (k *kind) normalize(obj client.Object) types.NamespacedName {
	obj.GetObjectKind().SetGroupVersionKind(k.gvk)
	if !k.namespaced {
		obj.SetNamespace("")
	}
	return client.ObjectKeyFromObject(obj)
}

func (k *kind) checkName(obj client.Object) error {
	switch {
	case obj.GetName() == "":
		return apierrors.NewBadRequest(fmt.Sprintf("%s: metadata.name is required", k.gvk.Kind))
	case k.namespaced && obj.GetNamespace() == "":
		return apierrors.NewBadRequest(fmt.Sprintf("%s %s: metadata.namespace is required", k.gvk.Kind, obj.GetName()))
	}
	return nil
}

func (k *kind) notFound(key types.NamespacedName) error {
	return apierrors.NewNotFound(k.resource, key.Name)
}

func (k *kind) conflict(key types.NamespacedName, reason string) error {
	return apierrors.NewConflict(k.resource, key.Name, fmt.Errorf("%s", reason))
}

func (k *kind) metaOf(obj client.Object) *metav1.ObjectMeta {
	return reflect.ValueOf(obj).Elem().Field(k.meta).Addr().Interface().(*metav1.ObjectMeta)
}

// shallow returns another object that shares all that obj holds by reference.
func (k *kind) shallow(obj client.Object) client.Object {
	c := reflect.New(k.typ)
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	return c.Interface().(client.Object)
}

// takeStatus gives to the status that from has; both share what it holds by reference.
func (k *kind) takeStatus(to, from client.Object) {
	if k.status >= 0 {
		reflect.ValueOf(to).Elem().Field(k.status).Set(reflect.ValueOf(from).Elem().Field(k.status))
	}
}

func (k *kind) clearStatus(obj client.Object) {
	if k.status >= 0 {
		reflect.ValueOf(obj).Elem().Field(k.status).SetZero()
	}
}

// difference says what two versions of an object differ in. Resource versions are no difference.
type difference struct{ meta, status, rest bool }

func (d difference) any() bool { return d.meta || d.status || d.rest }

func (k *kind) compare(a, b client.Object) difference {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	d := difference{rest: k.differ(va, vb, k.rest...), meta: !sameMeta(k.metaOf(a), k.metaOf(b))}
	if k.status >= 0 {
		d.status = k.differ(va, vb, k.status)
	}
	return d
}

func (k *kind) differ(a, b reflect.Value, fields ...int) bool {
	for _, i := range fields {
		if !apiequality.Semantic.DeepEqual(a.Field(i).Addr().Interface(), b.Field(i).Addr().Interface()) {
			return true
		}
	}
	return false
}

func sameMeta(a, b *metav1.ObjectMeta) bool {
	c := *b
	c.ResourceVersion = a.ResourceVersion
	return apiequality.Semantic.DeepEqual(a, &c)
}

// fill gives the caller's object the content of a stored one, as a copy of its own unless shared.
func (k *kind) fill(to, stored client.Object, shared bool) {
	if partial, ok := to.(*metav1.PartialObjectMetadata); ok {
		partial.SetGroupVersionKind(k.gvk)
		if shared {
			partial.ObjectMeta = *k.metaOf(stored)
		} else {
			k.metaOf(stored).DeepCopyInto(&partial.ObjectMeta)
		}
		return
	}
	if !shared {
		stored = stored.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(stored).Elem())
}
