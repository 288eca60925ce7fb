package manager

import (
	"flag"
	"time"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Options are the manager's flags.
type Options struct {
	// Namespace is where the leader election Lease lives.
	Namespace   string
	LeaderElect bool
	// LeaseDuration, RenewDeadline and RetryPeriod are those of leader election. A write may take at most what lies
	// between the first two, so that a deposed leader's last write ends before the next leader's first.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	WebhookHost                               string
	WebhookPort                               int
	WebhookCertDir                            string
	MetricsAddress                            string
	// MetricsCertDir has tls.crt and tls.key of the metrics server. Empty has it sign a certificate for itself.
	MetricsCertDir string
	HealthAddress  string
	// QPS and Burst bound the requests to the API server: two writes a pod, so a gang of 1,000 is 2,000.
	QPS   float64
	Burst int
	// KueueConfiguration is a file with the Configuration of the cluster's Kueue. Empty is Kueue's default.
	KueueConfiguration string
}

// Bind adds the flags to a set, with their defaults.
func (o *Options) Bind(f *flag.FlagSet) {
	f.StringVar(&o.Namespace, "namespace", v1alpha1.SystemNamespace, "namespace of the leader election Lease")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "run only as the leader; turn off for a single manager that nobody replaces")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long a lease holds without renewal")
	f.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew before it gives up")
	f.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "how often leadership is tried")
	f.StringVar(&o.WebhookHost, "webhook-host", "", "address that the webhooks listen on; empty for all")
	f.IntVar(&o.WebhookPort, "webhook-port", 9443, "port that the webhooks listen on")
	f.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "", "folder with tls.crt and tls.key of the webhooks")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address of the metrics and of the ledger, served over TLS to those who may get /metrics and /ledger; 0 for none")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "", "folder with tls.crt and tls.key of the metrics server; empty for a certificate that it signs itself")
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	f.Float64Var(&o.QPS, "kube-api-qps", 200, "requests a second to the API server")
	f.IntVar(&o.Burst, "kube-api-burst", 400, "requests at once to the API server")
	f.StringVar(&o.KueueConfiguration, "kueue-configuration", "", "file with the Configuration (config.kueue.x-k8s.io) of the cluster's Kueue; empty for Kueue's default")
}
