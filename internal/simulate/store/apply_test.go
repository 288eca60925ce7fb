package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// statusOf is a configuration of a Workload's status.
func statusOf(name, version string, status map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{"namespace": "ns", "name": name}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueue.GroupVersion.String(), "kind": "Workload", "metadata": metadata, "status": status,
	}}
}

func condition(kind, reason string) map[string]any {
	return map[string]any{
		"type": kind, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": start.Format(time.RFC3339),
	}
}

func TestApplyToStatus(t *testing.T) {
	type apply struct {
		manager string
		force   bool
		status  map[string]any
	}
	conditions := func(all ...any) map[string]any { return map[string]any{"conditions": all} }
	for name, tc := range map[string]struct {
		applies []apply
		want    map[string]string // reasons by type
		cluster string
		refused bool
	}{
		"two managers each have their condition": {
			applies: []apply{{manager: "a", status: conditions(condition("A", "1"))}, {manager: "b", status: conditions(condition("B", "2"))}},
			want:    map[string]string{"A": "1", "B": "2"},
		},
		"what a manager applied and does not now goes": {
			applies: []apply{
				{manager: "a", status: conditions(condition("A", "1"), condition("C", "3"))},
				{manager: "b", status: conditions(condition("B", "2"))},
				{manager: "a", status: conditions(condition("C", "3"))},
			},
			want: map[string]string{"B": "2", "C": "3"},
		},
		"what another applied too stays": {
			applies: []apply{
				{manager: "a", status: conditions(condition("A", "1"))}, {manager: "b", status: conditions(condition("A", "1"))},
				{manager: "a", status: map[string]any{}},
			},
			want: map[string]string{"A": "1"},
		},
		"another value is a conflict": {
			applies: []apply{{manager: "a", status: conditions(condition("A", "1"))}, {manager: "b", status: conditions(condition("A", "2"))}},
			want:    map[string]string{"A": "1"}, refused: true,
		},
		"force takes it over": {
			applies: []apply{
				{manager: "a", status: conditions(condition("A", "1"))}, {manager: "b", force: true, status: conditions(condition("A", "2"))},
				{manager: "b", force: true, status: conditions(condition("A", "3"))},
			},
			want: map[string]string{"A": "3"},
		},
		"a scalar goes with who applied it": {
			applies: []apply{
				{manager: "a", status: map[string]any{"clusterName": "x", "nominatedClusterNames": []any{"y"}}},
				{manager: "a", status: map[string]any{"clusterName": "x"}},
			},
			cluster: "x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(newWorkload("a"))
			var last error
			for _, a := range tc.applies {
				opts := []client.SubResourceApplyOption{client.FieldOwner(a.manager)}
				if a.force {
					opts = append(opts, client.ForceOwnership)
				}
				last = w.c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(statusOf("a", "", a.status)), opts...)
			}
			if apierrors.IsConflict(last) != tc.refused || (last != nil) != tc.refused {
				t.Fatalf("the last: %v", last)
			}
			got := w.workload("a")
			reasons := map[string]string{}
			for _, c := range got.Status.Conditions {
				reasons[c.Type] = c.Reason
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(tc.want, reasons); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if c := got.Status.ClusterName; (c == nil) != (tc.cluster == "") || c != nil && *c != tc.cluster {
				t.Errorf("cluster %v, want %q", c, tc.cluster)
			}
			if len(got.Status.NominatedClusterNames) > 0 || len(got.Spec.PodSets) != 1 {
				t.Errorf("left: %+v", got)
			}
		})
	}
}

func TestApplyFollowsWhatOthersWrote(t *testing.T) {
	w := newWorld(t)
	w.create(newWorkload("a"))
	apply := func(status map[string]any) {
		t.Helper()
		w.must(w.c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(statusOf("a", "", status)), client.FieldOwner("m"), client.ForceOwnership))
	}
	apply(map[string]any{"clusterName": "x"})
	w.must(w.c.Status().Patch(t.Context(), newWorkload("a"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"clusterName":"y"}}`))))
	apply(map[string]any{})
	if c := w.workload("a").Status.ClusterName; c == nil || *c != "y" {
		t.Errorf("what another wrote since went with the apply: %v", c)
	}
}

func TestApplyWithAVersion(t *testing.T) {
	w := newWorld(t)
	wl := newWorkload("a")
	w.create(wl)
	stale := wl.ResourceVersion
	wl.Spec.QueueName = "other"
	w.must(w.c.Update(t.Context(), wl))
	u := statusOf("a", stale, map[string]any{"clusterName": "x"})
	if err := w.c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("m")); !apierrors.IsConflict(err) {
		t.Errorf("a stale version: %v", err)
	}
	u = statusOf("a", wl.ResourceVersion, map[string]any{"clusterName": "x"})
	w.must(w.c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("m")))
	if u.GetUID() != wl.UID || u.GetResourceVersion() != w.workload("a").ResourceVersion {
		t.Errorf("the configuration was given %v", u.Object["metadata"])
	}
	if err := w.c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(statusOf("none", "", nil)), client.FieldOwner("m")); !apierrors.IsNotFound(err) {
		t.Errorf("a status of nothing: %v", err)
	}
}

func TestApplyCreates(t *testing.T) {
	w := newWorld(t)
	apply := func(labels map[string]string, image string) {
		t.Helper()
		ac := corev1ac.Pod("p", "ns").WithLabels(labels).WithSpec(corev1ac.PodSpec().WithContainers(corev1ac.Container().WithName("c").WithImage(image)))
		w.must(w.c.Apply(t.Context(), ac, client.FieldOwner("m"), client.ForceOwnership))
		if *ac.UID == "" {
			t.Error("the configuration was not given what is stored")
		}
	}
	apply(map[string]string{"a": "1", "b": "2"}, "one")
	pod := &corev1.Pod{}
	w.must(w.c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "p"}, pod))
	pod.Labels["c"] = "3"
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side"})
	w.must(w.c.Update(t.Context(), pod))
	apply(map[string]string{"a": "1"}, "two")
	w.must(w.c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "p"}, pod))
	if diff := cmp.Diff(map[string]string{"a": "1", "c": "3"}, pod.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if c := pod.Spec.Containers; len(c) != 2 || c[0].Image != "two" || c[1].Name != "side" {
		t.Errorf("containers: %+v", c)
	}
	if got := pod.CreationTimestamp.Sub(start); got != 1 {
		t.Errorf("created %v after the start", got)
	}
}

func TestKueueAppliesAWholeStatus(t *testing.T) {
	w := newWorld(t)
	w.create(newWorkload("a"))
	apply := func(change func(*kueue.WorkloadStatus)) *kueue.Workload {
		t.Helper()
		wl := w.workload("a")
		patch := &kueue.Workload{TypeMeta: wl.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			UID: wl.UID, Name: wl.Name, Namespace: wl.Namespace, Generation: wl.Generation, ResourceVersion: wl.ResourceVersion,
		}}
		change(&patch.Status)
		w.must(w.c.Status().Patch(t.Context(), patch, client.Apply, client.FieldOwner("kueue-admission"), client.ForceOwnership)) //nolint:staticcheck // as Kueue does
		return w.workload("a")
	}
	reserved := metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "True", Reason: "r", Message: "m", LastTransitionTime: metav1.NewTime(start)}
	wl := apply(func(s *kueue.WorkloadStatus) {
		s.Conditions = []metav1.Condition{reserved}
		s.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"}}}}
	})
	if wl.Status.Admission == nil || wl.Status.Admission.PodSetAssignments[0].Flavors["cpu"] != "f" {
		t.Fatalf("admission: %+v", wl.Status.Admission)
	}
	reserved.Status = "False"
	wl = apply(func(s *kueue.WorkloadStatus) { s.Conditions = []metav1.Condition{reserved} })
	if wl.Status.Admission != nil || len(wl.Status.Conditions) != 1 || wl.Status.Conditions[0].Status != "False" {
		t.Fatalf("after the end of the admission: %+v", wl.Status)
	}
	if got := wl.CreationTimestamp.Sub(start); got != 1 {
		t.Errorf("created %v after the start", got)
	}
}
