package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// podClaims makes the claims that pods name templates for, also while the pods are gated. A pod waits for a template that
// does not exist.
type podClaims struct {
	client client.Client
}

func (c *podClaims) controller() Controller {
	ofTemplate := func(ctx context.Context, was, is client.Object) []reconcile.Request {
		if was != nil {
			return nil
		}
		var list corev1.PodList
		if err := c.client.List(ctx, &list, client.InNamespace(is.GetNamespace()), client.MatchingFields{podByTemplate: is.GetName()}); err != nil {
			return nil
		}
		return requests(list.Items)
	}
	ofPod := func(_ context.Context, _, is client.Object) []reconcile.Request {
		if is == nil || len(templatesOf(is.(*corev1.Pod))) == 0 {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(is)}}
	}
	return Controller{"pod-claims", c, []Watch{{&corev1.Pod{}, ofPod}, {&resourcev1.ResourceClaimTemplate{}, ofTemplate}}}
}

// templatesOf returns the names of the claim templates that a pod names.
func templatesOf(p *corev1.Pod) []string {
	var out []string
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName != nil {
			out = append(out, *c.ResourceClaimTemplateName)
		}
	}
	return out
}

// Reconcile looks at one pod.
func (c *podClaims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &corev1.Pod{}
	if err := c.client.Get(ctx, req.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.DeletionTimestamp != nil || terminal(p) {
		return reconcile.Result{}, nil
	}
	changed := false
	for i := range p.Spec.ResourceClaims {
		pc := &p.Spec.ResourceClaims[i]
		if pc.ResourceClaimTemplateName == nil {
			continue
		}
		if _, _, err := resourceclaim.Name(p, pc); !errors.Is(err, resourceclaim.ErrClaimNotFound) {
			continue
		}
		claim, err := c.create(ctx, p, pc)
		if err != nil {
			return reconcile.Result{}, err
		}
		if claim != nil {
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: pc.Name, ResourceClaimName: &claim.Name})
			changed = true
		}
	}
	if changed {
		if err := c.client.Status().Update(ctx, p); err != nil {
			return reconcile.Result{}, fmt.Errorf("update pod: %w", err)
		}
	}
	return reconcile.Result{}, nil
}

// create makes one claim; nil while its template does not exist.
func (c *podClaims) create(ctx context.Context, p *corev1.Pod, pc *corev1.PodResourceClaim) (*resourcev1.ResourceClaim, error) {
	t := &resourcev1.ResourceClaimTemplate{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *pc.ResourceClaimTemplateName}, t); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	annotations := clone(t.Spec.Annotations)
	annotations[resourcev1.PodResourceClaimAnnotation] = pc.Name
	return createClaim(ctx, c.client, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name + "-" + pc.Name, Labels: clone(t.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{ownedBy(p)},
		},
		Spec: *t.Spec.Spec.DeepCopy(),
	})
}

func ownedBy(p *corev1.Pod) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}
}

// maxName is how long a claim's name may be.
const maxName = 253

// createClaim makes a claim by its name, or with a number behind it where that is taken.
func createClaim(ctx context.Context, c client.Client, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	for i := 0; ; i++ {
		made := claim.DeepCopy()
		if i > 0 {
			suffix := "-" + strconv.Itoa(i)
			made.Name = claim.Name[:min(len(claim.Name), maxName-len(suffix))] + suffix
		}
		err := c.Create(ctx, made)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("create claim: %w", err)
		}
		return made, nil
	}
}
