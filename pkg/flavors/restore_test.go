package flavors_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

var opened = flavors.Plan{
	Allowed: []string{"h100"}, Charge: map[string]int64{"main": 8},
	Overhead: map[string]corev1.ResourceList{"main": {
		corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("160Mi"),
	}},
}

// rewritten is a Workload as Kueue writes it after an edit of its Job: the spec anew from the Job, annotations kept.
func rewritten(wl *kueue.Workload, podSets ...kueue.PodSet) *kueue.Workload {
	c := wl.DeepCopy()
	c.Spec.PodSets = podSets
	return c
}

func TestSteerRestoresWhatKueueRewrote(t *testing.T) {
	edited := func(terms ...corev1.NodeSelectorTerm) kueue.PodSet {
		ps := podSet("main", terms...)
		ps.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
		return ps
	}
	zoneA, zoneB := term(in("zone", "a")), term(in("zone", "b"))
	cases := map[string]struct {
		born, now kueue.PodSet
		user      *corev1.NodeSelector
	}{
		"a container edit keeps charge and set": {born: podSet("main"), now: edited()},
		"the user's affinity is taken again": {
			born: podSet("main", zoneA), now: edited(zoneA), user: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{zoneA}},
		},
		"an affinity that was edited with the Job wins over what was kept": {
			born: podSet("main", zoneA), now: edited(zoneB), user: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{zoneB}},
		},
		"an affinity that was taken out of the Job does not come back": {born: podSet("main", zoneA), now: edited()},
		"an affinity that reads as ours would is the user's, if ours was another": {
			born: podSet("main"), now: edited(term(in("accelerator", "a100"))),
			user: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term(in("accelerator", "a100"))}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := resolved(t, oneKey)
			wl := workload(c.born)
			steer(t, p, wl, opened)
			wl = rewritten(stored(t, wl), *c.now.DeepCopy())
			if p.Steered(wl) {
				t.Fatal("the fixture is still steered")
			}
			steer(t, p, wl, flavors.Plan{Allowed: flavors.AllowedOf(wl), Charge: flavors.ChargeOf(wl), Overhead: opened.Overhead})
			want := workload(c.now)
			steer(t, p, want, opened)
			if diff := cmp.Diff(want.Spec, wl.Spec); diff != "" {
				t.Errorf("spec (-as steered first +restored):\n%s", diff)
			}
			user, err := flavors.UserAffinity(wl)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]*corev1.NodeSelector{"main": c.user}, user); diff != "" {
				t.Errorf("the user's affinity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSteerKeepsTheChargeThatAPlanLeavesOut(t *testing.T) {
	p := resolved(t, oneKey)
	wl := workload(podSet("main"), podSet("more"))
	steer(t, p, wl, flavors.Plan{Charge: map[string]int64{"main": 8, "more": 2}})
	wl = rewritten(wl, podSet("main"), podSet("more"))
	steer(t, p, wl, flavors.Plan{Charge: map[string]int64{"more": 4}})
	if diff := cmp.Diff(map[string]int64{"main": 8, "more": 4}, flavors.ChargeOf(wl)); diff != "" {
		t.Errorf("charge (-want +got):\n%s", diff)
	}
	for i, want := range []string{"8", "4"} {
		if q := wl.Spec.PodSets[i].Template.Spec.Overhead["gpus"]; q.String() != want {
			t.Errorf("podset %d is charged %s, want %s", i, q.String(), want)
		}
	}
}

func TestRuntimeClassOverheadIsKept(t *testing.T) {
	p := resolved(t, oneKey)
	ps := podSet("main")
	ps.Template.Spec.RuntimeClassName = ptr.To("kata")
	wl := workload(ps)
	check := func(step string, want corev1.ResourceList) {
		t.Helper()
		if diff := cmp.Diff(want, wl.Spec.PodSets[0].Template.Spec.Overhead); diff != "" {
			t.Errorf("overhead %s (-want +got):\n%s", step, diff)
		}
	}
	charged := func(n int64) corev1.ResourceList {
		list := opened.Overhead["main"].DeepCopy()
		list["gpus"] = *resource.NewQuantity(n, resource.DecimalSI)
		return list
	}

	steer(t, p, wl, flavors.Plan{})
	check("without a charge: Kueue fills it in", nil)
	steer(t, p, wl, opened)
	check("with a charge", charged(8))
	steer(t, p, wl, flavors.Plan{Allowed: []string{"a100"}, Charge: map[string]int64{"main": 4}})
	check("with another charge, by a plan without overhead", charged(4))
	wl = rewritten(wl, ps)
	steer(t, p, wl, opened)
	check("after Kueue rewrote the spec", charged(8))
	p.Leave(wl)
	check("after leaving", nil)
}

func TestOverheadThatTheUserWroteIsKept(t *testing.T) {
	p := resolved(t, oneKey)
	ps := podSet("main")
	own := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	ps.Template.Spec.Overhead = own.DeepCopy()
	wl := workload(ps)
	steer(t, p, wl, opened)
	want := corev1.ResourceList{
		"gpus": *resource.NewQuantity(8, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("2Gi"), corev1.ResourceCPU: resource.MustParse("250m"),
	}
	if diff := cmp.Diff(want, wl.Spec.PodSets[0].Template.Spec.Overhead); diff != "" {
		t.Errorf("overhead (-want +got):\n%s", diff)
	}
	p.Leave(wl)
	if diff := cmp.Diff(own, wl.Spec.PodSets[0].Template.Spec.Overhead); diff != "" {
		t.Errorf("overhead after leaving (-want +got):\n%s", diff)
	}
}

func TestWhatSteeringWroteIsKnownAfterThePolicyChanged(t *testing.T) {
	zoneA := term(in("zone", "a"))
	cases := map[string]struct {
		before, after []*kueue.ResourceFlavor
		change        func(*v1alpha1.DevicePolicy)
	}{
		"a flavor was taken out":            {before: oneKey, after: oneKey[1:]},
		"a flavor was added":                {before: oneKey[:1], after: oneKey},
		"the flavors' labels were replaced": {before: oneKey, after: keyEach},
		"the quota resource was renamed": {before: oneKey, after: oneKey, change: func(dp *v1alpha1.DevicePolicy) {
			dp.Spec.QuotaResource = "example.com/gpus"
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var change []func(*v1alpha1.DevicePolicy)
			if c.change != nil {
				change = append(change, c.change)
			}
			p := resolved(t, c.after, change...)
			for step, plan := range map[string]flavors.Plan{"closed": {Charge: opened.Charge}, "open": opened} {
				wl := workload(podSet("main", zoneA))
				steer(t, resolved(t, c.before), wl, plan)
				left := wl.DeepCopy()
				next := flavors.Plan{Allowed: []string{"a100"}, Charge: map[string]int64{"main": 8}, Overhead: plan.Overhead}
				steer(t, p, wl, next)
				want := workload(podSet("main", zoneA))
				steer(t, p, want, next)
				if diff := cmp.Diff(want, wl); diff != "" {
					t.Errorf("%s, then steered by the new policy (-from scratch +got):\n%s", step, diff)
				}
				p.Leave(left)
				if diff := cmp.Diff(workload(podSet("main", zoneA)), left); diff != "" {
					t.Errorf("%s, then left by the new policy (-user's +got):\n%s", step, diff)
				}
			}
		})
	}
}

func TestLeaveGivesTheUsersOwnBackExactly(t *testing.T) {
	preferred := podSet("main")
	preferred.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: term(in("zone", "a"))},
		}},
	}
	podAffinity := podSet("main", term(in("zone", "a")))
	podAffinity.Template.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	onlyPodAffinity := podSet("main")
	onlyPodAffinity.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
	cases := map[string]kueue.PodSet{
		"no affinity":                            podSet("main"),
		"one required term":                      podSet("main", term(in("zone", "a"))),
		"several required terms, on our key too": podSet("main", term(in("zone", "a"), in("accelerator", "a100")), term(in("rack", "7"))),
		"preferred terms only":                   preferred,
		"required terms and pod affinity":        podAffinity,
		"pod affinity only":                      onlyPodAffinity,
		"no claims":                              withoutClaims("main"),
	}
	policies := map[string]*flavors.Policy{"by the policy": resolved(t, oneKey), "without a policy": nil}
	for name, ps := range cases {
		for by, leaver := range policies {
			for step, plan := range map[string]flavors.Plan{"closed": {}, "open and charged": opened} {
				t.Run(name+", "+step+", left "+by, func(t *testing.T) {
					wl := workload(*ps.DeepCopy())
					steer(t, resolved(t, oneKey), wl, plan)
					wl = stored(t, wl)
					leaver.Leave(wl)
					if diff := cmp.Diff(stored(t, workload(ps)), wl); diff != "" {
						t.Errorf("Workload (-user's +left):\n%s", diff)
					}
					leaver.Leave(wl)
					if diff := cmp.Diff(stored(t, workload(ps)), wl); diff != "" {
						t.Errorf("Workload left twice (-user's +left):\n%s", diff)
					}
				})
			}
		}
	}
}

func TestLeaveWithoutReadableAnnotationOpensAClosedWorkload(t *testing.T) {
	p := resolved(t, oneKey)
	wl := workload(podSet("main"))
	steer(t, p, wl, flavors.Plan{Charge: map[string]int64{"main": 8}})
	wl.Annotations[v1alpha1.UserAffinityAnnotation] = "lost"
	p.Leave(wl)
	if diff := cmp.Diff(workload(podSet("main")), wl); diff != "" {
		t.Errorf("Workload (-user's +left):\n%s", diff)
	}
}

func TestUserPodSpecIsWhatTheUserWrote(t *testing.T) {
	p := resolved(t, oneKey)
	own := podSet("main", term(in("zone", "a")))
	wl := workload(own)
	if diff := cmp.Diff(&own.Template.Spec, p.UserPodSpec(wl, &wl.Spec.PodSets[0])); diff != "" {
		t.Errorf("before steering (-want +got):\n%s", diff)
	}
	steer(t, p, wl, opened)
	want := own.Template.Spec.DeepCopy()
	want.Overhead = opened.Overhead["main"]
	if diff := cmp.Diff(want, p.UserPodSpec(wl, &wl.Spec.PodSets[0])); diff != "" {
		t.Errorf("steered; the RuntimeClass's overhead is part of it (-want +got):\n%s", diff)
	}
	before := wl.DeepCopy()
	p.UserPodSpec(wl, &wl.Spec.PodSets[0]).Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Key = "changed"
	if diff := cmp.Diff(before, wl); diff != "" {
		t.Errorf("a change of the copy reached the Workload:\n%s", diff)
	}
	wl = rewritten(wl, podSet("main", term(in("zone", "b"))))
	if got := p.UserPodSpec(wl, &wl.Spec.PodSets[0]); got.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "b" {
		t.Errorf("after Kueue rewrote the spec, affinity is %v, want what Kueue wrote", got.Affinity)
	}
}
