package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// incoming gathers a pod with its claims as they stand.
func (s *Scheduler) incoming(ctx context.Context, p *corev1.Pod) (*admission.Incoming, error) {
	in := &admission.Incoming{Pod: p, Claims: map[string]*resourcev1.ResourceClaim{}}
	byName := map[string]*resourcev1.ResourceClaim{}
	for i := range p.Spec.ResourceClaims {
		pc := &p.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(p, pc)
		if err != nil || name == nil { // it is not made yet, or of a kind that is not known, or none is to be made
			continue
		}
		claim := byName[*name]
		if claim == nil {
			claim = &resourcev1.ResourceClaim{}
			if err := s.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *name}, claim); err != nil {
				if client.IgnoreNotFound(err) != nil {
					return nil, fmt.Errorf("get claim: %w", err)
				}
				continue
			}
			byName[*name] = claim
		}
		in.Claims[pc.Name] = claim
	}
	return in, nil
}

// place returns the first of some nodes that takes a pod, with what it gets there. Where none does, it returns what is said of the
// first, or of the one over which kube-scheduler gives up the pod on all of them: it looks no further then.
func place(ctx context.Context, o *admission.Outlook, nodes []string) (string, admission.Prediction) {
	first := o.Before()
	if first.Reach != "" {
		return "", first
	}
	for i, name := range nodes {
		p := o.On(ctx, name)
		if p.Fits || p.Reach != "" {
			return name, p
		}
		if i == 0 {
			first = p
		}
	}
	return "", first
}

// told is what a pod's status says of why it is bound to none of so many nodes. Where kube-scheduler's answer is chance, or counts
// otherwise than it is, that is told as well.
func told(p *admission.Prediction, nodes int) string {
	why := p.Message
	if p.Quirk != "" {
		why += " (" + p.Quirk + ")"
	}
	switch {
	case p.Reach != "":
		return why
	case why != "":
		why = ": " + why
	}
	return fmt.Sprintf("0/%d nodes are available%s", nodes, why)
}
