package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// pods tells of the pods that are there and wait, the one that was asked about first.
func (w *words) pods() {
	label, told, left := "Pods", 0, 0
	for _, asked := range []bool{true, false} {
		for i := range w.Pods {
			pod := &w.Pods[i]
			text := w.waits(pod)
			if text == "" && pod.Name == w.Subject.Pod {
				text = "waits for nothing: " + string(pod.Status.Phase)
			}
			switch {
			case text == "" || asked != (pod.Name == w.Subject.Pod):
			case told == maxPods:
				left++
			default:
				w.page.field(label, "%s %s", pod.Name, text)
				label, told = "", told+1
			}
		}
	}
	if left > 0 {
		w.page.field("", "and %d more that wait", left)
	}
}

// waits says why a pod is not bound yet, or "".
func (w *words) waits(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return ""
	}
	if pod.DeletionTimestamp != nil {
		return "is being deleted"
	}
	var ours, others []string
	for _, g := range pod.Spec.SchedulingGates {
		if g.Name == v1alpha1.PlacementGate {
			ours = append(ours, g.Name)
		} else {
			others = append(others, g.Name)
		}
	}
	switch {
	case len(others) > 0:
		return fmt.Sprintf("waits behind gate %s of another controller; Plimsoll's own goes last", strings.Join(others, ", "))
	case len(ours) > 0:
		return fmt.Sprintf("waits behind gate %s: %s", v1alpha1.PlacementGate, w.gated())
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf(`waits for kube-scheduler, which says: "%s"`, c.Message)
		}
	}
	return "waits for kube-scheduler"
}

// gated says why Plimsoll has not removed its gate.
func (w *words) gated() string {
	var reserved *metav1.Condition
	if w.Placement != nil {
		reserved = meta.FindStatusCondition(w.Placement.Status.Conditions, v1alpha1.PlacementReserved)
	}
	switch {
	case w.Placement == nil:
		return "there is no Placement yet"
	case w.Placement.Spec.Key == nil, reserved != nil && reserved.Status != metav1.ConditionTrue:
		if reserved != nil && reserved.Message != "" {
			return "nothing is promised: " + reserved.Message
		}
		return "nothing is promised to its Workload"
	}
	return "a slot is promised; its claim is being made, or the pod that had the slot is still ending"
}
