package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// bind gives a pod its devices, binds it and has it run.
func (s *Scheduler) bind(ctx context.Context, p *corev1.Pod, at *placed) error {
	for i, c := range at.open {
		if at.mappings != nil && i == len(at.open)-1 {
			made, err := createClaim(ctx, s.client, c)
			if err != nil {
				return err
			}
			c = made
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: at.mappings, ResourceClaimName: c.Name}
		}
		c.Status.Allocation = at.results[i].DeepCopy()
		c.Status.Allocation.AllocationTimestamp = ptr.To(metav1.NewTime(s.clock.Now()))
		for k := range c.Status.Allocation.Devices.Results {
			if r := &c.Status.Allocation.Devices.Results[k]; r.ShareID != nil {
				r.ShareID = ptr.To(shareID(c.UID, k))
			}
		}
		if err := s.reserve(ctx, c, p); err != nil {
			return err
		}
	}
	for _, c := range at.have {
		if !resourceclaim.IsReservedForPod(p, c, false) {
			if err := s.reserve(ctx, c, p); err != nil {
				return err
			}
		}
	}
	status := p.Status.DeepCopy()
	p.Spec.NodeName = at.node.Name
	if err := s.client.Update(ctx, p); err != nil {
		return fmt.Errorf("bind pod: %w", err)
	}
	p.Status = *status
	start(p, s.clock.Now())
	if err := s.client.Status().Update(ctx, p); err != nil {
		return fmt.Errorf("update pod: %w", err)
	}
	s.Observe(p.DeepCopy(), false)
	return nil
}

// reserve writes a claim's allocation, and that the pod uses it.
func (s *Scheduler) reserve(ctx context.Context, c *resourcev1.ResourceClaim, p *corev1.Pod) error {
	c.Status.ReservedFor = append(slices.Clone(c.Status.ReservedFor), resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	if err := s.client.Status().Update(ctx, c); err != nil {
		return fmt.Errorf("allocate claim: %w", err)
	}
	s.Observe(c.DeepCopy(), false)
	return nil
}

// shareID names the share of a device that a claim's nth result is; the allocator's own is random.
func shareID(claim types.UID, n int) types.UID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", claim, n))
	x := hex.EncodeToString(sum[:16])
	return types.UID(x[:8] + "-" + x[8:12] + "-8" + x[13:16] + "-8" + x[17:20] + "-" + x[20:])
}
