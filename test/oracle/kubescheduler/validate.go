package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // for the scheme
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // for the scheme
	"k8s.io/kubernetes/pkg/apis/resource/validation"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// validate says what of a world an API server would not take.
func validate(w *world.World) error {
	for _, o := range append(w.Objects(), w.Pod) {
		errs, err := problems(o.(runtime.Object))
		if err != nil {
			return fmt.Errorf("validate %s: %w", o.GetName(), err)
		}
		if err := errs.ToAggregate(); err != nil {
			return fmt.Errorf("%T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func problems(o runtime.Object) (field.ErrorList, error) {
	switch x := o.(type) {
	case *corev1.Pod:
		p, err := internal(x, &core.Pod{})
		if err != nil {
			return nil, err
		}
		errs := corevalidation.ValidatePodSpec(&p.Spec, &p.ObjectMeta, field.NewPath("spec"), podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil))
		return errs, nil
	case *resourcev1.ResourceSlice:
		s, err := internal(x, &resource.ResourceSlice{})
		return validation.ValidateResourceSlice(s), err
	case *resourcev1.DeviceClass:
		c, err := internal(x, &resource.DeviceClass{})
		return validation.ValidateDeviceClass(c), err
	case *resourcev1.ResourceClaim:
		c, err := internal(x, &resource.ResourceClaim{})
		if err != nil {
			return nil, err
		}
		before := c.DeepCopy()
		before.Status = resource.ResourceClaimStatus{}
		return append(validation.ValidateResourceClaim(c), validation.ValidateResourceClaimStatusUpdate(c, before)...), nil
	}
	return nil, nil
}

// internal returns an object with its defaults as API servers have it.
func internal[T runtime.Object](o runtime.Object, into T) (T, error) {
	o = o.DeepCopyObject()
	legacyscheme.Scheme.Default(o)
	err := legacyscheme.Scheme.Convert(o, into, nil)
	return into, err
}
