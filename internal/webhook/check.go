package webhook

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// CheckDevicePolicy returns all for which the webhook refuses a new DevicePolicy.
func CheckDevicePolicy(dp *v1alpha1.DevicePolicy) field.ErrorList {
	return newPolicyValidator().check(dp)
}

// CheckSelectors returns all that is wrong with device selectors, for callers that have no server that compiles them. Unlike
// in a DevicePolicy the same selector may be there twice, as a server has it: our own claims say again what their user said.
func CheckSelectors(selectors []resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	errs := (&selectorChecker{compile: compileSelector}).check(selectors, path, nil)
	return slices.DeleteFunc(errs, func(err *field.Error) bool { return err.Type == field.ErrorTypeDuplicate })
}

func (v *policyValidator) check(dp *v1alpha1.DevicePolicy) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Label(dp.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), short(dp.Name),
			problem+": an AdmissionCheck could not name this policy in spec.parameters"))
	}
	return append(errs, v.validate(dp, nil)...)
}
