package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// twice says which other resources a queue gives quota for that stand for devices of the policy: by their DeviceClass's
// extendedResourceName. The same devices would be counted in two budgets.
func (c *Controller) twice(ctx context.Context, p *flavors.Policy, cq *kueue.ClusterQueue) ([]flavors.Problem, error) {
	own := corev1.ResourceName(p.Spec.QuotaResource)
	classes := &resourcev1.DeviceClassList{}
	if err := c.Client.List(ctx, classes); err != nil {
		return nil, fmt.Errorf("list device classes: %w", err)
	}
	var problems []flavors.Problem
	for i := range classes.Items {
		class := &classes.Items[i]
		covered := slices.IndexFunc(namesOf(class), func(name corev1.ResourceName) bool { return name != own && covers(cq, name) })
		if covered < 0 {
			continue
		}
		served, err := c.serves(ctx, p, class)
		if err != nil {
			return nil, err
		}
		if served {
			problems = append(problems, flavors.Problem{Condition: v1alpha1.PolicyQuotaResourceConsistent, Reason: "CountedTwice", Message: fmt.Sprintf(
				"ClusterQueue %s: gives quota for %s too, under which DeviceClass %s serves devices of the policy: set quotaResource to that name, or give quota for one of them",
				cq.Name, namesOf(class)[covered], class.Name)})
		}
	}
	return problems, nil
}

// namesOf returns the plain extended resources that a DeviceClass serves.
func namesOf(class *resourcev1.DeviceClass) []corev1.ResourceName {
	names := []corev1.ResourceName{corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class.Name)}
	if n := class.Spec.ExtendedResourceName; n != nil {
		names = append(names, corev1.ResourceName(*n))
	}
	return names
}

func covers(cq *kueue.ClusterQueue, name corev1.ResourceName) bool {
	return slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool { return slices.Contains(g.CoveredResources, name) })
}

// serves says whether any device that a class selects is one of the policy's. A selector that fails on a device selects it not.
func (c *Controller) serves(ctx context.Context, p *flavors.Policy, class *resourcev1.DeviceClass) (bool, error) {
	list := &resourcev1.ResourceSliceList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list resource slices: %w", err)
	}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for d := range spec.Devices {
			if ok, err := c.Matcher.Matches(spec.Driver, &spec.Devices[d], admission.ClassSelectors(class)...); err != nil || !ok {
				continue
			}
			for f := range p.Flavors {
				if ok, err := c.Matcher.Matches(spec.Driver, &spec.Devices[d], slices.Concat(p.Flavors[f].Selectors, p.Constraints)...); err == nil && ok {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// mischarged says, by policy, in which queues workloads were charged otherwise than was written, as often as the policy's
// retry.limit.
func (c *Controller) mischarged(ctx context.Context) (map[string][]flavors.Problem, error) {
	list := &v1alpha1.PlacementList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list placements: %w", err)
	}
	type at struct{ policy, resource, queue string }
	workloads := map[at]int{}
	for i := range list.Items {
		p := &list.Items[i]
		if !Mischarged(p) {
			continue
		}
		wl := &kueue.Workload{}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(p), wl); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return nil, fmt.Errorf("get workload: %w", err)
		}
		m, err := c.Policies.ForQueue(ctx, wl.Namespace, string(wl.Spec.QueueName))
		if err != nil {
			return nil, err
		}
		if m != nil && m.Policy != nil && int64(p.Status.Retry.Count) >= flavors.Seconds(m.Policy.Spec.Retry.Limit, 10) {
			workloads[at{m.PolicyName, m.Policy.Spec.QuotaResource, m.ClusterQueue.Name}]++
		}
	}
	out := map[string][]flavors.Problem{}
	for x, n := range workloads {
		out[x.policy] = append(out[x.policy], flavors.Problem{Condition: v1alpha1.PolicyQuotaResourceConsistent, Reason: "ChargeMismatch", Message: fmt.Sprintf(
			"ClusterQueue %s: Kueue keeps charging %s otherwise than was written for it (%d waiting): see that no webhook changes the overhead of Workloads, and that resources.transformations and excludeResourcePrefixes of Kueue's configuration leave %s as it is",
			x.queue, x.resource, n, x.resource)})
	}
	for _, problems := range out {
		slices.SortFunc(problems, func(a, b flavors.Problem) int { return strings.Compare(a.Message, b.Message) })
	}
	return out, nil
}

// Mischarged says whether what a Workload was last evicted for is its charge.
func Mischarged(p *v1alpha1.Placement) bool {
	return p.Status.Retry != nil && p.Status.Retry.Reason == v1alpha1.ReasonQuotaMismatch
}
