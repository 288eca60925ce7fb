package oracle

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// quirk is a world in which both sides are to come to the same.
type quirk struct {
	world *world.World
	// fits is what they come to.
	fits bool
	// chance says that kube-scheduler comes to this or that, and that the prediction is to know it.
	chance bool
	mapped map[corev1.ResourceName]int64
}

func run(t *testing.T, quirks map[string]quirk) {
	t.Helper()
	names := slices.Sorted(maps.Keys(quirks))
	at := 0
	for r, err := range Compare(t.Context(), func(yield func(*world.World) bool) {
		for _, name := range names {
			if !yield(quirks[name].world) {
				return
			}
		}
	}) {
		if err != nil {
			t.Fatalf("world %d: %v", at, err)
		}
		name := names[at]
		at++
		t.Run(name, func(t *testing.T) {
			q := quirks[name]
			switch {
			case r.Disagreement != "":
				t.Error(r.Disagreement)
			case r.Predicted.Unsure != q.chance:
				t.Errorf("the prediction is unsure: %t, want %t", r.Predicted.Unsure, q.chance)
			case q.chance:
			case r.Scheduler.Fits != q.fits:
				t.Errorf("fits %t, want %t: %s", r.Scheduler.Fits, q.fits, r.Scheduler.Why)
			case !maps.Equal(r.Scheduler.Mapped, q.mapped):
				t.Errorf("mapped is %v, want %v", r.Scheduler.Mapped, q.mapped)
			}
		})
	}
	if at != len(names) {
		t.Errorf("%d of %d worlds were answered", at, len(names))
	}
}

const gi = 1 << 30

var someTime = metav1.Unix(1_800_000_000, 0)

func TestMappings(t *testing.T) {
	run(t, map[string]quirk{
		"a node of 64 cpus with a claim that maps 40 has no room for 30": {
			world: with(allocatable("cpu=64"), asks("cpu=30"), lists("gpu", device("a", mapping("cpu=40"))), claims(claim("c", request("gpu", 1)))),
		},
		"what a claim maps is added to what the containers ask for": {
			world: with(asks("cpu=2"), lists("gpu", device("a", mapping("cpu=2"))), claims(claim("c", request("gpu", 1)))),
			fits:  true, mapped: map[corev1.ResourceName]int64{"cpu": 2000},
		},
		"hugepages that a claim maps are added": {
			world: with(limited("hugepages-2Mi=34Mi"), lists("gpu", device("a", mapping("hugepages-2Mi=32Mi"))), claims(claim("c", request("gpu", 1)))),
		},
		"each device counts": {
			world: with(asks("cpu=1"), lists("gpu", device("a", mapping("cpu=1")), device("b", mapping("cpu=1")), device("c", mapping("cpu=2"))), claims(claim("c", request("gpu", 3)))),
		},
		"fractions are summed first, and rounded up once": {
			world: with(asks("cpu=3"), lists("gpu", device("a", mapping("cpu=0.3333")), device("b", mapping("cpu=0.3333")), device("c", mapping("cpu=0.3334"))),
				claims(claim("c", request("gpu", 3)))),
			fits: true, mapped: map[corev1.ResourceName]int64{"cpu": 1000},
		},
		"fractions of several claims are rounded up claim by claim, for what is noted, and together for what fits": {
			world: with(asks("cpu=3"), lists("gpu", device("a", mapping("cpu=0.3333")), device("b", mapping("cpu=0.6667"))),
				claims(claim("c", request("gpu", 1))), claims(claim("d", request("gpu", 1)))),
			fits: true, mapped: map[corev1.ResourceName]int64{"cpu": 1000},
		},
		"a claim that no container refers to keeps a pod away if it maps": {
			world: with(lists("gpu", device("a", mapping("cpu=1"))), claims(claim("c", request("gpu", 1))), changed(func(w *world.World) {
				w.Pod.Spec.Containers[0].Resources.Claims = nil
			})),
		},
		"a claim that an init container alone refers to counts all the time": {
			world: with(asks("cpu=3"), first(false, "cpu=1"), lists("gpu", device("a", mapping("cpu=2"))), claims(claim("c", request("gpu", 1))), changed(func(w *world.World) {
				s := &w.Pod.Spec
				s.InitContainers[0].Resources.Claims, s.Containers[0].Resources.Claims = s.Containers[0].Resources.Claims, nil
			})),
		},
		"what is mapped goes on top of the larger of init containers and containers": {
			world: with(asks("cpu=1"), first(false, "cpu=3"), lists("gpu", device("a", mapping("cpu=1"))), claims(claim("c", request("gpu", 1)))),
			fits:  true, mapped: map[corev1.ResourceName]int64{"cpu": 1000},
		},
		"the mapping of a claim that is allocated already is not counted": {
			world: with(lists("gpu", device("a", mapping("cpu=100"))), claims(given(claim("c", request("gpu", 1)), "gpu", "a", 0))),
			fits:  true,
		},
		"a mapped claim of a pod on the node is refused to another": {
			world: with(there("user", "cpu=1"), lists("gpu", device("a", mapping("cpu=1"))), claims(given(claim("c", request("gpu", 1)), "gpu", "a", 1)), changed(func(w *world.World) {
				use(w.Pods[0], "c")
				w.Pods[0].Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{
					{ResourceClaimName: "c", Containers: []string{"main"}, Resources: resources("cpu=1")},
				}
			})),
		},
		"it is not where the other pod's status says nothing of it": {
			world: with(there("user", "cpu=1"), lists("gpu", device("a", mapping("cpu=1"))), claims(given(claim("c", request("gpu", 1)), "gpu", "a", 1)), changed(func(w *world.World) {
				use(w.Pods[0], "c")
			})),
			fits: true,
		},
		"amounts in the status of a pod on the node are taken": {
			world: with(asks("cpu=2"), there("user", "cpu=1"), changed(func(w *world.World) {
				w.Pods[0].Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{
					{ResourceClaimName: "gone", Containers: []string{"main"}, Resources: resources("cpu=2")},
				}
			})),
		},
		"devices with adminAccess count": {
			world: with(asks("cpu=3"), lists("gpu", device("a", mapping("cpu=2"))), claims(claim("c", &resourcev1.ExactDeviceRequest{
				DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1, AdminAccess: ptr.To(true),
			}))),
		},
		"by capacity it is the consumed amount times the multiplier": {
			world: with(lists("gpu", device("a", several, mapsMemory("2"))), claims(claim("c", &resourcev1.ExactDeviceRequest{
				DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("5Gi")}},
			}))),
			fits: true, mapped: map[corev1.ResourceName]int64{"memory": 10 * gi},
		},
		"a device that allows one allocation and maps by capacity fails the pod": {
			world: with(lists("gpu", device("a", mapsMemory("2"))), claims(claim("c", request("gpu", 1)))),
		},
		"what a pod asks for as a whole stands for its containers": {
			world: with(asks("cpu=1"), whole("cpu=3"), lists("gpu", device("a", mapping("cpu=2"))), claims(claim("c", request("gpu", 1)))),
			fits:  true, mapped: map[corev1.ResourceName]int64{"cpu": 2000},
		},
		"it has to cover what is mapped, though": {
			world: with(asks("cpu=1"), whole("cpu=3"), lists("gpu", device("a", mapping("cpu=3"))), claims(claim("c", request("gpu", 1)))),
		},
		"of the same names in two drivers either may count": {
			world: with(lists("gpu", device("a")), lists("nic", device("a", mapping("cpu=100"))), claims(claim("c", request("gpu", 1)))), chance: true,
		},
		"an older generation may count as well": {
			world: with(lists("gpu", device("a", mapping("cpu=1"))), lists("gpu", device("a", mapping("cpu=2"))),
				last(func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Generation = 1 }), claims(claim("c", request("gpu", 1)))),
			chance: true,
		},
	})
}

// whole makes the pod ask for that as a whole.
func whole(list ...string) change {
	return func(w *world.World) {
		w.Pod.Spec.Resources = &corev1.ResourceRequirements{Requests: resources(list...)}
	}
}

func TestRoom(t *testing.T) {
	run(t, map[string]quirk{
		"an init container runs before the others": {world: with(asks("cpu=1"), first(false, "cpu=4")), fits: true},
		"a sidecar runs beside them":               {world: with(asks("cpu=1"), first(true, "cpu=4"))},
		"a sidecar runs beside the init containers after it": {
			world: with(asks("cpu=1"), first(false, "cpu=3"), first(true, "cpu=2")),
		},
		"and not beside those before it": {
			world: with(asks("cpu=1"), first(true, "cpu=2"), first(false, "cpu=4")), fits: true,
		},
		"overhead counts": {world: with(asks("cpu=3"), changed(func(w *world.World) { w.Pod.Spec.Overhead = resources("cpu=1001m") }))},
		"a pod that is ending counts": {world: with(there("ending", "cpu=4"), changed(func(w *world.World) {
			w.Pods[0].DeletionTimestamp, w.Pods[0].Finalizers = &someTime, []string{"example.com/slow"}
		}))},
		"a pod that has ended does not": {world: with(there("ended", "cpu=4"), changed(func(w *world.World) {
			w.Pods[0].Status.Phase = corev1.PodFailed
		})), fits: true},
		"a pod that shrinks counts as it was until it has": {world: with(there("shrinking", "cpu=1"), changed(func(w *world.World) {
			w.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", AllocatedResources: resources("cpu=1"), Resources: &corev1.ResourceRequirements{Requests: resources("cpu=4")},
			}}
		}))},
		"a pod whose growth is infeasible counts as it is": {world: with(there("growing", "cpu=4"), changed(func(w *world.World) {
			w.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", AllocatedResources: resources("cpu=1"), Resources: &corev1.ResourceRequirements{Requests: resources("cpu=1")},
			}}
			w.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
		})), fits: true},
		"a full node takes no pod that asks for nothing": {world: with(allocatable("pods=1"), asks(), there("other"))},
		"hugepages of one size are not those of another": {world: with(allocatable("hugepages-1Gi=4Gi"), limited("hugepages-2Mi=66Mi"))},
	})
}

func TestDevices(t *testing.T) {
	run(t, map[string]quirk{
		"distinctAttribute within one request tells only neighbours apart": {
			world: with(lists("gpu", device("a", numbered(1)), device("b", numbered(2)), device("c", numbered(1))), claims(claim("c", request("gpu", 3))),
				changed(func(w *world.World) {
					w.Claims[0].Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName("gpu.example.com/number"))}}
				})),
			fits: true,
		},
		"counters of two drivers whose pools have the same name are taken for one another's": {
			world: with(lists("gpu", device("a", draws("4Gi"))), counts("gpu", "4Gi"), lists("nic", device("b", draws("4Gi"))), counts("nic", "4Gi"),
				claims(claim("c", request("gpu", 1))), claims(claim("d", request("nic", 1)))),
		},
		"a card that is given leaves nothing on its counters for the half of it": {
			world: with(lists("gpu", device("a", draws("4Gi")), device("b", draws("2Gi"))), counts("gpu", "4Gi"),
				claims(given(claim("c", request("gpu", 1)), "gpu", "a", 1)), claims(claim("d", request("gpu", 1)))),
		},
		"a half that is given leaves the other": {
			world: with(lists("gpu", device("a", draws("2Gi")), device("b", draws("2Gi"))), counts("gpu", "4Gi"),
				claims(given(claim("c", request("gpu", 1)), "gpu", "a", 1)), claims(claim("d", request("gpu", 1)))),
			fits: true,
		},
		"the newest generation counts though it is not complete": {
			world: with(lists("gpu", device("a")), lists("gpu", device("b")), last(func(s *resourcev1.ResourceSlice) {
				s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = 3, 2
			}), claims(claim("c", request("gpu", 1)))),
		},
		"of slices that do not agree on how many there are the first that is seen counts": {
			world: with(lists("gpu", device("a")), lists("gpu", device("b")), last(func(s *resourcev1.ResourceSlice) {
				s.Spec.Pool.ResourceSliceCount = 2
			}), claims(claim("c", request("gpu", 1)))),
			chance: true,
		},
		"an attribute that is a list fails no selector": {
			world: with(lists("gpu", device("a", func(d *resourcev1.Device) {
				d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"resource.kubernetes.io/pcieRoot": {StringValues: []string{"pci0000:00", "pci0000:01"}}}
			})), claims(claim("c", request("gpu", 1)))),
			fits: true,
		},
		"more devices than a claim can have fail the pod": {
			world: with(lists("gpu", many(33)...), claims(claim("c", &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeAll}))),
		},
		"as many as it can have are given": {
			world: with(lists("gpu", many(32)...), claims(claim("c", &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeAll}))),
			fits:  true,
		},
		"a rule without selector taints all devices": {
			world: with(lists("gpu", device("a")), claims(claim("c", request("gpu", 1))), changed(func(w *world.World) {
				r := &resourcev1beta2.DeviceTaintRule{ObjectMeta: meta("rule")}
				r.Spec.Taint = resourcev1beta2.DeviceTaint{Key: "off", Effect: resourcev1beta2.DeviceTaintEffectNoSchedule}
				w.TaintRules = append(w.TaintRules, r)
			})),
		},
		"all of the devices of an incomplete pool cannot be had, and fail the pod": {
			world: with(lists("gpu", device("a")), last(func(s *resourcev1.ResourceSlice) { s.Spec.Pool.ResourceSliceCount = 2 }),
				claims(claim("c", &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeAll}))),
		},
		"all of the devices of one driver cannot be had while another's pool is incomplete": {
			world: with(lists("gpu", device("a")), lists("nic", device("b")), last(func(s *resourcev1.ResourceSlice) { s.Spec.Pool.ResourceSliceCount = 2 }),
				claims(claim("c", &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeAll}))),
		},
		"a claim with as many consumers as it may have is found out when the pod is bound": {
			world: with(lists("gpu", device("a")), claims(given(claim("c", request("gpu", 1)), "gpu", "a", resourcev1.ResourceClaimReservedForMaxSize))),
		},
		"a claim with one consumer less takes the pod": {
			world: with(lists("gpu", device("a")), claims(given(claim("c", request("gpu", 1)), "gpu", "a", resourcev1.ResourceClaimReservedForMaxSize-1))),
			fits:  true,
		},
		"a claim that the pod has by two names is never bound": {
			world: with(lists("gpu", device("a"), device("b")), claims(claim("c", request("gpu", 1))), again),
		},
		"nor is one that is allocated already": {
			world: with(lists("gpu", device("a")), claims(given(claim("c", request("gpu", 1)), "gpu", "a", 1)), again),
		},
		"one that it was bound to before is": {
			world: with(lists("gpu", device("a")), claims(given(claim("c", request("gpu", 1)), "gpu", "a", 1)), again, changed(func(w *world.World) {
				w.Claims[0].Status.ReservedFor[0].UID = w.Pod.UID
			})),
			fits: true,
		},
		"a device with binding conditions takes the pod once they are met": {
			world: with(lists("gpu", device("a", func(d *resourcev1.Device) {
				d.BindingConditions, d.BindingFailureConditions = []string{"example.com/attached"}, []string{"example.com/failed"}
			})), claims(claim("c", request("gpu", 1)))),
			fits: true,
		},
		"a claim that is being deleted keeps the pod away": {
			world: with(lists("gpu", device("a")), claims(claim("c", request("gpu", 1))), changed(func(w *world.World) {
				w.Claims[0].DeletionTimestamp, w.Claims[0].Finalizers = &someTime, []string{resourcev1.Finalizer}
			})),
		},
	})
}

// again lets the pod use its claim by a second name.
func again(w *world.World) {
	w.Pod.Spec.ResourceClaims = append(w.Pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "again", ResourceClaimName: &w.Claims[0].Name})
}

// TestSelectors: a node selector that cannot be read, of whatever driver's slice, fails every pod with a claim to be allocated.
func TestSelectors(t *testing.T) {
	gt := func(value string) *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "cards", Operator: corev1.NodeSelectorOpGt, Values: []string{value}},
		}}}}
	}
	wide := func(value string) change {
		return last(func(s *resourcev1.ResourceSlice) {
			s.Spec.Pool.Name, s.Spec.NodeName, s.Spec.NodeSelector = "wide", nil, gt(value)
		})
	}
	each := func(selects ...func(*resourcev1.Device)) change {
		return last(func(s *resourcev1.ResourceSlice) {
			s.Spec.Pool.Name, s.Spec.NodeName, s.Spec.PerDeviceNodeSelection = "wide", nil, ptr.To(true)
			for i := range s.Spec.Devices {
				selects[i](&s.Spec.Devices[i])
			}
		})
	}
	odd := func(d *resourcev1.Device) { d.NodeSelector = gt("many") }
	everywhere := func(d *resourcev1.Device) { d.AllNodes = ptr.To(true) }
	asked := claims(claim("c", request("gpu", 1)))
	run(t, map[string]quirk{
		"one that can be read keeps nobody away": {
			world: with(lists("gpu", device("a")), lists("nic", device("n")), wide("3"), asked), fits: true,
		},
		"one that cannot be read keeps everybody with a claim away": {
			world: with(lists("gpu", device("a")), lists("nic", device("n")), wide("many"), asked),
		},
		"even of a generation that is out of date": {
			world: with(lists("gpu", device("a")), lists("nic", device("n")), wide("many"), last(func(s *resourcev1.ResourceSlice) { s.Spec.Pool.Generation = 1 }),
				lists("nic", device("n")), wide("3"), asked),
		},
		"a pod without claims fits": {
			world: with(lists("nic", device("n")), wide("many")), fits: true,
		},
		"so does one whose claim is allocated": {
			world: with(lists("gpu", device("a")), lists("nic", device("n")), wide("many"), claims(given(claim("c", request("gpu", 1)), "gpu", "a", 0))), fits: true,
		},
		"a device's that cannot be read keeps everybody away": {
			world: with(lists("gpu", device("a")), lists("nic", device("n"), device("o")), each(odd, everywhere), asked),
		},
		"not after a device that is for the node": {
			world: with(lists("gpu", device("a")), lists("nic", device("n"), device("o")), each(everywhere, odd), asked), fits: true,
		},
		"a class that serves a pod's extended resources is kept away too": {
			world: with(lists("gpu", device("a")), lists("nic", device("n")), wide("many"), extended("gpu", "example.com/card"), limited("example.com/card=1")),
		},
	})
}

func TestExtendedResources(t *testing.T) {
	run(t, map[string]quirk{
		"a class serves what the node does not list": {
			world: with(lists("gpu", device("a")), extended("gpu", "example.com/card"), limited("example.com/card=1")), fits: true,
		},
		"a node that lists some has no more by class": {
			world: with(allocatable("example.com/card=1"), lists("gpu", device("a"), device("b")), extended("gpu", "example.com/card"), limited("example.com/card=2")),
		},
		"a node that lists none of it has them by class": {
			world: with(allocatable("example.com/card=0"), lists("gpu", device("a")), extended("gpu", "example.com/card"), limited("example.com/card=1")), fits: true,
		},
		"a device that maps is never had by class": {
			world: with(lists("gpu", device("a", mapping("cpu=1"))), extended("gpu", "example.com/card"), limited("example.com/card=1")),
		},
		"a pod with claims besides is never bound where a device plugin serves all that a class does": {
			world: with(allocatable("example.com/card=1"), lists("gpu", device("a")), lists("nic", device("b")), extended("gpu", "example.com/card"),
				limited("example.com/card=1"), claims(claim("c", request("nic", 1)))),
		},
		"a class goes by its own name, too": {
			world: with(lists("gpu", device("a")), limited("deviceclass.resource.kubernetes.io/gpu=1")), fits: true,
		},
		"a class may be forgotten by its own name for another that serves the same": {
			world: with(lists("gpu", device("a")), extended("gpu", "example.com/card"), extended("nic", "example.com/card"), changed(func(w *world.World) {
				w.Classes[1].CreationTimestamp = metav1.Unix(1_800_000_000, 0)
			}), limited("deviceclass.resource.kubernetes.io/gpu=1")),
			chance: true,
		},
		"not even where a device plugin serves it, if there are claims besides": {
			world: with(allocatable("deviceclass.resource.kubernetes.io/gpu=1"), lists("gpu", device("a")), lists("nic", device("b")),
				extended("gpu", "example.com/card"), extended("nic", "example.com/card"), changed(func(w *world.World) {
					w.Classes[1].CreationTimestamp = metav1.Unix(1_800_000_000, 0)
				}), limited("deviceclass.resource.kubernetes.io/gpu=1"), claims(claim("c", request("nic", 1)))),
			chance: true,
		},
	})
}
