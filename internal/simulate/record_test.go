package simulate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

func TestKeep(t *testing.T) {
	pods := func(podSet string, nodes ...string) []report.Pod {
		var out []report.Pod
		for i, n := range nodes {
			out = append(out, report.Pod{PodSet: podSet, Index: i, Node: n})
		}
		return out
	}
	for name, c := range map[string]struct{ was, now, want []report.Pod }{
		"the first places":                      {nil, pods("main", "n1"), pods("main", "n1")},
		"a slot that was given back stays":      {pods("main", "n1", "n2"), pods("main", "n2"), pods("main", "n1", "n2")},
		"so does the last":                      {pods("main", "n1"), nil, pods("main", "n1")},
		"a slot that was placed anew has moved": {pods("main", "n1", "n2"), pods("main", "n2", "n3"), pods("main", "n2", "n3")},
		"each podset by itself": {
			append(pods("a", "n1", "n2"), pods("b", "n1")...), append(pods("a", "n2"), pods("b", "n3")...), append(pods("a", "n1", "n2"), pods("b", "n3")...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, keep(c.was, c.now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
