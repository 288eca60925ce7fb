package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/internal/parts"
	"github.com/plimsoll-dev/plimsoll/internal/webhook"
)

// Run runs the manager until ctx ends. It returns why it stopped before, as for a lost lease.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = float32(o.QPS), o.Burst
	cfg.UserAgent = v1alpha1.FieldOwner
	heard := observe.NewHeard(clock.RealClock{})
	caching, err := cacheOptions(cfg, heard)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, managerOptions(o, caching))
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	if err := index(ctx, mgr); err != nil {
		return err
	}
	if err := wire(ctx, mgr, o, heard); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// cacheOptions says how the API is watched.
func cacheOptions(cfg *rest.Config, heard *observe.Heard) (cache.Options, error) {
	wire, err := observe.NewWire(cfg)
	if err != nil {
		return cache.Options{}, fmt.Errorf("make informers: %w", err)
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		SyncPeriod:       ptr.To(time.Duration(0)), // what is missed on a watch is a fault to find, not to paper over
		NewInformer: func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return heard.NewInformer(wire.ListWatch(lw, o), o, resync, indexers)
		},
	}, nil
}

func managerOptions(o Options, caching cache.Options) ctrl.Options {
	return ctrl.Options{
		Scheme: parts.Scheme(),
		Cache:  caching,
		NewClient: func(c *rest.Config, options client.Options) (client.Client, error) {
			return timedClient(c, options, o.LeaseDuration-o.RenewDeadline)
		},
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              v1alpha1.LeaseName,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		HealthProbeBindAddress:        o.HealthAddress,
		Metrics: metricsserver.Options{
			BindAddress: o.MetricsAddress, SecureServing: true, FilterProvider: authorized, CertDir: o.MetricsCertDir,
		},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: o.WebhookHost, Port: o.WebhookPort, CertDir: o.WebhookCertDir}),
	}
}

// timedClient returns a client whose requests end within limit. Watches do not go through it.
func timedClient(c *rest.Config, options client.Options, limit time.Duration) (client.Client, error) {
	if limit <= 0 {
		return nil, errors.New("the lease duration must be longer than the renew deadline")
	}
	c = rest.CopyConfig(c)
	c.Timeout = limit
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make http client: %w", err)
	}
	options.HTTPClient = h
	return client.New(c, options)
}

// index adds what rounds and the release of pods look up.
func index(ctx context.Context, mgr ctrl.Manager) error {
	for _, i := range observe.Indexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, i.Object, i.Field, i.Of); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

// wire makes the parts and joins them.
func wire(ctx context.Context, mgr ctrl.Manager, o Options, heard *observe.Heard) error {
	rounds, checks := make(chan event.GenericEvent, 1), make(chan event.GenericEvent, 1)
	p, err := configured(o.KueueConfiguration, parts.Environment{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("plimsoll"), Metrics: ctrlmetrics.Registry,
		Clock: clock.RealClock{}, Heard: heard, Epoch: epoch(mgr.GetAPIReader(), o.Namespace), Changed: func() { wake(rounds); wake(checks) },
	})
	if err != nil {
		return err
	}
	if err := p.Observer.Register(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := taintRules(mgr, p.Observer); err != nil {
		return err
	}
	if err := p.Quotas.Register(ctx, mgr.GetCache()); err != nil {
		return err
	}
	for _, c := range append(p.Controllers(), p.SelfChecker()) {
		if err := add(mgr, c, map[string]chan event.GenericEvent{parts.Round: rounds, parts.SelfCheck: checks}[c.Name]); err != nil {
			return err
		}
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return listen(ctx, p.Round.Turned, rounds) })); err != nil {
		return fmt.Errorf("add what listens: %w", err)
	}
	if err := webhook.Register(mgr, webhook.Options{ManagerUsername: "system:serviceaccount:" + o.Namespace + ":" + v1alpha1.ManagerServiceAccount}); err != nil {
		return fmt.Errorf("register webhooks: %w", err)
	}
	if err := serveLedger(mgr, p.Observer.Book, p.Observer.Synced); err != nil {
		return err
	}
	return probes(mgr, p.Observer, p.Quotas)
}

// lookEvery is how often it is looked which DeviceTaintRules are served.
const lookEvery = 30 * time.Second

// taintRules has the observer follow DeviceTaintRules, in what version they are served.
func taintRules(mgr ctrl.Manager, observer *observe.Observer) error {
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}
	if err := mgr.Add(observer.TaintRules(mgr.GetCache(), served, lookEvery)); err != nil {
		return fmt.Errorf("add DeviceTaintRules: %w", err)
	}
	return nil
}

// wake asks for a round or a check; one that is asked for already will do.
func wake(changes chan event.GenericEvent) {
	select {
	case changes <- event.GenericEvent{Object: &resourcev1.ResourceSlice{}}:
	default:
	}
}

// listenEvery is how often it is looked at whether a watch fell silent or is heard again: neither brings an event.
const listenEvery = time.Second

// listen asks for a round whenever the accounts turned stale or fresh by themselves.
func listen(ctx context.Context, turned func() bool, changes chan event.GenericEvent) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		if turned() {
			wake(changes)
		}
	}, listenEvery)
	return nil
}

// probes serves health: ready once the books have seen all that existed at the start and the webhooks listen.
func probes(mgr ctrl.Manager, observer *observe.Observer, quotas *observe.QuotaObserver) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	return mgr.AddReadyzCheck("ready", func(r *http.Request) error {
		if !observer.Synced() {
			return errors.New("the ledger is not filled yet")
		}
		if !quotas.Synced() {
			return errors.New("the quota book is not filled yet")
		}
		return started(r)
	})
}
