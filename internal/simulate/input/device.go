package input

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/internal/webhook"
)

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		tolerations[i].Operator = orElse(tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// defaultClaim sets the defaults of a claim's requests, and refuses what a server refuses in them.
func defaultClaim(s *resourcev1.ResourceClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	path = path.Child("devices", "requests")
	for i := range s.Devices.Requests {
		q := &s.Devices.Requests[i]
		at := path.Index(i)
		if q.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if names[q.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), q.Name))
		}
		names[q.Name] = true
		if (q.Exactly == nil) == (len(q.FirstAvailable) == 0) {
			errs = append(errs, field.Invalid(at, q.Name, "must have one of exactly and firstAvailable"))
		}
		if x := q.Exactly; x != nil {
			errs = append(errs, defaultRequest(request{x.DeviceClassName, &x.AllocationMode, &x.Count, x.Selectors, x.Tolerations}, at.Child("exactly"))...)
		}
		for j := range q.FirstAvailable {
			sub := &q.FirstAvailable[j]
			at := at.Child("firstAvailable").Index(j)
			if sub.Name == "" {
				errs = append(errs, field.Required(at.Child("name"), ""))
			}
			errs = append(errs, defaultRequest(request{sub.DeviceClassName, &sub.AllocationMode, &sub.Count, sub.Selectors, sub.Tolerations}, at)...)
		}
	}
	return errs
}

// request is what exact requests and subrequests have in common.
type request struct {
	class       string
	mode        *resourcev1.DeviceAllocationMode
	count       *int64
	selectors   []resourcev1.DeviceSelector
	tolerations []resourcev1.DeviceToleration
}

func defaultRequest(q request, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	*q.mode = orElse(*q.mode, resourcev1.DeviceAllocationModeExactCount)
	defaultTolerations(q.tolerations)
	if q.class == "" {
		errs = append(errs, field.Required(path.Child("deviceClassName"), ""))
	}
	switch *q.mode {
	case resourcev1.DeviceAllocationModeExactCount:
		if *q.count == 0 {
			*q.count = 1
		}
		if *q.count < 0 {
			errs = append(errs, field.Invalid(path.Child("count"), *q.count, "must be greater than zero"))
		}
	case resourcev1.DeviceAllocationModeAll:
		if *q.count != 0 {
			errs = append(errs, field.Invalid(path.Child("count"), *q.count, "must not be specified when allocationMode is All"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("allocationMode"), *q.mode,
			[]resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}))
	}
	return append(errs, webhook.CheckSelectors(q.selectors, path.Child("selectors"))...)
}

const taintRule = "DeviceTaintRule"

// selectNone says in so many words what a DeviceTaintRule of v1 means that has no deviceSelector: no device. In the versions
// before, in which it is kept, it would mean every device.
func selectNone(e *entry) {
	spec, _ := e.fields["spec"].(map[string]any)
	if _, selects := spec["deviceSelector"]; e.version == "v1" && spec != nil && !selects {
		spec["deviceSelector"] = map[string]any{"device": ""}
	}
}

func checkTaintRule(t *resourcev1beta2.DeviceTaintRule) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec", "taint")
	if t.Spec.Taint.Key == "" {
		errs = append(errs, field.Required(at.Child("key"), ""))
	}
	switch t.Spec.Taint.Effect {
	case resourcev1beta2.DeviceTaintEffectNoSchedule, resourcev1beta2.DeviceTaintEffectNoExecute, resourcev1beta2.DeviceTaintEffectNone:
	case "":
		errs = append(errs, field.Required(at.Child("effect"), ""))
	default:
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Spec.Taint.Effect, []resourcev1beta2.DeviceTaintEffect{
			resourcev1beta2.DeviceTaintEffectNone, resourcev1beta2.DeviceTaintEffectNoExecute, resourcev1beta2.DeviceTaintEffectNoSchedule,
		}))
	}
	return errs
}

func checkSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if s.Spec.Driver == "" {
		errs = append(errs, field.Required(spec.Child("driver"), ""))
	}
	if s.Spec.Pool.Name == "" {
		errs = append(errs, field.Required(spec.Child("pool", "name"), ""))
	}
	if n := s.Spec.Pool.ResourceSliceCount; n <= 0 {
		errs = append(errs, field.Invalid(spec.Child("pool", "resourceSliceCount"), n, "must be greater than zero"))
	}
	if g := s.Spec.Pool.Generation; g < 0 {
		errs = append(errs, field.Invalid(spec.Child("pool", "generation"), g, "must be greater than or equal to zero"))
	}
	names := map[string]bool{}
	for i, d := range s.Spec.Devices {
		at := spec.Child("devices").Index(i)
		if d.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if names[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names[d.Name] = true
	}
	return append(errs, checkReach(&s.Spec, spec)...)
}

// checkReach holds a server's rule that a slice, or else each of its devices, says in exactly one way which nodes reach
// it.
func checkReach(s *resourcev1.ResourceSliceSpec, spec *field.Path) field.ErrorList {
	perDevice := ptr.Deref(s.PerDeviceNodeSelection, false)
	if n := count(s.NodeName != nil, s.NodeSelector != nil, ptr.Deref(s.AllNodes, false), perDevice); n != 1 {
		return field.ErrorList{field.Invalid(spec, n, "must have exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection")}
	}
	var errs field.ErrorList
	for i, d := range s.Devices {
		n := count(d.NodeName != nil, d.NodeSelector != nil, ptr.Deref(d.AllNodes, false))
		at := spec.Child("devices").Index(i)
		switch {
		case perDevice && n != 1:
			errs = append(errs, field.Invalid(at, n, "must have exactly one of nodeName, nodeSelector and allNodes, for perDeviceNodeSelection"))
		case !perDevice && n != 0:
			errs = append(errs, field.Invalid(at, n, "must not say which nodes reach it without perDeviceNodeSelection"))
		}
	}
	return errs
}

func count(facts ...bool) int {
	n := 0
	for _, fact := range facts {
		if fact {
			n++
		}
	}
	return n
}
