package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Outcome says what became of an observation.
type Outcome string

// The outcomes.
const (
	// Applied: the accounts took it.
	Applied Outcome = "Applied"
	// Duplicate: this very version was applied before.
	Duplicate Outcome = "Duplicate"
	// Stale: a newer version of the object was applied before.
	Stale Outcome = "Stale"
)

// final is the version of a deleted object: no other is newer.
const final = math.MaxUint64

// tombstones is how many deleted objects are remembered, so that a late sight of one does not bring it back.
const tombstones = 4096

// Book is the ledger. The zero value is not usable; use New. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	version int64
	// seen holds the newest version of each object, by kind and uid.
	seen   map[Kind]map[types.UID]uint64
	graves []seenKey

	nodes      map[types.UID]*Observation
	nodeByName map[string]types.UID
	nodesNamed index[string]
	pods       map[types.UID]*Pod
	nodesAt    index[string]
	podsAt     index[place]
	podsOf     index[types.UID]
	slices     map[types.UID]*slice
	wide       map[types.UID]struct{}
	stopping   map[types.UID]stopping
	slicesOn   index[string]
	slicesOf   index[pool]
	claims     map[types.UID]*Claim
	claimsOf   index[DeviceID]
	claimOfPod index[types.UID]
	classes    map[types.UID]*Observation
	placements map[types.UID]*Placement
	promisedOn index[string]
	promisedIn index[pool]
	rules      map[types.UID]*TaintRule
	// countedIn are the pools of the devices that a Placement promises by number.
	countedIn map[types.UID]map[pool]struct{}
	workloads map[types.UID]*Workload
	ownedBy   index[ownerKey]
	placedFor index[types.UID]
	limits    map[types.UID]*corev1.LimitRange
	limitsIn  index[string]
	runtimes  map[types.UID]*Observation
	// created holds what pods will ask for, by Workload and podset, where something is added to what the podset says.
	created map[types.UID]map[string]Amounts

	// highest is the newest generation that each pool had while slices of it were left.
	highest map[lossKey]int64
	// agents is what was seen of pods that no Workload made, by node: their history.
	agents map[string]*agents
	// amounts holds the requests that pods have, once each.
	amounts map[string]Amounts
	// memory holds pools as they were when they were last complete; lostOn and lostOf those of them, by node and by pool, that are not
	// now.
	memory map[lossKey]*remembered
	lostOn map[string]map[lossKey]struct{}
	lostOf map[pool]map[lossKey]struct{}
	// unmapped are devices that lost their mapping while they were promised.
	unmapped map[DeviceID]*unmapped
	// departed holds nodes that were deleted, by name, with what they listed; departures their names, oldest first.
	departed   map[string]*Node
	departures []string
	// firstSeen is when each node was seen first.
	firstSeen map[types.UID]time.Time

	// views are the accounts of the nodes, in order of their names, as of the last snapshot; viewAt says where each is. Both
	// are replaced, never changed.
	views  nodeList
	viewAt map[string]int
	dirty  map[string]struct{}
	// lentClasses is what snapshots have of classes, lentRules of rules, lentDeparted of departed; nil where that has changed since.
	lentClasses  *Classes
	lentRules    []*RuleLine
	lentDeparted []*Node
	shot         *Snapshot
}

type seenKey struct {
	kind Kind
	uid  types.UID
}

// pool names a pool of one driver.
type pool struct {
	driver, name string
}

// New returns an empty book at version 0.
func New() *Book {
	return &Book{
		seen:       map[Kind]map[types.UID]uint64{},
		nodes:      map[types.UID]*Observation{},
		nodeByName: map[string]types.UID{},
		nodesNamed: index[string]{},
		pods:       map[types.UID]*Pod{},
		nodesAt:    index[string]{},
		podsAt:     index[place]{},
		podsOf:     index[types.UID]{},
		slices:     map[types.UID]*slice{},
		wide:       map[types.UID]struct{}{},
		stopping:   map[types.UID]stopping{},
		slicesOn:   index[string]{},
		slicesOf:   index[pool]{},
		claims:     map[types.UID]*Claim{},
		claimsOf:   index[DeviceID]{},
		claimOfPod: index[types.UID]{},
		classes:    map[types.UID]*Observation{},
		placements: map[types.UID]*Placement{},
		promisedOn: index[string]{},
		promisedIn: index[pool]{},
		rules:      map[types.UID]*TaintRule{},
		countedIn:  map[types.UID]map[pool]struct{}{},
		workloads:  map[types.UID]*Workload{},
		ownedBy:    index[ownerKey]{},
		placedFor:  index[types.UID]{},
		limits:     map[types.UID]*corev1.LimitRange{},
		limitsIn:   index[string]{},
		runtimes:   map[types.UID]*Observation{},
		created:    map[types.UID]map[string]Amounts{},
		highest:    map[lossKey]int64{},
		agents:     map[string]*agents{},
		amounts:    map[string]Amounts{},
		memory:     map[lossKey]*remembered{},
		lostOn:     map[string]map[lossKey]struct{}{},
		lostOf:     map[pool]map[lossKey]struct{}{},
		unmapped:   map[DeviceID]*unmapped{},
		departed:   map[string]*Node{},
		firstSeen:  map[types.UID]time.Time{},
		dirty:      map[string]struct{}{},
	}
}

// Apply takes one observation, once: a version that was applied before, or an older one, changes nothing. It returns
// what became of it and whether any account may have changed.
func (b *Book) Apply(o Observation) (outcome Outcome, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := seenKey{o.Ref.Kind, o.Ref.UID}
	if b.seen[o.Ref.Kind] == nil {
		b.seen[o.Ref.Kind] = map[types.UID]uint64{}
	}
	last, known := b.seen[o.Ref.Kind][o.Ref.UID]
	switch {
	case known && last == final && o.Ref.Deleted:
		return Duplicate, false
	case known && last == final:
		return Stale, false
	case o.Ref.Deleted:
		b.bury(key)
	case known && o.Ref.ResourceVersion < last:
		return Stale, false
	case known && o.Ref.ResourceVersion == last:
		return Duplicate, false
	default:
		b.seen[o.Ref.Kind][o.Ref.UID] = o.Ref.ResourceVersion
	}
	var touched bool
	switch o.Ref.Kind {
	case KindNode:
		touched = b.applyNode(o)
	case KindPod:
		touched = b.applyPod(o.Ref.UID, o.Pod, o.At)
	case KindSlice:
		touched = b.applySlice(o.Ref.UID, &o)
	case KindClaim:
		touched = b.applyClaim(o.Ref.UID, o.Claim)
	case KindDeviceClass:
		touched = b.applyClass(o)
	case KindPlacement:
		touched = b.applyPlacement(o.Ref.UID, o.Placement)
	case KindWorkload:
		touched = b.applyWorkload(o.Ref.UID, o.Workload)
	case KindTaintRule:
		touched = b.applyTaintRule(o.Ref.UID, o.TaintRule)
	case KindLimitRange:
		touched = b.applyLimitRange(o.Ref.UID, o.LimitRange)
	case KindRuntimeClass:
		touched = b.applyRuntimeClass(o)
	}
	if touched {
		b.version++
		b.shot = nil
	}
	return Applied, touched
}

// Seen says whether an object was given to the book in a version, or a newer one, or as deleted.
func (b *Book) Seen(kind Kind, uid types.UID, version uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.seen[kind][uid]
	return known && last >= version
}

// bury marks an object as deleted for good, and forgets the oldest grave when there are too many.
func (b *Book) bury(key seenKey) {
	b.seen[key.kind][key.uid] = final
	if b.graves = append(b.graves, key); len(b.graves) > tombstones {
		delete(b.seen[b.graves[0].kind], b.graves[0].uid)
		b.graves = b.graves[1:]
	}
}

// ownerKey names an owner. Its uid alone does not: whoever makes a pod may write another namespace's into it.
type ownerKey struct {
	namespace string
	uid       types.UID
}

// Snapshot returns the accounts as they are. It is immutable and costs nothing while nothing changes, and little more than the
// nodes that changed.
func (b *Book) Snapshot() *Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shot != nil {
		return b.shot
	}
	b.look()
	if b.lentClasses == nil {
		b.lentClasses = b.classesByName()
	}
	if b.lentRules == nil {
		b.lentRules = b.ruleLines()
	}
	if b.lentDeparted == nil {
		b.lentDeparted = make([]*Node, 0, len(b.departed))
		for _, name := range slices.Sorted(maps.Keys(b.departed)) {
			b.lentDeparted = append(b.lentDeparted, b.departed[name])
		}
	}
	b.shot = &Snapshot{Version: b.version, nodes: b.views, at: b.viewAt, departed: b.lentDeparted, classes: b.lentClasses, rules: b.lentRules}
	return b.shot
}

// look works out the accounts of the nodes that were touched. The book's lock is held.
func (b *Book) look() {
	if len(b.dirty) == 0 {
		return
	}
	views := b.views.edit()
	var came []*Node
	left := false
	for name := range b.dirty {
		v := b.view(name)
		switch at, known := b.viewAt[name]; {
		case known:
			views.set(at, v)
			left = left || v == nil
		case v != nil:
			came = append(came, v)
		}
	}
	clear(b.dirty)
	if b.views = views.nodeList; len(came) == 0 && !left {
		return
	}
	list := slices.DeleteFunc(append(b.views.all(), came...), func(n *Node) bool { return n == nil })
	slices.SortFunc(list, func(x, y *Node) int { return cmp.Compare(x.Name, y.Name) })
	b.views = listOf(list)
	b.viewAt = make(map[string]int, len(list))
	for i, n := range list {
		b.viewAt[n.Name] = i
	}
}

// Version returns the number of changes so far.
func (b *Book) Version() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// Live returns the Workload's key if the Workload is known with a current quota reservation, else nil.
func (b *Book) Live(workload types.UID) *v1alpha1.PlacementKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.workloads[workload]; w != nil {
		return w.Key
	}
	return nil
}
