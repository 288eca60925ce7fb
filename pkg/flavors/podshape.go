package flavors

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Refusal says why a podset cannot be decided, with the field that its owner can change.
type Refusal struct {
	Reason  v1alpha1.Reason
	Message string
}

// ShapeOf reads the claims and the plain extended resources of a pod spec; template returns nil for one that does not exist. The shape is complete
// only where there is no refusal.
func ShapeOf(spec *corev1.PodSpec, template func(name string) *resourcev1.ResourceClaimTemplate) (Shape, *Refusal) {
	s := Shape{Plain: plain(spec)}
	if r := unsupportedPod(spec); r != nil {
		return s, r
	}
	variants := 1
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
		for i := range c.Requests {
			if variants *= len(c.Requests[i].Alternatives); variants > maxVariants {
				return s, unsupportedf("ResourceClaimTemplate %q: spec.devices.requests[%q].firstAvailable: the alternatives of the pod's requests combine in more than %d ways: offer fewer",
					t.Name, c.Requests[i].Name, maxVariants)
			}
		}
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
	if len(spec.Devices.Requests) == 0 {
		return c, unsupportedf("ResourceClaimTemplate %q: spec.devices.requests is empty: ask for a device", t.Name)
	}
	for i, x := range spec.Devices.Constraints {
		if x.MatchAttribute == nil && x.DistinctAttribute == nil {
			return c, unsupportedf("ResourceClaimTemplate %q: spec.devices.constraints[%d] is of an unknown kind: use matchAttribute or distinctAttribute", t.Name, i)
		}
	}
	var fewest int64
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		request, refusal := requestShape(t.Name, r)
		if refusal != nil {
			return c, refusal
		}
		c.Requests = append(c.Requests, request)
		least := request.Alternatives[0].Count
		for _, a := range request.Alternatives {
			least = min(least, a.Count)
		}
		fewest += least
	}
	if fewest > resourcev1.AllocationResultsMaxSize {
		return c, unsupportedf("ResourceClaimTemplate %q: spec.devices.requests ask for %d devices together, a claim holds at most %d: ask for fewer, or use two claims",
			t.Name, fewest, resourcev1.AllocationResultsMaxSize)
	}
	return c, nil
}

// requestShape reads one request of a template.
func requestShape(template string, r *resourcev1.DeviceRequest) (RequestShape, *Refusal) {
	out := RequestShape{Name: r.Name}
	field := fmt.Sprintf("ResourceClaimTemplate %q: spec.devices.requests[%q]", template, r.Name)
	if e := r.Exactly; e != nil {
		if e.AdminAccess != nil && *e.AdminAccess {
			return out, unsupportedf("%s.exactly.adminAccess is not supported yet: take it out", field)
		}
		a, refusal := alternative(field+".exactly", &resourcev1.DeviceSubRequest{DeviceClassName: e.DeviceClassName, Selectors: e.Selectors,
			AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity})
		out.Alternatives = []Alternative{a}
		return out, refusal
	}
	for i := range r.FirstAvailable {
		a, refusal := alternative(fmt.Sprintf("%s.firstAvailable[%q]", field, r.FirstAvailable[i].Name), &r.FirstAvailable[i])
		if refusal != nil {
			return out, refusal
		}
		out.Alternatives = append(out.Alternatives, a)
	}
	if len(out.Alternatives) == 0 {
		return out, unsupportedf("%s has neither exactly nor firstAvailable, which is not known: use one of them", field)
	}
	return out, nil
}

// alternative reads a subrequest, or what exactly has in common with one.
func alternative(field string, r *resourcev1.DeviceSubRequest) (Alternative, *Refusal) {
	a := Alternative{Sub: r.Name, Class: r.DeviceClassName, Count: max(1, r.Count), Tolerations: r.Tolerations}
	switch {
	case r.AllocationMode != "" && r.AllocationMode != resourcev1.DeviceAllocationModeExactCount:
		return a, unsupportedf("%s.allocationMode %s is not supported yet: use ExactCount", field, r.AllocationMode)
	case r.Capacity != nil && len(r.Capacity.Requests) > 0:
		return a, unsupportedf("%s.capacity is not supported yet: take it out", field)
	case a.Count > resourcev1.AllocationResultsMaxSize:
		return a, unsupportedf("%s.count is %d, a claim holds at most %d devices: ask for fewer", field, a.Count, resourcev1.AllocationResultsMaxSize)
	}
	for i, s := range r.Selectors {
		if s.CEL == nil {
			return a, unsupportedf("%s.selectors[%d] is of an unknown kind: use cel", field, i)
		}
		a.Selectors = append(a.Selectors, s.CEL.Expression)
	}
	return a, nil
}

// plain returns the extended resources that the containers of a pod ask for, as kube-scheduler counts them; nil for
// none.
func plain(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	bare := *spec
	bare.Overhead = nil // a charge may stand there under the same name
	var out map[corev1.ResourceName]int64
	for name, n := range ledger.RequestsOf(&corev1.Pod{Spec: bare}, false) {
		if n <= 0 || !ledger.IsExtended(name) {
			continue
		}
		if out == nil {
			out = map[corev1.ResourceName]int64{}
		}
		out[name] = n
	}
	return out
}

func unsupportedf(format string, args ...any) *Refusal {
	return &Refusal{v1alpha1.ReasonClaimUnsupported, fmt.Sprintf(format, args...)}
}
