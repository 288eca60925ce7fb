package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// podMutator gates managed pods, and points each of their claims at a template of the pod's own, which the manager
// makes when it knows the pod's slot. Where it fails the pod is refused: it would be one without a fence.
type podMutator struct {
	decoder admission.Decoder
	rand    io.Reader
}

// Handle answers one request.
func (m *podMutator) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := m.decoder.DecodeRaw(req.Object, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode pod: %w", err))
	}
	if _, managed := pod.Labels[v1alpha1.ManagedLabel]; !managed {
		return admission.Allowed("")
	}
	before := pod.DeepCopy()
	if err := m.mutate(pod); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	response, err := patched(before, pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return response
}

// mutate changes a managed pod as it is created.
func (m *podMutator) mutate(pod *corev1.Pod) error {
	addGate(pod)
	return m.freshTemplates(pod)
}

func addGate(pod *corev1.Pod) {
	gated := slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.PlacementGate })
	if !gated {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.PlacementGate})
	}
}

// freshTemplates gives each claim of a pod that is made from a template a fresh name, and keeps the user's.
//
// A claim that carries a name of ours, with the annotation's entry that it was made from, is left: the API server may
// call a second time with what the first call wrote. Nothing tells that call from a first one in which both are
// forged, with the name of another pod's template. It gains nothing: the manager serves only templates that it made
// itself, owned by that very pod (by uid), and makes none whose name is taken; so a forger's pod keeps its gate. For
// the same reason a fresh name is not looked up here: the API server says whether it is taken when it is made.
func (m *podMutator) freshTemplates(pod *corev1.Pod) error {
	before, err := flavors.UserTemplates(pod)
	if err != nil {
		before = nil // a user's own annotation: every claim gets a fresh name, and it is written over
	}
	kept := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		pc := &pod.Spec.ResourceClaims[i]
		if pc.ResourceClaimTemplateName == nil {
			continue
		}
		name := *pc.ResourceClaimTemplateName
		if user, ok := before[pc.Name]; ok && flavors.IsFreshTemplateName(name, user) {
			kept[pc.Name] = user
			continue
		}
		random, err := randomName(m.rand, v1alpha1.TemplateRandomLength)
		if err != nil {
			return fmt.Errorf("name a claim template: %w", err)
		}
		kept[pc.Name] = name
		pc.ResourceClaimTemplateName = ptr.To(flavors.FreshTemplateName(name, random))
	}
	return keepTemplates(pod, kept)
}

func keepTemplates(pod *corev1.Pod, kept map[string]string) error {
	if len(kept) == 0 {
		delete(pod.Annotations, v1alpha1.ClaimTemplatesAnnotation)
		return nil
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("keep template names: %w", err)
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.ClaimTemplatesAnnotation] = string(raw)
	return nil
}

// randomName returns n lower-case letters and digits, each as likely as any other.
func randomName(r io.Reader, n int) (string, error) {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	const most = 256 - 256%len(alphabet) // bytes from here on would favour the first letters
	name := make([]byte, 0, n)
	var b [1]byte
	for len(name) < n {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", fmt.Errorf("read random bytes: %w", err)
		}
		if int(b[0]) < most {
			name = append(name, alphabet[int(b[0])%len(alphabet)])
		}
	}
	return string(name), nil
}
