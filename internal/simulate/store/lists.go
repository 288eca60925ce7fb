package store

import (
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// listKeys are the lists that an apply merges item by item, with the fields that tell their items apart: those that say so
// (+listType=map) in a comment alone. A list of core types that says so in a tag, as most do, needs no row.
var listKeys = map[reflect.Type]map[string][]string{
	reflect.TypeFor[kueue.WorkloadSpec](): {"podSets": {"name"}, "preemptionGates": {"name"}},
	reflect.TypeFor[kueue.Admission]():    {"podSetAssignments": {"name"}},
	reflect.TypeFor[kueue.WorkloadStatus](): {
		"conditions": {"type"}, "admissionChecks": {"name"}, "reclaimablePods": {"name"}, "resourceRequests": {"name"},
		"unhealthyNodes": {"name"}, "preemptionGates": {"name"},
	},
	reflect.TypeFor[kueue.SchedulingStats]():            {"evictions": {"reason", "underlyingCause"}},
	reflect.TypeFor[kueue.AdmissionChecksStrategy]():    {"admissionChecks": {"name"}},
	reflect.TypeFor[kueue.ResourceGroup]():              {"flavors": {"name"}},
	reflect.TypeFor[kueue.FlavorQuotas]():               {"resources": {"name"}},
	reflect.TypeFor[kueue.ClusterQueueStatus]():         {"flavorsReservation": {"name"}, "flavorsUsage": {"name"}},
	reflect.TypeFor[kueue.FlavorUsage]():                {"resources": {"name"}},
	reflect.TypeFor[kueue.LocalQueueStatus]():           {"flavorsReservation": {"name"}, "flavorsUsage": {"name"}},
	reflect.TypeFor[kueue.LocalQueueFlavorUsage]():      {"resources": {"name"}},
	reflect.TypeFor[resourcev1.ResourceClaimStatus]():   {"devices": {"driver", "device", "pool", "shareID"}},
	reflect.TypeFor[corev1.Container]():                 {"ports": {"containerPort", "protocol"}},
	reflect.TypeFor[resourcev1.AllocatedDeviceStatus](): {"conditions": {"type"}},
	reflect.TypeFor[corev1.ResourceRequirements]():      {"claims": {"name"}},
	reflect.TypeFor[v1alpha1.PlacementStatus]():         {"conditions": {"type"}, "waits": {"flavor"}, "closed": {"flavor"}},
	reflect.TypeFor[v1alpha1.DevicePolicyStatus]():      {"conditions": {"type"}},
	reflect.TypeFor[v1alpha1.DevicePolicySpec]():        {"flavors": {"name"}, "drivers": {"name"}},
	reflect.TypeFor[metav1.ObjectMeta]():                {"ownerReferences": {"uid"}, "finalizers": {}},
}

// fieldType returns the type of a field of a struct or of a value of a map, by its name in JSON; nil when it is unknown.
// keys is not nil when it is a list merged item by item: the fields that tell the items apart, none when the items are
// values that tell themselves apart.
func fieldType(t reflect.Type, name string) (field reflect.Type, keys []string) {
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	at, ok := fieldsOf(t)[name]
	if !ok {
		return nil, nil
	}
	f := t.FieldByIndex(at)
	if keys, ok := listKeys[t][name]; ok {
		return f.Type, keys
	}
	if f.Type.Kind() == reflect.Slice && strings.Contains(f.Tag.Get("patchStrategy"), "merge") {
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			return f.Type, []string{key}
		}
		return f.Type, []string{}
	}
	return f.Type, nil
}

// granular says whether an apply merges values of the type field by field.
func granular(t reflect.Type) bool {
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return false
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map && t.Key().Kind() == reflect.String
}

// itemKey tells an item of a list apart.
func itemKey(item any, keys []string) string {
	id := []any{}
	if len(keys) == 0 {
		id = append(id, item)
	}
	fields, _ := item.(map[string]any)
	for _, k := range keys {
		id = append(id, fields[k])
	}
	text, err := json.Marshal(id)
	if err != nil {
		return "" // what came as JSON goes as JSON
	}
	return string(text)
}
