package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// What is looked at is bounded, though the CRD bounds it too.
const (
	maxFlavors     = 16
	maxSelectors   = 8
	maxConstraints = 8
	maxDrivers     = 16
)

// policyValidator refuses DevicePolicies that cannot work, for what the CRD's own rules cannot see.
type policyValidator struct {
	selectors *selectorChecker
}

func newPolicyValidator() *policyValidator {
	return &policyValidator{selectors: &selectorChecker{compile: compileSelector}}
}

// ValidateCreate refuses a new policy, with everything that is wrong with it.
func (v *policyValidator) ValidateCreate(_ context.Context, dp *v1alpha1.DevicePolicy) (admission.Warnings, error) {
	return nil, refused(dp, v.check(dp))
}

// ValidateUpdate refuses a changed policy. An expression that was stored before is not refused for what it may cost,
// since an upgrade may have changed the estimate. A policy that is being deleted is not refused for anything.
func (v *policyValidator) ValidateUpdate(_ context.Context, old, dp *v1alpha1.DevicePolicy) (admission.Warnings, error) {
	if dp.DeletionTimestamp != nil {
		return nil, nil
	}
	return nil, refused(dp, v.validate(dp, storedExpressions(old)))
}

// ValidateDelete refuses nothing.
func (v *policyValidator) ValidateDelete(context.Context, *v1alpha1.DevicePolicy) (admission.Warnings, error) {
	return nil, nil
}

func refused(dp *v1alpha1.DevicePolicy, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("DevicePolicy").GroupKind(), dp.Name, errs)
}

// storedExpressions returns the expressions of a policy.
func storedExpressions(dp *v1alpha1.DevicePolicy) map[string]bool {
	stored := map[string]bool{}
	add := func(selectors []resourcev1.DeviceSelector) {
		for _, s := range selectors {
			if s.CEL != nil {
				stored[s.CEL.Expression] = true
			}
		}
	}
	add(dp.Spec.Constraints)
	for i := range dp.Spec.Flavors {
		add(dp.Spec.Flavors[i].Selectors)
	}
	return stored
}

// validate returns all that is wrong with a policy; stored holds the expressions that it had before.
func (v *policyValidator) validate(dp *v1alpha1.DevicePolicy, stored map[string]bool) field.ErrorList {
	spec := field.NewPath("spec")
	errs := bounds(&dp.Spec, spec)
	if len(errs) > 0 {
		return errs
	}
	seen := map[string]string{}
	for i := range dp.Spec.Flavors {
		f := &dp.Spec.Flavors[i]
		path := spec.Child("flavors").Index(i).Child("selectors")
		errs = append(errs, v.selectors.check(f.Selectors, path, stored)...)
		set := asSet(f.Selectors)
		if first, ok := seen[set]; ok {
			errs = append(errs, field.Invalid(path, short(f.Name), fmt.Sprintf(
				"flavor %s has the same selectors, and a device belongs to the first flavor that it matches: write selectors that tell %s from it, or take one of the two out", first, f.Name)))
			continue
		}
		seen[set] = f.Name
	}
	errs = append(errs, v.selectors.check(dp.Spec.Constraints, spec.Child("constraints"), stored)...)
	for i := range dp.Spec.Drivers {
		errs = append(errs, validateDriver(&dp.Spec.Drivers[i], spec.Child("drivers").Index(i))...)
	}
	return append(errs, validateCanary(dp, spec.Child("canary"))...)
}

func bounds(s *v1alpha1.DevicePolicySpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	atMost := func(path *field.Path, n, most int) {
		if n > most {
			errs = append(errs, field.TooMany(path, n, most))
		}
	}
	atMost(spec.Child("flavors"), len(s.Flavors), maxFlavors)
	atMost(spec.Child("constraints"), len(s.Constraints), maxConstraints)
	atMost(spec.Child("drivers"), len(s.Drivers), maxDrivers)
	for i := range s.Flavors {
		atMost(spec.Child("flavors").Index(i).Child("selectors"), len(s.Flavors[i].Selectors), maxSelectors)
	}
	return errs
}

// asSet names what a list of selectors selects, whatever its order.
func asSet(selectors []resourcev1.DeviceSelector) string {
	var expressions []string
	for _, s := range selectors {
		if s.CEL != nil {
			expressions = append(expressions, fmt.Sprintf("%q", strings.TrimSpace(s.CEL.Expression)))
		}
	}
	slices.Sort(expressions)
	return strings.Join(slices.Compact(expressions), ",")
}

func validateDriver(d *v1alpha1.PolicyDriver, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(d.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), short(d.Name), problem+": write the driver's name as ResourceSlices have it, such as gpu.nvidia.com"))
	}
	for _, problem := range validation.IsDNS1123Label(d.PodNamespace) {
		errs = append(errs, field.Invalid(path.Child("podNamespace"), short(d.PodNamespace), problem+": write the namespace that the driver's pods run in"))
	}
	return append(errs, metav1validation.ValidateLabelSelector(&d.PodSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("podSelector"))...)
}

func validateCanary(dp *v1alpha1.DevicePolicy, path *field.Path) field.ErrorList {
	c := dp.Spec.Canary
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if c.PolicyName == dp.Name {
		errs = append(errs, field.Invalid(path.Child("policyName"), short(c.PolicyName), "a policy cannot be its own canary: name the policy that is to be tried out, or take canary out"))
	}
	for _, problem := range validation.IsDNS1123Label(c.PolicyName) {
		errs = append(errs, field.Invalid(path.Child("policyName"), short(c.PolicyName), problem+": name a DevicePolicy"))
	}
	return errs
}
