package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// releasing is a pod with a slot, as it is when it is released.
type releasing struct {
	podSet *PodSet
	flavor int
	node   *ledger.Node
	slot   []Dealt
	in     *Incoming
}

// releases returns the pods of a promise in the order in which slots are taken, each cut to what its slot is promised.
func releases(t fataler, m *flavors.Matcher, s *ledger.Snapshot, r *Request, podSets []v1alpha1.PlacementPodSet) []*releasing {
	t.Helper()
	var out []*releasing
	for i := range podSets {
		ps := r.podSet(podSets[i].Name)
		for j := range podSets[i].Nodes {
			pn := &podSets[i].Nodes[j]
			slots, err := Deal(pn)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for k, slot := range slots {
				p := &releasing{podSet: ps, flavor: r.Policy.Flavor(podSets[i].Flavor), node: s.Node(pn.Name), slot: slot}
				p.in = podOf(ps, fmt.Sprintf("%s-%s-%d", ps.Name, pn.Name, k))
				spec := &p.in.Pod.Spec
				spec.NodeSelector = maps.Clone(spec.NodeSelector)
				if spec.NodeSelector == nil {
					spec.NodeSelector = map[string]string{}
				}
				spec.NodeSelector[corev1.LabelHostname] = p.node.Hostname
				for c := range ps.Shape.Claims {
					p.cut(t, m, r.Policy, &ps.Shape.Claims[c])
				}
				out = append(out, p)
			}
		}
	}
	return out
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// podOf returns a pod of a podset with its claims as its user wrote them.
func podOf(ps *PodSet, name string) *Incoming {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}, Spec: *ps.Spec.DeepCopy()}
	p.Spec.ResourceClaims = nil
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			for name, q := range r.Limits { // as API servers have it
				if _, asked := r.Requests[name]; !asked {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = q
				}
			}
		}
	}
	if ps.Assigned != nil {
		p.Spec.NodeSelector = maps.Clone(p.Spec.NodeSelector)
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(p.Spec.NodeSelector, ps.Assigned.NodeLabels)
		p.Spec.Tolerations = append(slices.Clone(p.Spec.Tolerations), ps.Assigned.Tolerations...)
	}
	in := &Incoming{Pod: p, Claims: map[string]*resourcev1.ResourceClaim{}}
	for i := range ps.Shape.Claims {
		c := &ps.Shape.Claims[i]
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-" + c.Name, UID: types.UID("claim-" + name + "-" + c.Name)}}
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: p.UID, Controller: ptr.To(true)}}
		claim.Spec = *c.Spec.DeepCopy()
		for j := range claim.Spec.Devices.Requests {
			r := &claim.Spec.Devices.Requests[j]
			if e := r.Exactly; e != nil {
				e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeExactCount, max(1, e.Count)
			}
			for k := range r.FirstAvailable {
				sub := &r.FirstAvailable[k]
				sub.AllocationMode, sub.Count = resourcev1.DeviceAllocationModeExactCount, max(1, sub.Count)
			}
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c.Name, ResourceClaimTemplateName: ptr.To("own-" + name + "-" + c.Name)})
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: c.Name, ResourceClaimName: ptr.To(claim.Name)})
		in.Claims[c.Name] = claim
	}
	return in
}

// cut narrows one claim of the pod to what the slot is promised for it.
func (p *releasing) cut(t fataler, m *flavors.Matcher, policy *flavors.Policy, claim *flavors.ClaimShape) {
	t.Helper()
	picks, no := Picks(p.node, claim, p.slot)
	if no != nil {
		t.Fatalf("%s", no.Message)
	}
	spec, no := policy.Exact(m, *claim, p.flavor, picks, p.node.Eligible())
	if no != nil {
		t.Fatalf("a promise cannot be narrowed: %s", no.Message)
	}
	p.in.Claims[claim.Name].Spec = spec
}

// byNumber returns what the slot is promised by number; nil for nothing.
func (p *releasing) byNumber() *Dealt {
	for i := range p.slot {
		if p.slot[i].Claim == v1alpha1.ExtendedResourcesClaim {
			return &p.slot[i]
		}
	}
	return nil
}

// promised writes what the slot is promised by name, as given writes what a prediction gives.
func (p *releasing) promised() []string {
	var out []string
	for _, r := range p.slot {
		for _, d := range r.Devices {
			if r.Claim != v1alpha1.ExtendedResourcesClaim {
				out = append(out, fmt.Sprintf("%s/%s %s", r.Claim, r.Request, d))
			}
		}
	}
	slices.Sort(out)
	return out
}

// gives writes what a prediction gives by name.
func (p *Prediction) gives() []string {
	var out []string
	for claim, a := range p.Allocations {
		for _, r := range a.Devices.Results {
			if claim != v1alpha1.ExtendedResourcesClaim {
				out = append(out, fmt.Sprintf("%s/%s %s", claim, r.Request, ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}))
			}
		}
	}
	slices.Sort(out)
	return out
}

// binds shows a book the pod on its node with what it was given.
func (w *world) binds(p *releasing, got *Prediction) {
	pod := p.in.Pod
	seen := &ledger.Pod{Namespace: pod.Namespace, Name: pod.Name, Node: p.node.Name, Owner: "job", PodSet: p.podSet.Name, CreatedUnix: 1,
		Requests: ledger.RequestsOf(pod, false)}
	if len(got.Mapped) > 0 {
		status := corev1.NodeAllocatableResourceClaimStatus{Resources: corev1.ResourceList{}}
		for name, v := range got.Mapped {
			status.Resources[name] = resource.MustParse(amount(name, v))
		}
		bound := pod.DeepCopy()
		for _, c := range p.in.Claims { // the sum is what counts, whichever claim it stands by
			status.ResourceClaimName = c.Name
		}
		bound.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{status}
		seen.Requests = ledger.RequestsOf(bound, true)
		seen.Mapped = []ledger.ClaimStatus{{Claim: status.ResourceClaimName, Amounts: got.Mapped}}
	}
	for _, name := range slices.Sorted(maps.Keys(p.in.Claims)) {
		seen.Claims, seen.Referring = append(seen.Claims, p.in.Claims[name].Name), append(seen.Referring, 1)
	}
	w.see(ledger.KindPod, pod.UID, func(o *ledger.Observation) { o.Pod = seen })
	for _, name := range slices.Sorted(maps.Keys(got.Allocations)) {
		c := &ledger.Claim{Namespace: pod.Namespace, Name: pod.Name + "-extended", Pod: pod.UID, Pods: []types.UID{pod.UID}, Allocated: []ledger.DeviceID{}}
		uid := types.UID("claim-" + pod.Name + "-extended")
		if of := p.in.Claims[name]; of != nil {
			c.Name, c.Spec, uid = of.Name, &of.Spec, of.UID
			c.Promised = []ledger.DeviceID{}
			for _, r := range p.slot {
				if r.Claim == name {
					c.Promised = append(c.Promised, r.Devices...)
				}
			}
		}
		for _, r := range got.Allocations[name].Devices.Results {
			id := ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
			if r.ShareID != nil {
				c.Shares = append(c.Shares, ledger.Share{Device: id, ID: *r.ShareID, Consumed: ledger.Consumption(r.ConsumedCapacity)})
				continue
			}
			c.Allocated = append(c.Allocated, id)
		}
		w.see(ledger.KindClaim, uid, func(o *ledger.Observation) { o.Claim = c })
	}
}

// again returns another world that has seen the same.
func (w *world) again() *world {
	other := &world{book: ledger.New(), now: w.now, pods: maps.Clone(w.pods)}
	for _, o := range w.seen {
		other.version = max(other.version, o.Ref.ResourceVersion)
		other.seen = append(other.seen, o)
		other.book.Apply(o)
	}
	return other
}

// agrees releases the pods of a promise one after another, each as it is cut to its slot, and holds that kube-scheduler would
// bind each to its node with the very devices that it was promised, once those before it are. It returns how many.
func agrees(t fataler, w *world, r *Request, dec Decision, order func([]*releasing) []*releasing) int {
	t.Helper()
	d := anew()
	live := w.again()
	live.see(ledger.KindWorkload, "own", func(o *ledger.Observation) {
		o.Workload = &ledger.Workload{Namespace: "team", Name: "own", Owner: "job", Key: ownKey, Requests: map[string]ledger.Amounts{}}
		for i := range r.PodSets {
			o.Workload.Requests[r.PodSets[i].Name] = r.PodSets[i].Requests
		}
	})
	live.see(ledger.KindPlacement, "p-own", func(o *ledger.Observation) {
		o.Placement = &ledger.Placement{Namespace: "team", Name: "own", Spec: &v1alpha1.PlacementSpec{Key: ownKey, PodSets: dec.PodSets}}
	})
	left := order(releases(t, d.Matcher, w.book.Snapshot(), r, dec.PodSets))
	bound := 0
	for len(left) > 0 {
		at := slices.IndexFunc(left, func(p *releasing) bool { return p.foreseen(d, live, r) == nil })
		if at < 0 {
			t.Fatalf("no pod may be released: %s", left[0].foreseen(d, live, r).Message)
		}
		p := left[at]
		left = slices.Delete(left, at, at+1)
		got := d.Predict(background, w.book.Snapshot(), p.node.Name, p.in)
		switch {
		case !got.Fits:
			t.Fatalf("pod %s does not fit node %s: %s: %s (%s)\npromised %v", p.in.Pod.Name, p.node.Name, got.Reason, got.Message, got.Quirk, p.promised())
		case got.Unsure:
			t.Fatalf("whether pod %s fits is chance: %s", p.in.Pod.Name, got.Quirk)
		case !slices.Equal(got.gives(), p.promised()):
			t.Fatalf("pod %s is given %s\npromised: %s", p.in.Pod.Name, strings.Join(got.gives(), ", "), strings.Join(p.promised(), ", "))
		}
		p.numbered(t, d, r, &got)
		w.binds(p, &got)
		live.binds(p, &got)
		bound++
	}
	return bound
}

// foreseen says why a pod must not be released yet.
func (p *releasing) foreseen(d *Decider, live *world, r *Request) *Trouble {
	of := p.byNumber()
	if of == nil {
		return nil
	}
	e := Extended{Policy: r.Policy, Flavor: p.flavor, Node: p.node.Name, Resource: of.Request, Count: int64(len(of.Devices)), Placement: "p-own"}
	for _, q := range p.slot {
		if q.Claim != v1alpha1.ExtendedResourcesClaim {
			e.Own = append(e.Own, q.Devices...)
		}
	}
	return d.Foresee(background, live.book.Snapshot(), e)
}

// numbered holds what is given by number against the promise: as many devices, all of the flavor.
func (p *releasing) numbered(t fataler, d *Decider, r *Request, got *Prediction) {
	t.Helper()
	want := 0
	if of := p.byNumber(); of != nil {
		want = len(of.Devices)
	}
	var has []resourcev1.DeviceRequestAllocationResult
	if a := got.Allocations[v1alpha1.ExtendedResourcesClaim]; a != nil {
		has = a.Devices.Results
	}
	if len(has) != want {
		t.Fatalf("pod %s is given %d devices by number, %d were promised", p.in.Pod.Name, len(has), want)
	}
	for _, x := range has {
		id := ledger.DeviceID{Driver: x.Driver, Pool: x.Pool, Device: x.Device}
		if dev := p.node.Device(id); dev == nil || d.Matcher.FlavorOf(r.Policy, dev) != p.flavor {
			t.Fatalf("pod %s is given %s by number, which is not of the flavor", p.in.Pod.Name, id)
		}
	}
}
