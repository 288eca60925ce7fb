package round

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// meanwhile is a client by which something happens whenever a claim template is read, as it is between a round's snapshot and
// its decision.
type meanwhile struct {
	client.Client
	happens func()
}

func (m *meanwhile) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*resourcev1.ResourceClaimTemplate); ok {
		m.happens()
	}
	return m.Client.Get(ctx, key, o, opts...)
}

// held is a holder of quota for eight of the devices of two nodes, to be promised in the next round, during which something
// happens.
func held(t *testing.T, happens func(*bench)) *bench {
	b := newBench(t, map[string]string{"a": "h100", "b": "h100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	b.reserve("wl", "h100")
	m := &meanwhile{Client: b.Client, happens: func() { happens(b) }}
	b.Policies.Client, b.Engine.Client = m, m
	return b
}

// taken lets the book see a claim that has a device of a node, of which the cache knows nothing.
func (b *bench) taken(node string) {
	id := ledger.DeviceID{Driver: "gpu.example.com", Pool: node, Device: "gpu-0"}
	b.uids++
	b.Book.Apply(ledger.Observation{
		Ref:   ledger.Ref{Kind: ledger.KindClaim, UID: types.UID("thief of " + node), ResourceVersion: uint64(1000 + b.uids)}, //nolint:gosec // small
		Claim: &ledger.Claim{Namespace: ns, Name: node, Allocated: []ledger.DeviceID{id}},
	})
}

func (b *bench) conflicts() float64 {
	return valueOf(b.t, b.Metrics.Conflicts.WithLabelValues("Promise"))
}

func TestWhatChangesWhileItIsDecidedIsDecidedAnew(t *testing.T) {
	first := true
	b := held(t, func(b *bench) {
		if first {
			first = false
			b.taken("a")
		}
	})
	b.round(1)
	if got := b.promisedNodes("wl"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("promised on %v, want b: a device of a was taken meanwhile", got)
	}
	if got := b.conflicts(); got != 1 {
		t.Errorf("%v conflicts are counted, want 1", got)
	}
}

func (b *bench) promisedNodes(name string) []string {
	return ledger.NodesOf(b.placement(name).Spec.PodSets)
}

// TestWhatChangesAllTheTimeIsLeftToTheNextRound, and nothing of it is written.
func TestWhatChangesAllTheTimeIsLeftToTheNextRound(t *testing.T) {
	busy := true
	b := held(t, func(b *bench) {
		if busy {
			b.relabelled("a", b.uids)
			b.relabelled("b", b.uids)
			b.uids++
		}
	})
	writes, next := b.roundThen(1)
	if len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
	if next <= 0 || next > 1 {
		t.Errorf("the next round is in %v s", next)
	}
	if got := b.conflicts(); got != maxAnew {
		t.Errorf("%v conflicts are counted, want %d", got, maxAnew)
	}
	busy = false
	b.round(2)
	if got := b.promisedNodes("wl"); len(got) != 1 {
		t.Errorf("promised on %v once it is quiet", got)
	}
}

// relabelled lets the book see that a node was labelled.
func (b *bench) relabelled(name string, i int) {
	n := &corev1.Node{}
	b.must(b.Client.Get(context.Background(), client.ObjectKey{Name: name}, n))
	n.Labels["changed"] = string(rune('a' + i%26))
	seen, ok := observe.Of(n, false)
	if !ok {
		b.t.Fatal("the node was not taken")
	}
	seen.Ref.ResourceVersion += uint64(1000 + i) //nolint:gosec // small
	b.Book.Apply(seen)
}

// TestAReservationThatTheBookHasNotSeenIsNotPromised: it would not count, and the next would be promised the same.
func TestAReservationThatTheBookHasNotSeenIsNotPromised(t *testing.T) {
	b := newBench(t, map[string]string{"a": "h100"}, nil)
	b.waits("first", nil)
	b.waits("second", nil)
	b.settle(0)
	b.reserve("first", "h100")
	late := b.workload("first")
	b.reserve("second", "h100")
	b.Book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindWorkload, UID: late.UID, ResourceVersion: 1 << 40}, Workload: &ledger.Workload{Namespace: ns, Name: "first"}})
	b.round(1) // the cache is ahead of the book as to the first
	if a, c := b.promisedNodes("first"), b.promisedNodes("second"); len(a) > 0 || len(c) != 1 {
		t.Errorf("the first is promised %v, the second %v: want the second alone, whose reservation counts", a, c)
	}
	if got := b.conflicts(); got < 1 {
		t.Error("no conflict is counted")
	}
}

// TestAnOfferEndsWithItsPromise, also where the answer to the promise's write was lost: it would count twice.
func TestAnOfferEndsWithItsPromise(t *testing.T) {
	b := newBench(t, map[string]string{"a": "h100"}, nil)
	b.waits("wl", nil)
	b.settle(0)
	if len(b.Store.Offers) != 1 {
		t.Fatalf("%d offers stand, want 1", len(b.Store.Offers))
	}
	b.reserve("wl", "h100")
	offers := b.Store.Offers["wl"]
	b.round(1)
	b.Store.Offers["wl"] = offers // as it is where the write failed for us and not for the API server
	b.round(2)
	if _, stands := b.Store.Offers["wl"]; stands || b.placement("wl").Spec.Key == nil {
		t.Errorf("the offer stands (%t) beside the promise %+v", stands, b.placement("wl").Spec.Key)
	}
}

// failing is a client by which writes of Placements that promise something fail with an error.
type failing struct {
	client.Client
	with error
}

func (f *failing) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if p, ok := o.(*v1alpha1.Placement); ok && p.Spec.Key != nil && f.with != nil {
		return f.with
	}
	return f.Client.Create(ctx, o, opts...)
}

func (f *failing) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if p, ok := o.(*v1alpha1.Placement); ok && p.Spec.Key != nil && f.with != nil {
		return f.with
	}
	return f.Client.Update(ctx, o, opts...)
}

// ahead is a client that shows a Placement for the first time when it is asked for, as a cache does that is ahead of the book.
type ahead struct {
	client.Client
	comes func()
}

func (a *ahead) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*v1alpha1.Placement); ok && key.Name == "holder" && a.comes != nil {
		comes := a.comes
		a.comes = nil
		comes()
	}
	return a.Client.Get(ctx, key, o, opts...)
}

// TestAPromiseThatTheBookHasNotSeenIsOfferedToNobody, as is the case when another manager has just written it.
func TestAPromiseThatTheBookHasNotSeenIsOfferedToNobody(t *testing.T) {
	b := newBench(t, map[string]string{"a": "h100"}, nil)
	b.waits("holder", nil)
	b.reserve("holder", "h100")
	b.waits("next", nil)
	b.Store.Client = &ahead{Client: b.Store.Client, comes: func() { b.byHand("holder", "a", 1) }}
	if _, next := b.roundThen(1); next <= 0 || next > 1 {
		t.Errorf("the next round is in %v s", next)
	}
	if got := b.open("next"); got != "" {
		t.Errorf("open is %s, which the holder is promised", got)
	}
	if b.settle(2); b.open("next") != "" || !slices.Equal(b.promisedNodes("holder"), []string{"a"}) {
		t.Errorf("open is %s, and the holder is promised %v", b.open("next"), b.promisedNodes("holder"))
	}
}

// TestWhatIsToBePromisedNextIsOfferedToNobody: a promise that could not be written in a round is written in the next, and who was
// offered its devices meanwhile would be given quota and lose it again.
func TestWhatIsToBePromisedNextIsOfferedToNobody(t *testing.T) {
	// what keeps the promise of a holder from being written, until mended is called
	for name, keeps := range map[string]func(*bench) (mended func()){
		"the book has not seen its reservation": func(b *bench) func() {
			wl := b.workload("holder")
			b.Book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindWorkload, UID: wl.UID, ResourceVersion: 1 << 40}, Workload: &ledger.Workload{Namespace: ns, Name: "holder"}})
			return func() {
				seen, ok := observe.Of(wl, false)
				if !ok {
					b.t.Fatal("the Workload was not taken")
				}
				seen.Ref.ResourceVersion = 1<<40 + 1
				b.Book.Apply(seen)
			}
		},
		"its write conflicts": func(b *bench) func() {
			f := &failing{Client: b.Store.Client, with: apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("placements").GroupResource(), "holder", errors.New("it was changed"))}
			b.Store.Client = f
			return func() { f.with = nil }
		},
		"its write fails": func(b *bench) func() {
			f := &failing{Client: b.Store.Client, with: apierrors.NewInternalError(errors.New("etcd is busy"))}
			b.Store.Client = f
			return func() { f.with = nil }
		},
		"the nodes change all the time": func(b *bench) func() {
			busy := true
			m := &meanwhile{Client: b.Client, happens: func() {
				if busy {
					b.relabelled("a", b.uids)
					b.uids++
				}
			}}
			b.Policies.Client, b.Engine.Client = m, m
			return func() { busy = false }
		},
	} {
		for _, offered := range []bool{true, false} { // what was offered is forgotten when the manager starts anew
			t.Run(fmt.Sprintf("%s, offered %t", name, offered), func(t *testing.T) {
				b := newBench(t, map[string]string{"a": "h100"}, nil)
				b.waits("holder", nil)
				b.settle(0)
				b.reserve("holder", "h100")
				if !offered {
					b.Store.Offers = nil
				}
				b.waits("next", nil)
				mended := keeps(b)
				b.round(1)
				if got := b.promisedNodes("holder"); len(got) > 0 {
					t.Fatalf("the holder is promised %v", got)
				}
				if got := b.open("next"); got != "" {
					t.Errorf("open is %s, which the holder is about to be promised", got)
				}
				mended()
				b.round(2)
				if got := b.promisedNodes("holder"); !slices.Equal(got, []string{"a"}) {
					t.Errorf("the holder is promised %v once it can be", got)
				}
				if got := b.open("next"); got != "" {
					t.Errorf("open is %s, which the holder is promised", got)
				}
			})
		}
	}
}
