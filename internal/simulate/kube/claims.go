package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// claims gives up what pods that have ended, or are gone, have reserved: a claim without consumers is deallocated, and
// deleted if it was made for a pod that does not need it any more.
type claims struct {
	client client.Client
}

func (c *claims) controller() Controller {
	ofPod := func(_ context.Context, was, is client.Object) []reconcile.Request {
		p := was
		if is != nil {
			if !terminal(is.(*corev1.Pod)) {
				return nil
			}
			p = is
		}
		return claimsOf(p.(*corev1.Pod))
	}
	return Controller{"claims", c, []Watch{{&resourcev1.ResourceClaim{}, itself}, {&corev1.Pod{}, ofPod}}}
}

// claimsOf returns requests for the claims that a pod uses.
func claimsOf(p *corev1.Pod) []reconcile.Request {
	var names []string
	for _, pc := range p.Spec.ResourceClaims {
		if pc.ResourceClaimName != nil {
			names = append(names, *pc.ResourceClaimName)
		}
	}
	for _, st := range p.Status.ResourceClaimStatuses {
		if st.ResourceClaimName != nil {
			names = append(names, *st.ResourceClaimName)
		}
	}
	if st := p.Status.ExtendedResourceClaimStatus; st != nil {
		names = append(names, st.ResourceClaimName)
	}
	var out []reconcile.Request
	for _, name := range names {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: name}})
	}
	return out
}

// Reconcile looks at one claim.
func (c *claims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &resourcev1.ResourceClaim{}
	if err := c.client.Get(ctx, req.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var left []resourcev1.ResourceClaimConsumerReference
	for _, ref := range claim.Status.ReservedFor {
		needs := true
		if ref.APIGroup == "" && ref.Resource == "pods" {
			var err error
			if needs, err = c.needs(ctx, claim.Namespace, ref.Name, ref.UID); err != nil {
				return reconcile.Result{}, err
			}
		}
		if needs {
			left = append(left, ref)
		}
	}
	if len(left) < len(claim.Status.ReservedFor) {
		claim.Status.ReservedFor = left
		if len(left) == 0 {
			claim.Status.Allocation = nil
		}
		if err := c.client.Status().Update(ctx, claim); err != nil {
			return reconcile.Result{}, fmt.Errorf("update claim: %w", err)
		}
	}
	if len(left) > 0 {
		return reconcile.Result{}, nil
	}
	if err := c.release(ctx, claim); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, c.unneeded(ctx, claim)
}

// release lets a claim go that is being deleted and reserved for nobody.
func (c *claims) release(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	i := slices.Index(claim.Finalizers, resourcev1.Finalizer)
	if i < 0 || claim.DeletionTimestamp == nil && claim.Status.Allocation != nil {
		return nil
	}
	if claim.Status.Allocation != nil {
		claim.Status.Allocation = nil
		if err := c.client.Status().Update(ctx, claim); err != nil {
			return fmt.Errorf("update claim: %w", err)
		}
	}
	claim.Finalizers = slices.Delete(claim.Finalizers, i, i+1)
	if err := c.client.Update(ctx, claim); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release claim: %w", err)
	}
	return nil
}

// unneeded deletes a claim that was made for a pod which does not need it any more.
func (c *claims) unneeded(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	ref := metav1.GetControllerOfNoCopy(claim)
	if ref == nil || ref.Kind != "Pod" {
		return nil
	}
	needs, err := c.needs(ctx, claim.Namespace, ref.Name, ref.UID)
	if err != nil || needs {
		return err
	}
	if err := c.client.Delete(ctx, claim); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete claim: %w", err)
	}
	return nil
}

// needs says whether a pod is there and still needs its claims: one that has ended, or was deleted before it was bound, does
// not.
func (c *claims) needs(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	p := &corev1.Pod{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, p); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return p.UID == uid && !terminal(p) && !(p.DeletionTimestamp != nil && p.Spec.NodeName == ""), nil
}
