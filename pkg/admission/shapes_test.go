package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// shaped asks for count pods with a claim of each given spec, named c0, c1 and so on.
func shaped(name string, count int32, claims ...resourcev1.ResourceClaimSpec) PodSet {
	spec := &corev1.PodSpec{}
	templates := map[string]*resourcev1.ResourceClaimTemplate{}
	for i := range claims {
		c := fmt.Sprintf("c%d", i)
		spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimTemplateName: ptr.To(c)})
		templates[c] = &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: c}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claims[i]}}
	}
	shape, refusal := flavors.ShapeOf(spec, func(name string) *resourcev1.ResourceClaimTemplate { return templates[name] })
	if refusal != nil {
		panic(refusal.Message)
	}
	return PodSet{Name: name, Count: count, Spec: spec, Shape: shape, Requests: ledger.Amounts{"cpu": 1000, "pods": 1}}
}

// claiming is a claim spec of requests.
func claiming(requests ...resourcev1.DeviceRequest) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
}

// matching adds a matchAttribute constraint about the given requests, or about all.
func matching(spec resourcev1.ResourceClaimSpec, attribute string, requests ...string) resourcev1.ResourceClaimSpec {
	spec.Devices.Constraints = append(spec.Devices.Constraints, resourcev1.DeviceConstraint{Requests: requests, MatchAttribute: ptr.To(resourcev1.FullyQualifiedName(attribute))})
	return spec
}

func cels(expressions []string) []resourcev1.DeviceSelector {
	var out []resourcev1.DeviceSelector
	for _, e := range expressions {
		out = append(out, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return out
}

func exactly(name string, count int64, expressions ...string) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: count, Selectors: cels(expressions)}}
}

// either offers so many of one model or so many of another, such as "h100:1", "a100:2".
func either(name string, alternatives ...string) resourcev1.DeviceRequest {
	r := resourcev1.DeviceRequest{Name: name}
	for _, a := range alternatives {
		model, count, _ := strings.Cut(a, ":")
		n := resource.MustParse(count)
		r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: model, DeviceClassName: "gpu", Count: n.Value(), Selectors: cels([]string{is("model", model)})})
	}
	return r
}

func is(attribute, value string) string {
	return fmt.Sprintf(`device.attributes["gpu.example.com"].%s == %q`, attribute, value)
}

// zones puts the devices of a node into so many NUMA zones, the first ones first.
func zones(n int) func(*corev1.Node, *resourcev1.ResourceSlice) {
	return func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Attributes["zone"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(i * n / len(s.Spec.Devices)))}
		}
	}
}

const zone = "gpu.example.com/zone"

// given lists a decision's devices as podset, node, request and devices, cut to their names.
func given(dec Decision) []string {
	var out []string
	for _, ps := range dec.PodSets {
		for _, n := range ps.Nodes {
			for _, r := range n.Requests {
				var names []string
				for _, id := range r.Devices {
					names = append(names, id[strings.LastIndex(id, "-")+1:])
				}
				out = append(out, fmt.Sprintf("%s %s %s/%s %s", ps.Name, n.Name, r.Claim, r.Request, strings.Join(names, " ")))
			}
		}
	}
	return out
}

func TestShapes(t *testing.T) {
	fits := func(lines ...string) []string { return lines }
	node := func(models string) *world { return newWorld().node("n", models, nil) }
	for name, tc := range map[string]struct {
		world   *world
		podSets []PodSet
		// want is what each podset is given; none where it waits for reason.
		want   []string
		reason v1alpha1.Reason
	}{
		"the first alternative that is there is taken":                  {world: node("h100:1,a100:4"), podSets: []PodSet{shaped("main", 1, claiming(either("gpu", "h100:1", "a100:2")))}, want: fits("main n c0/gpu/h100 0")},
		"an alternative of another count where the first is not there":  {world: node("h100:1,a100:4"), podSets: []PodSet{shaped("main", 1, claiming(either("gpu", "h100:2", "a100:4")))}, want: fits("main n c0/gpu/a100 1 2 3 4")},
		"the user's order goes before the policy's":                     {world: node("h100:2,a100:2"), podSets: []PodSet{shaped("main", 1, claiming(either("gpu", "a100:2", "h100:1")))}, want: fits("main n c0/gpu/a100 2 3")},
		"all pods of a podset have the same alternative":                {world: node("h100:1,a100:2"), podSets: []PodSet{shaped("main", 2, claiming(either("gpu", "h100:1", "a100:1")))}, want: fits("main n c0/gpu/a100 1 2")},
		"no alternative is there":                                       {world: node("h100:1,a100:2"), podSets: []PodSet{shaped("main", 1, claiming(either("gpu", "h100:2", "a100:3")))}, reason: v1alpha1.ReasonNotEnoughDevices},
		"two requests of a claim have devices of their own":             {world: node("h100:3"), podSets: []PodSet{shaped("main", 1, claiming(exactly("a", 2), exactly("b", 1)))}, want: fits("main n c0/a 0 1", "main n c0/b 2")},
		"two claims of a pod have devices of their own":                 {world: node("h100:3"), podSets: []PodSet{shaped("main", 1, claiming(exactly("gpu", 2)), claiming(exactly("gpu", 1)))}, want: fits("main n c0/gpu 0 1", "main n c1/gpu 2")},
		"a request that takes any leaves the other the one it needs":    {world: node("h100:2"), podSets: []PodSet{shaped("main", 1, claiming(exactly("any", 1), exactly("first", 1, is("uuid", "n-0"))))}, want: fits("main n c0/any 1", "main n c0/first 0")},
		"requests that want the same one device do not fit":             {world: node("h100:8"), podSets: []PodSet{shaped("main", 1, claiming(exactly("a", 1, is("uuid", "n-0")), exactly("b", 1, is("uuid", "n-0"))))}, reason: v1alpha1.ReasonNotEnoughDevices},
		"two claims of eight on eight devices do not fit":               {world: node("h100:8"), podSets: []PodSet{shaped("main", 1, claiming(exactly("a", 8)), claiming(exactly("b", 8)))}, reason: v1alpha1.ReasonNotEnoughDevices},
		"a user's selector narrows the flavor":                          {world: node("h100:4"), podSets: []PodSet{shaped("main", 1, claiming(exactly("gpu", 1, is("uuid", "n-2"))))}, want: fits("main n c0/gpu 2")},
		"all requests are on one flavor":                                {world: node("h100:1,a100:1"), podSets: []PodSet{shaped("main", 1, claiming(exactly("a", 1), exactly("b", 1)))}, reason: v1alpha1.ReasonNotEnoughDevices},
		"matchAttribute keeps a claim in one zone":                      {world: newWorld().node("n", "h100:8", zones(2)).held("n", true, false, 0), podSets: []PodSet{shaped("main", 1, matching(claiming(exactly("gpu", 4)), zone))}, want: fits("main n c0/gpu 4 5 6 7")},
		"two pods of three have a zone each, one of two what is left":   {world: newWorld().node("n", "h100:8", zones(2)), podSets: []PodSet{shaped("threes", 2, matching(claiming(exactly("gpu", 3)), zone)), shaped("two", 1, claiming(exactly("gpu", 2)))}, want: fits("threes n c0/gpu 0 1 2 4 5 6", "two n c0/gpu 3 7")},
		"a podset before it leaves a zone whole to the one that needs":  {world: newWorld().node("n", "h100:8", zones(2)), podSets: []PodSet{shaped("any", 1, claiming(exactly("gpu", 4))), shaped("zone", 1, matching(claiming(exactly("gpu", 4)), zone))}, want: fits("any n c0/gpu 4 5 6 7", "zone n c0/gpu 0 1 2 3")},
		"free devices in two zones do not make one":                     {world: newWorld().node("n", "h100:8", zones(2)).held("n", true, false, 3, 4), podSets: []PodSet{shaped("main", 1, matching(claiming(exactly("gpu", 4)), zone))}, reason: v1alpha1.ReasonConstraintUnsatisfied},
		"a constraint is about the requests that it names":              {world: newWorld().node("n", "h100:4", zones(2)).held("n", true, false, 0), podSets: []PodSet{shaped("main", 1, matching(claiming(exactly("a", 1), exactly("b", 2)), zone, "b"))}, want: fits("main n c0/a 1", "main n c0/b 2 3")},
		"a constraint about a subrequest that was not chosen is none":   {world: newWorld().node("n", "a100:2", zones(2)), podSets: []PodSet{shaped("main", 1, matching(claiming(either("gpu", "h100:2", "a100:2")), zone, "gpu/h100"))}, want: fits("main n c0/gpu/a100 0 1")},
		"devices that lack the attribute of a constraint are not given": {world: newWorld().node("n", "h100:4", nil), podSets: []PodSet{shaped("main", 1, matching(claiming(exactly("gpu", 1)), zone))}, reason: v1alpha1.ReasonConstraintUnsatisfied},
		"distinctAttribute spreads requests over zones": {world: newWorld().node("n", "h100:4", zones(2)), podSets: []PodSet{shaped("main", 1, func() resourcev1.ResourceClaimSpec {
			spec := claiming(exactly("a", 1), exactly("b", 1))
			spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(zone))}}
			return spec
		}())}, want: fits("main n c0/a 0", "main n c0/b 2")},
		"distinctAttribute beside another podset on another flavor of one node": {
			world: newWorld().node("n", "h100:1,a100:2", zones(2)),
			podSets: []PodSet{shaped("one", 1, claiming(exactly("gpu", 1, is("model", "h100")))), shaped("two", 1, func() resourcev1.ResourceClaimSpec {
				spec := claiming(exactly("a", 1, is("model", "a100")))
				spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(zone))}}
				return spec
			}())},
			want: fits("one n c0/gpu 0", "two n c0/a 1"),
		},
		"a later podset takes the node that the earlier one can do without": {
			world:   newWorld().node("big", "h100:8", nil).node("small", "h100:4", nil),
			podSets: []PodSet{shaped("fours", 1, claiming(exactly("gpu", 4))), shaped("eight", 1, claiming(exactly("gpu", 8)))},
			want:    fits("fours small c0/gpu 0 1 2 3", "eight big c0/gpu 0 1 2 3 4 5 6 7"),
		},
		"podsets are placed beside each other where one after another fails": {
			// Packed, two of three take the node of six whole; then four have no node left.
			world:   newWorld().node("six", "h100:6", nil).node("seven", "h100:7", nil),
			podSets: []PodSet{shaped("threes", 3, claiming(exactly("gpu", 3))), shaped("four", 1, claiming(exactly("gpu", 4)))},
			want:    fits("threes seven c0/gpu 0 1 2", "threes six c0/gpu 0 1 2 3 4 5", "four seven c0/gpu 3 4 5 6"),
		},
		"a podset has its second choice where the first leaves another none": {
			world:   node("h100:1,a100:2"),
			podSets: []PodSet{shaped("wide", 1, claiming(either("gpu", "h100:1", "a100:2"))), shaped("narrow", 1, claiming(exactly("gpu", 1, is("model", "h100"))))},
			want:    fits("wide n c0/gpu/a100 1 2", "narrow n c0/gpu 0"),
		},
		"a class of one alternative that is missing leaves the others": {world: node("a100:2"), podSets: []PodSet{shaped("main", 1, func() resourcev1.ResourceClaimSpec {
			r := either("gpu", "h100:1", "a100:2")
			r.FirstAvailable[0].DeviceClassName = "missing"
			return claiming(r)
		}())}, want: fits("main n c0/gpu/a100 0 1")},
	} {
		t.Run(name, func(t *testing.T) {
			dec := tc.world.decide(t, Request{PodSets: tc.podSets})
			if got := given(dec); !slices.Equal(got, tc.want) || dec.Reason != tc.reason {
				t.Errorf("given %q, reason %s (%s)\nwant  %q, reason %s", got, dec.Reason, dec.Message, tc.want, tc.reason)
			}
		})
	}
}

func TestTheReservedChargeBindsTheAlternative(t *testing.T) {
	w := newWorld().node("n", "h100:2,a100:4", nil)
	for charge, want := range map[int64]string{1: "main n c0/gpu/one 0", 2: "main n c0/gpu/two 0 1"} {
		r := resourcev1.DeviceRequest{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "one", DeviceClassName: "gpu", Count: 1}, {Name: "two", DeviceClassName: "gpu", Count: 2},
		}}
		ps := shaped("main", 1, claiming(r))
		ps.Assigned = &Assigned{Flavor: "h100", Charge: &charge, NodeLabels: map[string]string{"flavor-h100": "true"}}
		dec := w.decide(t, Request{PodSets: []PodSet{ps}})
		if got := given(dec); !slices.Equal(got, []string{want}) || dec.PodSets[0].Charge != charge {
			t.Errorf("charged %d: given %q (%s), want %q", charge, got, dec.Message, want)
		}
		other := charge + 5
		ps.Assigned.Charge = &other
		if dec := w.decide(t, Request{PodSets: []PodSet{ps}}); dec.Reason != v1alpha1.ReasonQuotaMismatch || !strings.Contains(dec.Message, fmt.Sprint(other)) {
			t.Errorf("charged %d, which nothing costs: %s, %s", other, dec.Reason, dec.Message)
		}
	}
}

func TestStandingsAreOfEveryOptionAlone(t *testing.T) {
	w := newWorld().node("n", "h100:2,a100:2", nil).held("n", true, false, 0)
	r := Request{Policy: testPolicy(t, nil), Now: time.Unix(1000, 0), Namespace: "team", PodSets: []PodSet{
		shaped("first", 1, claiming(exactly("gpu", 2, is("model", "a100")))), shaped("main", 1, claiming(either("gpu", "h100:2", "a100:2"))), {Name: "plain", Count: 1, Spec: &corev1.PodSpec{}},
	}}
	d := &Decider{Matcher: flavors.NewMatcher()}
	var got []string
	for _, o := range r.Policy.Options(r.PodSets[1].Shape) {
		s := d.try(context.Background(), w.book.Snapshot(), &r, &r.PodSets[1], o).standing
		got = append(got, fmt.Sprintf("%s %s %s %d", s.Alternative, s.Flavor, s.Standing, o.Charge))
	}
	want := []string{"gpu/h100 h100 Busy 2", "gpu/h100 a100 Impossible 2", "gpu/a100 h100 Impossible 2", "gpu/a100 a100 Fits 2"}
	if !slices.Equal(got, want) {
		t.Errorf("standings %q, want %q", got, want)
	}
	for _, s := range d.Decide(context.Background(), w.book.Snapshot(), &r).Standings {
		if s.PodSet == "plain" && s.Flavor != "" {
			t.Errorf("a podset without devices has a standing: %v", s)
		}
	}
}

// TestTheSearchIsBounded: what the allocator takes minutes to refuse is answered at once.
func TestTheSearchIsBounded(t *testing.T) {
	roots := func(_ *corev1.Node, s *resourcev1.ResourceSlice) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Attributes["zone"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(i / 3))}
		}
	}
	distinct := claiming(exactly("a", 1), exactly("b", 1), exactly("c", 1))
	distinct.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(zone))}}
	for name, tc := range map[string]struct {
		podSet PodSet
		reason v1alpha1.Reason
	}{
		"two claims of nine on sixteen devices":                    {shaped("main", 1, claiming(exactly("a", 9)), claiming(exactly("b", 9))), v1alpha1.ReasonNotEnoughDevices},
		"pairs under roots of three: eight by count, five by root": {shaped("main", 8, matching(claiming(exactly("gpu", 2)), zone)), v1alpha1.ReasonConstraintUnsatisfied},
		"three distinct roots, five times":                         {shaped("main", 6, distinct), v1alpha1.ReasonNotEnoughDevices},
	} {
		t.Run(name, func(t *testing.T) {
			dec := newWorld().node("n", "h100:16", roots).decide(t, Request{PodSets: []PodSet{tc.podSet}})
			if dec.Verdict == v1alpha1.VerdictAdmit || dec.Reason != tc.reason {
				t.Errorf("%s, %s: %s", dec.Verdict, dec.Reason, dec.Message)
			}
		})
	}
}

// TestASearchThatReachesItsBoundIsUndecided: no node takes a pod of both podsets, so that they have no place together; with
// so many nodes that is not found out, and not denied either.
func TestASearchThatReachesItsBoundIsUndecided(t *testing.T) {
	for nodes, want := range map[int]v1alpha1.Reason{3: v1alpha1.ReasonDevicesInUse, 400: v1alpha1.ReasonUndecided} {
		w := newWorld()
		for i := range nodes {
			w.node(fmt.Sprintf("n%03d", i), "h100:2", nil)
		}
		half := int32(nodes)/2 + 1
		dec := w.decide(t, Request{PodSets: []PodSet{shaped("one", half, claiming(exactly("gpu", 2))), shaped("two", half, claiming(exactly("gpu", 2)))}})
		if dec.Reason != want {
			t.Errorf("%d nodes: %s, %s; want %s", nodes, dec.Reason, dec.Message, want)
		}
	}
}

func TestHugepagesAreRoomLikeAnyOther(t *testing.T) {
	w := newWorld().node("n", "h100:8", func(n *corev1.Node, _ *resourcev1.ResourceSlice) {
		n.Status.Allocatable["hugepages-1Gi"] = resource.MustParse("8Gi")
	})
	ask := func(gigabytes int64) Decision {
		ps := pods(2, 1, func(p *PodSet) { p.Requests = ledger.Amounts{"hugepages-1Gi": gigabytes << 30, "pods": 1} })
		return w.decide(t, Request{PodSets: []PodSet{ps}})
	}
	if dec := ask(4); dec.Verdict != v1alpha1.VerdictAdmit {
		t.Errorf("two pods of 4Gi on 8Gi: %s", dec.Message)
	}
	dec := ask(5)
	if want := "a pod asks for 5Gi of hugepages-1Gi, 8Gi is free"; dec.Reason != v1alpha1.ReasonNodeResources || !strings.Contains(dec.Message, want) {
		t.Errorf("two pods of 5Gi on 8Gi: %s, %s; want %q", dec.Reason, dec.Message, want)
	}
	w.node("none", "h100:8", nil)
	if dec := ask(5); dec.Verdict == v1alpha1.VerdictAdmit {
		t.Errorf("admitted on a node without hugepages: %v", given(dec))
	}
}
