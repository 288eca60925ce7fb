package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// features are those that kube-scheduler 1.36 sets for the allocator; with them it takes the same implementation.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
	DeviceBindingAndStatus: true, ConsumableCapacity: true,
}

// maxAllocatorSteps bounds a search of the allocator, in devices that it looks at.
const maxAllocatorSteps = 20000

// allocate finds devices for all pods of the parts, which are on one node, such that kube-scheduler's own allocator
// accepts them. Counts and flows come first, since the allocator's search takes exponential time where it fails.
func (d *Decider) allocate(ctx context.Context, parts []part, b book) ([][]share, answer) {
	if len(parts) > 1 {
		return d.serve(ctx, parts, b)
	}
	n, k := parts[0].fit, parts[0].k
	if last := n.served; last != nil && last.book == b && last.pods == k {
		return last.shares, last.answer
	}
	shares, a := d.serve(ctx, parts, b)
	if ctx.Err() == nil {
		n.served = &served{book: b, pods: k, shares: shares, answer: a}
	}
	return shares, a
}

// served is what allocate returned for some pods of one podset on one node. It is read-only.
type served struct {
	book   book
	pods   int32
	shares [][]share
	answer answer
}

// serve works allocate out.
func (d *Decider) serve(ctx context.Context, parts []part, b book) ([][]share, answer) {
	if bothWays(parts) > 1 {
		return nil, no
	}
	if slices.ContainsFunc(parts, func(p part) bool { return p.fit.mapped() }) {
		return d.serveMapped(ctx, parts, b)
	}
	return d.serveDevices(ctx, parts, b)
}

// serveDevices finds devices, whatever they take of the node's own resources.
func (d *Decider) serveDevices(ctx context.Context, parts []part, b book) ([][]share, answer) {
	if anyCounted(parts) {
		return d.serveCounted(ctx, parts, b)
	}
	shares, a := shareOut(parts, b)
	if a == no {
		return nil, no
	}
	simple := !slices.ContainsFunc(parts, func(p part) bool { return !p.fit.simple() })
	if a == yes && simple && d.check(ctx, parts, shares, b) {
		return shares, yes
	}
	return d.searchAllocator(ctx, parts, b)
}

// simple says that nothing about the pod's claims is for the allocator alone to judge.
func (n *nodeFit) simple() bool {
	return !slices.ContainsFunc(n.constraints, func(c constraint) bool { return c.match == "" })
}

// accepts says whether the allocator gives a pod the devices of its share, claim by claim: the claims of a pod have
// nothing to do with each other once none wants another's devices.
func (d *Decider) accepts(ctx context.Context, n *nodeFit, sh share, b book) bool {
	for claim := range n.specs {
		mark := map[ledger.DeviceID]int64{}
		several := false
		for w := range n.wants {
			if n.wants[w].Claim != claim {
				continue
			}
			several = several || n.wants[w].Request > 0
			for _, dev := range sh[w] {
				mark[dev.ID] = int64(n.wants[w].Request)
			}
		}
		spec := n.specs[claim]
		if several {
			spec = *spec.DeepCopy()
			for i := range spec.Devices.Requests {
				markRequest(&spec.Devices.Requests[i], int64(i))
			}
		}
		results, err := d.ask(ctx, n, n.offered(b, mark), []*resourcev1.ResourceClaim{{ObjectMeta: metav1.ObjectMeta{Name: "claim"}, Spec: spec}})
		if err != nil || len(results) != 1 {
			return false
		}
	}
	return true
}

// markDomain is that of an attribute which tells the allocator for which requests a device was found.
// It is on no real device.
const markDomain = "check.plimsoll.dev"

// markRequest makes a request take only the devices of some marks.
func markRequest(r *resourcev1.DeviceRequest, marks ...int64) {
	of := make([]string, len(marks))
	for i, m := range marks {
		of[i] = strconv.FormatInt(m, 10)
	}
	s := resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes[%q].request in [%s]", markDomain, strings.Join(of, ", "))}}
	if r.Exactly != nil {
		r.Exactly.Selectors = append([]resourcev1.DeviceSelector{s}, r.Exactly.Selectors...)
		return
	}
	for i := range r.FirstAvailable {
		r.FirstAvailable[i].Selectors = append([]resourcev1.DeviceSelector{s}, r.FirstAvailable[i].Selectors...)
	}
}

// searchAllocator has the allocator search by itself, within a bound: for what only it models.
func (d *Decider) searchAllocator(ctx context.Context, parts []part, b book) ([][]share, answer) {
	var claims []*resourcev1.ResourceClaim
	o := offerTo(parts, b)
	for i, p := range parts {
		for c := range p.fit.specs {
			spec := *p.fit.specs[c].DeepCopy()
			for w := range p.fit.wants {
				if want := &p.fit.wants[w]; want.Claim == c {
					markRequest(&spec.Devices.Requests[want.Request], o.taken[i][w]...)
				}
			}
			spec = singled(spec)
			for pod := range p.k {
				claims = append(claims, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%d-%d-%d", i, c, pod)}, Spec: spec})
			}
		}
	}
	n := parts[0].fit
	bounded := &stepping{Context: ctx}
	held := drawing(parts, b, o.marks)
	results, err := d.call(bounded, allocation{classes: n.classes.classes, node: n.node.Object, slices: n.offered(b, o.marks), held: held, claims: claims})
	switch {
	case bounded.ended(), ctx.Err() != nil:
		return nil, undecided
	case err != nil, len(results) != len(claims):
		return nil, no
	}
	shares := make([][]share, len(parts))
	next := 0
	for i, p := range parts {
		shares[i] = make([]share, p.k)
		for c := range p.fit.specs {
			for pod := range p.k {
				if shares[i][pod] == nil {
					shares[i][pod] = make(share, len(p.fit.wants))
				}
				for _, r := range results[next].Devices.Results {
					w := p.fit.want(c, unsingled(r.Request))
					dev := o.devices[ledger.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}]
					if w < 0 || dev == nil {
						return nil, no
					}
					shares[i][pod][w] = append(shares[i][pod][w], dev)
				}
				next++
			}
		}
	}
	return shares, yes
}

// offer is what the allocator may search through.
type offer struct {
	devices map[ledger.DeviceID]*ledger.Device
	// marks has one mark for all devices that the same requests may be given; taken are the marks of each part's wants.
	marks map[ledger.DeviceID]int64
	taken [][][]int64
}

// offerTo returns what may be given to the parts in a book, to each request what can be given to it.
func offerTo(parts []part, b book) *offer {
	o := &offer{devices: map[ledger.DeviceID]*ledger.Device{}, marks: map[ledger.DeviceID]int64{}, taken: make([][][]int64, len(parts))}
	type taker struct{ part, want int }
	takers := map[ledger.DeviceID][]taker{}
	var order []ledger.DeviceID
	for i, p := range parts {
		o.taken[i] = make([][]int64, len(p.fit.wants))
		for j := range p.fit.wants {
			w := &p.fit.wants[j]
			for _, dev := range w.matching {
				if !w.given(dev, b) {
					continue
				}
				if o.devices[dev.ID] == nil {
					o.devices[dev.ID], order = dev, append(order, dev.ID)
				}
				takers[dev.ID] = append(takers[dev.ID], taker{i, j})
			}
		}
	}
	known := map[string]int64{}
	for _, id := range order {
		key := fmt.Sprint(takers[id])
		mark, ok := known[key]
		if !ok {
			mark = int64(len(known))
			known[key] = mark
			for _, t := range takers[id] {
				o.taken[t.part][t.want] = append(o.taken[t.part][t.want], mark)
			}
		}
		o.marks[id] = mark
	}
	return o
}

// want returns the index of the want that a claim's request is; -1 for none.
func (n *nodeFit) want(claim int, request string) int {
	return slices.IndexFunc(n.wants, func(w want) bool {
		return w.Claim == claim && (w.Name == request || n.byNumber != "" && w.Name == string(n.byNumber))
	})
}

// ask calls the allocator once. nil without an error is "does not fit".
func (d *Decider) ask(ctx context.Context, n *nodeFit, offered []*resourcev1.ResourceSlice, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	return d.call(ctx, allocation{classes: n.classes.classes, node: n.node.Object, slices: offered, claims: claims})
}

func (d *Decider) call(ctx context.Context, of allocation) ([]resourcev1.AllocationResult, error) {
	a, err := structured.NewAllocator(ctx, features, of.held, classLister{of.classes}, of.slices, d.Matcher.Cache)
	if err != nil {
		return nil, fmt.Errorf("make allocator: %w", err)
	}
	results, err := a.Allocate(ctx, of.node, of.claims)
	if err != nil {
		return nil, fmt.Errorf("allocate: %w", err)
	}
	return results, nil
}

// allocation is what kube-scheduler's allocator is asked for.
type allocation struct {
	// classes are those that claims name.
	classes *ledger.Classes
	node    *corev1.Node
	// slices are those that the node may be given devices from; held says which of their devices are held already.
	slices []*resourcev1.ResourceSlice
	held   structured.AllocatedState
	claims []*resourcev1.ResourceClaim
}

var errSteps = errors.New("too many steps")

// stepping is a context that ends after maxAllocatorSteps looks at it, or as many more; the allocator takes one at each step.
type stepping struct {
	context.Context
	steps atomic.Int64
	more  int64
}

// ended says that the steps are used up.
func (s *stepping) ended() bool { return s.steps.Load() > maxAllocatorSteps+s.more }

// Err ends the context when the steps are used up.
func (s *stepping) Err() error {
	if s.steps.Add(1) > maxAllocatorSteps+s.more {
		return errSteps
	}
	return s.Context.Err()
}

// offered returns the node's slices with only the given devices, each with its mark, in order of their names. A pool
// keeps all its slices, since the allocator passes over an incomplete one; of a pool that was lost those count that are
// remembered.
func (n *nodeFit) offered(b book, marks map[ledger.DeviceID]int64) []*resourcev1.ResourceSlice {
	var out []*resourcev1.ResourceSlice
	for _, p := range n.node.Pools {
		if p.State == ledger.PoolFresh {
			for _, s := range n.withCounters(&p) {
				out = append(out, n.cutSlice(s, marks, b))
			}
		}
	}
	for i := range n.node.Lost {
		d := &n.node.Lost[i]
		if _, give := marks[d.ID]; give && !slices.ContainsFunc(out, func(o *resourcev1.ResourceSlice) bool { return o.UID == d.Slice.UID }) {
			out = append(out, n.cutSlice(d.Slice, marks, b))
		}
	}
	complete(out)
	return out
}

// cutSlice returns a slice with only the given devices.
func (n *nodeFit) cutSlice(s *resourcev1.ResourceSlice, marks map[ledger.DeviceID]int64, b book) *resourcev1.ResourceSlice {
	c := &resourcev1.ResourceSlice{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
	c.Spec.Devices = nil
	for i := range s.Spec.Devices {
		dev := s.Spec.Devices[i]
		mark, give := marks[ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: dev.Name}]
		if !give {
			continue
		}
		dev.Taints = nil
		if b != emptyHealthy {
			dev.Taints = n.taintsOf(s, dev.Name)
		}
		dev.Attributes = marked(dev.Attributes, mark)
		c.Spec.Devices = append(c.Spec.Devices, dev)
	}
	slices.SortFunc(c.Spec.Devices, func(x, y resourcev1.Device) int {
		return cmp.Or(cmp.Compare(n.cost(s, &x), n.cost(s, &y)), strings.Compare(x.Name, y.Name))
	})
	return c
}

// taintsOf returns the taints of a device of one of the node's slices, those of rules among them; nil for one that the node does
// not list.
func (n *nodeFit) taintsOf(s *resourcev1.ResourceSlice, device string) []resourcev1.DeviceTaint {
	if known := n.node.Device(ledger.DeviceID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: device}); known != nil {
		return known.Taints
	}
	return nil
}

// complete makes each pool's slices say how many of them there are: of a lost one only those count that list a device.
func complete(list []*resourcev1.ResourceSlice) {
	type pool struct{ driver, name string }
	count := map[pool]int64{}
	for _, s := range list {
		count[pool{s.Spec.Driver, s.Spec.Pool.Name}]++
	}
	for _, s := range list {
		s.Spec.Pool.ResourceSliceCount = count[pool{s.Spec.Driver, s.Spec.Pool.Name}]
	}
}

func marked(a map[resourcev1.QualifiedName]resourcev1.DeviceAttribute, mark int64) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	out := make(map[resourcev1.QualifiedName]resourcev1.DeviceAttribute, len(a)+1)
	for k, v := range a {
		out[k] = v
	}
	out[markDomain+"/request"] = resourcev1.DeviceAttribute{IntValue: ptr.To(mark)}
	return out
}

// classLister gives the allocator a snapshot's classes.
type classLister struct{ classes *ledger.Classes }

// List returns nothing: the allocator asks by name.
func (c classLister) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

// Get returns a class; a missing one is an error, as the allocator expects.
func (c classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.classes.DeviceClass(name); class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}
