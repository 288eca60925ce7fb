package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// spelled is a slice of four devices with a uuid each, and how a spec names some of them.
func spelled() (Observation, func(...int) []Naming) {
	s := seeSlice("a", 1, 1, 1, 0, 4)
	for i := range s.Slice.Spec.Devices {
		s.Slice.Spec.Devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: ptr.To(fmt.Sprintf("u%d", i))}}
	}
	return s, func(of ...int) []Naming {
		n := Naming{Driver: "gpu.example.com", Keys: []AttributeKey{{"gpu.example.com", "uuid"}}}
		for _, i := range of {
			n.Values = append(n.Values, []AttributeValue{{Text: fmt.Sprintf("u%d", i), IsText: true}})
		}
		return []Naming{n}
	}
}

// TestAReleasedPodsClaimIsReadFromItsSpec, whatever is noted beside it and in whichever order it is seen.
func TestAReleasedPodsClaimIsReadFromItsSpec(t *testing.T) {
	slice, by := spelled()
	ids := func(of ...int) []DeviceID {
		out := []DeviceID{}
		for _, i := range of {
			out = append(out, device("a", 0, i))
		}
		return out
	}
	released := Pod{Pin: "a"}
	for name, tc := range map[string]struct {
		pod     Pod
		claim   Claim
		held    []int
		flagged bool
	}{
		"both say the same":            {pod: released, claim: Claim{Promised: ids(0, 1), Named: by(1, 0)}, held: []int{0, 1}},
		"the note is of another":       {pod: released, claim: Claim{Promised: ids(2), Named: by(0)}, held: []int{0}, flagged: true},
		"the note is of fewer":         {pod: released, claim: Claim{Promised: ids(0), Named: by(0, 1)}, held: []int{0, 1}, flagged: true},
		"the note is of more":          {pod: released, claim: Claim{Promised: ids(0, 1), Named: by(0)}, held: []int{0}, flagged: true},
		"the note is lost":             {pod: released, claim: Claim{Promised: ids(), Named: by(3)}, held: []int{3}, flagged: true},
		"the spec does not say":        {pod: released, claim: Claim{Promised: ids(2)}, held: []int{2}},
		"the spec says what is gone":   {pod: released, claim: Claim{Promised: ids(2), Named: by(9)}, held: []int{2}},
		"its pod is gated":             {claim: Claim{Promised: ids(2), Named: by(0)}},
		"it is allocated":              {pod: Pod{Node: "a"}, claim: Claim{Promised: ids(2), Allocated: ids(3)}, held: []int{3}},
		"its pod is bound before that": {pod: Pod{Node: "a"}, claim: Claim{Promised: ids(2), Named: by(0)}, held: []int{0}, flagged: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.claim.Pod = "p"
			seen := []Observation{seeNode("a", 1, nil), slice, seePod("p", 1, tc.pod), seeClaim("c", 1, tc.claim)}
			for seed := range uint64(8) {
				b := New()
				for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(seen)) {
					b.Apply(seen[i])
					b.Snapshot()
				}
				n := b.Snapshot().Node("a")
				var held []int
				for i := range n.Devices {
					if !n.Devices[i].Free() {
						held = append(held, i)
					}
				}
				if d := cmp.Diff(tc.held, held); d != "" {
					t.Fatalf("held in order %d (-want +got):\n%s", seed, d)
				}
				if flagged := len(n.misnoted()) > 0; flagged != tc.flagged {
					t.Fatalf("flagged is %v, want any: %t", n.misnoted(), tc.flagged)
				}
			}
		})
	}
}

func TestNamingTellsDevicesByAllItsKeys(t *testing.T) {
	d := &Device{ID: DeviceID{Driver: "d", Pool: "p", Device: "x"}, Spec: &resourcev1.Device{Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"uuid": {StringValue: ptr.To("u")}, "other.example.com/slot": {IntValue: ptr.To(int64(3))}}}}
	uuid, slot := AttributeKey{"d", "uuid"}, AttributeKey{"other.example.com", "slot"}
	text, three := AttributeValue{Text: "u", IsText: true}, AttributeValue{Int: 3}
	for name, tc := range map[string]struct {
		n    Naming
		want bool
	}{
		"by one":                {Naming{"d", []AttributeKey{uuid}, [][]AttributeValue{{text}}}, true},
		"by both":               {Naming{"d", []AttributeKey{uuid, slot}, [][]AttributeValue{{text, three}}}, true},
		"by one of several":     {Naming{"d", []AttributeKey{slot}, [][]AttributeValue{{{Int: 2}}, {three}}}, true},
		"another value":         {Naming{"d", []AttributeKey{uuid, slot}, [][]AttributeValue{{text, {Int: 4}}}}, false},
		"a value of other kind": {Naming{"d", []AttributeKey{slot}, [][]AttributeValue{{{Text: "3", IsText: true}}}}, false},
		"another driver":        {Naming{"e", []AttributeKey{{"d", "uuid"}}, [][]AttributeValue{{text}}}, false},
		"no attribute":          {Naming{"d", []AttributeKey{{"d", "serial"}}, [][]AttributeValue{{text}}}, false},
		"nothing":               {Naming{"d", nil, [][]AttributeValue{{}}}, false},
	} {
		if got := tc.n.Names(d); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
