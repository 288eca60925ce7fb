package round

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
