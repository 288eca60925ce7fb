package input

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func defaultPod(p *corev1.Pod) field.ErrorList {
	p.Spec.RestartPolicy = orElse(p.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	p.Status.Phase = orElse(p.Status.Phase, corev1.PodPending)
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers { // a server does not in a Job's template
			containers[i].Resources.Requests = withMissing(containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	return defaultPodSpec(&p.Spec, field.NewPath("spec"))
}

// defaultPodSpec sets what the scheduler and the quota read of a pod, and refuses what a server refuses in it.
func defaultPodSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	s.SchedulerName = orElse(s.SchedulerName, corev1.DefaultSchedulerName)
	s.DNSPolicy = orElse(s.DNSPolicy, corev1.DNSClusterFirst)
	s.TerminationGracePeriodSeconds = ptr.To(ptr.Deref(s.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	claims, errs := checkClaims(s.ResourceClaims, path.Child("resourceClaims"))
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	seen := map[string]bool{}
	for name, containers := range map[string][]corev1.Container{"initContainers": s.InitContainers, "containers": s.Containers} {
		for i := range containers {
			errs = append(errs, defaultContainer(&containers[i], seen, claims, path.Child(name).Index(i))...)
		}
	}
	for i, t := range s.Tolerations {
		at := path.Child("tolerations").Index(i)
		switch t.Operator {
		case "", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt:
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when key is empty"))
		}
	}
	return errs
}

func checkClaims(claims []corev1.PodResourceClaim, path *field.Path) (map[string]bool, field.ErrorList) {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, c := range claims {
		at := path.Index(i)
		for _, problem := range validation.IsDNS1123Label(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, problem))
		}
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		if (c.ResourceClaimName == nil) == (c.ResourceClaimTemplateName == nil) {
			errs = append(errs, field.Invalid(at, c.Name, "must have one of resourceClaimName and resourceClaimTemplateName"))
		}
	}
	return names, errs
}

func defaultContainer(c *corev1.Container, seen, claims map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Label(c.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), c.Name, problem))
	}
	if seen[c.Name] {
		errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
	}
	seen[c.Name] = true
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	at := path.Child("resources")
	errs = append(errs, checkQuantities(c.Resources.Limits, at.Child("limits"))...)
	errs = append(errs, checkQuantities(c.Resources.Requests, at.Child("requests"))...)
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
		request := c.Resources.Requests[name]
		if limit, ok := c.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests"), request.String(), "must be less than or equal to "+string(name)+" limit of "+limit.String()))
		}
	}
	for i, claim := range c.Resources.Claims {
		if !claims[claim.Name] {
			errs = append(errs, field.NotFound(at.Child("claims").Index(i).Child("name"), claim.Name))
		}
	}
	return errs
}

func checkQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := path.Key(string(name))
		for _, problem := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(at, string(name), problem))
		}
		if q := list[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

// checkWorkloadTemplates refuses what the part of the Workload's definition that was cut refuses.
func checkWorkloadTemplates(w *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	for i := range w.Spec.PodSets {
		spec := &w.Spec.PodSets[i].Template.Spec
		path := field.NewPath("spec", "podSets").Index(i).Child("template", "spec")
		_, problems := checkClaims(spec.ResourceClaims, path.Child("resourceClaims"))
		errs = append(errs, problems...)
		if len(spec.Containers) == 0 {
			errs = append(errs, field.Required(path.Child("containers"), ""))
		}
		for name, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
			for j := range containers {
				at := path.Child(name).Index(j)
				if containers[j].Name == "" {
					errs = append(errs, field.Required(at.Child("name"), ""))
				}
				errs = append(errs, checkQuantities(containers[j].Resources.Requests, at.Child("resources", "requests"))...)
				errs = append(errs, checkQuantities(containers[j].Resources.Limits, at.Child("resources", "limits"))...)
			}
		}
	}
	return errs
}
