package policies

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// In a fenced namespace every pod that asks for devices, in whatever words, has the gate or is not made.
func TestFencedNamespaces(t *testing.T) {
	const extended = "example.com/gpu"
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fenced.example.com"}}
	class.Spec.ExtendedResourceName = new(extended)
	if err := server.admin.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.admin.Delete(context.WithoutCancel(t.Context()), class); err != nil {
			t.Error(err)
		}
	})
	// The API server learns of a DeviceClass a moment after it was made.
	probe := fence(newScene(t, tenant))
	probe.eventually("the DeviceClass is known", func(ctx context.Context) (bool, error) {
		err := probe.as.Create(ctx, probe.newPod("probe", asking(extended)), client.DryRunAll)
		return apierrors.IsForbidden(err), ignoreForbidden(err)
	})

	claims := denied("plimsoll-fenced-claims", "In a namespace with label plimsoll.dev/fenced=true only pods from queues")
	resources := denied("plimsoll-fenced-resources", "In a namespace with label plimsoll.dev/fenced=true only pods from queues")
	gated := withGates(plimsoll.PlacementGate)
	create := func(options ...podOption) func(s *scene) error {
		return func(s *scene) error { return s.as.Create(s.ctx(), fence(s).newPod("pod", options...)) }
	}
	named := func(pod *corev1.Pod) {
		name := "mine"
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	}
	inInit := func(pod *corev1.Pod) {
		first := pod.Spec.Containers[0]
		first.Name = "init"
		first.Resources.Requests = corev1.ResourceList{extended: one}
		first.Resources.Limits = first.Resources.Requests
		pod.Spec.InitContainers = []corev1.Container{first}
	}
	try(t, map[string]attempt{
		"a pod without devices":                    {as: tenant, do: create()},
		"a gated pod with a claim":                 {as: tenant, do: create(gated, withTemplate("train"))},
		"a gated pod with an extended resource":    {as: tenant, do: create(gated, asking(extended))},
		"a pod that asks for an unknown resource":  {as: tenant, do: create(asking("example.com/other"))},
		"no pod with a claim of a template":        {as: tenant, do: create(withTemplate("train")), refused: claims},
		"no pod with a claim by name":              {as: tenant, do: create(named), refused: claims},
		"no pod with another gate":                 {as: tenant, do: create(withGates(otherGate), named), refused: claims},
		"no pod with an extended resource":         {as: tenant, do: create(asking(extended)), refused: resources},
		"no pod with one in an init container":     {as: tenant, do: create(inInit), refused: resources},
		"no pod with a class by its implicit name": {as: tenant, do: create(asking("deviceclass.resource.kubernetes.io/fenced.example.com")), refused: resources},
		// one that ran before the check joined its queue has no gate on its pods, and no fence where it wants more of them
		"no later pod of a Job that was adopted": {as: jobController, do: create(ofAdoptedJob, withTemplate("train")), refused: claims},
		"not even an administrator's":            {as: administrator, do: create(named), refused: claims},
		"no lifting of the fence by a tenant": {as: tenant, do: func(s *scene) error {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fence(s).namespace}}
			return s.patch(namespace, remove("/metadata/labels/plimsoll.dev~1fenced"))
		}, refused: noRight("patch", "namespaces")},
		"a later pod of a Job that was adopted, where there is no fence": {as: jobController, do: func(s *scene) error {
			pod := s.newPod("pod", ofAdoptedJob, withTemplate("train"))
			return s.as.Create(s.ctx(), pod)
		}},
		"any pod where there is no fence": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("pod", named, asking(extended)))
		}},
	})
}

// ofAdoptedJob makes a pod one of a Job that Kueue admitted before the check joined its queue.
func ofAdoptedJob(pod *corev1.Pod) {
	pod.Labels["kueue.x-k8s.io/podset"] = "main"
	pod.Labels["kueue.x-k8s.io/local-queue-name"] = "gpus"
	pod.Annotations["kueue.x-k8s.io/workload"] = "job-train-12345"
}

func asking(resource corev1.ResourceName) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{resource: one}
	}
}

// fence fences a scene's namespace, and waits until the API server's policies see it so.
func fence(s *scene) *scene {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	s.must(s.admin.Patch(s.ctx(), namespace, s.jsonPatch([]operation{add("/metadata/labels/plimsoll.dev~1fenced", "true")})))
	s.eventually("the fence is seen", func(ctx context.Context) (bool, error) {
		err := s.admin.Create(ctx, s.newPod("probe", withTemplate("train")), client.DryRunAll)
		return apierrors.IsForbidden(err), ignoreForbidden(err)
	})
	return s
}
