package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// claimsOf returns the names of a pod's ResourceClaims as far as they have any yet, each once, and how often its containers
// refer to each: init containers too. The claim that kube-scheduler made for its extended resources is among them.
func claimsOf(p *corev1.Pod) (claims []string, referring []int) {
	add := func(claim string, containers int) {
		if at := slices.Index(claims, claim); at >= 0 {
			referring[at] += containers
			return
		}
		claims, referring = append(claims, claim), append(referring, containers)
	}
	for i := range p.Spec.ResourceClaims {
		if c := &p.Spec.ResourceClaims[i]; claimName(p, c) != "" {
			add(claimName(p, c), ledger.Referring(&p.Spec, c.Name))
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		containers := map[string]struct{}{}
		for _, m := range s.RequestMappings {
			containers[m.ContainerName] = struct{}{}
		}
		add(s.ResourceClaimName, len(containers))
	}
	return claims, referring
}

// claimName returns the name of the ResourceClaim that an entry of a pod's spec stands for; empty for one that is not made yet,
// or need not be.
func claimName(p *corev1.Pod, c *corev1.PodResourceClaim) string {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName
	}
	for i := range p.Status.ResourceClaimStatuses {
		if s := &p.Status.ResourceClaimStatuses[i]; s.Name == c.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}

// mapped returns what a pod's status says, in the shape of Kubernetes 1.36, that its claims take of its node. Of what 1.37 says
// only the claims' names are in these types: that counts for nothing here.
func mapped(p *corev1.Pod) (out []ledger.ClaimStatus) {
	for i := range p.Status.NodeAllocatableResourceClaimStatuses {
		if s := &p.Status.NodeAllocatableResourceClaimStatuses[i]; len(s.Resources) > 0 {
			out = append(out, ledger.ClaimStatus{Claim: s.ResourceClaimName, Amounts: ledger.AmountsOf(s.Resources)})
		}
	}
	return out
}

// agent says whether a pod may be a driver's: it is of a DaemonSet, a node's own, or nobody's.
func agent(p *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	return ref == nil || ref.Kind == "DaemonSet" || ref.Kind == "Node"
}

func ready(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
