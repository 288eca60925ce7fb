package flavors

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Shape is what one pod of a podset asks for in devices. A Shape without claims asks for none.
type Shape struct {
	Claims []ClaimShape
}

// ClaimShape is one claim of a pod, made from a template.
type ClaimShape struct {
	// Name is that in the pod's spec.resourceClaims.
	Name string
	// Template is the user's template.
	Template string
	// Spec is the template's claim spec.
	Spec resourcev1.ResourceClaimSpec
	// Request, Class, Count, Selectors and Tolerations are those of its one exact request. Selectors are CEL.
	Request     string
	Class       string
	Count       int64
	Selectors   []string
	Tolerations []resourcev1.DeviceToleration
}

// Refusal says why a podset cannot be decided, with the field that its owner can change.
type Refusal struct {
	Reason  v1alpha1.Reason
	Message string
}

// Devices returns how many devices one pod asks for.
func (s Shape) Devices() int64 {
	var n int64
	for _, c := range s.Claims {
		n += c.Count
	}
	return n
}

// ShapeOf reads the claims of a pod spec; template returns nil for one that does not exist. The shape is complete
// only where there is no refusal.
func ShapeOf(spec *corev1.PodSpec, template func(name string) *resourcev1.ResourceClaimTemplate) (Shape, *Refusal) {
	var s Shape
	if r := unsupportedPod(spec); r != nil {
		return s, r
	}
	for i := range spec.ResourceClaims {
		pc := &spec.ResourceClaims[i]
		field := fmt.Sprintf("spec.resourceClaims[%q]", pc.Name)
		if pc.ResourceClaimTemplateName == nil {
			return s, unsupportedf("%s.resourceClaimName is not supported yet: use resourceClaimTemplateName", field)
		}
		t := template(*pc.ResourceClaimTemplateName)
		if t == nil {
			return s, &Refusal{v1alpha1.ReasonClaimTemplateNotFound, fmt.Sprintf("ResourceClaimTemplate %q does not exist: create it, the workload starts then", *pc.ResourceClaimTemplateName)}
		}
		c, r := claimShape(t)
		if r != nil {
			return s, r
		}
		c.Name, c.Template = pc.Name, t.Name
		s.Claims = append(s.Claims, c)
	}
	if len(s.Claims) > 1 {
		return s, unsupportedf("spec.resourceClaims: %d claims a pod are not supported yet: use one", len(s.Claims))
	}
	return s, nil
}

// unsupportedPod refuses what the ledger does not model and kube-scheduler does look at, since a pin must never make
// a pod unschedulable.
func unsupportedPod(spec *corev1.PodSpec) *Refusal {
	if spec.NodeName != "" {
		return unsupportedf("spec.nodeName is not supported: leave the node to Plimsoll")
	}
	if spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName {
		return unsupportedf("spec.schedulerName %q is not supported: use %q", spec.SchedulerName, corev1.DefaultSchedulerName)
	}
	if a := spec.Affinity; a != nil {
		if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return unsupportedf("spec.affinity.podAffinity is not supported yet: take the required terms out")
		}
		if a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return unsupportedf("spec.affinity.podAntiAffinity is not supported yet: take the required terms out")
		}
	}
	for i := range spec.TopologySpreadConstraints {
		if spec.TopologySpreadConstraints[i].WhenUnsatisfiable == corev1.DoNotSchedule {
			return unsupportedf("spec.topologySpreadConstraints[%d] with whenUnsatisfiable DoNotSchedule is not supported yet: use ScheduleAnyway", i)
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return unsupportedf("spec.volumes[%q]: persistent volumes are not supported yet: use another kind of volume", v.Name)
		}
	}
	containers := append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...)
	for i := range containers {
		for _, port := range containers[i].Ports {
			if port.HostPort != 0 || spec.HostNetwork { // with hostNetwork every port of a pod becomes a host port
				return unsupportedf("spec.containers[%q].ports: ports of the host are not supported yet: take hostPort, or the ports of a pod with hostNetwork, out", containers[i].Name)
			}
		}
	}
	return nil
}

func claimShape(t *resourcev1.ResourceClaimTemplate) (ClaimShape, *Refusal) {
	spec := t.Spec.Spec
	c := ClaimShape{Spec: spec}
	refuse := func(format string, args ...any) (ClaimShape, *Refusal) {
		return c, unsupportedf("ResourceClaimTemplate %q: "+format, append([]any{t.Name}, args...)...)
	}
	if n := len(spec.Devices.Requests); n != 1 {
		return refuse("spec.devices.requests has %d requests, one is supported so far: use one", n)
	}
	if len(spec.Devices.Constraints) > 0 {
		return refuse("spec.devices.constraints is not supported yet: take it out")
	}
	r := &spec.Devices.Requests[0]
	if len(r.FirstAvailable) > 0 || r.Exactly == nil {
		return refuse("spec.devices.requests[%q].firstAvailable is not supported yet: use exactly", r.Name)
	}
	e := r.Exactly
	switch {
	case e.AllocationMode != "" && e.AllocationMode != resourcev1.DeviceAllocationModeExactCount:
		return refuse("spec.devices.requests[%q].exactly.allocationMode %s is not supported yet: use ExactCount", r.Name, e.AllocationMode)
	case e.AdminAccess != nil && *e.AdminAccess:
		return refuse("spec.devices.requests[%q].exactly.adminAccess is not supported yet: take it out", r.Name)
	case e.Capacity != nil && len(e.Capacity.Requests) > 0:
		return refuse("spec.devices.requests[%q].exactly.capacity is not supported yet: take it out", r.Name)
	}
	c.Request, c.Class, c.Count, c.Tolerations = r.Name, e.DeviceClassName, max(1, e.Count), e.Tolerations
	for i, s := range e.Selectors {
		if s.CEL == nil {
			return refuse("spec.devices.requests[%q].exactly.selectors[%d] is of an unknown kind: use cel", r.Name, i)
		}
		c.Selectors = append(c.Selectors, s.CEL.Expression)
	}
	if c.Count > resourcev1.AllocationResultsMaxSize {
		return refuse("spec.devices.requests[%q].exactly.count is %d, a claim holds at most %d devices: ask for fewer", r.Name, c.Count, resourcev1.AllocationResultsMaxSize)
	}
	return c, nil
}

func unsupportedf(format string, args ...any) *Refusal {
	return &Refusal{v1alpha1.ReasonClaimUnsupported, fmt.Sprintf(format, args...)}
}

// Charge returns what one pod of the shape costs on a flavor, in units of the policy's quotaResource.
func (p *Policy) Charge(s Shape, flavor int) int64 {
	return s.Devices() * p.Flavors[flavor].ChargePerDevice
}

// UniformCharge says whether a shape costs the same on each of the given flavors, and how much. Without flavors it
// looks at all.
func (p *Policy) UniformCharge(s Shape, flavors ...int) (int64, bool) {
	if len(flavors) == 0 {
		for i := range p.Flavors {
			flavors = append(flavors, i)
		}
	}
	if len(flavors) == 0 {
		return 0, false
	}
	for _, f := range flavors {
		if p.Charge(s, f) != p.Charge(s, flavors[0]) {
			return 0, false
		}
	}
	return p.Charge(s, flavors[0]), true
}
