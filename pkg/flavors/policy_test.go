package flavors_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

func TestResolveProblemsSayWhatToMend(t *testing.T) {
	unresolved := func(reason, message string) flavors.Problem {
		return flavors.Problem{Condition: v1alpha1.PolicyFlavorsResolved, Reason: reason, Message: message}
	}
	unsupported := func(field string) flavors.Problem {
		return flavors.Problem{Condition: v1alpha1.PolicyReady, Reason: "NotSupported", Message: field + " is not supported yet: take it out of the policy"}
	}
	topology := flavor("h100", "accelerator", "h100")
	topology.Spec.TopologyName = ptr.To(kueue.TopologyReference("racks"))
	cases := map[string]struct {
		flavors []*kueue.ResourceFlavor
		change  func(*v1alpha1.DevicePolicy)
		want    []flavors.Problem
	}{
		"distinct values of one key": {flavors: oneKey},
		"a key each":                 {flavors: keyEach},
		"one key in common and one that differs": {flavors: []*kueue.ResourceFlavor{
			flavor("h100", "zone", "a", "accelerator", "h100"), flavor("a100", "zone", "a", "accelerator", "a100"),
		}},
		"a flavor that does not exist": {
			flavors: oneKey[:1], change: func(dp *v1alpha1.DevicePolicy) { *dp = *devicePolicy("h100", "b200") },
			want: []flavors.Problem{unresolved("ResourceFlavorNotFound", `flavor "b200" names no ResourceFlavor: create ResourceFlavor b200, or take the flavor out of the policy`)},
		},
		"a flavor without labels": {
			flavors: []*kueue.ResourceFlavor{flavor("h100")},
			want:    []flavors.Problem{unresolved("NoNodeLabels", "ResourceFlavor h100 has no nodeLabels: give it one that tells its nodes from those of the other flavors")},
		},
		"a flavor with a topology": {
			flavors: []*kueue.ResourceFlavor{topology},
			want:    []flavors.Problem{unresolved("TopologyUnsupported", "ResourceFlavor h100 has a topologyName, which is not supported yet: take it out, or the flavor out of the policy")},
		},
		"a flavor whose label value says no flavor": {
			flavors: []*kueue.ResourceFlavor{flavor("h100", "accelerator", "none.plimsoll.dev")},
			want:    []flavors.Problem{unresolved("ReservedLabelValue", `ResourceFlavor h100 has "none.plimsoll.dev" as the value of a node label, by which Plimsoll writes that no flavor is allowed: use another value`)},
		},
		"two flavors of the same labels": {
			flavors: []*kueue.ResourceFlavor{flavor("h100", "gpu", "true"), flavor("a100", "gpu", "true")},
			want: []flavors.Problem{
				unresolved("NotTellableApart", "the nodeLabels of ResourceFlavor h100 also match those of a100: give each its own value of one label, or a label of its own"),
				unresolved("NotTellableApart", "the nodeLabels of ResourceFlavor a100 also match those of h100: give each its own value of one label, or a label of its own"),
			},
		},
		"a flavor whose labels are among another's": {
			flavors: []*kueue.ResourceFlavor{flavor("h100", "gpu", "true"), flavor("a100", "gpu", "true", "model", "a100")},
			want:    []flavors.Problem{unresolved("NotTellableApart", "the nodeLabels of ResourceFlavor h100 also match those of a100: give each its own value of one label, or a label of its own")},
		},
		"what is not supported yet": {
			flavors: oneKey, change: func(dp *v1alpha1.DevicePolicy) {
				dp.Spec.Canary = &v1alpha1.PolicyCanary{PolicyName: "next"}
				dp.Spec.Flavors[2].OnDemand = true
			},
			want: []flavors.Problem{unsupported("spec.canary"), unsupported("spec.flavors[2].onDemand")},
		},
		"a driver whose pods nobody can tell": {
			flavors: oneKey, change: func(dp *v1alpha1.DevicePolicy) {
				dp.Spec.Drivers = []v1alpha1.PolicyDriver{{Name: "gpu.example.com", PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}}}
			},
			want: []flavors.Problem{{Condition: v1alpha1.PolicyReady, Reason: "DriverSelectorInvalid", Message: `the podSelector of driver gpu.example.com: "Near" is not a valid label selector operator: correct it`}},
		},
		"drivers are no problem": {
			flavors: oneKey, change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.Drivers = []v1alpha1.PolicyDriver{servingDriver} },
		},
		"Reject is no problem": {
			flavors: oneKey, change: func(dp *v1alpha1.DevicePolicy) { dp.Spec.OnInfeasible = v1alpha1.OnInfeasibleReject },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, rf := range c.flavors {
				names = append(names, rf.Name)
			}
			dp := devicePolicy(names...)
			if c.change != nil {
				c.change(dp)
			}
			_, problems := flavors.Resolve(dp, lookup(c.flavors))
			if diff := cmp.Diff(c.want, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// servingDriver says how to find the pods of a driver.
var servingDriver = v1alpha1.PolicyDriver{Name: "gpu.example.com", PodNamespace: "gpu-driver", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "dra"}}}

func TestPodsOfDrivers(t *testing.T) {
	finds := func(s metav1.LabelSelector) *flavors.Driver {
		d := servingDriver
		d.PodSelector = s
		return &resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Drivers = []v1alpha1.PolicyDriver{d} }).Drivers[0]
	}
	for name, c := range map[string]struct {
		selector metav1.LabelSelector
		pod      ledger.Agent
		has      bool
	}{
		"of its labels":                           {servingDriver.PodSelector, ledger.Agent{Namespace: "gpu-driver", Labels: map[string]string{"app": "dra", "pod-template-generation": "2"}}, true},
		"of other labels":                         {servingDriver.PodSelector, ledger.Agent{Namespace: "gpu-driver", Labels: map[string]string{"app": "logs"}}, false},
		"of another namespace":                    {servingDriver.PodSelector, ledger.Agent{Namespace: "team", Labels: map[string]string{"app": "dra"}}, false},
		"of its namespace, where any will do":     {metav1.LabelSelector{}, ledger.Agent{Namespace: "gpu-driver"}, true},
		"of another namespace, where any will do": {metav1.LabelSelector{}, ledger.Agent{Namespace: "team"}, false},
	} {
		if got := finds(c.selector).Has(&c.pod); got != c.has {
			t.Errorf("a pod %s is one: %t", name, got)
		}
	}
}

func TestRevisionChangesWithAllThatADecisionDependsOn(t *testing.T) {
	tainted := flavor("h100", "accelerator", "h100")
	tainted.Spec.NodeTaints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	base := resolved(t, oneKey).Revision
	cases := map[string]struct {
		policy  *flavors.Policy
		changes bool
	}{
		"nothing":             {policy: resolved(t, oneKey)},
		"a label of a flavor": {policy: resolved(t, keyEach), changes: true},
		"a taint of a flavor": {policy: resolved(t, append([]*kueue.ResourceFlavor{tainted}, oneKey[1:]...)), changes: true},
		"the order":           {policy: resolved(t, []*kueue.ResourceFlavor{oneKey[1], oneKey[0], oneKey[2]}), changes: true},
		"a charge":            {policy: resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Flavors[0].ChargePerDevice = 2 }), changes: true},
		"a driver":            {policy: resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Drivers = []v1alpha1.PolicyDriver{servingDriver} }), changes: true},
		"a constraint":        {policy: resolved(t, oneKey, func(dp *v1alpha1.DevicePolicy) { dp.Spec.Constraints = selectors("true") }), changes: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.Revision != base; got != c.changes {
				t.Errorf("the revision changes: %v, want %v", got, c.changes)
			}
		})
	}
}

// queue gives quota for the given resource on flavors, in their order.
func queue(resource corev1.ResourceName, names ...string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{}
	cq.Name = "team-a"
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", resource}}
	for _, name := range names {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"licenses"}}, group}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "plimsoll"}}}
	return cq
}

func TestQueueProblemsSayWhatToMend(t *testing.T) {
	limited := queue("gpus", "h100")
	limited.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{"h100"}
	foreignLimited := queue("gpus", "h100")
	foreignLimited.Spec.AdmissionChecksStrategy.AdmissionChecks = append(foreignLimited.Spec.AdmissionChecksStrategy.AdmissionChecks,
		kueue.AdmissionCheckStrategyRule{Name: "provision", OnFlavors: []kueue.ResourceFlavorReference{"h100"}})
	cases := map[string]struct {
		queue  *kueue.ClusterQueue
		checks []string
		want   []flavors.Problem
	}{
		"the policy's flavors in its order": {queue: queue("gpus", "h100", "a100", "other")},
		"some of them, with others between": {queue: queue("gpus", "spot", "h100", "cpu", "other")},
		"another check that is limited":     {queue: foreignLimited},
		"another order": {queue: queue("gpus", "a100", "h100"), want: []flavors.Problem{{
			Condition: v1alpha1.PolicyOrderConsistent, Reason: flavors.FlavorOrder,
			Message: "ClusterQueue team-a: lists flavor h100 after a100, the policy before: give both the same order",
		}}},
		"no quota for the resource": {queue: queue("tpus", "h100"), want: []flavors.Problem{{
			Condition: v1alpha1.PolicyQuotaResourceConsistent, Reason: "NoQuota",
			Message: `ClusterQueue team-a: gives no quota for "gpus": add it to the resource group of the policy's flavors`,
		}}},
		"none of the policy's flavors": {queue: queue("gpus", "cpu"), want: []flavors.Problem{{
			Condition: v1alpha1.PolicyFlavorsResolved, Reason: "NoCommonFlavor",
			Message: `ClusterQueue team-a: gives quota for "gpus" on none of the policy's flavors: list one of them`,
		}}},
		"two checks of ours": {queue: queue("gpus", "h100"), checks: []string{"plimsoll", "plimsoll-too"}, want: []flavors.Problem{{
			Condition: v1alpha1.PolicyOrderConsistent, Reason: "SeveralChecks",
			Message: "ClusterQueue team-a: has 2 admission checks of Plimsoll: keep one",
		}}},
		"a check limited to flavors": {queue: limited, want: []flavors.Problem{{
			Condition: v1alpha1.PolicyOrderConsistent, Reason: "OnFlavors",
			Message: "ClusterQueue team-a: limits check plimsoll to some flavors: take onFlavors out, the check must see every workload",
		}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.checks == nil {
				c.checks = []string{"plimsoll"}
			}
			if diff := cmp.Diff(c.want, resolved(t, oneKey).QueueProblems(c.queue, c.checks)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
