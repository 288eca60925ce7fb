// Package parts makes the manager's parts, and says what wakes each. The manager runs them against an API server, and
// simulate against one in memory and on a clock of its own: both run the same.
package parts

import (
	"context"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/controller/policy"
	"github.com/plimsoll-dev/plimsoll/internal/controller/release"
	"github.com/plimsoll-dev/plimsoll/internal/controller/round"
	"github.com/plimsoll-dev/plimsoll/internal/controller/selfcheck"
	"github.com/plimsoll-dev/plimsoll/internal/eviction"
	"github.com/plimsoll-dev/plimsoll/internal/metrics"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/placements"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/admission"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// Scheme returns the scheme of all kinds that the parts read or write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(kueue.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// Environment is what the parts read and write, and how they tell the time.
type Environment struct {
	// Client reads from a cache that has observe.Indexes; Live reads what is written now.
	Client client.Client
	Live   client.Reader
	Events events.EventRecorder
	// Metrics is where the metrics are registered.
	Metrics prometheus.Registerer
	Clock   clock.PassiveClock
	// Heard listens to the watches that the observers are fed by; nil for watches that are always alive.
	Heard *observe.Heard
	// Epoch returns the leader's number of lease transitions.
	Epoch func(context.Context) (int64, error)
	// Kueue is the configuration that Kueue runs with; nil for its default.
	Kueue *config.Configuration
	// Nonce is where the nonces of evictions come from; nil for crypto/rand.
	Nonce io.Reader
	// Changed is called after an observation that can help somebody: a round is due, and a self-check.
	Changed func()
}

// Parts are the parts of one manager.
type Parts struct {
	// Observer and Quotas fill the two books; whoever runs the parts lets them see every object of their kinds.
	Observer *observe.Observer
	Quotas   *observe.QuotaObserver
	Round    *round.Engine
	Release  *release.Controller
	Policy   *policy.Controller
	// SelfCheck compares the book with what the cluster says; it decides nothing.
	SelfCheck *selfcheck.Controller

	client client.Client
}

// New makes the parts; nothing runs yet. The error is one of Kueue's configuration.
func New(e Environment) (*Parts, error) {
	quotas, err := quota.New(quota.Options{Configuration: e.Kueue})
	if err != nil {
		return nil, fmt.Errorf("make quota book: %w", err)
	}
	var (
		m        = metrics.New(e.Metrics)
		book     = ledger.New()
		matcher  = flavors.NewMatcher()
		resolver = &policies.Resolver{Client: e.Client}
		writer   = &steering.Writer{Client: e.Client, Now: e.Clock.Now, Nonce: e.Nonce}
		decider  = &admission.Decider{Matcher: matcher}
		observer = &observe.Observer{Book: book, Metrics: m, Clock: e.Clock, Changed: e.Changed}
		store    = &placements.Store{
			Client: e.Client, Live: e.Live, Epoch: e.Epoch, Written: func(p *v1alpha1.Placement) { observer.Apply(p, false) },
		}
		evictor = &eviction.Evictor{Writer: writer, Store: store, Events: e.Events, Metrics: m, Now: e.Clock.Now}
		p       = &Parts{Observer: observer, Quotas: &observe.QuotaObserver{Book: quotas, Changed: e.Changed}, client: e.Client}
	)
	p.Round = &round.Engine{
		Client: e.Client, Book: book, Quota: quotas, Decider: decider, Policies: resolver, Store: store,
		Writer: writer, Evictor: evictor, Events: e.Events, Metrics: m, Clock: e.Clock, Synced: p.Synced,
	}
	p.Release = &release.Controller{
		Client: e.Client, Live: e.Live, Book: book, Decider: decider, Matcher: matcher, Policies: resolver, Store: store,
		Evictor: evictor, Events: e.Events, Metrics: m, Clock: e.Clock, Synced: observer.Synced,
	}
	if e.Heard != nil {
		metrics.NewAges(e.Metrics, e.Heard.Ages)
		p.Round.Heard, p.Release.Heard = e.Heard.Oldest, e.Heard.Oldest
	}
	p.Policy = &policy.Controller{Client: e.Client, Policies: resolver, Matcher: matcher}
	p.SelfCheck = &selfcheck.Controller{
		Client: e.Client, Book: book, Decider: decider, Store: store, Events: e.Events, Metrics: m, Clock: e.Clock, Synced: observer.Synced,
	}
	return p, nil
}

// Synced says whether both books have seen all that existed at the start. Nothing may be decided before.
func (p *Parts) Synced() bool { return p.Observer.Synced() && p.Quotas.Synced() }
