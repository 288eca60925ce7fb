package policies

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server checks expressions against the kinds that they are for, and puts what it finds into the status.
func TestPoliciesAreWellTyped(t *testing.T) {
	s := newScene(t, manager)
	var policies admissionv1.ValidatingAdmissionPolicyList
	s.eventually("every policy was checked", func(ctx context.Context) (bool, error) {
		if err := s.admin.List(ctx, &policies); err != nil {
			return false, err
		}
		for _, policy := range policies.Items {
			if policy.Status.TypeChecking == nil || policy.Status.ObservedGeneration != policy.Generation {
				return false, nil
			}
		}
		return true, nil
	})
	for _, policy := range policies.Items {
		for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", policy.Name, warning.FieldRef, warning.Warning)
		}
	}
}

// Every policy of ours denies, and every refusal is one whole sentence with its own reason.
func TestPoliciesDenyInSentences(t *testing.T) {
	s := newScene(t, manager)
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	s.must(s.admin.List(s.ctx(), &bindings, ours))
	bound := map[string]bool{}
	for _, binding := range bindings.Items {
		bound[binding.Spec.PolicyName] = true
		if actions := binding.Spec.ValidationActions; len(actions) != 1 || actions[0] != admissionv1.Deny {
			t.Errorf("binding %s has actions %v, want Deny", binding.Name, actions)
		}
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	s.must(s.admin.List(s.ctx(), &policies, ours))
	if len(policies.Items) == 0 {
		t.Fatal("no policy is installed")
	}
	for _, policy := range policies.Items {
		if !bound[policy.Name] {
			t.Errorf("policy %s has no binding", policy.Name)
		}
		if open := *policy.Spec.FailurePolicy == admissionv1.Ignore; open != (policy.Name == "plimsoll-manager-workload-checks") {
			t.Errorf("policy %s has failurePolicy %s", policy.Name, *policy.Spec.FailurePolicy)
		}
		for i, validation := range policy.Spec.Validations {
			if !strings.HasSuffix(validation.Message, ".") || strings.Contains(validation.Message, "  ") {
				t.Errorf("policy %s, validation %d: %q is no sentence", policy.Name, i, validation.Message)
			}
			if validation.Reason == nil || *validation.Reason != "Forbidden" {
				t.Errorf("policy %s, validation %d: reason is %v, want Forbidden", policy.Name, i, validation.Reason)
			}
		}
	}
}

var ours = client.MatchingLabels{"app.kubernetes.io/part-of": "plimsoll"}
