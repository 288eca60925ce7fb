package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

func TestANodeWhosePoolGoesOnUnderAnotherNameLendsAtOnce(t *testing.T) {
	renamed := func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		s.UID, s.Spec.Pool.Name = "slice-renamed", "renamed"
	}
	for name, seconds := range map[string]int{"within the grace": 5, "after it": 90, "after the memory": 7200} {
		t.Run(name, func(t *testing.T) {
			w := newWorld().at(-1000).node("h", "h100:8", nil).at(0).loses("h").node("h", "h100:8", renamed)
			dec := w.decide(t, Request{Now: after(seconds), PodSets: []PodSet{pods(1, 8, assignedTo("h100"))}})
			if dec.Verdict != v1alpha1.VerdictAdmit {
				t.Errorf("%s %s: %s", dec.Verdict, dec.Reason, dec.Message)
			}
		})
	}
}
