package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/workload"
)

func merge(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }

// fullWorkload has something of everything that a merge can reach.
func fullWorkload(name string) *kueue.Workload {
	wl := newWorkload(name)
	wl.Labels = map[string]string{"a": "1", "b": "2"}
	wl.Annotations = map[string]string{"x": "y"}
	wl.Spec.Active, wl.Spec.Priority = ptr.To(true), ptr.To[int32](3)
	wl.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: "g", Kind: "k", Name: "n"}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To[int32](2), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
		ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("2")},
	}}}
	wl.Status.Conditions = []metav1.Condition{{Type: "A", Status: "True", Reason: "r", Message: "m", LastTransitionTime: metav1.NewTime(start)}}
	wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To[int32](1), RequeueAt: ptr.To(metav1.NewTime(start))}
	wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "r", Count: 1}}}
	return wl
}

// TestMergePatch holds the typed merge against the merge of the JSON.
func TestMergePatch(t *testing.T) {
	for name, tc := range map[string]struct {
		patch  string
		status bool
	}{
		"a scalar":                        {patch: `{"spec":{"queueName":"other"}}`},
		"a pointer to a scalar":           {patch: `{"spec":{"active":false,"priority":null}}`},
		"labels by key":                   {patch: `{"metadata":{"labels":{"a":null,"c":"3"}}}`},
		"all labels":                      {patch: `{"metadata":{"labels":null,"annotations":{}}}`},
		"a field of a struct by pointer":  {patch: `{"spec":{"priorityClassRef":{"name":"other","kind":null}}}`},
		"a struct by pointer that is new": {patch: `{"spec":{"priorityClassRef":null,"maximumExecutionTimeSeconds":5}}`},
		"a list as a whole":               {patch: `{"spec":{"podSets":[{"name":"x","count":1,"template":{"spec":{"containers":null}}}]}}`},
		"an unknown field":                {patch: `{"spec":{"nothing":{"a":1}},"more":2,"QueueName":"x"}`},
		"the status by the wrong door":    {patch: `{"status":{"clusterName":"x"},"metadata":{"labels":{"n":"m"}}}`},
		"conditions as a whole":           {status: true, patch: `{"status":{"conditions":[{"type":"B","status":"False","reason":"x","message":"","lastTransitionTime":"2026-02-03T04:05:06Z"}]}}`},
		"a nested struct":                 {status: true, patch: `{"status":{"admission":{"clusterQueue":"cq2"},"requeueState":{"requeueAt":null}}}`},
		"a nested struct is dropped":      {status: true, patch: `{"status":{"admission":null,"schedulingStats":{"evictions":null}}}`},
		"a time":                          {status: true, patch: `{"status":{"requeueState":{"requeueAt":"2026-02-03T04:05:06Z","count":4}}}`},
		"the rest by the wrong door":      {status: true, patch: `{"metadata":{"labels":{"n":"m"}},"spec":{"queueName":"x"},"status":{"clusterName":"c"}}`},
		"an empty status":                 {status: true, patch: `{"status":{}}`},
		"no status":                       {status: true, patch: `{"status":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := fullWorkload("a")
			w.must(w.Put(before))
			before = w.workload("a")
			text, err := json.Marshal(before)
			w.must(err)
			merged, err := jsonpatch.MergePatch(text, []byte(tc.patch))
			w.must(err)
			want := &kueue.Workload{}
			w.must(json.Unmarshal(merged, want))
			if tc.status {
				status := want.Status
				want = before.DeepCopy()
				want.Status = status
			} else {
				before.Status.DeepCopyInto(&want.Status)
			}
			obj := newWorkload("a")
			if tc.status {
				w.must(w.c.Status().Patch(t.Context(), obj, merge(tc.patch)))
			} else {
				w.must(w.c.Patch(t.Context(), obj, merge(tc.patch)))
			}
			got := w.workload("a")
			if !apiequality.Semantic.DeepEqual(got, obj) {
				t.Errorf("the caller was given something else than is stored:\n%s", cmp.Diff(got, obj))
			}
			changed := !apiequality.Semantic.DeepEqual(want.Spec, before.Spec) || !apiequality.Semantic.DeepEqual(want.Status, before.Status) ||
				!apiequality.Semantic.DeepEqual(want.Labels, before.Labels) || !apiequality.Semantic.DeepEqual(want.Annotations, before.Annotations)
			if (got.ResourceVersion != before.ResourceVersion) != changed {
				t.Errorf("changed %v, version %s after %s", changed, got.ResourceVersion, before.ResourceVersion)
			}
			want.ResourceVersion, want.Generation, want.CreationTimestamp = got.ResourceVersion, got.Generation, before.CreationTimestamp
			if !got.CreationTimestamp.Equal(&before.CreationTimestamp) || !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("merged (-want +got):\n%s", cmp.Diff(want, got))
			}
		})
	}
}

func TestPatchesThatDoNotFit(t *testing.T) {
	w := newWorld(t)
	w.create(newWorkload("a"))
	for name, patch := range map[string]client.Patch{
		"no JSON":                    merge(`{`),
		"a string for a number":      merge(`{"spec":{"priority":"high"}}`),
		"a test that fails":          client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/queueName","value":"x"},{"op":"remove","path":"/spec/queueName"}]`)),
		"a path that is not there":   client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/nothing"}]`)),
		"no list of operations":      client.RawPatch(types.JSONPatchType, []byte(`{}`)),
		"a kind of patch of its own": client.RawPatch("application/x", []byte(`{}`)),
	} {
		t.Run(name, func(t *testing.T) {
			version := w.Version()
			if err := w.c.Patch(t.Context(), newWorkload("a"), patch); err == nil || apierrors.IsConflict(err) {
				t.Errorf("got %v", err)
			}
			if w.Version() != version || w.workload("a").Spec.QueueName != "q" {
				t.Error("it changed something")
			}
		})
	}
	if err := w.c.Patch(t.Context(), newWorkload("none"), merge(`{}`)); !apierrors.IsNotFound(err) {
		t.Errorf("patched what is not there: %v", err)
	}
	if err := w.c.SubResource("scale").Update(t.Context(), newWorkload("a")); !apierrors.IsNotFound(err) {
		t.Errorf("a subresource that there is none of: %v", err)
	}
}

func TestJSONAndStrategicPatches(t *testing.T) {
	w := newWorld(t)
	pod := newPod("p")
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
	w.create(pod)
	created := pod.CreationTimestamp
	w.must(w.c.Patch(t.Context(), pod, client.RawPatch(types.JSONPatchType, []byte(
		`[{"op":"test","path":"/metadata/uid","value":"`+string(pod.UID)+`"},{"op":"remove","path":"/spec/schedulingGates/0"}]`))))
	if g := pod.Spec.SchedulingGates; len(g) != 1 || g[0].Name != "b" || pod.Generation != 2 {
		t.Errorf("gates %v, generation %d", g, pod.Generation)
	}
	base := pod.DeepCopy()
	pod.Spec.Containers[0].Image = "new"
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other"})
	patch := client.StrategicMergeFrom(base)
	data, err := patch.Data(pod)
	w.must(err)
	// Another container comes between: a strategic merge keeps it.
	w.must(w.c.Patch(t.Context(), base, merge(`{"spec":{"containers":[{"name":"c","image":"i"},{"name":"between"}]}}`)))
	w.must(w.c.Patch(t.Context(), pod, client.RawPatch(patch.Type(), data)))
	images := map[string]string{}
	for _, c := range pod.Spec.Containers {
		images[c.Name] = c.Image
	}
	if diff := cmp.Diff(map[string]string{"c": "new", "between": "", "other": ""}, images); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	if !pod.CreationTimestamp.Equal(&created) || pod.CreationTimestamp.Nanosecond() == 0 {
		t.Errorf("created %v, was %v", pod.CreationTimestamp, created)
	}
}

// TestKueuesStatusWrites runs Kueue's own writer, which patches or applies as its gate says.
func TestKueuesStatusWrites(t *testing.T) {
	for name, gate := range map[string]bool{"merge patches": true, "applies": false} {
		t.Run(name, func(t *testing.T) {
			features.SetFeatureGateDuringTest(t, features.WorkloadRequestUseMergePatch, gate)
			w := newWorld(t)
			w.create(newWorkload("a"))
			clock := testingclock.NewFakeClock(start)
			write := func(wl *kueue.Workload, change func(*kueue.Workload)) error {
				return workload.PatchAdmissionStatus(t.Context(), w.c, wl, clock, func(wl *kueue.Workload) (bool, error) {
					change(wl)
					return true, nil
				})
			}
			stale := w.workload("a")
			w.must(write(w.workload("a"), func(wl *kueue.Workload) {
				workload.SetQuotaReservation(wl, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: ptr.To[int32](2)}}}, clock)
				wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(start)}}
			}))
			got := w.workload("a")
			if !workload.HasQuotaReservation(got) || got.Status.Admission == nil || len(got.Status.AdmissionChecks) != 1 {
				t.Fatalf("reserved: %+v", got.Status)
			}
			if err := write(stale, func(wl *kueue.Workload) { wl.Status.ClusterName = ptr.To("x") }); !apierrors.IsConflict(err) {
				t.Errorf("a stale write: %v", err)
			}
			w.must(write(got, func(wl *kueue.Workload) {
				workload.UnsetQuotaReservationWithCondition(wl, "Pending", "m", start.Add(time.Minute))
			}))
			got = w.workload("a")
			if workload.HasQuotaReservation(got) || got.Status.Admission != nil || len(got.Status.AdmissionChecks) != 1 || got.Spec.QueueName != "q" {
				t.Errorf("unreserved: %+v", got)
			}
		})
	}
}
