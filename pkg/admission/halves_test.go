package admission

import "testing"

func TestKueuesWordsAreNotAboutWhatWeClosed(t *testing.T) {
	p := testPolicy(t, nil)
	said := "couldn't assign flavors to pod set main: flavor h100 doesn't match node affinity, insufficient unused quota for gpus in flavor a100, 8 more needed"
	for allowed, want := range map[string]string{
		"a100": "couldn't assign flavors to pod set main: insufficient unused quota for gpus in flavor a100, 8 more needed",
		"h100": said, // then it is the user's own affinity
	} {
		if got := withoutClosed(said, p, []string{allowed}); got != want {
			t.Errorf("with %s open it is %q, want %q", allowed, got, want)
		}
	}
	last := "couldn't assign flavors to pod set main: insufficient quota in flavor a100, flavor h100 doesn't match node affinity"
	if got, want := withoutClosed(last, p, []string{"a100"}), "couldn't assign flavors to pod set main: insufficient quota in flavor a100"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
}
