package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func names(list *corev1.PodList) []string {
	all := []string{}
	for i := range list.Items {
		all = append(all, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return all
}

func TestList(t *testing.T) {
	w := newWorld(t)
	byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	w.Index(&corev1.Pod{}, "node", byNode)
	for _, p := range []struct{ namespace, name, node, team string }{
		{"b", "2", "n1", "x"}, {"a", "1", "n1", "x"}, {"b", "1", "n2", "y"}, {"a-b", "1", "n1", "y"},
	} {
		pod := newPod(p.name)
		pod.Namespace, pod.Spec.NodeName, pod.Labels = p.namespace, p.node, map[string]string{"team": p.team}
		w.create(pod)
	}
	w.Index(&corev1.Pod{}, "team", func(o client.Object) []string { return []string{"t-" + o.GetLabels()["team"], "all", "all"} })
	for name, tc := range map[string]struct {
		opts []client.ListOption
		want []string
	}{
		"all by namespace and name":          {want: []string{"a/1", "a-b/1", "b/1", "b/2"}},
		"a namespace, and no other like it":  {opts: []client.ListOption{client.InNamespace("a")}, want: []string{"a/1"}},
		"labels":                             {opts: []client.ListOption{client.MatchingLabels{"team": "x"}}, want: []string{"a/1", "b/2"}},
		"a field":                            {opts: []client.ListOption{client.MatchingFields{"node": "n1"}}, want: []string{"a/1", "a-b/1", "b/2"}},
		"a field in a namespace":             {opts: []client.ListOption{client.MatchingFields{"node": "n1"}, client.InNamespace("b")}, want: []string{"b/2"}},
		"a field that nothing has":           {opts: []client.ListOption{client.MatchingFields{"node": "none"}}, want: []string{}},
		"two fields":                         {opts: []client.ListOption{client.MatchingFields{"node": "n1", "team": "t-y"}}, want: []string{"a-b/1"}},
		"an index that came after the pods":  {opts: []client.ListOption{client.MatchingFields{"team": "all"}}, want: []string{"a/1", "a-b/1", "b/1", "b/2"}},
		"a limit is ignored":                 {opts: []client.ListOption{client.Limit(1)}, want: []string{"a/1", "a-b/1", "b/1", "b/2"}},
		"shared objects are listed the same": {opts: []client.ListOption{client.UnsafeDisableDeepCopy, client.InNamespace("b")}, want: []string{"b/1", "b/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			list := &corev1.PodList{}
			w.must(w.c.List(t.Context(), list, tc.opts...))
			if diff := cmp.Diff(tc.want, names(list)); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
	if err := w.c.List(t.Context(), &corev1.PodList{}, client.MatchingFields{"phase": "x"}); err == nil {
		t.Error("a field without an index was listed")
	}
}

func TestIndexesFollowTheObjects(t *testing.T) {
	w := newWorld(t)
	w.Index(&corev1.Pod{}, "node", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	on := func(node string) []string {
		list := &corev1.PodList{}
		w.must(w.c.List(t.Context(), list, client.MatchingFields{"node": node}))
		return names(list)
	}
	pod := newPod("p")
	w.create(pod)
	pod.Spec.NodeName = "n1"
	w.must(w.c.Update(t.Context(), pod))
	if got := on("n1"); len(got) != 1 || len(on("")) != 0 {
		t.Errorf("on n1: %v, on none: %v", got, on(""))
	}
	w.must(w.c.Delete(t.Context(), pod))
	if got := on("n1"); len(got) != 0 {
		t.Errorf("after its deletion: %v", got)
	}
	w.create(newPod("p"))
	if got := on(""); len(got) != 1 {
		t.Errorf("created again: %v", got)
	}
}

func TestWhatIsHandedOut(t *testing.T) {
	w := newWorld(t)
	wl := newWorkload("a")
	wl.Labels = map[string]string{"a": "1"}
	w.create(wl)
	wl.Labels["a"] = "mine"
	key := client.ObjectKeyFromObject(wl)
	got := w.workload("a")
	if got.Labels["a"] != "1" || got.Kind != "Workload" {
		t.Errorf("stored: %+v", got)
	}
	got.Labels["a"] = "changed"
	if got := w.workload("a").Labels["a"]; got != "1" {
		t.Errorf("a copy reached the store: %s", got)
	}

	shared, again, list := &kueue.Workload{}, &kueue.Workload{}, &kueue.WorkloadList{}
	w.must(w.c.Get(t.Context(), key, shared, client.UnsafeDisableDeepCopy))
	w.must(w.c.Get(t.Context(), key, again, client.UnsafeDisableDeepCopy))
	w.must(w.c.List(t.Context(), list, client.UnsafeDisableDeepCopy))
	if &shared.Spec.PodSets[0] != &again.Spec.PodSets[0] || &shared.Spec.PodSets[0] != &list.Items[0].Spec.PodSets[0] {
		t.Error("without a copy, the same is not handed out")
	}
	w.must(w.c.Patch(t.Context(), wl, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"2"}},"spec":{"queueName":"other"}}`))))
	if shared.Labels["a"] != "1" || shared.Spec.QueueName != "q" {
		t.Errorf("a write changed what was stored before: %+v", shared)
	}
}

func TestMetadataOnly(t *testing.T) {
	w := newWorld(t)
	job := newJob("j")
	w.create(job)
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	w.must(w.c.Get(t.Context(), client.ObjectKeyFromObject(job), partial))
	if partial.UID != job.UID || partial.Kind != "Job" {
		t.Errorf("got %+v", partial)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
	w.must(w.c.List(t.Context(), list))
	if len(list.Items) != 1 || list.Items[0].UID != job.UID {
		t.Errorf("listed %+v", list.Items)
	}
	w.must(w.c.Patch(t.Context(), partial, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	if partial.Labels["a"] != "b" {
		t.Errorf("patched to %+v", partial)
	}
	if err := w.c.Update(t.Context(), partial); err == nil {
		t.Error("an update by metadata alone was stored")
	}
	w.must(w.c.Delete(t.Context(), partial))
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(job), partial); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
	partial.SetGroupVersionKind(schema.GroupVersionKind{Group: "x", Version: "v1", Kind: "None"})
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(job), partial); err == nil {
		t.Error("an unknown kind was read")
	}
	if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(job), &unstructured.Unstructured{}); err == nil {
		t.Error("an untyped object was read")
	}
}

func TestKinds(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		obj        client.Object
		namespaced bool
		kind       string
	}{
		"Job":          {obj: &batchv1.Job{}, namespaced: true, kind: "Job"},
		"Node":         {obj: &corev1.Node{}, kind: "Node"},
		"ClusterQueue": {obj: &kueue.ClusterQueue{}, kind: "ClusterQueue"},
		"LocalQueue":   {obj: &kueue.LocalQueue{}, namespaced: true, kind: "LocalQueue"},
	} {
		t.Run(name, func(t *testing.T) {
			namespaced, err := w.c.IsObjectNamespaced(tc.obj)
			gvk, kindErr := w.c.GroupVersionKindFor(tc.obj)
			if err != nil || kindErr != nil || namespaced != tc.namespaced || gvk.Kind != tc.kind {
				t.Errorf("%v %v, %v, %v", namespaced, gvk, err, kindErr)
			}
			mapping, err := w.c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil || (mapping.Scope.Name() == "namespace") != tc.namespaced {
				t.Errorf("mapping %+v, %v", mapping, err)
			}
		})
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ignored"}, Status: corev1.NodeStatus{Phase: corev1.NodeRunning}}
	w.create(node)
	w.must(w.c.Get(t.Context(), client.ObjectKey{Name: "n"}, node))
	if node.Status.Phase != corev1.NodeRunning {
		t.Error("a node is created with its status")
	}
}
