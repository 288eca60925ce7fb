package admission

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

func TestPriorityInverted(t *testing.T) {
	one := map[string]string{"h": "h100:8"}
	cases := map[string]struct {
		market *market
		want   bool
	}{
		"lower priority holds what there is quota for": {newMarket(t, "h100=16").with(one).uses("cq", "h100", "h", 99, 8, 0), true},
		"the same priority does":                       {newMarket(t, "h100=16").with(one).uses("cq", "h100", "h", 100, 8, 0), false},
		"lower priority holds some, and that would not do": {
			newMarket(t, "h100=16").with(one).uses("cq", "h100", "h", 0, 4, 0).uses("cq", "h100", "h", 100, 4, 4), false},
		"quota is what is missing":            {newMarket(t, "h100=8").with(one).uses("cq", "h100", "h", 0, 8, 0), false},
		"somebody else than Kueue's holds it": {newMarket(t, "h100=16").with(one).wedge("h"), false},
		"it fits":                             {newMarket(t, "h100=16").with(one), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := c.market.waiter(choicePolicy(t, nil), "job", 0, pods(1, 8, nil))
			w.Workload.Spec.Priority = ptr.To(int32(100))
			got := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), c.market.book.Snapshot(), c.market.snap(t), w)
			if got.Decision.Inverted() != c.want {
				t.Errorf("inverted is %v: %s, %+v", got.Decision.Inverted(), wordsOf(got), got.Decision.Standings)
			}
			if got.Decision.Reason == v1alpha1.ReasonPriorityInverted {
				t.Error("it stands instead of the other reasons")
			}
		})
	}
}
