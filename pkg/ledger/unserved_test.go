package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestANodeWithoutADriver(t *testing.T) {
	b := bookOf(seeNode("h", 1, nil), seeSlice("h", 1, 1, 1, 0, 2), seeClaim("c", 1, Claim{Namespace: "team", Name: "c", Allocated: []DeviceID{device("h", 0, 1)}}))
	n := b.Snapshot().Node("h")
	at := time.Unix(1000, 0)
	away := map[string]time.Time{"gpu.example.com": at}
	g := n.Unserved(away)
	if len(g.Devices) != 0 || len(g.Lost) != 2 || len(n.Devices) != 2 || len(n.Lost) != 0 {
		t.Fatalf("it lists %d and lost %d, and before %d and %d", len(g.Devices), len(g.Lost), len(n.Devices), len(n.Lost))
	}
	for i := range g.Lost {
		if d := &g.Lost[i]; !d.Lost.Equal(at) || !d.Unserved || d.ID != device("h", 0, i) || d.Free() != (i == 0) {
			t.Errorf("device %s is %+v", d.ID, d)
		}
	}
	if n.Unserved(map[string]time.Time{"gpu.example.com": at}) != g {
		t.Error("it is another node each time it is asked for")
	}
	if n.Unserved(map[string]time.Time{"gpu.example.com": at.Add(1)}) == g {
		t.Error("it is the same at whatever time")
	}
	if n.Unserved(map[string]time.Time{"nic.example.com": at}) != n {
		t.Error("it is another node although it lists nothing of the driver's")
	}
	s := b.Snapshot().With(Holder{Kind: HolderPlacement, UID: "p"}, []PodSetClaim{{Node: "h", Slots: 1, Devices: []DeviceID{device("h", 0, 0)}}})
	if held := s.Node("h").Unserved(away); held == g || held.Lost[0].Free() {
		t.Error("what is promised since is not seen")
	}
}

func TestSinceWhenAgentsDoNotServe(t *testing.T) {
	at := func(seconds int64, o Observation) Observation {
		o.At = time.Unix(seconds, 0)
		return o
	}
	pod := func(version uint64, change func(*Pod)) Observation {
		p := Pod{Namespace: "driver", Node: "h", Labels: map[string]string{"app": "dra"}, Serving: true}
		change(&p)
		return seePod("a", version, p)
	}
	ready := pod(1, func(*Pod) {})
	not := func(version uint64) Observation { return pod(version, func(p *Pod) { p.Serving = false }) }
	ending := func(version uint64) Observation { return pod(version, func(p *Pod) { p.Terminating = true }) }
	for name, c := range map[string]struct {
		then    []Observation
		serving bool
		since   int64 // 0: never
		gone    bool
	}{
		"Ready when it was seen first":     {then: []Observation{at(10, ready)}, serving: true},
		"not Ready when it was seen first": {then: []Observation{at(10, not(1))}},
		"not Ready since":                  {then: []Observation{at(10, ready), at(20, not(2))}, since: 20},
		"not Ready since, and seen again":  {then: []Observation{at(10, ready), at(20, not(2)), at(30, not(3))}, since: 20},
		"Ready again":                      {then: []Observation{at(10, ready), at(20, not(2)), at(30, pod(3, func(*Pod) {}))}, serving: true, since: 30},
		"about to end":                     {then: []Observation{at(10, ready), at(20, ending(2))}, since: 20},
		"gone":                             {then: []Observation{at(10, ready), at(20, gone(ready))}, since: 20, gone: true},
		"gone after it was about to end":   {then: []Observation{at(10, ready), at(20, ending(2)), at(30, gone(ready))}, since: 20, gone: true},
		"gone after it was not Ready":      {then: []Observation{at(10, ready), at(20, not(2)), at(30, gone(ready))}, since: 20, gone: true},
		"gone, and nobody saw it Ready":    {then: []Observation{at(10, not(1)), at(20, gone(ready))}, gone: true},
		"ended by itself, which is observed as nothing being there": {then: []Observation{at(10, ready), at(20, Observation{Ref: ref(KindPod, "a", 2)})}, since: 20, gone: true},
	} {
		n := bookOf(append([]Observation{seeNode("h", 1, nil)}, c.then...)...).Snapshot().Node("h")
		want := Agent{Namespace: "driver", Name: "a", Labels: map[string]string{"app": "dra"}, Serving: c.serving}
		if c.since != 0 {
			want.Since = time.Unix(c.since, 0)
		}
		var there, left []Agent
		if c.gone {
			left = []Agent{want}
		} else {
			there = []Agent{want}
		}
		if diff := cmp.Diff([][]Agent{there, left}, [][]Agent{n.Agents, n.AgentsGone}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
