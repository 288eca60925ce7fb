package simulate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/store"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// An admission that ends at the instant at which it began is told like any other, but for its pods.
func TestAdmissionOfAnInstant(t *testing.T) {
	b := newBench()
	r := &run{cluster: &cluster{loop: b.loop, client: b.store.Client(), recorder: newRecorder(b.store.Client(), b.clock.Now)}}
	waits := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "bare", CreationTimestamp: metav1.NewTime(b.start)}}
	waits.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	waits.Spec.PodSets[0].Template.Spec.Overhead = corev1.ResourceList{"gpus": resource.MustParse("2")}
	runs, evicted := waits.DeepCopy(), waits.DeepCopy()
	runs.Status.Admission = &kueue.Admission{ClusterQueue: "team-a", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpus": "h100"}, ResourceUsage: corev1.ResourceList{"gpus": resource.MustParse("2")},
	}}}
	runs.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
	evicted.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Deactivated"}}

	b.clock.SetTime(b.start.Add(5 * time.Second))
	for _, e := range []store.Event{{New: waits}, {Old: waits, New: runs}, {Old: runs, New: evicted}} {
		r.recorder.see(e)
	}
	if err := r.recorder.settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := r.stays(report.Entry{}, r.recorder.tracks[keyOf(waits)])
	clock, end := report.Clock(5), "Deactivated"
	want := report.Entry{
		AdmittedAt: &clock, Flavors: map[string]string{"main": "h100"}, Charged: map[string]string{"gpus": "2"}, Pods: []report.Pod{},
		Admissions: []report.Admission{{At: 5, Flavors: map[string]string{"main": "h100"}, EndedAt: &clock, End: &end}},
	}
	if diff := cmp.Diff(want, got.Entry); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestKeep(t *testing.T) {
	pods := func(podSet string, nodes ...string) []report.Pod {
		var out []report.Pod
		for i, n := range nodes {
			out = append(out, report.Pod{PodSet: podSet, Index: i, Node: n})
		}
		return out
	}
	for name, c := range map[string]struct{ was, now, want []report.Pod }{
		"the first places":                      {nil, pods("main", "n1"), pods("main", "n1")},
		"a slot that was given back stays":      {pods("main", "n1", "n2"), pods("main", "n2"), pods("main", "n1", "n2")},
		"so does the last":                      {pods("main", "n1"), nil, pods("main", "n1")},
		"a slot that was placed anew has moved": {pods("main", "n1", "n2"), pods("main", "n2", "n3"), pods("main", "n2", "n3")},
		"each podset by itself": {
			append(pods("a", "n1", "n2"), pods("b", "n1")...), append(pods("a", "n2"), pods("b", "n3")...), append(pods("a", "n1", "n2"), pods("b", "n3")...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, keep(c.was, c.now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
