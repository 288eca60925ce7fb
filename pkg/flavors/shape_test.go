package flavors_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// template is named "eight" and asks for eight devices.
func template(change ...func(*resourcev1.ExactDeviceRequest)) *resourcev1.ResourceClaimTemplate {
	e := &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 8,
		Selectors:   selectors(`device.attributes["gpu.example.com"].model == "h100"`),
		Tolerations: []resourcev1.DeviceToleration{{Key: "example.com/worn", Operator: resourcev1.DeviceTolerationOpExists}},
	}
	for _, c := range change {
		c(e)
	}
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "eight"}}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: e}}
	return t
}

// alternatives makes the template's first request, or adds one where it has another name, of subrequests.
func alternatives(name string, subs ...resourcev1.DeviceSubRequest) func(*resourcev1.ResourceClaimTemplate) {
	return func(t *resourcev1.ResourceClaimTemplate) {
		r := resourcev1.DeviceRequest{Name: name, FirstAvailable: subs}
		if have := t.Spec.Spec.Devices.Requests; len(have) > 0 && have[0].Name == name {
			have[0] = r
			return
		}
		t.Spec.Spec.Devices.Requests = append(t.Spec.Spec.Devices.Requests, r)
	}
}

func shapeOf(spec *corev1.PodSpec, templates ...*resourcev1.ResourceClaimTemplate) (flavors.Shape, *flavors.Refusal) {
	return flavors.ShapeOf(spec, func(name string) *resourcev1.ResourceClaimTemplate {
		for _, t := range templates {
			if t.Name == name {
				return t
			}
		}
		return nil
	})
}

// devicesOf counts what one pod asks for in the user's first choice.
func devicesOf(s flavors.Shape) int64 { return s.Devices(s.Variants()[0]) }

func TestShapeOfReadsTheClaim(t *testing.T) {
	spec := podSet("main").Template.Spec
	tpl := template()
	got, refusal := shapeOf(&spec, tpl)
	if refusal != nil {
		t.Fatal(refusal)
	}
	want := flavors.Shape{Claims: []flavors.ClaimShape{{
		Name: "gpus", Template: "eight", Spec: tpl.Spec.Spec, Requests: []flavors.RequestShape{{Name: "gpu", Alternatives: []flavors.Alternative{{
			Class: "gpu.example.com", Count: 8,
			Selectors:   []string{`device.attributes["gpu.example.com"].model == "h100"`},
			Tolerations: []resourcev1.DeviceToleration{{Key: "example.com/worn", Operator: resourcev1.DeviceTolerationOpExists}},
		}}}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shape (-want +got):\n%s", diff)
	}
	if n := devicesOf(got); n != 8 {
		t.Errorf("a pod asks for %d devices, want 8", n)
	}
}

func TestShapeOfTakesAMissingCountAsOne(t *testing.T) {
	spec := podSet("main").Template.Spec
	got, refusal := shapeOf(&spec, template(func(e *resourcev1.ExactDeviceRequest) { e.AllocationMode, e.Count = "", 0 }))
	if refusal != nil || devicesOf(got) != 1 {
		t.Errorf("a pod asks for %d devices (refusal %v), want 1", devicesOf(got), refusal)
	}
}

func TestShapeOfAPodWithoutClaimsAsksForNothing(t *testing.T) {
	spec := withoutClaims("main").Template.Spec
	got, refusal := shapeOf(&spec)
	if refusal != nil || devicesOf(got) != 0 || len(got.Claims) != 0 {
		t.Errorf("shape is %v (refusal %v), want none", got, refusal)
	}
}

func TestShapeOfRefusalsNameTheirField(t *testing.T) {
	terms := []corev1.PodAffinityTerm{{TopologyKey: "zone"}}
	cases := map[string]struct {
		pod      func(*corev1.PodSpec)
		request  func(*resourcev1.ExactDeviceRequest)
		template func(*resourcev1.ResourceClaimTemplate)
		reason   v1alpha1.Reason // empty: ClaimUnsupported
		want     string
	}{
		"a node of its own": {
			pod:  func(s *corev1.PodSpec) { s.NodeName = "node-a" },
			want: "spec.nodeName is not supported: leave the node to Plimsoll",
		},
		"another scheduler": {
			pod:  func(s *corev1.PodSpec) { s.SchedulerName = "mine" },
			want: `spec.schedulerName "mine" is not supported: use "default-scheduler"`,
		},
		"required pod affinity": {
			pod: func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
			},
			want: "spec.affinity.podAffinity is not supported yet: take the required terms out",
		},
		"required pod anti-affinity": {
			pod: func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
			},
			want: "spec.affinity.podAntiAffinity is not supported yet: take the required terms out",
		},
		"a hard topology spread": {
			pod: func(s *corev1.PodSpec) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.ScheduleAnyway}, {WhenUnsatisfiable: corev1.DoNotSchedule}}
			},
			want: "spec.topologySpreadConstraints[1] with whenUnsatisfiable DoNotSchedule is not supported yet: use ScheduleAnyway",
		},
		"a persistent volume": {
			pod: func(s *corev1.PodSpec) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
			},
			want: `spec.volumes["data"]: persistent volumes are not supported yet: use another kind of volume`,
		},
		"an ephemeral volume": {
			pod: func(s *corev1.PodSpec) {
				s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
			},
			want: `spec.volumes["data"]: persistent volumes are not supported yet: use another kind of volume`,
		},
		"a port of the host": {
			pod: func(s *corev1.PodSpec) {
				s.InitContainers = []corev1.Container{{Name: "sidecar", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}
			},
			want: `spec.containers["sidecar"].ports: ports of the host are not supported yet: take hostPort, or the ports of a pod with hostNetwork, out`,
		},
		"a port of a pod on the host's network, which the API server makes a port of the host": {
			pod: func(s *corev1.PodSpec) {
				s.HostNetwork, s.Containers[0].Ports = true, []corev1.ContainerPort{{ContainerPort: 80}}
			},
			want: `spec.containers["c"].ports: ports of the host are not supported yet: take hostPort, or the ports of a pod with hostNetwork, out`,
		},
		"a claim by name": {
			pod: func(s *corev1.PodSpec) {
				s.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpus", ResourceClaimName: ptr.To("mine")}
			},
			want: `spec.resourceClaims["gpus"].resourceClaimName is not supported yet: use resourceClaimTemplateName`,
		},
		"a template that does not exist": {
			pod:    func(s *corev1.PodSpec) { s.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("nine") },
			reason: v1alpha1.ReasonClaimTemplateNotFound,
			want:   `ResourceClaimTemplate "nine" does not exist: create it, the workload starts then`,
		},
		"no request": {
			template: func(t *resourcev1.ResourceClaimTemplate) { t.Spec.Spec.Devices.Requests = nil },
			want:     `ResourceClaimTemplate "eight": spec.devices.requests is empty: ask for a device`,
		},
		"a constraint that a later release may bring": {
			template: func(t *resourcev1.ResourceClaimTemplate) {
				t.Spec.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{}}
			},
			want: `ResourceClaimTemplate "eight": spec.devices.constraints[0] is of an unknown kind: use matchAttribute or distinctAttribute`,
		},
		"a request that a later release may bring": {
			template: func(t *resourcev1.ResourceClaimTemplate) {
				t.Spec.Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "gpu"}
			},
			want: `ResourceClaimTemplate "eight": spec.devices.requests["gpu"] has neither exactly nor firstAvailable, which is not known: use one of them`,
		},
		"all devices of a node as an alternative": {
			template: alternatives("gpu", resourcev1.DeviceSubRequest{Name: "one", DeviceClassName: "c", Count: 1},
				resourcev1.DeviceSubRequest{Name: "all", DeviceClassName: "c", AllocationMode: resourcev1.DeviceAllocationModeAll}),
			want: `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].firstAvailable["all"].allocationMode All is not supported yet: use ExactCount`,
		},
		"a part of a device as an alternative": {
			template: alternatives("gpu", resourcev1.DeviceSubRequest{Name: "part", DeviceClassName: "c", Capacity: &resourcev1.CapacityRequirements{
				Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": {}}}}),
			want: `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].firstAvailable["part"].capacity is not supported yet: take it out`,
		},
		"more devices in all requests than a claim holds": {
			template: func(t *resourcev1.ResourceClaimTemplate) {
				second := *t.Spec.Spec.Devices.Requests[0].DeepCopy()
				second.Name, second.Exactly.Count = "more", 25
				t.Spec.Spec.Devices.Requests = append(t.Spec.Spec.Devices.Requests, second)
			},
			want: `ResourceClaimTemplate "eight": spec.devices.requests ask for 33 devices together, a claim holds at most 32: ask for fewer, or use two claims`,
		},
		"alternatives that combine in too many ways": {
			template: func(t *resourcev1.ResourceClaimTemplate) {
				t.Spec.Spec.Devices.Requests = nil
				for i := range 7 {
					alternatives(fmt.Sprintf("r%d", i), resourcev1.DeviceSubRequest{Name: "a", DeviceClassName: "c"}, resourcev1.DeviceSubRequest{Name: "b", DeviceClassName: "c"})(t)
				}
			},
			want: `ResourceClaimTemplate "eight": spec.devices.requests["r6"].firstAvailable: the alternatives of the pod's requests combine in more than 64 ways: offer fewer`,
		},
		"all devices of a node": {
			request: func(e *resourcev1.ExactDeviceRequest) { e.AllocationMode = resourcev1.DeviceAllocationModeAll },
			want:    `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].exactly.allocationMode All is not supported yet: use ExactCount`,
		},
		"an allocation mode that a later release may bring": {
			request: func(e *resourcev1.ExactDeviceRequest) { e.AllocationMode = "Half" },
			want:    `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].exactly.allocationMode Half is not supported yet: use ExactCount`,
		},
		"a selector that a later release may bring": {
			request: func(e *resourcev1.ExactDeviceRequest) {
				e.Selectors = append(e.Selectors, resourcev1.DeviceSelector{})
			},
			want: `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].exactly.selectors[1] is of an unknown kind: use cel`,
		},
		"admin access": {
			request: func(e *resourcev1.ExactDeviceRequest) { e.AdminAccess = ptr.To(true) },
			want:    `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].exactly.adminAccess is not supported yet: take it out`,
		},
		"a part of a device": {
			request: func(e *resourcev1.ExactDeviceRequest) {
				e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": {}}}
			},
			want: `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].exactly.capacity is not supported yet: take it out`,
		},
		"more devices than a claim holds": {
			request: func(e *resourcev1.ExactDeviceRequest) { e.Count = 33 },
			want:    `ResourceClaimTemplate "eight": spec.devices.requests["gpu"].exactly.count is 33, a claim holds at most 32 devices: ask for fewer`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			spec := podSet("main").Template.Spec
			if c.pod != nil {
				c.pod(&spec)
			}
			request := c.request
			if request == nil {
				request = func(*resourcev1.ExactDeviceRequest) {}
			}
			tpl := template(request)
			if c.template != nil {
				c.template(tpl)
			}
			if c.reason == "" {
				c.reason = v1alpha1.ReasonClaimUnsupported
			}
			_, refusal := shapeOf(&spec, tpl)
			if diff := cmp.Diff(&flavors.Refusal{Reason: c.reason, Message: c.want}, refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShapeOfTakesWhatIsHarmless(t *testing.T) {
	cases := map[string]func(*corev1.PodSpec){
		"the default scheduler by name": func(s *corev1.PodSpec) { s.SchedulerName = corev1.DefaultSchedulerName },
		"preferred pod affinity": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{}}}}
		},
		"a port of the pod":                func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}} },
		"the host's network without ports": func(s *corev1.PodSpec) { s.HostNetwork = true },
		"an empty directory":               func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "tmp"}} },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			spec := podSet("main").Template.Spec
			change(&spec)
			if _, refusal := shapeOf(&spec, template()); refusal != nil {
				t.Errorf("refused: %v", refusal)
			}
		})
	}
}
