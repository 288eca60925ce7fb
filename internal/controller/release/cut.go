package release

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// cut gives each claim of the pod its exact template and holds the claim that comes of it against the promise. ready is
// false until every claim is there.
func (c *Controller) cut(ctx context.Context, p *pod, s slot) (ready bool, r *refusal, err error) {
	names, r := c.templateNames(p)
	if r != nil || len(names) == 0 {
		return r == nil, r, nil
	}
	shape, no, err := c.Policies.Shape(ctx, p.Namespace, &p.template.Template.Spec)
	if err != nil {
		return false, nil, err
	}
	if no != nil {
		return false, &refusal{no.Reason, no.Message}, nil
	}
	ready = true
	for i := range shape.Claims {
		want, r := c.exact(p, s, &shape.Claims[i])
		if r != nil {
			return false, r, nil
		}
		want.Name = names[shape.Claims[i].Name]
		if r, err := c.template(ctx, p, want); r != nil || err != nil {
			return false, r, err
		}
		there, r, err := c.claim(ctx, p, shape.Claims[i].Name, want)
		if r != nil || err != nil {
			return false, r, err
		}
		ready = ready && there
	}
	return ready, nil, nil
}

// templateNames returns the names that the webhook gave to the pod's own templates, by pod claim, having held what the
// user wrote against the Workload's podset.
func (c *Controller) templateNames(p *pod) (map[string]string, *refusal) {
	changed := func(format string, args ...any) (map[string]string, *refusal) {
		return nil, &refusal{v1alpha1.ReasonPodChanged, fmt.Sprintf("pod %s: "+format, append([]any{p.Name}, args...)...)}
	}
	users, err := flavors.UserTemplates(p.Pod)
	if err != nil {
		return changed("annotation %s does not parse", v1alpha1.ClaimTemplatesAnnotation)
	}
	want := p.template.Template.Spec.ResourceClaims
	if len(want) != len(p.Spec.ResourceClaims) {
		return changed("it has %d claims, its podset has %d", len(p.Spec.ResourceClaims), len(want))
	}
	names := map[string]string{}
	for i := range want {
		if want[i].ResourceClaimTemplateName == nil || users[want[i].Name] != *want[i].ResourceClaimTemplateName {
			return changed("claim %q is made from template %q, which is not its podset's", want[i].Name, users[want[i].Name])
		}
	}
	for i := range p.Spec.ResourceClaims {
		pc := &p.Spec.ResourceClaims[i]
		if pc.ResourceClaimTemplateName == nil || !flavors.IsOwnedTemplateName(*pc.ResourceClaimTemplateName) {
			return changed("claim %q has no template name of its own", pc.Name)
		}
		if _, known := users[pc.Name]; !known {
			return changed("claim %q is not one of its podset's", pc.Name)
		}
		names[pc.Name] = *pc.ResourceClaimTemplateName
	}
	return names, nil
}

// exact is the template that one claim of a pod gets: cut to the slot's devices, owned by the pod.
func (c *Controller) exact(p *pod, s slot, claim *flavors.ClaimShape) (*resourcev1.ResourceClaimTemplate, *refusal) {
	n := c.Book.Snapshot().Node(s.node)
	if n == nil {
		return nil, &refusal{v1alpha1.ReasonNodeUnavailable, fmt.Sprintf("node %s is gone", s.node)}
	}
	flavor := p.policy.Flavor(p.podSet.Flavor)
	if flavor < 0 {
		return nil, &refusal{v1alpha1.ReasonPolicyNotReady, fmt.Sprintf("DevicePolicy %s has no flavor %s any more", p.policy.Name, p.podSet.Flavor)}
	}
	picks, ids, r := picked(n, s, claim)
	if r != nil {
		return nil, r
	}
	for _, pick := range picks {
		if r := c.selected(p, claim, flavor, pick); r != nil {
			return nil, r
		}
	}
	spec, no := p.policy.Exact(c.Matcher, *claim, flavor, picks, n.Eligible())
	if no != nil {
		return nil, &refusal{no.Reason, no.Message}
	}
	labels := map[string]string{v1alpha1.OwnedLabel: "true"}
	annotations := map[string]string{v1alpha1.DevicesAnnotation: strings.Join(ids, ","), v1alpha1.SlotAnnotation: s.id()}
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}},
		},
		Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: spec},
	}, nil
}

// picked returns the slot's devices of one claim by request, and their ids.
func picked(n *ledger.Node, s slot, claim *flavors.ClaimShape) ([]flavors.Pick, []string, *refusal) {
	picks, no := admission.Picks(n, claim, s.requests)
	if no != nil {
		return nil, nil, &refusal{no.Reason, no.Message}
	}
	var ids []string
	for _, p := range picks {
		for _, d := range p.Devices {
			ids = append(ids, d.ID.String())
		}
	}
	return picks, ids, nil
}

// selected holds the promised devices of a request against class, template and policy as they are now: the promise may be
// older, and a claim that no device satisfies would leave a released pod unschedulable.
func (c *Controller) selected(p *pod, claim *flavors.ClaimShape, flavor int, pick flavors.Pick) *refusal {
	a := &claim.Requests[pick.Request].Alternatives[pick.Alternative]
	class := c.Book.Snapshot().DeviceClass(a.Class)
	if class == nil {
		return &refusal{v1alpha1.ReasonDeviceClassNotFound, fmt.Sprintf("DeviceClass %q does not exist any more: create it, or name another in ResourceClaimTemplate %s", a.Class, claim.Template)}
	}
	expressions := slices.Concat(admission.ClassSelectors(class), a.Selectors, p.policy.Flavors[flavor].Selectors, p.policy.Constraints)
	for _, d := range pick.Devices {
		if ok, err := c.Matcher.Matches(d.ID.Driver, d.Spec, expressions...); err != nil || !ok {
			return &refusal{v1alpha1.ReasonPodChanged, fmt.Sprintf("device %s was promised to pod %s, and ResourceClaimTemplate %s, its DeviceClass or DevicePolicy %s does not select it any more",
				d.ID, p.Name, claim.Template, p.policy.Name)}
		}
	}
	return nil
}

// template makes the pod's own template, or holds the one that is there against it.
func (c *Controller) template(ctx context.Context, p *pod, want *resourcev1.ResourceClaimTemplate) (*refusal, error) {
	have := &resourcev1.ResourceClaimTemplate{}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		err = c.Client.Create(ctx, want.DeepCopy(), client.FieldOwner(v1alpha1.FieldOwner))
		if err == nil {
			return nil, nil
		}
		if apierrors.IsAlreadyExists(err) {
			err = c.Live.Get(ctx, client.ObjectKeyFromObject(want), have)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make template: %w", err)
	}
	if observe.ControllerOf(have) != p.UID || have.Labels[v1alpha1.OwnedLabel] != "true" || !apiequality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return &refusal{v1alpha1.ReasonClaimTampered, fmt.Sprintf("ResourceClaimTemplate %s is not the one that pod %s was promised: someone else wrote it", want.Name, p.Name)}, nil
	}
	return nil, nil
}

// claim finds the claim that was made from the template and holds its spec against the promise.
func (c *Controller) claim(ctx context.Context, p *pod, name string, want *resourcev1.ResourceClaimTemplate) (there bool, r *refusal, err error) {
	for _, st := range p.Status.ResourceClaimStatuses {
		if st.Name != name || st.ResourceClaimName == nil {
			continue
		}
		have := &resourcev1.ResourceClaim{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *st.ResourceClaimName}, have); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return false, nil, fmt.Errorf("get claim: %w", err)
			}
			gone, err := c.claimGone(ctx, p, st)
			if err != nil || !gone {
				return false, nil, err
			}
			return false, &refusal{v1alpha1.ReasonClaimTampered, fmt.Sprintf("ResourceClaim %s is gone, which pod %s was promised: someone else deleted it", *st.ResourceClaimName, p.Name)}, nil
		}
		if observe.ControllerOf(have) != p.UID || have.Labels[v1alpha1.OwnedLabel] != "true" ||
			have.Annotations[v1alpha1.DevicesAnnotation] != want.Annotations[v1alpha1.DevicesAnnotation] ||
			!apiequality.Semantic.DeepEqual(have.Spec, want.Spec.Spec) {
			return false, &refusal{v1alpha1.ReasonClaimTampered, fmt.Sprintf("ResourceClaim %s is not the one that pod %s was promised: someone else wrote it", have.Name, p.Name)}, nil
		}
		return true, nil, nil
	}
	return false, nil, nil
}

// claimGone says whether the claim that a pod's status names was deleted, which the claim controller does not mend. The
// caches of pods and claims are not of one time, so the API server is asked: the claim of a pod that is ending may be gone.
func (c *Controller) claimGone(ctx context.Context, p *pod, st corev1.PodResourceClaimStatus) (bool, error) {
	now := &corev1.Pod{}
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(p.Pod), now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if now.UID != p.UID || now.DeletionTimestamp != nil || !slices.ContainsFunc(now.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool {
		return s.Name == st.Name && s.ResourceClaimName != nil && *s.ResourceClaimName == *st.ResourceClaimName
	}) {
		return false, nil
	}
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: *st.ResourceClaimName}, &resourcev1.ResourceClaim{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}
