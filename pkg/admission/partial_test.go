package admission

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

func TestAWorkloadThatMayStartWithFewerPods(t *testing.T) {
	three := map[string]string{"h1": "h100:8", "h2": "h100:8", "h3": "h100:8"}
	many := func(count, least int32) PodSet {
		return pods(count, 8, func(ps *PodSet) { ps.MinCount = least })
	}
	cases := map[string]struct {
		market  *market
		podSet  PodSet
		now     int
		ask     func(*Waiter)
		want    string
		slots   int32
		fitting v1alpha1.Standing
	}{
		"is offered a place for as many as Kueue has quota for": {
			market: newMarket(t, "h100=16").with(three), podSet: many(6, 1), want: "main=h100@8 Fit", slots: 2, fitting: v1alpha1.StandingFits},
		"is offered all where there is quota and room for all": {
			market: newMarket(t, "h100=24").with(three), podSet: many(3, 1), want: "main=h100@8 Fit", slots: 3, fitting: v1alpha1.StandingFits},
		"waits where Kueue would assign more than there is room for": {
			market: newMarket(t, "h100=48").with(three), podSet: many(6, 1), want: "closed waits=h100 NotEnoughDevices until=1m0s", fitting: v1alpha1.StandingFits},
		"goes on to the next flavor after that": {
			market: newMarket(t, "h100=48 a100=16").with(three).with(map[string]string{"a1": "a100:8", "a2": "a100:8"}), podSet: many(6, 1),
			now: 60, ask: since("h100", 0), want: "main=a100@8 Fit", slots: 2, fitting: v1alpha1.StandingFits},
		"waits like any other where not even the fewest have room": {
			market: newMarket(t, "h100=48").with(three).uses("next", "h100", "h1", 0, 8, 0), podSet: many(3, 3), want: "closed waits=h100 DevicesInUse until=1m0s", fitting: v1alpha1.StandingBusy},
		"can never start where the fewest exceed the inventory": {
			market: newMarket(t, "h100=48").with(three), podSet: many(6, 4), want: "closed NotEnoughDevices", fitting: v1alpha1.StandingImpossible},
		"is like any other where the fewest are all": {
			market: newMarket(t, "h100=16").with(three), podSet: many(3, 3), want: "main=h100@8 QuotaExhausted", fitting: v1alpha1.StandingFits},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := c.market.waiter(choicePolicy(t, nil), "job", c.now, c.podSet)
			if c.ask != nil {
				c.ask(w)
			}
			got := (&Decider{Matcher: flavors.NewMatcher()}).Choose(t.Context(), c.market.book.Snapshot(), c.market.snap(t), w)
			if got := wordsOf(got); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			var slots int32
			for _, ps := range got.Decision.PodSets {
				for _, n := range ps.Nodes {
					slots += n.Slots
				}
			}
			if slots != c.slots {
				t.Errorf("the offer counts on places for %d pods, want %d", slots, c.slots)
			}
			if s := got.Decision.Standings[0]; s.Standing != c.fitting {
				t.Errorf("h100 is %s, want %s", s.Standing, c.fitting)
			}
		})
	}
}
