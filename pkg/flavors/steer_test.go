package flavors_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

func steer(t testing.TB, p *flavors.Policy, wl *kueue.Workload, plan flavors.Plan) {
	t.Helper()
	if err := p.Steer(wl, plan); err != nil {
		t.Fatalf("Steer: %v", err)
	}
}

// stored returns a Workload as the API server gives it back.
func stored(t testing.TB, wl *kueue.Workload) *kueue.Workload {
	t.Helper()
	raw, err := json.Marshal(wl)
	if err != nil {
		t.Fatal(err)
	}
	back := &kueue.Workload{}
	if err := json.Unmarshal(raw, back); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestKueueTriesExactlyTheAllowedSet(t *testing.T) {
	mixed := []*kueue.ResourceFlavor{
		flavor("h100", "accelerator", "h100", "zone", "a"), flavor("a100", "accelerator", "a100"), flavor("other", "plimsoll.dev/flavor-other", "true"),
	}
	foreign := flavor("cpu", "pool", "cpu")
	unlabelled := flavor("default")
	none := flavor("cpu", "accelerator", "none")
	cases := map[string]struct {
		flavors []*kueue.ResourceFlavor
		group   []*kueue.ResourceFlavor // nil: the policy's
		user    []corev1.NodeSelectorTerm
		allowed []string
		want    []string
	}{
		"the empty set closes flavors with one key":                    {flavors: oneKey, want: []string{}},
		"the empty set closes flavors with a key each":                 {flavors: keyEach, want: []string{}},
		"the empty set closes flavors with several and different keys": {flavors: mixed, want: []string{}},
		"the empty set closes a queue that lists one flavor of many with a key each": {
			flavors: keyEach, group: keyEach[:1], want: []string{},
		},
		"the empty set closes a queue that lists only the last flavor of many with a key each": {
			flavors: keyEach, group: keyEach[2:], want: []string{},
		},
		"the empty set closes flavors of the group that are not the policy's": {
			flavors: oneKey, group: append([]*kueue.ResourceFlavor{foreign, unlabelled}, oneKey...), want: []string{},
		},
		"the empty set closes a flavor that is labelled with the word none": {
			flavors: oneKey, group: append([]*kueue.ResourceFlavor{none}, oneKey...), want: []string{},
		},
		"the empty set closes whatever the user's terms are": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{term(in("zone", "a")), term(in("accelerator", "h100"))}, want: []string{},
		},
		"one flavor opens, with one key":       {flavors: oneKey, allowed: []string{"a100"}, want: []string{"a100"}},
		"one flavor opens, with a key each":    {flavors: keyEach, allowed: []string{"a100"}, want: []string{"a100"}},
		"a flavor with two labels opens alone": {flavors: mixed, allowed: []string{"h100"}, want: []string{"h100"}},
		"two flavors open":                     {flavors: oneKey, allowed: []string{"h100", "other"}, want: []string{"h100", "other"}},
		"two flavors open, with a key each":    {flavors: keyEach, allowed: []string{"h100", "other"}, want: []string{"h100", "other"}},
		"all flavors open":                     {flavors: keyEach, allowed: []string{"h100", "a100", "other"}, want: []string{"h100", "a100", "other"}},
		"a group's other flavors stay closed when one opens": {
			flavors: oneKey, group: append([]*kueue.ResourceFlavor{foreign, unlabelled}, oneKey...), allowed: []string{"h100"}, want: []string{"h100"},
		},
		"a user's term on another key leaves the set as it is": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{term(in("zone", "a"))}, allowed: []string{"a100"}, want: []string{"a100"},
		},
		"a user's OR-terms on other keys leave the set as it is": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{term(in("zone", "a")), term(in("rack", "7"))}, allowed: []string{"h100", "a100"}, want: []string{"h100", "a100"},
		},
		"a user's term on a flavor's key narrows the set": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{term(in("accelerator", "a100", "other"))}, allowed: []string{"h100", "a100"}, want: []string{"a100"},
		},
		"a user's OR-terms narrow the set to what any of them takes": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{term(in("accelerator", "a100")), term(in("accelerator", "other"), in("zone", "a"))},
			allowed: []string{"h100", "a100", "other"}, want: []string{"a100", "other"},
		},
		"a user's term without requirements takes no node, so it opens nothing": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{{}}, allowed: []string{"h100"}, want: []string{},
		},
		"a user's term without requirements adds nothing to another": {
			flavors: oneKey, user: []corev1.NodeSelectorTerm{{}, term(in("accelerator", "a100"))}, allowed: []string{"h100", "a100"}, want: []string{"a100"},
		},
		"a name that is no flavor of the policy opens nothing": {flavors: oneKey, allowed: []string{"b200"}, want: []string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := resolved(t, c.flavors)
			wl := workload(podSet("main", c.user...))
			steer(t, p, wl, flavors.Plan{Allowed: c.allowed})
			group := c.group
			if group == nil {
				group = c.flavors
			}
			if diff := cmp.Diff(c.want, kueueTries(t, &wl.Spec.PodSets[0].Template.Spec, group)); diff != "" {
				t.Errorf("flavors that Kueue tries (-want +got):\n%s", diff)
			}
			if !p.Steered(stored(t, wl)) {
				t.Error("Steered denies what Steer wrote")
			}
		})
	}
}

func TestSteerWritesOneTermAPairOfUserTermAndFlavor(t *testing.T) {
	p := resolved(t, oneKey)
	byName := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{in("metadata.name", "node-a")}}
	wl := workload(podSet("main", term(in("zone", "a")), byName))
	steer(t, p, wl, flavors.Plan{Allowed: []string{"a100", "h100"}})
	named := func(model string) corev1.NodeSelectorTerm {
		c := *byName.DeepCopy()
		c.MatchExpressions = []corev1.NodeSelectorRequirement{in("accelerator", model)}
		return c
	}
	want := []corev1.NodeSelectorTerm{
		term(in("zone", "a"), in("accelerator", "h100")), named("h100"),
		term(in("zone", "a"), in("accelerator", "a100")), named("a100"),
	}
	got := wl.Spec.PodSets[0].Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
	if got, want := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation], "h100,a100"; got != want {
		t.Errorf("allowed set is written as %q, want %q: in the policy's order", got, want)
	}
}

func TestSteerTwiceIsSteerOnce(t *testing.T) {
	fixed := map[string]corev1.ResourceList{"main": {corev1.ResourceMemory: resource.MustParse("1Gi")}}
	plans := map[string]flavors.Plan{
		"closed":                     {},
		"closed with charge":         {Charge: map[string]int64{"main": 8}},
		"open":                       {Allowed: []string{"h100", "a100"}, Charge: map[string]int64{"main": 8}},
		"open with runtime overhead": {Allowed: []string{"h100"}, Charge: map[string]int64{"main": 8}, Overhead: fixed},
	}
	for first, a := range plans {
		for second, b := range plans {
			t.Run(fmt.Sprintf("%s, then %s", first, second), func(t *testing.T) {
				p := resolved(t, oneKey)
				wl := workload(podSet("main", term(in("zone", "a"))), withoutClaims("launcher"))
				steer(t, p, wl, a)
				wl = stored(t, wl)
				steer(t, p, wl, b)
				once := stored(t, wl)
				steer(t, p, wl, b)
				if diff := cmp.Diff(once, stored(t, wl)); diff != "" {
					t.Errorf("the second time changed (-once +twice):\n%s", diff)
				}
				user, err := flavors.UserAffinity(wl)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]*corev1.NodeSelector{"main": {NodeSelectorTerms: []corev1.NodeSelectorTerm{term(in("zone", "a"))}}}
				if diff := cmp.Diff(want, user); diff != "" {
					t.Errorf("the user's affinity (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestSteerChangesOnlyPodSetsWithClaims(t *testing.T) {
	p := resolved(t, oneKey)
	wl := workload(withoutClaims("launcher"), podSet("worker"))
	steer(t, p, wl, flavors.Plan{Allowed: []string{"h100"}, Charge: map[string]int64{"launcher": 3, "worker": 8}})
	if diff := cmp.Diff(withoutClaims("launcher"), wl.Spec.PodSets[0]); diff != "" {
		t.Errorf("podset without claims (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"worker": 8}, flavors.ChargeOf(wl)); diff != "" {
		t.Errorf("charge (-want +got):\n%s", diff)
	}
}

func TestSteerRefusesWhatItCannotWrite(t *testing.T) {
	many := make([]corev1.NodeSelectorTerm, 100)
	for i := range many {
		many[i] = term(in("zone", fmt.Sprint(i)))
	}
	cases := map[string]struct {
		wl     *kueue.Workload
		policy *flavors.Policy
		want   string
	}{
		"more terms than a podset should carry": {
			wl: workload(podSet("first"), podSet("main", many...)), policy: resolved(t, oneKey),
			want: "podset main: 100 node affinity terms times 2 flavors is more than 128",
		},
		"an annotation that cannot be read": {
			wl: func() *kueue.Workload {
				wl := workload(podSet("main"))
				wl.Annotations[v1alpha1.UserAffinityAnnotation] = "{"
				return wl
			}(), policy: resolved(t, oneKey),
			want: "annotation plimsoll.dev/user-affinity: unexpected end of JSON input",
		},
		"a policy whose flavors have no labels": {
			wl: workload(podSet("main")), policy: &flavors.Policy{Name: "gpu", Flavors: []flavors.Flavor{{Name: "h100"}}},
			want: "policy gpu: no flavor has node labels to steer by",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := c.wl.DeepCopy()
			err := c.policy.Steer(c.wl, flavors.Plan{Allowed: []string{"h100", "a100"}})
			if err == nil || err.Error() != c.want {
				t.Errorf("error is %v, want %q", err, c.want)
			}
			if diff := cmp.Diff(before, c.wl); diff != "" {
				t.Errorf("a Workload that was not steered changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestSteeredSeesEveryChange(t *testing.T) {
	cases := map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"nothing":              {change: func(*kueue.Workload) {}, want: true},
		"another annotation":   {change: func(wl *kueue.Workload) { wl.Annotations["a"] = "b" }, want: true},
		"the affinity is gone": {change: func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Affinity = nil }},
		"the charge is gone":   {change: func(wl *kueue.Workload) { delete(wl.Spec.PodSets[0].Template.Spec.Overhead, "gpus") }},
		"the charge is lower":  {change: func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Overhead["gpus"] = resource.MustParse("1") }},
		"the charge is lower by a little": {change: func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.Overhead["gpus"] = resource.MustParse("7500m")
		}},
		"the RuntimeClass's overhead is gone": {change: func(wl *kueue.Workload) {
			delete(wl.Spec.PodSets[0].Template.Spec.Overhead, corev1.ResourceMemory)
		}},
		"the allowed set is another": {change: func(wl *kueue.Workload) { wl.Annotations[v1alpha1.AllowedFlavorsAnnotation] = "a100" }},
		"the allowed set is gone":    {change: func(wl *kueue.Workload) { delete(wl.Annotations, v1alpha1.AllowedFlavorsAnnotation) }},
		"what is kept is gone":       {change: func(wl *kueue.Workload) { delete(wl.Annotations, v1alpha1.UserAffinityAnnotation) }},
		"what is kept is unreadable": {change: func(wl *kueue.Workload) { wl.Annotations[v1alpha1.UserAffinityAnnotation] = "?" }},
		"a podset is new":            {change: func(wl *kueue.Workload) { wl.Spec.PodSets = append(wl.Spec.PodSets, podSet("more")) }},
		"a charge that no annotation names": {change: func(wl *kueue.Workload) {
			wl.Annotations[v1alpha1.ChargeAnnotation] = "{}"
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := resolved(t, oneKey)
			wl := workload(podSet("main"))
			steer(t, p, wl, flavors.Plan{Allowed: []string{"h100"}, Charge: map[string]int64{"main": 8},
				Overhead: map[string]corev1.ResourceList{"main": {corev1.ResourceMemory: resource.MustParse("1Gi")}}})
			c.change(wl)
			if got := p.Steered(wl); got != c.want {
				t.Errorf("Steered is %v, want %v", got, c.want)
			}
		})
	}
}

func TestEachPodSetHasASetOfItsOwn(t *testing.T) {
	p := resolved(t, oneKey)
	wl := workload(podSet("launcher"), podSet("worker"))
	steer(t, p, wl, flavors.Plan{Allowed: []string{"h100"}, AllowedFor: map[string][]string{"launcher": {"other", "a100"}}})
	wl = stored(t, wl)
	if got, want := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation], "launcher=a100,other;worker=h100"; got != want {
		t.Errorf("annotation is %q, want %q", got, want)
	}
	for i, want := range [][]string{{"a100", "other"}, {"h100"}} {
		if diff := cmp.Diff(want, kueueTries(t, &wl.Spec.PodSets[i].Template.Spec, oneKey)); diff != "" {
			t.Errorf("podset %d (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(want, flavors.AllowedFor(wl, string(wl.Spec.PodSets[i].Name))); diff != "" {
			t.Errorf("AllowedFor podset %d (-want +got):\n%s", i, diff)
		}
	}
	if diff := cmp.Diff([]string{"a100", "other", "h100"}, flavors.AllowedOf(wl)); diff != "" {
		t.Errorf("AllowedOf (-want +got):\n%s", diff)
	}
	if !p.Steered(wl) {
		t.Error("Steered denies what Steer wrote")
	}
	again := stored(t, wl)
	steer(t, p, again, flavors.PlanOf(wl))
	if diff := cmp.Diff(wl, again); diff != "" {
		t.Errorf("the plan that the annotations name changes the Workload (-want +got):\n%s", diff)
	}
	steer(t, p, wl, flavors.Plan{AllowedFor: map[string][]string{"worker": {"h100"}}})
	if got, want := wl.Annotations[v1alpha1.AllowedFlavorsAnnotation], "launcher=;worker=h100"; got != want {
		t.Errorf("annotation is %q, want %q", got, want)
	}
	if got := flavors.AllowedFor(stored(t, wl), "launcher"); len(got) > 0 {
		t.Errorf("a closed podset beside an open one is allowed %q", got)
	}
}

// plainly makes a podset whose pods ask for eight devices as a plain extended resource, with the user's affinity terms.
func plainly(name string, terms ...corev1.NodeSelectorTerm) kueue.PodSet {
	ps := podSet(name, terms...)
	ps.Template.Spec.ResourceClaims = nil
	ps.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	return ps
}

func TestPlainDevicesAreSteeredAndNotCharged(t *testing.T) {
	named := func(dp *v1alpha1.DevicePolicy) { dp.Spec.QuotaResource = "nvidia.com/gpu" }
	p := resolved(t, oneKey, named)
	made := func() *kueue.Workload {
		return workload(plainly("main", term(in("zone", "a"))), podSet("claims"), withoutClaims("cpu"))
	}
	wl := made()
	steer(t, p, wl, flavors.Plan{Allowed: []string{"a100"}, Charge: map[string]int64{"main": 0, "claims": 8}})
	wl = stored(t, wl)
	if !p.Steered(wl) {
		t.Error("what was steered does not count as steered")
	}
	if diff := cmp.Diff([]string{"a100"}, kueueTries(t, &wl.Spec.PodSets[0].Template.Spec, oneKey)); diff != "" {
		t.Errorf("Kueue tries (-want +got):\n%s", diff)
	}
	if got := wl.Spec.PodSets[0].Template.Spec.Overhead; len(got) > 0 {
		t.Errorf("a plain request has overhead %v: Kueue would count it twice", got)
	}
	if got := wl.Spec.PodSets[1].Template.Spec.Overhead["nvidia.com/gpu"]; got.Value() != 8 {
		t.Errorf("the claim beside it is charged %s, want 8", got.String())
	}
	if diff := cmp.Diff(made().Spec.PodSets[0].Template.Spec, *p.UserPodSpec(wl, &wl.Spec.PodSets[0])); diff != "" {
		t.Errorf("the user's spec (-want +got):\n%s", diff)
	}
	// The policy counts another resource from now on: what was steered for a plain request is given back.
	other := resolved(t, oneKey)
	if other.Steered(wl) {
		t.Error("a podset that asks for none of the policy's devices any more counts as steered")
	}
	steer(t, other, wl, flavors.Plan{})
	if diff := cmp.Diff(made().Spec.PodSets[0].Template.Spec, wl.Spec.PodSets[0].Template.Spec); diff != "" {
		t.Errorf("given back (-want +got):\n%s", diff)
	}
	if !other.Steered(wl) {
		t.Error("after that it does not count as steered")
	}
	back := made()
	steer(t, p, back, flavors.Plan{Allowed: []string{"h100"}})
	(*flavors.Policy)(nil).Leave(back)
	if diff := cmp.Diff(made().Spec, back.Spec); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
