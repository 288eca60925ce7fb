package input

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueuewebhooks "sigs.k8s.io/kueue/pkg/webhooks"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/webhook"
)

// checkBuiltin sets the defaults that decisions depend on and refuses what a server, or a webhook of Kueue's or ours,
// refuses: for built-in kinds what follows here, which is not all that a server looks at.
func (r *reader) checkBuiltin(e *entry) {
	switch o := e.object.(type) {
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.LimitRange:
		r.report(e, defaultLimitRange(o))
	case *corev1.Node:
		r.report(e, defaultNode(o))
	case *corev1.Pod:
		r.report(e, defaultPod(o))
	case *corev1.PersistentVolumeClaim:
		o.Spec.VolumeMode = ptr.To(ptr.Deref(o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem))
		o.Status.Phase = orElse(o.Status.Phase, corev1.ClaimPending)
	case *corev1.PersistentVolume:
		o.Spec.VolumeMode = ptr.To(ptr.Deref(o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem))
		o.Spec.PersistentVolumeReclaimPolicy = orElse(o.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		o.Status.Phase = orElse(o.Status.Phase, corev1.VolumePending)
	case *nodev1.RuntimeClass:
		if o.Handler == "" {
			r.report(e, field.ErrorList{field.Required(field.NewPath("handler"), "")})
		}
	case *schedulingv1.PriorityClass:
		o.PreemptionPolicy = ptr.To(ptr.Deref(o.PreemptionPolicy, corev1.PreemptLowerPriority))
	case *storagev1.StorageClass:
		o.ReclaimPolicy = ptr.To(ptr.Deref(o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
		o.VolumeBindingMode = ptr.To(ptr.Deref(o.VolumeBindingMode, storagev1.VolumeBindingImmediate))
		if o.Provisioner == "" {
			r.report(e, field.ErrorList{field.Required(field.NewPath("provisioner"), "")})
		}
	case *batchv1.Job:
		r.report(e, defaultJob(o))
	case *resourcev1.DeviceClass:
		r.report(e, webhook.CheckSelectors(o.Spec.Selectors, field.NewPath("spec", "selectors")))
	case *resourcev1.ResourceSlice:
		r.report(e, checkSlice(o))
		r.keepLater(e, o)
	case *resourcev1beta2.DeviceTaintRule:
		r.report(e, checkTaintRule(o))
	case *resourcev1.ResourceClaim:
		r.report(e, defaultClaim(&o.Spec, field.NewPath("spec")))
	case *resourcev1.ResourceClaimTemplate:
		r.report(e, defaultClaim(&o.Spec.Spec, field.NewPath("spec", "spec")))
	case *v1alpha1.DevicePolicy:
		r.report(e, webhook.CheckDevicePolicy(o))
	default:
		r.report(e, checkKueue(e.object))
	}
}

// checkKueue asks Kueue's own webhooks.
func checkKueue(object any) field.ErrorList {
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		return kueuewebhooks.ValidateClusterQueue(o)
	case *kueue.ResourceFlavor:
		return kueuewebhooks.ValidateResourceFlavor(o)
	case *kueue.Cohort:
		_, err := (&kueuewebhooks.CohortWebhook{}).ValidateCreate(logr.NewContext(context.Background(), logr.Discard()), o)
		return listOf(err)
	case *kueue.Workload:
		errs := checkWorkloadTemplates(o)
		return append(errs, kueuewebhooks.ValidateWorkload(o)...)
	}
	return nil
}

func listOf(err error) field.ErrorList {
	var errs field.ErrorList
	if err == nil {
		return nil
	}
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	for _, one := range all.Errors() {
		var f *field.Error
		if errors.As(one, &f) {
			errs = append(errs, f)
		} else {
			errs = append(errs, field.InternalError(nil, one))
		}
	}
	return errs
}

func orElse[T ~string](value, otherwise T) T {
	if value == "" {
		return otherwise
	}
	return value
}

func defaultNamespace(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
	n.Status.Phase = orElse(n.Status.Phase, corev1.NamespaceActive)
}

func defaultLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		path := field.NewPath("spec", "limits").Index(i)
		if item.Type == "" {
			errs = append(errs, field.Required(path.Child("type"), ""))
		}
		for name, list := range map[string]corev1.ResourceList{
			"max": item.Max, "min": item.Min, "default": item.Default, "defaultRequest": item.DefaultRequest,
		} {
			errs = append(errs, checkQuantities(list, path.Child(name))...)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		item.Default = withMissing(item.Default, item.Max)
		item.DefaultRequest = withMissing(withMissing(item.DefaultRequest, item.Default), item.Min)
	}
	return errs
}

func withMissing(list, from corev1.ResourceList) corev1.ResourceList {
	for name, q := range from {
		if _, ok := list[name]; ok {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = q.DeepCopy()
	}
	return list
}

func defaultNode(n *corev1.Node) field.ErrorList {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if _, ok := n.Labels[corev1.LabelHostname]; !ok {
		n.Labels[corev1.LabelHostname] = n.Name // as its kubelet would
	}
	status, spec := field.NewPath("status"), field.NewPath("spec")
	errs := checkQuantities(n.Status.Capacity, status.Child("capacity"))
	errs = append(errs, checkQuantities(n.Status.Allocatable, status.Child("allocatable"))...)
	for i, t := range n.Spec.Taints {
		path := spec.Child("taints").Index(i)
		if t.Key == "" {
			errs = append(errs, field.Required(path.Child("key"), ""))
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect,
				[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
	}
	return errs
}

func defaultJob(j *batchv1.Job) field.ErrorList {
	s := &j.Spec
	spec := field.NewPath("spec")
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = ptr.To[int32](1)
	}
	s.Parallelism = ptr.To(ptr.Deref(s.Parallelism, 1))
	s.CompletionMode = ptr.To(ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion))
	s.Suspend = ptr.To(ptr.Deref(s.Suspend, false))
	if s.BackoffLimit == nil {
		s.BackoffLimit = ptr.To[int32](6)
		if s.BackoffLimitPerIndex != nil {
			s.BackoffLimit = ptr.To[int32](1<<31 - 1)
		}
	}
	var errs field.ErrorList
	for name, v := range map[string]*int32{
		"parallelism": s.Parallelism, "completions": s.Completions, "backoffLimit": s.BackoffLimit, "backoffLimitPerIndex": s.BackoffLimitPerIndex,
		"ttlSecondsAfterFinished": s.TTLSecondsAfterFinished,
	} {
		if ptr.Deref(v, 0) < 0 {
			errs = append(errs, field.Invalid(spec.Child(name), *v, "must be greater than or equal to 0"))
		}
	}
	if d := s.ActiveDeadlineSeconds; d != nil && *d < 0 {
		errs = append(errs, field.Invalid(spec.Child("activeDeadlineSeconds"), *d, "must be greater than or equal to 0"))
	}
	switch *s.CompletionMode {
	case batchv1.NonIndexedCompletion:
	case batchv1.IndexedCompletion:
		if s.Completions == nil {
			errs = append(errs, field.Required(spec.Child("completions"), "when completionMode is Indexed"))
		}
	default:
		errs = append(errs, field.NotSupported(spec.Child("completionMode"), *s.CompletionMode,
			[]batchv1.CompletionMode{batchv1.IndexedCompletion, batchv1.NonIndexedCompletion}))
	}
	template := spec.Child("template", "spec")
	switch s.Template.Spec.RestartPolicy {
	case corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure:
	case "":
		errs = append(errs, field.Required(template.Child("restartPolicy"), `a Job's pods have "OnFailure" or "Never"`))
	default:
		errs = append(errs, field.NotSupported(template.Child("restartPolicy"), s.Template.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
	return append(errs, defaultPodSpec(&s.Template.Spec, template)...)
}
