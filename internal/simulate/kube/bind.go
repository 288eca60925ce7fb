package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
)

// bind gives a pod what was predicted of a node, binds it and has it run.
func (s *Scheduler) bind(ctx context.Context, in *admission.Incoming, node string, given *admission.Prediction) error {
	p := in.Pod
	done := map[types.UID]bool{}
	for i := range p.Spec.ResourceClaims {
		name := p.Spec.ResourceClaims[i].Name
		c := in.Claims[name]
		if c == nil || done[c.UID] {
			continue
		}
		done[c.UID] = true
		a := given.Allocations[name]
		if a == nil && resourceclaim.IsReservedForPod(p, c, false) {
			continue
		}
		if err := s.reserve(ctx, c, a, p); err != nil {
			return err
		}
	}
	p.Status.NodeAllocatableResourceClaimStatuses = given.Statuses
	if e := given.Extended; e != nil {
		c, err := s.extended(ctx, e)
		if err != nil {
			return err
		}
		if err := s.reserve(ctx, c, given.Allocations[v1alpha1.ExtendedResourcesClaim], p); err != nil {
			return err
		}
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: e.Mappings, ResourceClaimName: c.Name}
		for i := range p.Status.NodeAllocatableResourceClaimStatuses {
			if st := &p.Status.NodeAllocatableResourceClaimStatuses[i]; st.ResourceClaimName == v1alpha1.ExtendedResourcesClaim {
				st.ResourceClaimName = c.Name
			}
		}
	}
	status := p.Status.DeepCopy()
	p.Spec.NodeName = node
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

// extended makes the claim for a pod's extended resources, with a name that says what it is generated from.
func (s *Scheduler) extended(ctx context.Context, e *admission.ExtendedClaim) (*resourcev1.ResourceClaim, error) {
	c := e.Claim.DeepCopy()
	c.Name, c.GenerateName = strings.TrimSuffix(c.GenerateName, "-"), ""
	return createClaim(ctx, s.client, c)
}

// reserve writes that the pod uses a claim, and what the claim is given, if it is given anything.
func (s *Scheduler) reserve(ctx context.Context, c *resourcev1.ResourceClaim, given *resourcev1.AllocationResult, p *corev1.Pod) error {
	if given != nil {
		c.Status.Allocation = given.DeepCopy()
		c.Status.Allocation.AllocationTimestamp = ptr.To(metav1.NewTime(s.clock.Now()))
		for k := range c.Status.Allocation.Devices.Results {
			if r := &c.Status.Allocation.Devices.Results[k]; r.ShareID != nil {
				r.ShareID = ptr.To(shareID(c.UID, k))
			}
		}
	}
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
