package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

var background = context.Background()

var ownKey = &v1alpha1.PlacementKey{WorkloadUID: "own", Admission: "a"}

// times is how often a property is checked as many times as rapid is told: few of the worlds that are drawn come near it.
const times = 4

// anyOrder draws an order of pods.
func anyOrder(t *rapid.T) func([]*releasing) []*releasing {
	return func(list []*releasing) []*releasing {
		if len(list) < 2 || rapid.Bool().Draw(t, "as they are") {
			return list
		}
		return rapid.Permutation(list).Draw(t, "order")
	}
}

// TestWhatIsPlacedFits holds Decide against what is predicted of kube-scheduler: whatever is placed, each pod, released as the
// manager releases it, is bound to its node with its own devices, once those before it are.
func TestWhatIsPlacedFits(t *testing.T) {
	for name, draw := range map[string]func(*rapid.T) (*world, *Request){
		"of everything some": func(rt *rapid.T) (*world, *Request) {
			p := drawPlenty(rt, 2)
			return p.world, &Request{Policy: p.drawPolicy(t, false), Namespace: "team", Now: noon, PodSets: p.drawGang(2, 3)}
		},
		"shapes": func(rt *rapid.T) (*world, *Request) {
			return drawWorld(rt), &Request{Policy: testPolicy(t, nil), Namespace: "team", PodSets: drawPodSets(rt)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			placed, slots := 0, 0
			for range times {
				rapid.Check(t, func(rt *rapid.T) {
					w, r := draw(rt)
					if dec := anew().Decide(background, w.book.Snapshot(), r); dec.Verdict == v1alpha1.VerdictAdmit {
						placed++
						slots += agrees(rt, w, r, dec, anyOrder(rt))
					}
				})
			}
			if t.Logf("%d gangs placed, of %d pods", placed, slots); placed < 15 || slots <= placed {
				t.Errorf("%d gangs of %d pods are too few to say anything", placed, slots)
			}
		})
	}
}

// TestWhatIsNotPlacedDoesNotFit is the other way round, for one pod and one node: where Decide finds no place on the accounts as
// they are, kube-scheduler finds none for the pod as its user wrote it, but for what excuses tells.
func TestWhatIsNotPlacedDoesNotFit(t *testing.T) {
	outcomes := map[string]int{}
	for range times {
		rapid.Check(t, func(rt *rapid.T) {
			p := drawPlenty(rt, 1)
			r := &Request{Policy: p.drawPolicy(t, true), Namespace: "team", Now: noon, PodSets: p.drawGang(1, 1)}
			s := p.book.Snapshot()
			dec := anew().Decide(background, s, r)
			got := anew().Predict(background, s, "n0", podOf(&r.PodSets[0], "pod"))
			switch {
			case dec.Verdict == v1alpha1.VerdictAdmit:
				outcomes["placed"]++
				return
			case !got.Fits || got.Unsure:
				outcomes["neither"]++
				return
			}
			switch excuse := p.excuse(&r.PodSets[0], &dec, &got); excuse {
			case "":
				rt.Fatalf("it has no place: %s: %s\nkube-scheduler gives it %v of %v (%s)", dec.Reason, dec.Message, got.gives(), got.Mapped, got.Quirk)
			default:
				outcomes["excused: "+excuse]++
			}
		})
	}
	if t.Logf("%v", outcomes); outcomes["placed"] < 15 || outcomes["neither"] < 15 {
		t.Errorf("%v: too few of either to say anything", outcomes)
	}
}

// excuse says why Decide places nothing where kube-scheduler would; empty where there is no reason to.
func (p *plenty) excuse(ps *PodSet, dec *Decision, got *Prediction) string {
	n := p.book.Snapshot().Node("n0")
	why := dec.why(ps, got)
	reason := func(r v1alpha1.Reason, part string) bool {
		return slices.ContainsFunc(why, func(s v1alpha1.StandingReason) bool { return s.Reason == r && strings.Contains(s.Message, part) })
	}
	withheld, cover := false, false
	seen, again := map[ledger.DeviceID]bool{}, false
	for _, a := range got.Allocations {
		for _, r := range a.Devices.Results {
			d := n.Device(ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
			if d != nil {
				seen[d.ID], again = true, again || seen[d.ID]
			}
			if d == nil {
				withheld = true
				continue
			}
			cover = cover || d.Cover != "" || d.Unusable != "" || tainted(nil, &ledger.Device{Taints: d.Inherited}) != nil
		}
	}
	switch {
	case again: // each request has a device of its own here
		return "a shared device is given to several requests of the pod"
	case withheld: // kube-scheduler lends what went back to an older generation, and what cannot be
		return "the device is of a pool that lends nothing"
	case cover: // it does not know that a card and its parts are one
		return "the device is listed twice, as a card and in parts"
	case reason(v1alpha1.ReasonForeignUse, "its device plugin lends these devices"): // nor that a plugin lends the same
		return "the device is lent by its plugin"
	case reason(v1alpha1.ReasonClaimUnsupported, "selector "): // it stops at the first device that will do
		return "a selector fails on another device"
	case reason(v1alpha1.ReasonClaimUnsupported, "no attribute tells its devices apart"): // it need not cut a claim
		return "the devices are not told apart"
	case reason(v1alpha1.ReasonClaimUnsupported, ", which serves"): // nor promise what it gives by number
		return "what would be given by number cannot be foretold"
	case p.countedForMore(ps, got, n):
		return "each device is rounded up by itself, and counts beside what a pod asks for as a whole"
	}
	return ""
}

// countedForMore says whether what a pod asks for and its devices map to, device by device as the ledger counts promises, is not
// there, though it is all together.
func (p *plenty) countedForMore(ps *PodSet, got *Prediction, n *ledger.Node) bool {
	total := ofNode(ps.Requests, noName).Clone()
	for claim, a := range got.Allocations {
		for _, r := range a.Devices.Results {
			if d := n.Device(ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}); d != nil {
				total.Add(mapsTo(d, ps.referencesTo(claim)), 1)
			}
		}
	}
	k, _ := n.Free.Times(total, 1)
	return k < 1 && (len(got.Mapped) > 0 || asWhole(ps.Spec))
}

// why returns why Decide did not place the alternatives that kube-scheduler would give.
func (dec *Decision) why(ps *PodSet, got *Prediction) []v1alpha1.StandingReason {
	var chosen []string
	for i := range ps.Shape.Claims {
		for _, r := range ps.Shape.Claims[i].Requests {
			for _, a := range r.Alternatives {
				name := r.Name + "/" + a.Sub
				if given := got.Allocations[ps.Shape.Claims[i].Name]; a.Sub != "" && given != nil && slices.ContainsFunc(given.Devices.Results, func(x resourcev1.DeviceRequestAllocationResult) bool { return x.Request == name }) {
					chosen = append(chosen, name)
				}
			}
		}
	}
	for _, s := range dec.Standings {
		if s.Alternative == strings.Join(chosen, ",") {
			return s.Reasons
		}
	}
	return nil
}

func noName(name corev1.ResourceName) bool { return name == "" }
