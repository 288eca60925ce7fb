package input

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	drav1beta1 "k8s.io/dynamic-resource-allocation/api/v1beta1"
	drav1beta2 "k8s.io/dynamic-resource-allocation/api/v1beta2"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// kind is one kind that is read.
type kind struct {
	group, name string
	plural      string
	short       []string
	namespaced  bool
	// versions are those that are read, the one that objects get first, each with the type that its fields are checked by.
	versions []version
	// rank is the kind's place in the order of objects.
	rank int
	// timed kinds have the duration annotation, and come by creationTimestamp.
	timed bool
	// graceful kinds have the grace annotation.
	graceful bool
	// ours refuses unknown fields.
	ours bool
	// crd kinds get defaults and validation from a CustomResourceDefinition.
	crd bool
}

type version struct {
	name string
	is   reflect.Type
}

func in[T any](name string) version { return version{name, reflect.TypeFor[T]()} }

const (
	kueueGroup    = "kueue.x-k8s.io"
	resourceGroup = "resource.k8s.io"
)

// kinds are all that are read, in the order in which objects of one instant come: what others refer to comes first.
var kinds = ranked([]*kind{
	{name: "Namespace", plural: "namespaces", short: []string{"ns"}, versions: []version{in[corev1.Namespace]("v1")}},
	{name: "LimitRange", plural: "limitranges", short: []string{"limits"}, namespaced: true, versions: []version{in[corev1.LimitRange]("v1")}},
	{group: "node.k8s.io", name: "RuntimeClass", plural: "runtimeclasses", versions: []version{in[nodev1.RuntimeClass]("v1")}},
	{group: "scheduling.k8s.io", name: "PriorityClass", plural: "priorityclasses", short: []string{"pc"}, versions: []version{in[schedulingv1.PriorityClass]("v1")}},
	{group: "storage.k8s.io", name: "StorageClass", plural: "storageclasses", short: []string{"sc"}, versions: []version{in[storagev1.StorageClass]("v1")}},
	{name: "PersistentVolume", plural: "persistentvolumes", short: []string{"pv"}, versions: []version{in[corev1.PersistentVolume]("v1")}},
	{name: "PersistentVolumeClaim", plural: "persistentvolumeclaims", short: []string{"pvc"}, namespaced: true, versions: []version{in[corev1.PersistentVolumeClaim]("v1")}},
	{name: "Node", plural: "nodes", short: []string{"no"}, versions: []version{in[corev1.Node]("v1")}},
	{group: resourceGroup, name: "DeviceClass", plural: "deviceclasses", versions: []version{
		in[resourcev1.DeviceClass]("v1"), in[resourcev1beta2.DeviceClass]("v1beta2"), in[resourcev1beta1.DeviceClass]("v1beta1"),
	}},
	{group: resourceGroup, name: "DeviceTaintRule", plural: "devicetaintrules", versions: []version{ // whose fields are the same
		in[resourcev1beta2.DeviceTaintRule]("v1beta2"), in[resourcev1beta2.DeviceTaintRule]("v1"), in[resourcev1beta2.DeviceTaintRule]("v1alpha3"),
	}},
	{group: resourceGroup, name: "ResourceSlice", plural: "resourceslices", versions: []version{
		in[resourcev1.ResourceSlice]("v1"), in[resourcev1beta2.ResourceSlice]("v1beta2"), in[resourcev1beta1.ResourceSlice]("v1beta1"),
	}},
	{group: resourceGroup, name: "ResourceClaimTemplate", plural: "resourceclaimtemplates", namespaced: true, versions: []version{
		in[resourcev1.ResourceClaimTemplate]("v1"), in[resourcev1beta2.ResourceClaimTemplate]("v1beta2"), in[resourcev1beta1.ResourceClaimTemplate]("v1beta1"),
	}},
	{group: resourceGroup, name: "ResourceClaim", plural: "resourceclaims", namespaced: true, versions: []version{
		in[resourcev1.ResourceClaim]("v1"), in[resourcev1beta2.ResourceClaim]("v1beta2"), in[resourcev1beta1.ResourceClaim]("v1beta1"),
	}},
	{group: kueueGroup, name: "Topology", plural: "topologies", crd: true, versions: []version{in[kueue.Topology]("v1beta2"), in[kueuev1beta1.Topology]("v1beta1")}},
	{group: kueueGroup, name: "ResourceFlavor", plural: "resourceflavors", short: []string{"flavor", "flavors", "rf"}, crd: true, versions: []version{
		in[kueue.ResourceFlavor]("v1beta2"), in[kueuev1beta1.ResourceFlavor]("v1beta1"),
	}},
	{group: kueueGroup, name: "WorkloadPriorityClass", plural: "workloadpriorityclasses", crd: true, versions: []version{
		in[kueue.WorkloadPriorityClass]("v1beta2"), in[kueuev1beta1.WorkloadPriorityClass]("v1beta1"),
	}},
	{group: v1alpha1.GroupVersion.Group, name: "DevicePolicy", plural: "devicepolicies", short: []string{"dpol"}, ours: true, crd: true, versions: []version{in[v1alpha1.DevicePolicy]("v1alpha1")}},
	{group: kueueGroup, name: "AdmissionCheck", plural: "admissionchecks", crd: true, versions: []version{
		in[kueue.AdmissionCheck]("v1beta2"), in[kueuev1beta1.AdmissionCheck]("v1beta1"),
	}},
	{group: kueueGroup, name: "Cohort", plural: "cohorts", crd: true, versions: []version{in[kueue.Cohort]("v1beta2"), in[kueuev1beta1.Cohort]("v1beta1")}},
	{group: kueueGroup, name: "ClusterQueue", plural: "clusterqueues", short: []string{"cq"}, crd: true, versions: []version{
		in[kueue.ClusterQueue]("v1beta2"), in[kueuev1beta1.ClusterQueue]("v1beta1"),
	}},
	{group: kueueGroup, name: "LocalQueue", plural: "localqueues", short: []string{"queue", "queues", "lq"}, namespaced: true, crd: true, versions: []version{
		in[kueue.LocalQueue]("v1beta2"), in[kueuev1beta1.LocalQueue]("v1beta1"),
	}},
	{group: "batch", name: "Job", plural: "jobs", namespaced: true, timed: true, graceful: true, versions: []version{in[batchv1.Job]("v1")}},
	{group: kueueGroup, name: "Workload", plural: "workloads", short: []string{"kwl", "kueueworkload", "kueueworkloads"}, namespaced: true, timed: true, crd: true, versions: []version{
		in[kueue.Workload]("v1beta2"), in[kueuev1beta1.Workload]("v1beta1"),
	}},
	{group: v1alpha1.GroupVersion.Group, name: "Placement", plural: "placements", short: []string{"plc"}, namespaced: true, ours: true, crd: true, versions: []version{in[v1alpha1.Placement]("v1alpha1")}},
	{name: "Pod", plural: "pods", short: []string{"po"}, namespaced: true, graceful: true, versions: []version{in[corev1.Pod]("v1")}},
})

func ranked(all []*kind) []*kind {
	for i, k := range all {
		k.rank = i
	}
	return all
}

func (k *kind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: k.versions[0].name, Kind: k.name}
}

func (k *kind) typeOf(name string) reflect.Type {
	for _, v := range k.versions {
		if v.name == name {
			return v.is
		}
	}
	return nil
}

func (k *kind) accepted() string {
	var names []string
	for _, v := range k.versions {
		names = append(names, schema.GroupVersion{Group: k.group, Version: v.name}.String())
	}
	return strings.Join(names, ", ")
}

// kindOf finds a kind, or says what is accepted instead.
func kindOf(apiVersion, name string) (*kind, string, string) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, "", "apiVersion: " + short(apiVersion) + " is not a group and a version"
	}
	var alike *kind
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		if k.group == gv.Group {
			if k.typeOf(gv.Version) != nil {
				return k, gv.Version, ""
			}
			return nil, "", fmt.Sprintf("apiVersion: %s is not read for this kind: write %s", short(apiVersion), k.accepted())
		}
		alike = k
	}
	if alike != nil {
		return nil, "", fmt.Sprintf("apiVersion: %s has no such kind that is read: write %s", short(apiVersion), alike.accepted())
	}
	return nil, "", fmt.Sprintf("kind: %s of %s is not read; what is read: %s", short(name), short(apiVersion), kindNames())
}

func kindNames() string {
	names := map[string]bool{"Configuration (of Kueue)": true}
	for _, k := range kinds {
		names[k.name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// conversions has the types of all versions, and how the API's own code turns one into another.
var conversions = newConversions()

func newConversions() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, nodev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
		resourcev1.AddToScheme, resourcev1beta1.AddToScheme, resourcev1beta2.AddToScheme, drav1beta1.RegisterConversions, drav1beta2.RegisterConversions,
		kueue.AddToScheme, kueuev1beta1.AddToScheme, kueuev1beta1.RegisterConversions, v1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}
