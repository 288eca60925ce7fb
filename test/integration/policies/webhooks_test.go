package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	plimsoll "github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Which writes reach which webhook. Kueue is played by a master.
func TestWebhooksAreCalledFor(t *testing.T) {
	const create, update = "CREATE", "UPDATE"
	workloads := func(operations ...string) []call { return calls("/mutate-workload", "train", operations) }
	for name, test := range map[string]struct {
		as   user
		do   func(s *scene) error
		want []call
	}{
		"a Workload's creation": {as: master, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newWorkload("train"))
		}, want: workloads(create)},
		"a change of its spec": {as: master, do: func(s *scene) error {
			return s.patch(s.workload(), replace("/spec/priority", 4))
		}, want: workloads(create, update)},
		"the loss of a note": {as: master, do: func(s *scene) error {
			return s.patch(s.workload(), remove("/metadata/annotations/note"))
		}, want: workloads(create, update)},
		"no change of its labels": {as: master, do: func(s *scene) error {
			return s.patch(s.workload(), add("/metadata/labels/team", "other"))
		}, want: workloads(create)},
		"no change of its status": {as: master, do: func(s *scene) error {
			s.checkedWorkload()
			return nil
		}, want: workloads(create)},
		"no change while quota is reserved": {as: master, do: func(s *scene) error {
			return s.patch(s.checkedWorkload(), add("/spec/active", false))
		}, want: workloads(create)},
		"a change once quota is not reserved any more": {as: master, do: func(s *scene) error {
			workload := s.checkedWorkload()
			s.must(s.patchSubresource(workload, "status", replace("/status/conditions/0/status", "False")))
			return s.patch(workload, add("/spec/active", false))
		}, want: workloads(create, update)},
		"no change after the end": {as: master, do: func(s *scene) error {
			workload := s.workload()
			s.must(s.patchSubresource(workload, "status",
				add("/status", map[string]any{"conditions": []any{condition("Finished", "True")}})))
			return s.patch(workload, replace("/spec/priority", 4))
		}, want: workloads(create)},
		"no change by the manager": {as: manager, do: func(s *scene) error {
			return s.patch(s.workload(), add("/spec/podSets/0/template/spec/overhead", map[string]any{"gpus": "8"}))
		}, want: workloads(create)},
		"a change by the older API version": {as: master, do: func(s *scene) error {
			s.workload()
			old := &unstructured.Unstructured{}
			old.SetAPIVersion("kueue.x-k8s.io/v1beta1")
			old.SetKind("Workload")
			old.SetNamespace(s.namespace)
			old.SetName("train")
			return s.patch(old, replace("/spec/priority", 4))
		}, want: workloads(create, update)},
		"a pod with our label": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("train-0", withLabel("yes"), withGates(plimsoll.PlacementGate)))
		}, want: calls("/mutate-pod", "train-0", []string{create})},
		"no pod without it": {as: tenant, do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("plain", withGates(plimsoll.PlacementGate)))
		}},
		"no change of a pod": {as: tenant, do: func(s *scene) error {
			return s.patch(s.managedPod("train-0"), replace("/metadata/annotations/note", "other"))
		}, want: calls("/mutate-pod", "train-0", []string{create})},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, test.as)
			s.must(test.do(s))
			var got []call
			for _, c := range server.webhooks.about(s.namespace) {
				got = append(got, call{Path: c.Path, Operation: c.Operation, Name: c.Name})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPolicyWebhookIsCalled(t *testing.T) {
	s := newScene(t, administrator)
	policy := newPolicy(s.namespace)
	s.must(s.as.Create(s.ctx(), policy))
	s.must(s.patch(policy, add("/spec/mode", "Shadow")))
	var got []call
	for _, c := range server.webhooks.about("") {
		if c.Name == s.namespace {
			got = append(got, call{Path: c.Path, Operation: c.Operation, Name: c.Name})
		}
	}
	if diff := cmp.Diff(calls("/validate-devicepolicy", s.namespace, []string{"CREATE", "UPDATE"}), got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// While no manager serves: managed pods and policies have to wait, everything else goes on.
func TestWhileWebhooksAreDown(t *testing.T) {
	server.webhooks.down.Store(true)
	defer server.webhooks.down.Store(false)
	for name, test := range map[string]struct {
		do      func(s *scene) error
		refused bool
	}{
		"a pod with our label is refused": {do: func(s *scene) error {
			return s.as.Create(s.ctx(), s.newPod("train-0", withLabel("true"), withGates(plimsoll.PlacementGate)))
		}, refused: true},
		"any other pod is created": {do: func(s *scene) error { return s.as.Create(s.ctx(), s.newPod("plain")) }},
		"a Workload is created":    {do: func(s *scene) error { return s.as.Create(s.ctx(), s.newWorkload("train")) }},
		"a DevicePolicy is refused": {do: func(s *scene) error {
			return s.as.Create(s.ctx(), newPolicy(s.namespace))
		}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.do(newScene(t, master))
			if test.refused && !apierrors.IsInternalError(err) {
				t.Errorf("got %v, want a failed webhook call", err)
			}
			if !test.refused && err != nil {
				t.Error(err)
			}
		})
	}
}

// calls are one for each operation on an object.
func calls(path, name string, operations []string) []call {
	var list []call
	for _, operation := range operations {
		list = append(list, call{Path: path, Operation: operation, Name: name})
	}
	return list
}
