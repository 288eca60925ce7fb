package admission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// drawWorld draws one or two nodes with a few devices of two models, in zones and of two kinds, some of them tainted,
// held, or without a zone, and little cpu.
func drawWorld(t *rapid.T) *world {
	w := newWorld()
	for n := range rapid.IntRange(1, 2).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", n)
		models := fmt.Sprintf("h100:%d,a100:%d", rapid.IntRange(0, 4).Draw(t, "h100"), rapid.IntRange(0, 2).Draw(t, "a100"))
		w.node(name, models, func(node *corev1.Node, s *resourcev1.ResourceSlice) {
			cpu := node.Status.Allocatable["cpu"]
			cpu.SetMilli(int64(rapid.IntRange(1, 4).Draw(t, "cpu")) * 1000)
			node.Status.Allocatable["cpu"] = cpu
			for i := range s.Spec.Devices {
				d := &s.Spec.Devices[i]
				d.Attributes["kind"] = resourcev1.DeviceAttribute{StringValue: ptr.To(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "kind"))}
				if z := rapid.IntRange(-1, 1).Draw(t, "zone"); z >= 0 {
					d.Attributes["zone"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(z))}
				}
				if rapid.IntRange(0, 7).Draw(t, "taint") == 0 {
					d.Taints = []resourcev1.DeviceTaint{{Key: "worn", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
				}
			}
		})
		count := 0
		for _, node := range w.book.Snapshot().Nodes() {
			if node.Name == name {
				count = len(node.Devices)
			}
		}
		if count > 0 && rapid.IntRange(0, 3).Draw(t, "held") == 0 {
			w.held(name, true, false, rapid.IntRange(0, count-1).Draw(t, "which"))
		}
	}
	return w
}

// drawClaim draws a claim of one or two requests, with alternatives, selectors, tolerations and constraints.
func drawClaim(t *rapid.T) resourcev1.ResourceClaimSpec {
	spec := claiming()
	for i := range rapid.IntRange(1, 2).Draw(t, "requests") {
		name := string(rune('a' + i))
		draw := func() ([]resourcev1.DeviceSelector, []resourcev1.DeviceToleration, int64) {
			var e []string
			if k := rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "selector"); k != "" {
				e = append(e, is("kind", k))
			}
			var tolerations []resourcev1.DeviceToleration
			if rapid.Bool().Draw(t, "tolerates") {
				tolerations = []resourcev1.DeviceToleration{{Key: "worn", Operator: resourcev1.DeviceTolerationOpExists}}
			}
			return cels(e), tolerations, int64(rapid.IntRange(1, 2).Draw(t, "count"))
		}
		r := resourcev1.DeviceRequest{Name: name}
		if rapid.IntRange(0, 2).Draw(t, "kind of request") == 0 {
			for s := range 2 {
				selectors, tolerations, count := draw()
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprintf("s%d", s), DeviceClassName: "gpu", Count: count, Selectors: selectors, Tolerations: tolerations})
			}
		} else {
			selectors, tolerations, count := draw()
			r.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: count, Selectors: selectors, Tolerations: tolerations}
		}
		spec.Devices.Requests = append(spec.Devices.Requests, r)
	}
	switch rapid.IntRange(0, 5).Draw(t, "constraint") {
	case 0, 1:
		spec = matching(spec, zone)
	case 2:
		spec = matching(spec, zone, "a")
	case 3:
		if single(spec) {
			spec.Devices.Constraints = append(spec.Devices.Constraints, resourcev1.DeviceConstraint{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(zone))})
		}
	}
	return spec
}

// single says that each request is for one device: of several, kube-scheduler's allocator lets a value come twice.
func single(spec resourcev1.ResourceClaimSpec) bool {
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.Count > 1 || slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return s.Count > 1 }) {
			return false
		}
	}
	return true
}

func drawPodSets(t *rapid.T) []PodSet {
	var out []PodSet
	most := int32(3)
	n := rapid.IntRange(1, 2).Draw(t, "podsets")
	if n == 2 {
		most = 2
	}
	for i := range n {
		claims := make([]resourcev1.ResourceClaimSpec, rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "claims"))
		for c := range claims {
			claims[c] = drawClaim(t)
		}
		out = append(out, shaped(fmt.Sprintf("p%d", i), rapid.Int32Range(1, most).Draw(t, "count"), claims...))
	}
	return out
}

// TestDecideFindsAPlaceWhereThereIsOne holds decisions against a search of all ways to place the pods, option by option in
// the order of preference.
func TestDecideFindsAPlaceWhereThereIsOne(t *testing.T) {
	p := testPolicy(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		r := Request{Policy: p, Namespace: "team", PodSets: drawPodSets(t)}
		dec := (&Decider{Matcher: flavors.NewMatcher()}).Decide(context.Background(), w.book.Snapshot(), &r)
		if dec.Reason == v1alpha1.ReasonUndecided {
			t.Fatalf("a small case is undecided: %s", dec.Message)
		}
		want := firstPlaceable(&r, w.book.Snapshot())
		got := "none"
		if dec.Verdict == v1alpha1.VerdictAdmit {
			got = ""
			for i := range dec.PodSets {
				got += optionName(&r, i, func(name string) bool {
					return slices.ContainsFunc(dec.PodSets[i].Nodes[0].Requests, func(q v1alpha1.PlacementRequest) bool { return q.Claim+"/"+q.Request == name })
				}, dec.PodSets[i].Flavor)
			}
		}
		if got != want {
			t.Fatalf("decided %s (%s), a search of all placements finds %s", got, dec.Message, want)
		}
	})
}

// optionName writes the option of a podset: its flavor and the requests, of all alternatives, that are in use.
func optionName(r *Request, podSet int, used func(string) bool, flavor string) string {
	out := flavor
	for _, c := range r.PodSets[podSet].Shape.Claims {
		for _, q := range c.Requests {
			for _, a := range q.Alternatives {
				name := c.Name + "/" + q.Name
				if a.Sub != "" {
					name += "/" + a.Sub
				}
				if used(name) {
					out += " " + name
				}
			}
		}
	}
	return out + ";"
}

// firstPlaceable searches all placements for each combination of options, in order.
func firstPlaceable(r *Request, s *ledger.Snapshot) string {
	var try func(i int, chosen []flavors.Option) string
	try = func(i int, chosen []flavors.Option) string {
		if i == len(r.PodSets) {
			if !(&bruteForce{r: r, s: s, chosen: chosen, taken: map[*ledger.Device]bool{}, cpu: map[string]int64{}}).pod(0, 0, 0) {
				return "none"
			}
			out := ""
			for j, o := range chosen {
				names := map[string]bool{}
				for _, c := range r.PodSets[j].Shape.Chosen(o.Variant) {
					names[r.PodSets[j].Shape.Claims[c.Claim].Name+"/"+c.Name] = true
				}
				out += optionName(r, j, func(n string) bool { return names[n] }, r.Policy.Flavors[o.Flavor].Name)
			}
			return out
		}
		for _, o := range r.Policy.Options(r.PodSets[i].Shape) {
			if found := try(i+1, append(slices.Clone(chosen), o)); found != "none" {
				return found
			}
		}
		return "none"
	}
	return try(0, nil)
}

// bruteForce places pods one after another, each on every node and with every set of devices, in the plainest way.
type bruteForce struct {
	r      *Request
	s      *ledger.Snapshot
	chosen []flavors.Option
	taken  map[*ledger.Device]bool
	cpu    map[string]int64
}

// pod places pod k of podset i, on the nodes from the given one on: pods of a podset are alike.
func (b *bruteForce) pod(i int, k int32, from int) bool {
	if i == len(b.r.PodSets) {
		return true
	}
	if k == b.r.PodSets[i].Count {
		return b.pod(i+1, 0, 0)
	}
	for at, n := range b.s.Nodes() {
		flavor := b.r.Policy.Flavors[b.chosen[i].Flavor].Name
		if at < from || n.Object.Labels["flavor-"+flavor] == "" || b.cpu[n.Name]+1000 > n.Free["cpu"] {
			continue
		}
		b.cpu[n.Name] += 1000
		wants := b.r.PodSets[i].Shape.Chosen(b.chosen[i].Variant)
		if b.devices(i, n, wants, make([][]*ledger.Device, len(wants)), 0, 0, func() bool { return b.pod(i, k+1, at) }) {
			return true
		}
		b.cpu[n.Name] -= 1000
	}
	return false
}

// devices gives want w the devices that it lacks, from index from on, then the later wants theirs.
func (b *bruteForce) devices(i int, n *ledger.Node, wants []flavors.Chosen, has [][]*ledger.Device, w, from int, then func() bool) bool {
	if w == len(wants) {
		return b.constrained(i, wants, has) && then()
	}
	if int64(len(has[w])) == wants[w].Count {
		return b.devices(i, n, wants, has, w+1, 0, then)
	}
	for d := from; d < len(n.Devices); d++ {
		dev := &n.Devices[d]
		if b.taken[dev] || len(dev.Holders) > 0 || !b.selects(i, &wants[w], dev) {
			continue
		}
		b.taken[dev], has[w] = true, append(has[w], dev)
		if b.devices(i, n, wants, has, w, d+1, then) {
			return true
		}
		b.taken[dev], has[w] = false, has[w][:len(has[w])-1]
	}
	return false
}

// selects evaluates what a drawn request asks of one device.
func (b *bruteForce) selects(i int, w *flavors.Chosen, dev *ledger.Device) bool {
	if *dev.Spec.Attributes["model"].StringValue != b.r.Policy.Flavors[b.chosen[i].Flavor].Name {
		return false
	}
	if len(dev.Spec.Taints) > 0 && len(w.Tolerations) == 0 {
		return false
	}
	for _, kind := range []string{"x", "y"} {
		if slices.Contains(w.Selectors, is("kind", kind)) && *dev.Spec.Attributes["kind"].StringValue != kind {
			return false
		}
	}
	return true
}

// constrained holds one pod's devices against the claims' constraints, which are about zones.
func (b *bruteForce) constrained(i int, wants []flavors.Chosen, has [][]*ledger.Device) bool {
	for c, claim := range b.r.PodSets[i].Shape.Claims {
		for _, x := range claim.Spec.Devices.Constraints {
			seen, devices := sets.New[int64](), 0
			for w := range wants {
				if wants[w].Claim != c || len(x.Requests) > 0 && !slices.Contains(x.Requests, claim.Requests[wants[w].Request].Name) {
					continue
				}
				for _, dev := range has[w] {
					z := dev.Spec.Attributes["zone"].IntValue
					if z == nil {
						return false
					}
					seen.Insert(*z)
					devices++
				}
			}
			if x.MatchAttribute != nil && seen.Len() > 1 || x.DistinctAttribute != nil && seen.Len() < devices {
				return false
			}
		}
	}
	return true
}

// TestPromisesAreKept replays promises as the scheduler would: pod by pod, in any order, each with its narrowed claims,
// against all devices that are left; each gets exactly what it was promised.
func TestPromisesAreKept(t *testing.T) {
	p := testPolicy(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		r := Request{Policy: p, Namespace: "team", PodSets: drawPodSets(t)}
		m := flavors.NewMatcher()
		s := w.book.Snapshot()
		dec := (&Decider{Matcher: m}).Decide(context.Background(), s, &r)
		if dec.Verdict != v1alpha1.VerdictAdmit {
			return
		}
		var pods []replayed
		for i, ps := range dec.PodSets {
			placed := int32(0)
			for _, n := range ps.Nodes {
				placed += n.Slots
				for slot := range n.Slots {
					pods = append(pods, replayed{podSet: i, node: n, slot: slot})
				}
			}
			if placed != r.PodSets[i].Count {
				t.Fatalf("podset %s: %d pods are placed, want %d", ps.Name, placed, r.PodSets[i].Count)
			}
		}
		allocated := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID]()}
		for _, n := range s.Nodes() {
			for i := range n.Devices {
				if len(n.Devices[i].Holders) > 0 {
					allocated.AllocatedDevices.Insert(structured.MakeDeviceID(n.Devices[i].ID.Driver, n.Devices[i].ID.Pool, n.Devices[i].ID.Device))
				}
			}
		}
		for _, i := range rapid.Permutation(slices.Collect(indices(len(pods)))).Draw(t, "order") {
			pods[i].replay(t, m, &r, dec, s, allocated)
		}
	})
}

func indices(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// replayed is one pod of a promise.
type replayed struct {
	podSet int
	node   v1alpha1.PlacementNode
	slot   int32
}

// replay narrows the pod's claims, has the allocator serve them, and holds the result against the promise.
func (q *replayed) replay(t *rapid.T, m *flavors.Matcher, r *Request, dec Decision, s *ledger.Snapshot, allocated structured.AllocatedState) {
	n := s.Node(q.node.Name)
	shape := r.PodSets[q.podSet].Shape
	var claims []*resourcev1.ResourceClaim
	promised := map[string]string{}
	for c := range shape.Claims {
		var picks []flavors.Pick
		for _, req := range q.node.Requests {
			if req.Claim != shape.Claims[c].Name {
				continue
			}
			request, alternative, ok := shape.Claims[c].Find(req.Request)
			if !ok {
				t.Fatalf("promise names request %s", req.Request)
			}
			pick := flavors.Pick{Request: request, Alternative: alternative}
			each := len(req.Devices) / int(q.node.Slots)
			for _, id := range req.Devices[int(q.slot)*each : (int(q.slot)+1)*each] {
				parsed, err := ledger.ParseDeviceID(id)
				if err != nil {
					t.Fatal(err)
				}
				pick.Devices = append(pick.Devices, n.Device(parsed))
				promised[id] = req.Request
			}
			picks = append(picks, pick)
		}
		spec, refusal := r.Policy.Exact(m, shape.Claims[c], r.Policy.Flavor(dec.PodSets[q.podSet].Flavor), picks, n.Eligible())
		if refusal != nil {
			t.Fatalf("a promise cannot be narrowed: %s", refusal.Message)
		}
		claims = append(claims, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: shape.Claims[c].Name}, Spec: spec})
	}
	var all []*resourcev1.ResourceSlice
	for _, node := range s.Nodes() {
		for _, pool := range node.Pools {
			all = append(all, pool.Slices...)
		}
	}
	a, err := structured.NewAllocator(context.Background(), features, allocated, classLister{s.Classes()}, all, m.Cache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(context.Background(), n.Object, claims)
	if err != nil || len(results) != len(claims) {
		t.Fatalf("pod %d of podset %d does not fit its promise on %s: %v, %v", q.slot, q.podSet, n.Name, err, promised)
	}
	for _, result := range results {
		for _, d := range result.Devices.Results {
			id := ledger.DeviceID{Driver: d.Driver, Pool: d.Pool, Device: d.Device}
			if promised[id.String()] != d.Request {
				t.Fatalf("the allocator gave %s to request %s, promised is %v", id, d.Request, promised)
			}
			delete(promised, id.String())
			allocated.AllocatedDevices.Insert(structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
		}
	}
	if len(promised) > 0 {
		t.Fatalf("promised, and not given: %v", promised)
	}
}
