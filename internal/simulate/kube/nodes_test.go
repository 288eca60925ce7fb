package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// taints tells a node's taints.
func (w *world) taints(name string) []string {
	n := newNode(name)
	w.load(n)
	out := []string{}
	for i := range n.Spec.Taints {
		s := n.Spec.Taints[i].ToString()
		if at := n.Spec.Taints[i].TimeAdded; at != nil {
			s += " " + at.Sub(epoch).String()
		}
		out = append(out, s)
	}
	return out
}

func TestNodesAreTaintedByTheirConditions(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want []string
	}{
		"a node that is not Ready": {conditionReady(corev1.ConditionFalse), []string{
			"node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute 1m0s",
		}},
		"a node that nothing is heard of": {conditionReady(corev1.ConditionUnknown), []string{
			"node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute 1m0s",
		}},
		"a cordoned node": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, []string{"node.kubernetes.io/unschedulable:NoSchedule"}},
		"a node under pressure": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		}, []string{"node.kubernetes.io/disk-pressure:NoSchedule"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"))
			w.until(time.Minute)
			w.put(newNode("a", c.edit))
			w.settle()
			if diff := cmp.Diff(c.want, w.taints("a")); diff != "" {
				t.Error(diff)
			}
			w.until(2 * time.Minute)
			w.put(newNode("a", c.edit)) // written whole once more
			w.settle()
			if diff := cmp.Diff(c.want, w.taints("a")); diff != "" {
				t.Errorf("written once more: %s", diff)
			}
			w.put(newNode("a", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}
			}))
			w.settle()
			if diff := cmp.Diff([]string{"own:NoSchedule"}, w.taints("a")); diff != "" {
				t.Errorf("once it is well: %s", diff)
			}
		})
	}
}

func TestPodsOfALostNode(t *testing.T) {
	for name, c := range map[string]struct {
		job    *batchv1.Job
		stages []stage
	}{
		"it is replaced after the toleration, and stays until its node is deleted": {newJob("job", 1), []stage{
			{at: time.Minute, edit: func(w *world) { w.put(newNode("a", conditionReady(corev1.ConditionUnknown))); w.settle() },
				pods: []string{"job-0 Running a"}, status: "1000"},
			{at: 6*time.Minute - 1, pods: []string{"job-0 Running a"}, status: "1000"},
			{at: 6 * time.Minute, pods: []string{"job-0 Running a ending 6m1s", "job-1 Running b"}, status: "1100"},
			{at: time.Hour, pods: []string{"job-0 Running a ending 6m1s", "job-1 Running b"}, status: "1100"},
			{at: time.Hour, edit: func(w *world) { w.remove(newNode("a")) }, pods: []string{"job-1 Running b"}, status: "1100"},
		}},
		"it ends when its node comes back": {newJob("job", 1), []stage{
			{at: 0, edit: func(w *world) { w.put(newNode("a", conditionReady(corev1.ConditionFalse))); w.settle() }, pods: []string{"job-0 Running a"}, status: "1000"},
			{at: 10 * time.Minute, pods: []string{"job-0 Running a ending 5m1s", "job-1 Running b"}, status: "1100"},
			{at: 10 * time.Minute, edit: func(w *world) { w.put(newNode("a")); w.settle() }, pods: []string{"job-1 Running b"}, status: "1100"},
		}},
		"it goes on where its node comes back in time": {newJob("job", 1, annotated(DurationAnnotation, "10m")), []stage{
			{at: 0, edit: func(w *world) { w.put(newNode("a", conditionReady(corev1.ConditionFalse))); w.settle() }, pods: []string{"job-0 Running a"}, status: "1000"},
			{at: 4 * time.Minute, edit: func(w *world) { w.put(newNode("a")); w.settle() }, pods: []string{"job-0 Running a"}, status: "1100"},
			{at: 10*time.Minute - 1, pods: []string{"job-0 Running a"}, status: "1100"},
			{at: 10 * time.Minute, pods: []string{"job-0 Succeeded a"}, status: "0010 SuccessCriteriaMet Complete"},
		}},
		"that it is over shows only when its node is back": {newJob("job", 1, annotated(DurationAnnotation, "1m")), []stage{
			{at: 0, edit: func(w *world) { w.put(newNode("a", conditionReady(corev1.ConditionFalse))); w.settle() }, pods: []string{"job-0 Running a"}, status: "1000"},
			{at: 2 * time.Minute, pods: []string{"job-0 Running a"}, status: "1000"},
			{at: 3 * time.Minute, edit: func(w *world) { w.put(newNode("a")); w.settle() }, pods: []string{"job-0 Succeeded a"}, status: "0010 SuccessCriteriaMet Complete"},
		}},
		"it goes with its node at once, whatever its grace": {newJob("job", 1, annotated(GraceAnnotation, "5m")), []stage{
			{at: time.Second, edit: func(w *world) { w.remove(newNode("a")) }, pods: []string{"job-1 Running b"}, status: "1100"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"), newNode("b"), c.job)
			for _, s := range c.stages {
				w.until(s.at)
				if s.edit != nil {
					s.edit(w)
				}
				if diff := cmp.Diff(s.pods, w.pods()); diff != "" {
					t.Errorf("at %s pods: %s", s.at, diff)
				}
				if got := statusOf(w.job("job")); got != s.status {
					t.Errorf("at %s the status is %q, want %q", s.at, got, s.status)
				}
			}
		})
	}
}

func TestTaintsEvict(t *testing.T) {
	noExecute := corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}
	tolerates := func(seconds *int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds}}
		}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		gone time.Duration // 0 for never
	}{
		"a pod that does not tolerate it goes at once": {newPod("p"), time.Minute},
		"one that tolerates it for a while goes then":  {newPod("p", tolerates(ptr.To[int64](30))), 90 * time.Second},
		"one that tolerates it stays":                  {newPod("p", tolerates(nil)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"), c.pod)
			w.until(time.Minute)
			n := newNode("a")
			w.change(n, func() { n.Spec.Taints = []corev1.Taint{noExecute} })
			w.goes(c.gone)
		})
	}
}

// goes checks that the only pod goes at a time, not before; 0 for never.
func (w *world) goes(at time.Duration) {
	w.t.Helper()
	if at == 0 {
		w.until(time.Hour)
		if len(w.pods()) != 1 {
			w.t.Error("the pod is gone")
		}
		return
	}
	if at > w.clock.Now().Sub(epoch) {
		w.until(at - 1)
		if len(w.pods()) != 1 {
			w.t.Error("the pod is gone too early")
		}
		w.until(at)
	}
	if len(w.pods()) != 0 {
		w.t.Errorf("the pod is still there: %v", w.pods())
	}
}

func TestTaintsOfDevicesEvict(t *testing.T) {
	tainted := func(effect resourcev1.DeviceTaintEffect, added *metav1.Time) func(*resourcev1.ResourceSlice) {
		return func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: effect, TimeAdded: added}}
		}
	}
	for name, c := range map[string]struct {
		device     func(*resourcev1.ResourceSlice)
		toleration *resourcev1.DeviceToleration
		gone       time.Duration
	}{
		"a pod goes with its device": {device: tainted(resourcev1.DeviceTaintEffectNoExecute, nil), gone: time.Minute},
		"NoSchedule leaves it":       {device: tainted(resourcev1.DeviceTaintEffectNoSchedule, nil)},
		"a toleration gives it time": {
			device:     tainted(resourcev1.DeviceTaintEffectNoExecute, nil),
			toleration: &resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: ptr.To[int64](20)},
			gone:       80 * time.Second,
		},
		"time that counts from when the taint was put on": {
			device:     tainted(resourcev1.DeviceTaintEffectNoExecute, &metav1.Time{Time: epoch.Add(50 * time.Second)}),
			toleration: &resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: ptr.To[int64](20)},
			gone:       70 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := newTemplate("one", 1)
			if c.toleration != nil {
				template.Spec.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{*c.toleration}
			}
			w := newWorld(t, newNode("a"), newSlice("a", 1), newClass(), template, newPod("p", claims1("one")))
			if diff := cmp.Diff([]string{"p-gpu a/gpu-0 for p"}, w.held()); diff != "" {
				t.Fatal(diff)
			}
			w.until(time.Minute)
			w.put(newSlice("a", 1, c.device))
			w.settle()
			w.goes(c.gone)
		})
	}
}
