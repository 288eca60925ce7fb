package flavors_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// flavor makes a ResourceFlavor of key, value, key, value, ….
func flavor(name string, labels ...string) *kueue.ResourceFlavor {
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := 0; i+1 < len(labels); i += 2 {
		if rf.Spec.NodeLabels == nil {
			rf.Spec.NodeLabels = map[string]string{}
		}
		rf.Spec.NodeLabels[labels[i]] = labels[i+1]
	}
	return rf
}

// Flavors that are told apart by the values of one key, and by a key each.
var (
	oneKey = []*kueue.ResourceFlavor{
		flavor("h100", "accelerator", "h100"), flavor("a100", "accelerator", "a100"), flavor("other", "accelerator", "other"),
	}
	keyEach = []*kueue.ResourceFlavor{
		flavor("h100", "plimsoll.dev/flavor-h100", "true"), flavor("a100", "plimsoll.dev/flavor-a100", "true"),
		flavor("other", "plimsoll.dev/flavor-other", "true"),
	}
)

func selectors(expressions ...string) []resourcev1.DeviceSelector {
	var out []resourcev1.DeviceSelector
	for _, e := range expressions {
		out = append(out, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return out
}

// devicePolicy lists flavors in order; a device belongs to the one that its attribute model names.
func devicePolicy(names ...string) *v1alpha1.DevicePolicy {
	dp := &v1alpha1.DevicePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec:       v1alpha1.DevicePolicySpec{QuotaResource: "gpus", Mode: v1alpha1.ModeEnforce},
	}
	for _, name := range names {
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{
			Name: name, Selectors: selectors(`device.attributes["gpu.example.com"].model == "` + name + `"`), ChargePerDevice: 1,
		})
	}
	return dp
}

// resolved joins a policy with the flavors that it names, in their order, and fails the test on a problem.
func resolved(t testing.TB, rfs []*kueue.ResourceFlavor, change ...func(*v1alpha1.DevicePolicy)) *flavors.Policy {
	t.Helper()
	var names []string
	for _, rf := range rfs {
		names = append(names, rf.Name)
	}
	dp := devicePolicy(names...)
	for _, c := range change {
		c(dp)
	}
	p, problems := flavors.Resolve(dp, lookup(rfs))
	if len(problems) > 0 {
		t.Fatalf("the fixture has problems: %v", problems)
	}
	return p
}

func lookup(rfs []*kueue.ResourceFlavor) func(string) *kueue.ResourceFlavor {
	return func(name string) *kueue.ResourceFlavor {
		for _, rf := range rfs {
			if rf.Name == name {
				return rf
			}
		}
		return nil
	}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

// podSet makes a podset of two pods that ask for devices by one claim, with the user's affinity terms.
func podSet(name string, terms ...corev1.NodeSelectorTerm) kueue.PodSet {
	ps := kueue.PodSet{Name: kueue.PodSetReference(name), Count: 2}
	ps.Template.Spec.Containers = []corev1.Container{{Name: "c"}}
	ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: ptr.To("eight")}}
	if len(terms) > 0 {
		ps.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	return ps
}

// withoutClaims makes a podset that asks for no device.
func withoutClaims(name string) kueue.PodSet {
	ps := podSet(name)
	ps.Template.Spec.ResourceClaims = nil
	return ps
}

func workload(podSets ...kueue.PodSet) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job-train", Annotations: map[string]string{"example.com/own": "kept"}},
		Spec:       kueue.WorkloadSpec{QueueName: "gpu", PodSets: podSets},
	}
}

// kueueTries returns the names of the flavors of a resource group that Kueue would try for a pod, in order. It is
// flavorSelector of Kueue 0.17 (pkg/scheduler/flavorassigner) with the library that Kueue uses: requirements whose key
// no flavor of the group has are left out, and a term that becomes empty matches every flavor.
func kueueTries(t testing.TB, spec *corev1.PodSpec, group []*kueue.ResourceFlavor) []string {
	t.Helper()
	keys := map[string]bool{}
	for _, rf := range group {
		for k := range rf.Spec.NodeLabels {
			keys[k] = true
		}
	}
	asked := corev1.PodSpec{NodeSelector: map[string]string{}}
	for k, v := range spec.NodeSelector {
		if keys[k] {
			asked.NodeSelector[k] = v
		}
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		var terms []corev1.NodeSelectorTerm
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			var relevant []corev1.NodeSelectorRequirement
			for _, e := range t.MatchExpressions {
				if keys[e.Key] {
					relevant = append(relevant, e)
				}
			}
			if len(relevant) == 0 {
				terms = nil
				break
			}
			terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: relevant})
		}
		if len(terms) > 0 {
			asked.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
			}}
		}
	}
	selector := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: asked})
	tried := []string{}
	for _, rf := range group {
		ok, err := selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: rf.Spec.NodeLabels}})
		if err != nil {
			t.Fatalf("Kueue would fail on flavor %s: %v", rf.Name, err)
		}
		if ok {
			tried = append(tried, rf.Name)
		}
	}
	return tried
}
