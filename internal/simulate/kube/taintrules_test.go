package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func newRule(name string, effect resourcev1beta2.DeviceTaintEffect, selector *resourcev1beta2.DeviceTaintSelector) *resourcev1beta2.DeviceTaintRule {
	return &resourcev1beta2.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1beta2.DeviceTaintRuleSpec{
		DeviceSelector: selector, Taint: resourcev1beta2.DeviceTaint{Key: "k", Effect: effect},
	}}
}

func first(node string) *resourcev1beta2.DeviceTaintSelector {
	return &resourcev1beta2.DeviceTaintSelector{Driver: ptr.To("gpu.example.com"), Pool: &node, Device: ptr.To("gpu-0")}
}

func TestADeviceThatARuleTaintsIsNotGiven(t *testing.T) {
	const noSchedule = resourcev1beta2.DeviceTaintEffectNoSchedule
	w := newWorld(t, newNode("a"), newSlice("a", 2), newClass(), newTemplate("one", 1), newRule("r", noSchedule, first("a")), newPod("p", claims1("one")))
	if diff := cmp.Diff([]string{"p-gpu a/gpu-1 for p"}, w.held()); diff != "" {
		t.Errorf("the other device is given: %s", diff)
	}
	w.put(newRule("r", noSchedule, nil), newPod("q", claims1("one")))
	w.settle()
	if diff := cmp.Diff([]string{"p Running a", "q Pending"}, w.pods()); diff != "" {
		t.Errorf("without a selector none is left: %s", diff)
	}
	w.remove(newRule("r", noSchedule, nil))
	if diff := cmp.Diff([]string{"p-gpu a/gpu-1 for p", "q-gpu a/gpu-0 for q"}, w.held()); diff != "" {
		t.Errorf("without the rule: %s", diff)
	}
}

func TestRulesEvict(t *testing.T) {
	const noExecute = resourcev1beta2.DeviceTaintEffectNoExecute
	for name, c := range map[string]struct {
		rule *resourcev1beta2.DeviceTaintRule
		gone time.Duration
	}{
		"a pod goes with its device":           {newRule("a", noExecute, first("a")), time.Minute},
		"one of every device":                  {newRule("r", noExecute, nil), time.Minute},
		"one of another device leaves it":      {newRule("r", noExecute, first("b")), 0},
		"one of a device of no name leaves it": {newRule("r", noExecute, &resourcev1beta2.DeviceTaintSelector{Device: ptr.To("")}), 0},
		"NoSchedule leaves it":                 {newRule("r", resourcev1beta2.DeviceTaintEffectNoSchedule, nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newNode("a"), newSlice("a", 1), newClass(), newTemplate("one", 1), newPod("p", claims1("one")))
			if diff := cmp.Diff([]string{"p-gpu a/gpu-0 for p"}, w.held()); diff != "" {
				t.Fatal(diff)
			}
			w.until(time.Minute)
			w.put(c.rule)
			w.settle()
			w.goes(c.gone)
		})
	}
}
