package quota

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestVictimsThatWereOnlyOfferedAreSaidToBe(t *testing.T) {
	b := newBook(t, nil, client.Object(queue("q", "", "gpus: h100=12", preempts(lower, never))), holding("runs", "q", 0, 1, "h100", 4))
	s := b.snap(t)
	s.Take(ask(t, s, "q", steered(job("offered", 1, "gpus=8"), "h100")))
	a := ask(t, s, "q", steered(job("asks", 2, "gpus=12"), "h100"))
	got := map[string]bool{}
	for _, v := range a.Victims {
		got[v.Name] = v.Offered
	}
	if len(got) != 2 || got["runs"] || !got["offered"] {
		t.Errorf("%s: offered is %v", a.words(), got)
	}
}
