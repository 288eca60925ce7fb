package admission

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// serves adds a DeviceClass that serves an extended resource by the devices of a model, made at so many seconds.
func (w *world) serves(class, resource, model string, at int64) *world {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class, UID: types.UID(class), CreationTimestamp: metav1.NewTime(time.Unix(at, 0))}}
	c.Spec.Selectors = modelSelector(model)
	if resource != "" {
		c.Spec.ExtendedResourceName = ptr.To(resource)
	}
	return w.see(ledger.KindDeviceClass, c.UID, func(o *ledger.Observation) { o.Class = c })
}

// mappingSlice makes the first device of a slice take a cpu.
func mappingSlice(s *resourcev1.ResourceSlice) { mappingOf("cpu", "", "1", 0)(nil, s) }

func TestPredictExtended(t *testing.T) {
	const foo, own = "example.com/foo", "deviceclass.resource.kubernetes.io/"
	extended := func(devices string) map[string]string {
		return map[string]string{v1alpha1.ExtendedResourcesClaim: devices}
	}
	gpu := claiming(exactly("gpu", 1))
	mixed := func() *world { return alone("h100:2,a100:2") }
	earlier := func(name string, requests bool) *incoming {
		in := asks(foo + "=1")
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", UID: "earlier", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{UID: "pod", Controller: ptr.To(true)}}}}
		if requests {
			c.Spec = gpu
		}
		in.claims["?"] = c
		return in
	}
	devices, node, unsupported := v1alpha1.ReasonNotEnoughDevices, v1alpha1.ReasonNodeResources, v1alpha1.ReasonClaimUnsupported
	predictions(t, map[string]prediction{
		"a class serves it":                               {world: mixed().serves("c", foo, "a100", 1), pod: asks(foo + "=2"), given: extended("gpu-2 gpu-3")},
		"more than the class has":                         {world: mixed().serves("c", foo, "a100", 1), pod: asks(foo + "=3"), no: devices},
		"none is asked for":                               {world: mixed().serves("c", foo, "a100", 1), pod: asks(foo + "=0")},
		"a device plugin serves it here":                  {world: alone("h100:1", listing(foo+"=2")).serves("c", foo, "h100", 1), pod: asks(foo + "=2")},
		"a device plugin serves it here, less":            {world: alone("h100:4", listing(foo+"=2")).serves("c", foo, "h100", 1), pod: asks(foo + "=3"), no: node},
		"a device plugin has none left":                   {world: alone("h100:1", listing(foo+"=0")).serves("c", foo, "h100", 1), pod: asks(foo + "=1"), given: extended("gpu-0")},
		"of two classes the newer one":                    {world: mixed().serves("z", foo, "a100", 2).serves("b", foo, "h100", 1), pod: asks(foo + "=1"), given: extended("gpu-2")},
		"of two classes of one age the first by name":     {world: mixed().serves("z", foo, "a100", 1).serves("b", foo, "h100", 1), pod: asks(foo + "=1"), given: extended("gpu-0")},
		"a class by its own name":                         {world: mixed().serves("c", "", "a100", 1), pod: asks(own + "c=1"), given: extended("gpu-2")},
		"a class with a resource by its own name":         {world: mixed().serves("c", foo, "a100", 1), pod: asks(own + "c=1"), given: extended("gpu-2")},
		"a class by its own name that lost its resource":  {world: mixed().serves("c", foo, "a100", 1).serves("d", foo, "h100", 2), pod: asks(own + "c=1"), no: node, quirk: "only if it saw it before", unsure: true},
		"the same, where a device may map the node's own": {world: alone("h100:1").serves("c", foo, "h100", 1).serves("d", foo, "a100", 2).sameName(mappingSlice), pod: asks(own + "c=1"), no: unsupported, quirk: "by pool and name alone", unsure: true},
		"the same, and more than it has":                  {world: mixed().serves("c", foo, "a100", 1).serves("d", foo, "h100", 2), pod: asks(own + "c=3"), no: node},
		"the same, by a device plugin":                    {world: alone("h100:1", listing(own+"c=3")).serves("c", foo, "a100", 1).serves("d", foo, "h100", 2), pod: asks(own + "c=3")},
		"a class that is not there":                       {world: mixed(), pod: asks(own + "c=1"), no: node},
		"one by a class, one by a device plugin":          {world: alone("h100:1", listing("example.com/bar=1")).serves("c", foo, "h100", 1), pod: asks(foo+"=1", "example.com/bar=1"), given: extended("gpu-0")},
		"with a claim besides":                            {world: mixed().serves("c", foo, "a100", 1), pod: asks(foo+"=1").claim("a", gpu), given: map[string]string{"a": "gpu-0", v1alpha1.ExtendedResourcesClaim: "gpu-2"}},
		"by a device plugin, with a claim besides":        {world: alone("h100:1", listing(foo+"=2")).serves("c", foo, "h100", 1), pod: asks(foo+"=1").claim("a", gpu), no: unsupported, says: "never bound", quirk: "makes a claim for the extended resources"},
		"by a device plugin, with an allocated claim":     {world: alone("h100:1", listing(foo+"=2")).serves("c", foo, "h100", 1), pod: asks(foo+"=1").claim("a", gpu).given("a", "gpu-0"), no: unsupported, says: "never bound", quirk: "makes a claim for the extended resources"},
		"by a device plugin that no class rivals":         {world: alone("h100:1", listing(foo+"=2")), pod: asks(foo+"=1").claim("a", gpu), given: map[string]string{"a": "gpu-0"}},
		"devices that map the node's own":                 {world: alone("h100:1", mappingOf("cpu", "", "1", 0)).serves("c", foo, "h100", 1), pod: asks(foo + "=1"), no: unsupported, says: "map the node's own", quirk: "extended resources"},
		"an earlier attempt left a claim":                 {world: mixed().serves("c", foo, "a100", 1), pod: earlier("x", true), no: unsupported, says: "earlier attempt"},
		"an earlier attempt left a claim for nothing":     {world: mixed().serves("c", foo, "a100", 1), pod: earlier("x", false), given: extended("gpu-2")},
		"more than a claim can hold":                      {world: alone("h100:40").serves("c", foo, "h100", 1), pod: asks(foo + "=33"), no: unsupported, says: "exceeds the claim limit", quirk: "all nodes"},
		"a name of Kubernetes' own":                       {world: alone("h100:1").serves("c", foo, "h100", 1), pod: asks("x.kubernetes.io/foo=1"), no: node},
	})
}

// TestExtendedRequests: what containers ask for, and what those that end before others start can use of it.
func TestExtendedRequests(t *testing.T) {
	const foo, bar = "example.com/foo", "example.com/bar"
	always := corev1.ContainerRestartPolicyAlways
	container := func(policy *corev1.ContainerRestartPolicy, requests ...string) corev1.Container {
		return corev1.Container{RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: amounts(requests...)}}
	}
	for name, tc := range map[string]struct {
		init, main []corev1.Container
		want       map[string]int64
	}{
		"a request for each container":                  {main: []corev1.Container{container(nil, foo+"=1"), container(nil, "cpu=1", foo+"=2")}, want: map[string]int64{"container-0-request-0": 1, "container-1-request-1": 2}},
		"a request for each resource, by name":          {main: []corev1.Container{container(nil, "cpu=1", foo+"=1", bar+"=2")}, want: map[string]int64{"container-0-request-1": 2, "container-0-request-2": 1}},
		"init containers use what comes after":          {init: []corev1.Container{container(nil, foo+"=2")}, main: []corev1.Container{container(nil, foo+"=3")}, want: map[string]int64{"container-1-request-0": 3}},
		"init containers ask for more than comes after": {init: []corev1.Container{container(nil, foo+"=5")}, main: []corev1.Container{container(nil, foo+"=3")}, want: map[string]int64{"container-0-request-0": 2, "container-1-request-0": 3}},
		"of init containers the one that asks for most": {init: []corev1.Container{container(nil, foo+"=2"), container(nil, foo+"=4"), container(nil, foo+"=4")}, want: map[string]int64{"container-1-request-0": 4}},
		"sidecars before an init container are not its": {init: []corev1.Container{container(&always, foo+"=2"), container(nil, foo+"=2")}, want: map[string]int64{"container-0-request-0": 2, "container-1-request-0": 2}},
		"sidecars after an init container are":          {init: []corev1.Container{container(nil, foo+"=2"), container(&always, foo+"=2")}, want: map[string]int64{"container-1-request-0": 2}},
		"containers that ask for none":                  {main: []corev1.Container{container(nil, "cpu=1"), container(nil, foo+"=0")}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: tc.init, Containers: tc.main}}
			class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
			var got map[string]int64
			last := ""
			requests, mappings := extendedRequests(pod, map[corev1.ResourceName]*resourcev1.DeviceClass{foo: class, bar: class})
			for _, r := range requests {
				if got == nil {
					got = map[string]int64{}
				}
				got[r.Name] = r.Exactly.Count
				if r.Name <= last || r.Exactly.DeviceClassName != "c" {
					t.Errorf("request %s after %s, of class %s", r.Name, last, r.Exactly.DeviceClassName)
				}
				last = r.Name
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			for _, m := range mappings {
				if _, asked := tc.want[m.RequestName]; !asked {
					t.Errorf("container %q is served by request %s, which is not made", m.ContainerName, m.RequestName)
				}
			}
		})
	}
}

// Which request serves which container is as kube-scheduler has it: lasting containers first, then those that end before the next
// starts, which have what later ones ask for before they have their own.
func TestExtendedRequestsServeContainers(t *testing.T) {
	const foo = "example.com/foo"
	always := corev1.ContainerRestartPolicyAlways
	named := func(name string, policy *corev1.ContainerRestartPolicy, count string) corev1.Container {
		return corev1.Container{Name: name, RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: amounts("cpu=1", foo+"="+count)}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{named("small", nil, "4"), named("large", nil, "6"), named("sidecar", &always, "1")},
		Containers:     []corev1.Container{named("main", nil, "2"), named("none", nil, "0")},
	}}
	_, got := extendedRequests(pod, map[corev1.ResourceName]*resourcev1.DeviceClass{foo: {ObjectMeta: metav1.ObjectMeta{Name: "c"}}})
	var want []corev1.ContainerExtendedResourceRequest
	for _, m := range [][2]string{
		{"sidecar", "container-2-request-1"}, {"main", "container-3-request-1"},
		{"small", "container-2-request-1"}, {"small", "container-3-request-1"}, {"small", "container-1-request-1"},
		{"large", "container-2-request-1"}, {"large", "container-3-request-1"}, {"large", "container-1-request-1"},
	} {
		want = append(want, corev1.ContainerExtendedResourceRequest{ContainerName: m[0], ResourceName: foo, RequestName: m[1]})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
