package manager

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var taintRuleResource = metav1.APIResource{Name: "devicetaintrules", Kind: "DeviceTaintRule"}

func rulesOf(version string) string { return "/apis/resource.k8s.io/" + version + "/devicetaintrules" }

func aRule(name, selector string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q, "uid": %[1]q}, "spec": {%s "taint": {"key": "example.com/%[1]s", "effect": "NoSchedule"}}}`, name, selector)
}

// everywhere puts a rule where each version serves it.
func (s *server) everywhere(text string) {
	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		s.put(rulesOf(version), text)
	}
}

func TestARuleTaintsInTheVersionThatIsServed(t *testing.T) {
	all := []string{"example.com/all", "example.com/bare", "example.com/driver", "example.com/gpu"}
	cases := map[string]struct {
		served []string
		want   []string
	}{
		"none is served":                                  {nil, nil},
		"v1alpha3: no selector is every device":           {[]string{"v1alpha3"}, all},
		"v1beta2, and that before v1alpha3":               {[]string{"v1alpha3", "v1beta2"}, all},
		"v1, and that before others: no selector is none": {[]string{"v1", "v1beta2"}, []string{"example.com/all", "example.com/driver", "example.com/gpu"}},
		"v1 alone": {[]string{"v1"}, []string{"example.com/all", "example.com/driver", "example.com/gpu"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			for _, version := range c.served {
				s.serve("resource.k8s.io/"+version, taintRuleResource)
			}
			s.put(nodes, aNode)
			s.put(sliced, aSlice(""))
			s.everywhere(aRule("bare", ""))
			s.everywhere(aRule("all", `"deviceSelector": {},`))
			s.everywhere(aRule("driver", `"deviceSelector": {"driver": "gpu.example.com"},`))
			s.everywhere(aRule("gpu", `"deviceSelector": {"driver": "gpu.example.com", "pool": "n", "device": "gpu-0"},`))
			s.everywhere(aRule("other", `"deviceSelector": {"pool": "n", "device": "gpu-1"},`))
			s.everywhere(aRule("nobody", `"deviceSelector": {"pool": "n", "device": ""},`))
			r := read(t, s)
			if diff := cmp.Diff(c.want, r.taints()); diff != "" {
				t.Errorf("as soon as it is synced (-want +got)\n%s", diff)
			}
		})
	}
}

func TestARuleCountsForAsLongAsItIsServed(t *testing.T) {
	s := newServer(t)
	s.put(nodes, aNode)
	s.put(sliced, aSlice(""))
	s.everywhere(aRule("bare", ""))
	r := read(t, s)
	is := func(want ...string) func() bool { return func() bool { return cmp.Equal(want, r.taints()) } }
	if !is()() {
		t.Fatalf("tainted by %v, which is not served", r.taints())
	}
	s.serve("resource.k8s.io/v1beta2", taintRuleResource)
	eventually(t, "what comes to be served counts, without a restart", is("example.com/bare"))
	s.everywhere(aRule("gpu", `"deviceSelector": {"device": "gpu-0"},`))
	eventually(t, "a new rule counts", is("example.com/bare", "example.com/gpu"))
	s.serve("resource.k8s.io/v1", taintRuleResource)
	eventually(t, "with v1, no selector is none", is("example.com/gpu"))
	s.everywhere(aRule("gpu", `"deviceSelector": {"device": "gpu-1"},`))
	eventually(t, "a rule that is changed counts as it is", is())
	s.everywhere(aRule("last", `"deviceSelector": {},`))
	eventually(t, "and rules are watched", is("example.com/last"))
	s.remove(rulesOf("v1"), "last")
	eventually(t, "a rule that is gone", is())
	s.everywhere(aRule("back", `"deviceSelector": {},`))
	eventually(t, "another", is("example.com/back"))
	s.withdraw("resource.k8s.io/v1")
	s.withdraw("resource.k8s.io/v1beta2")
	eventually(t, "what is not served any more counts for nothing", is())
	if !r.Synced() {
		t.Error("not synced, though nothing is left to see")
	}
}
