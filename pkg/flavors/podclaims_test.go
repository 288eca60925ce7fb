package flavors_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

const random = "a1b2c3d4e5"

func TestFreshTemplateNameIsTheUsersCutToFit(t *testing.T) {
	end := "-plimsoll-" + random
	cases := map[string]struct{ user, want string }{
		"a short name":                    {user: "eight", want: "eight" + end},
		"the longest that is not cut":     {user: strings.Repeat("a", 233), want: strings.Repeat("a", 233) + end},
		"one more is cut":                 {user: strings.Repeat("a", 234), want: strings.Repeat("a", 233) + end},
		"the longest name":                {user: strings.Repeat("a", 253), want: strings.Repeat("a", 233) + end},
		"a cut behind a dot":              {user: strings.Repeat("a", 232) + "." + strings.Repeat("b", 20), want: strings.Repeat("a", 232) + end},
		"a cut behind dashes":             {user: strings.Repeat("a", 230) + "---b", want: strings.Repeat("a", 230) + end},
		"a cut within a label":            {user: strings.Repeat("a", 200) + "." + strings.Repeat("b", 50), want: strings.Repeat("a", 200) + "." + strings.Repeat("b", 32) + end},
		"a name that is one of ours":      {user: "eight-plimsoll-0000000000", want: "eight-plimsoll-0000000000" + end},
		"a long name that is one of ours": {user: strings.Repeat("a", 233) + "-plimsoll-0000000000", want: strings.Repeat("a", 233) + end},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := flavors.FreshTemplateName(c.user, random)
			if got != c.want {
				t.Errorf("name is %q, want %q", got, c.want)
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("name %q is not valid: %v", got, problems)
			}
			if !flavors.IsOwnedTemplateName(got) || !flavors.IsFreshTemplateName(got, c.user) {
				t.Errorf("name %q is not known as ours, made from %q", got, c.user)
			}
		})
	}
}

func TestOwnedTemplateNamesAreKnownByTheirForm(t *testing.T) {
	cases := map[string]struct {
		name string
		want bool
	}{
		"ours":                         {"eight-plimsoll-a1b2c3d4e5", true},
		"a random end that is longer":  {"eight-plimsoll-a1b2c3d4e5f", false},
		"a random end that is shorter": {"eight-plimsoll-a1b2c3d4e", false},
		"a random end with a dash":     {"eight-plimsoll-a1b2-3d4e5", false},
		"a random end in capitals":     {"eight-plimsoll-A1B2C3D4E5", false},
		"nothing before the infix":     {"-plimsoll-a1b2c3d4e5", false},
		"a name without the infix":     {"eight", false},
		"the infix elsewhere":          {"eight-plimsoll-a1b2c3d4e5-gpu", false},
		"nothing":                      {"", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := flavors.IsOwnedTemplateName(c.name); got != c.want {
				t.Errorf("IsOwnedTemplateName(%q) is %v, want %v", c.name, got, c.want)
			}
		})
	}
}

func TestAFreshNameBelongsToOneUsersTemplate(t *testing.T) {
	cases := map[string]struct {
		name, user string
		want       bool
	}{
		"its own":                  {"eight-plimsoll-a1b2c3d4e5", "eight", true},
		"another":                  {"eight-plimsoll-a1b2c3d4e5", "four", false},
		"a part of it":             {"eight-plimsoll-a1b2c3d4e5", "eigh", false},
		"none":                     {"eight-plimsoll-a1b2c3d4e5", "", false},
		"a name that is not fresh": {"eight", "eight", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := flavors.IsFreshTemplateName(c.name, c.user); got != c.want {
				t.Errorf("IsFreshTemplateName(%q, %q) is %v, want %v", c.name, c.user, got, c.want)
			}
		})
	}
}

func TestUserTemplatesReadsTheAnnotationBack(t *testing.T) {
	cases := map[string]struct {
		annotations map[string]string
		want        map[string]string
		fails       bool
	}{
		"no annotation":        {want: map[string]string{}},
		"two claims":           {annotations: map[string]string{v1alpha1.ClaimTemplatesAnnotation: `{"gpu":"eight","nic":"one"}`}, want: map[string]string{"gpu": "eight", "nic": "one"}},
		"an empty annotation":  {annotations: map[string]string{v1alpha1.ClaimTemplatesAnnotation: ""}, fails: true},
		"null":                 {annotations: map[string]string{v1alpha1.ClaimTemplatesAnnotation: "null"}, want: map[string]string{}},
		"what is no JSON":      {annotations: map[string]string{v1alpha1.ClaimTemplatesAnnotation: "eight"}, fails: true},
		"names that are lists": {annotations: map[string]string{v1alpha1.ClaimTemplatesAnnotation: `{"gpu":["eight"]}`}, fails: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Annotations = c.annotations
			got, err := flavors.UserTemplates(pod)
			if (err != nil) != c.fails {
				t.Fatalf("error is %v, want one: %v", err, c.fails)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("templates (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzFreshTemplateName: a valid name stays valid, within the limit, and known; no name makes it panic.
func FuzzFreshTemplateName(f *testing.F) {
	for _, seed := range []string{
		"eight", "a.b-c", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a", strings.Repeat("a", 233) + "-b", strings.Repeat("a-", 126) + "a", "-", "", "ü",
	} {
		f.Add(seed, random)
	}
	f.Fuzz(func(t *testing.T, user, end string) {
		if len(end) != v1alpha1.TemplateRandomLength || strings.Trim(end, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			end = random
		}
		name := flavors.FreshTemplateName(user, end)
		if !strings.HasSuffix(name, v1alpha1.TemplateInfix+end) {
			t.Fatalf("name %q does not end as it should", name)
		}
		if len(name) > validation.DNS1123SubdomainMaxLength {
			t.Fatalf("name %q is %d bytes long", name, len(name))
		}
		if len(validation.IsDNS1123Subdomain(user)) > 0 {
			return
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Fatalf("name %q, made of a valid one, is not valid: %v", name, problems)
		}
		if !flavors.IsOwnedTemplateName(name) || !flavors.IsFreshTemplateName(name, user) {
			t.Fatalf("name %q is not known as ours, made from %q", name, user)
		}
		if kept, _, _ := strings.Cut(name, v1alpha1.TemplateInfix); !strings.HasPrefix(user, kept) {
			t.Fatalf("name %q does not begin as %q does", name, user)
		}
	})
}
