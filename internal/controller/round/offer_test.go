package round

import (
	"fmt"
	"testing"
)

func TestOneFreeNodeIsOfferedToOneOfEight(t *testing.T) {
	b := newBench(t, map[string]string{"h": "h100"}, nil)
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprintf("wl-%d", i))
		b.waits(names[i], nil)
	}
	b.settle(0)
	if got := b.open(names...); got != "wl-0=h100" {
		t.Errorf("open are %s", got)
	}
	if got := b.round(1); len(got) > 0 {
		t.Errorf("a round on the same inputs wrote %v", got)
	}
}
