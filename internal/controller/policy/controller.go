// Package policy says on each DevicePolicy, and on each AdmissionCheck that names one, whether it can be decided by and
// what has to be mended where not.
package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// Controller keeps the conditions. There are few policies and checks, so it looks at all of them whenever one, or
// anything that they depend on, changes.
type Controller struct {
	Client   client.Client
	Policies *policies.Resolver
	Matcher  *flavors.Matcher
}

// again is how soon a look that a conflict ended is repeated.
const again = 100 * time.Millisecond

// conditions are what a DevicePolicy's status lists, in order; Ready sums them up.
var conditions = []string{v1alpha1.PolicyFlavorsResolved, v1alpha1.PolicyOrderConsistent, v1alpha1.PolicyQuotaResourceConsistent}

// Reconcile brings every condition up to date, whatever it was called for.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	err := c.reconcile(ctx)
	if apierrors.IsConflict(err) { // the cache is behind; another look will do
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return reconcile.Result{}, err
}

func (c *Controller) reconcile(ctx context.Context) error {
	queues, err := c.queueProblems(ctx)
	if err != nil {
		return err
	}
	list := &v1alpha1.DevicePolicyList{}
	if err := c.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list device policies: %w", err)
	}
	ready := map[string]string{}
	for i := range list.Items {
		dp := &list.Items[i]
		p, problems, err := c.Policies.Resolve(ctx, dp)
		if err != nil {
			return err
		}
		if err := c.policyStatus(ctx, dp, p, problems, queues[dp.Name]); err != nil {
			return err
		}
		ready[dp.Name] = messageOf(problems)
	}
	return c.checks(ctx, ready)
}

// queueProblems returns, by policy, what about the queues that use it keeps them from being steered, or from being charged
// once and as written.
func (c *Controller) queueProblems(ctx context.Context) (map[string][]flavors.Problem, error) {
	list := &kueue.ClusterQueueList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list cluster queues: %w", err)
	}
	out, err := c.mischarged(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		m, err := c.Policies.ForClusterQueue(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if m == nil || m.Policy == nil {
			continue
		}
		twice, err := c.twice(ctx, m.Policy, m.ClusterQueue)
		if err != nil {
			return nil, err
		}
		out[m.PolicyName] = slices.Concat(out[m.PolicyName], m.Policy.QueueProblems(m.ClusterQueue, m.Checks), twice)
	}
	return out, nil
}

// policyStatus writes a policy's conditions where they changed. Queues that cannot be steered make their own condition
// false and leave the policy Ready: the other queues can.
func (c *Controller) policyStatus(ctx context.Context, dp *v1alpha1.DevicePolicy, p *flavors.Policy, own, queues []flavors.Problem) error {
	old := dp.DeepCopy()
	dp.Status.ObservedGeneration, dp.Status.Revision = dp.Generation, p.Revision
	set := func(t string, found []flavors.Problem) {
		cond := metav1.Condition{Type: t, Status: metav1.ConditionTrue, Reason: "Consistent", ObservedGeneration: dp.Generation}
		if len(found) > 0 {
			cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, found[0].Reason, messageOf(found)
		}
		meta.SetStatusCondition(&dp.Status.Conditions, cond)
	}
	of := func(t string) []flavors.Problem {
		var out []flavors.Problem
		for _, x := range slices.Concat(own, queues) {
			if x.Condition == t {
				out = append(out, x)
			}
		}
		return out
	}
	for _, t := range conditions {
		set(t, of(t))
	}
	set(v1alpha1.PolicyReady, own)
	if apiequality.Semantic.DeepEqual(old.Status, dp.Status) {
		return nil
	}
	err := c.Client.Status().Patch(ctx, dp, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwner))
	if err != nil {
		return fmt.Errorf("patch device policy status: %w", err)
	}
	return nil
}

// checks writes the Active condition of our AdmissionChecks; ready holds, by policy, why it is not ready, empty where
// it is.
func (c *Controller) checks(ctx context.Context, ready map[string]string) error {
	list := &kueue.AdmissionCheckList{}
	if err := c.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list admission checks: %w", err)
	}
	for i := range list.Items {
		check := &list.Items[i]
		if check.Spec.ControllerName != v1alpha1.ControllerName {
			continue
		}
		cond := metav1.Condition{
			Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active",
			Message: "the admission check can be used", ObservedGeneration: check.Generation,
		}
		if reason, message := inactive(check, ready); reason != "" {
			cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, reason, message
		}
		old := check.DeepCopy()
		if !meta.SetStatusCondition(&check.Status.Conditions, cond) {
			continue
		}
		err := c.Client.Status().Patch(ctx, check, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("patch admission check status: %w", err)
		}
	}
	return nil
}

// inactive says why a check cannot be used; an empty reason where it can.
func inactive(check *kueue.AdmissionCheck, ready map[string]string) (reason, message string) {
	ref := check.Spec.Parameters
	if ref == nil || ref.APIGroup != v1alpha1.GroupVersion.Group || ref.Kind != "DevicePolicy" {
		return "NoParameters", fmt.Sprintf("spec.parameters names no DevicePolicy: set apiGroup %s, kind DevicePolicy and its name", v1alpha1.GroupVersion.Group)
	}
	why, exists := ready[ref.Name]
	if !exists {
		return "PolicyNotFound", fmt.Sprintf("DevicePolicy %q does not exist: create it, or name another in spec.parameters", ref.Name)
	}
	if why != "" {
		return "PolicyNotReady", fmt.Sprintf("DevicePolicy %s is not Ready: %s", ref.Name, why)
	}
	return "", ""
}

// messageOf joins problems into one sentence each, without repeats, bounded.
func messageOf(problems []flavors.Problem) string {
	var parts []string
	for _, p := range problems {
		if !slices.Contains(parts, p.Message) {
			parts = append(parts, p.Message)
		}
	}
	const most = 5
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", len(parts)-most))
	}
	return strings.Join(parts, "; ")
}
