package policies

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// policyKind is the kind that an AdmissionCheck of ours names in spec.parameters.
const policyKind = "DevicePolicy"

// Resolver finds the policy of a queue. It is safe for concurrent use if its client is.
type Resolver struct {
	Client client.Reader
}

// Managed is a ClusterQueue that has a check of ours, with the policy that decides its workloads. What it points to
// is read-only: it may be shared with an informer's cache.
type Managed struct {
	ClusterQueue *kueue.ClusterQueue
	// Checks holds the names of our checks on the queue, sorted; it is never empty. The first one's policy counts.
	Checks []string
	// Policy is nil if it could not be resolved: then Problems says why.
	Policy *flavors.Policy
	// Problems holds those of the policy, then those of this queue. While there are any, nothing may be decided.
	Problems []flavors.Problem
	// PolicyName is what the check names; empty where it names no DevicePolicy.
	PolicyName string
}

// Steerable says whether an allowed set can be written into the queue's workloads so that Kueue heeds it and the
// manager opens it again. It is false without a policy, in Shadow, where the policy or the queue is set up so that
// no set works, and for two checks of ours or one that is limited to some flavors. A queue whose only fault is the
// order of its flavors can be steered, and so can one whose policy asks for what is not supported yet: closed, its
// workloads wait without quota.
func (m *Managed) Steerable() bool {
	if m == nil || m.Policy == nil || m.Policy.Shadow() {
		return false
	}
	return !slices.ContainsFunc(m.Problems, func(p flavors.Problem) bool {
		return p.Condition != v1alpha1.PolicyReady && p.Reason != flavors.FlavorOrder
	})
}

// ForQueue returns the policy of a LocalQueue, as ForClusterQueue does. A LocalQueue or ClusterQueue that does not
// exist is not managed: nil, nil.
func (r *Resolver) ForQueue(ctx context.Context, namespace, localQueue string) (*Managed, error) {
	if localQueue == "" {
		return nil, nil
	}
	lq := &kueue.LocalQueue{}
	if found, err := r.get(ctx, types.NamespacedName{Namespace: namespace, Name: localQueue}, lq); err != nil || !found {
		return nil, err
	}
	cq := &kueue.ClusterQueue{}
	if found, err := r.get(ctx, types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}, cq); err != nil || !found {
		return nil, err
	}
	return r.ForClusterQueue(ctx, cq)
}

// ForClusterQueue returns the policy of a ClusterQueue; nil, nil where it has no check of ours. An error is one of
// reading, never one of what was read: that is in Problems.
func (r *Resolver) ForClusterQueue(ctx context.Context, cq *kueue.ClusterQueue) (*Managed, error) {
	checks, err := r.OwnChecks(ctx, cq)
	if err != nil || len(checks) == 0 {
		return nil, err
	}
	m := &Managed{ClusterQueue: cq}
	for _, c := range checks {
		m.Checks = append(m.Checks, c.Name)
	}
	check := checks[0]
	m.PolicyName = PolicyOf(check)
	if m.PolicyName == "" {
		m.problem("NoParameters", "AdmissionCheck %s names no policy: set spec.parameters to apiGroup %s, kind %s and the policy's name", check.Name, v1alpha1.GroupVersion.Group, policyKind)
		return m, nil
	}
	dp := &v1alpha1.DevicePolicy{}
	found, err := r.get(ctx, types.NamespacedName{Name: m.PolicyName}, dp)
	if err != nil {
		return nil, err
	}
	if !found {
		m.problem("PolicyNotFound", "AdmissionCheck %s names DevicePolicy %q, which does not exist: create it, or name another", check.Name, m.PolicyName)
		return m, nil
	}
	return m, r.resolve(ctx, m, dp)
}

// ByName returns a DevicePolicy as it is now, whichever queues use it; nil where it does not exist, or where its flavors
// are not what they should be.
func (r *Resolver) ByName(ctx context.Context, name string) (*flavors.Policy, error) {
	dp := &v1alpha1.DevicePolicy{}
	if found, err := r.get(ctx, types.NamespacedName{Name: name}, dp); err != nil || !found {
		return nil, err
	}
	p, problems, err := r.Resolve(ctx, dp)
	if err != nil || unresolved(problems) {
		return nil, err
	}
	return p, nil
}

func unresolved(problems []flavors.Problem) bool {
	return slices.ContainsFunc(problems, func(p flavors.Problem) bool { return p.Condition == v1alpha1.PolicyFlavorsResolved })
}

// resolve fills in the policy and the problems.
func (r *Resolver) resolve(ctx context.Context, m *Managed, dp *v1alpha1.DevicePolicy) error {
	p, problems, err := r.Resolve(ctx, dp)
	if err != nil {
		return err
	}
	m.Problems = append(m.Problems, problems...)
	if unresolved(problems) {
		return nil
	}
	m.Policy = p
	m.Problems = append(m.Problems, p.QueueProblems(m.ClusterQueue, m.Checks)...)
	return r.lookAlikes(ctx, m)
}

// lookAlikes adds a problem for each flavor of the queue that is not the policy's and has the node labels of one that
// is: Kueue would take it for that one.
func (r *Resolver) lookAlikes(ctx context.Context, m *Managed) error {
	group := m.Policy.Group(m.ClusterQueue)
	if group == nil {
		return nil
	}
	for _, q := range group.Flavors {
		if m.Policy.Flavor(string(q.Name)) >= 0 {
			continue
		}
		rf := &kueue.ResourceFlavor{}
		found, err := r.get(ctx, types.NamespacedName{Name: string(q.Name)}, rf)
		if err != nil {
			return err
		}
		for i := range m.Policy.Flavors {
			f := &m.Policy.Flavors[i]
			if found && labels.SelectorFromSet(f.NodeLabels).Matches(labels.Set(rf.Spec.NodeLabels)) {
				m.Problems = append(m.Problems, flavors.Problem{
					Condition: v1alpha1.PolicyFlavorsResolved, Reason: "NotTellableApart",
					Message: fmt.Sprintf("ClusterQueue %s: flavor %s, which the policy does not list, has the nodeLabels of %s: give it another value, or list it in the policy", m.ClusterQueue.Name, rf.Name, f.Name),
				})
			}
		}
	}
	return nil
}

// Resolve joins a policy with its ResourceFlavors, as flavors.Resolve does. The error is one of reading.
func (r *Resolver) Resolve(ctx context.Context, dp *v1alpha1.DevicePolicy) (*flavors.Policy, []flavors.Problem, error) {
	var failed error
	p, problems := flavors.Resolve(dp, func(name string) *kueue.ResourceFlavor {
		rf := &kueue.ResourceFlavor{}
		found, err := r.get(ctx, types.NamespacedName{Name: name}, rf)
		if err != nil && failed == nil {
			failed = err
		}
		if !found {
			return nil
		}
		return rf
	})
	return p, problems, failed
}

// PolicyOf returns the name of the DevicePolicy that an AdmissionCheck of ours names; "" where it names none.
func PolicyOf(check *kueue.AdmissionCheck) string {
	p := check.Spec.Parameters
	if p == nil || p.APIGroup != v1alpha1.GroupVersion.Group || p.Kind != policyKind {
		return ""
	}
	return p.Name
}

// OwnChecks returns the ClusterQueue's AdmissionChecks that are ours, sorted by name: the first one's policy counts. The
// error is one of reading.
func (r *Resolver) OwnChecks(ctx context.Context, cq *kueue.ClusterQueue) ([]*kueue.AdmissionCheck, error) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil, nil
	}
	var names []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		names = append(names, string(rule.Name))
	}
	slices.Sort(names)
	var checks []*kueue.AdmissionCheck
	for _, name := range slices.Compact(names) {
		check := &kueue.AdmissionCheck{}
		found, err := r.get(ctx, types.NamespacedName{Name: name}, check)
		if err != nil {
			return nil, err
		}
		if found && check.Spec.ControllerName == v1alpha1.ControllerName {
			checks = append(checks, check)
		}
	}
	return checks, nil
}

func (r *Resolver) get(ctx context.Context, key types.NamespacedName, obj client.Object) (bool, error) {
	err := r.Client.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s: %w", obj, key, err)
	}
	return true, nil
}

func (m *Managed) problem(reason, format string, args ...any) {
	m.Problems = append(m.Problems, flavors.Problem{Condition: v1alpha1.PolicyReady, Reason: reason, Message: fmt.Sprintf(format, args...)})
}
