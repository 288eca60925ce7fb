package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const (
	// tokenSeconds is how long a token is good; the API server gives none for less.
	tokenSeconds = 600
	// fetchTimeout bounds one request; fetchTries and fetchPause those to a manager that is busy or not ready yet.
	fetchTimeout = time.Minute
	fetchTries   = 5
	fetchPause   = time.Second
	// maxRefusal bounds what is read of a refusal, and maxTold what is told of it, in bytes.
	maxRefusal = 8 << 10
	maxTold    = 400
)

// ErrRebuilding says that a manager has not filled its book yet.
var ErrRebuilding = errors.New("the manager is filling its ledger")

// Manager says how to reach a manager's live book.
type Manager struct {
	// URL is that of the manager's metrics server, such as https://10.0.0.1:8443. Empty is the Service plimsoll-metrics, by way
	// of the API server.
	URL string
	// CAFile holds the certificates that the manager's must be signed with. Insecure takes any. Both are for URL alone.
	CAFile   string
	Insecure bool
}

// Client fetches the live book. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	target string
	cores  kubernetes.Interface
	direct bool
	pause  time.Duration
}

// NewClient returns a client of the manager that m says, for whoever config says. The manager is never shown the caller's own
// credentials: it gets a short-lived token of a ServiceAccount that may do nothing but read the ledger.
func NewClient(config *rest.Config, m Manager) (*Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	cores, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c := &Client{cores: cores, direct: m.URL != "", pause: fetchPause}
	if c.direct {
		c.target, c.http, err = m.direct()
		return c, err
	}
	if m.CAFile != "" || m.Insecure {
		return nil, errors.New("how to trust the manager's certificate is for --manager: the way through the API server has no use for it")
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c.target = base.JoinPath("api", "v1", "namespaces", v1alpha1.SystemNamespace, "services", "https:"+v1alpha1.MetricsService+":metrics", "proxy", v1alpha1.LedgerPath).String()
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c.http.CheckRedirect = noRedirect
	return c, nil
}

// noRedirect has a token go nowhere but where it was meant for.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (m *Manager) direct() (string, *http.Client, error) {
	u, err := url.Parse(m.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", nil, fmt.Errorf("--manager %q is not https://host:port", m.URL)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: m.Insecure} //nolint:gosec // only if asked for by name
	if m.CAFile != "" {
		if m.Insecure {
			return "", nil, errors.New("--manager-ca and --insecure-skip-tls-verify exclude each other")
		}
		data, err := os.ReadFile(m.CAFile)
		if err != nil {
			return "", nil, fmt.Errorf("read --manager-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return "", nil, fmt.Errorf("--manager-ca %s holds no certificate in PEM", m.CAFile)
		}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	return u.JoinPath(v1alpha1.LedgerPath).String(), &http.Client{Transport: transport, CheckRedirect: noRedirect}, nil
}

// Fetch returns the live book. ErrRebuilding is returned where the manager has not filled it yet; other errors are a sentence
// for the person who asked.
func (c *Client) Fetch(ctx context.Context) (*ledger.Export, error) {
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		e, again, err := c.fetch(ctx, token)
		if err == nil || !again || try == fetchTries {
			return e, err
		}
		select {
		case <-time.After(c.pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// token asks for one of the ServiceAccount that may read the ledger.
func (c *Client) token(ctx context.Context) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)}}
	got, err := c.cores.CoreV1().ServiceAccounts(v1alpha1.SystemNamespace).CreateToken(ctx, v1alpha1.LedgerReader, request, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("you may not read the ledger: bind Role %s in namespace %s: %w", v1alpha1.LedgerReader, v1alpha1.SystemNamespace, err)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("ServiceAccount %s/%s does not exist: is Plimsoll installed, in this release?", v1alpha1.SystemNamespace, v1alpha1.LedgerReader)
	case err != nil:
		return "", fmt.Errorf("ask for a token to read the ledger: %w", err)
	}
	return got.Status.Token, nil
}

// fetch asks once, and says whether it is worth asking again.
func (c *Client) fetch(ctx context.Context, token string) (e *ledger.Export, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target, nil)
	if err != nil {
		return nil, false, err
	}
	if c.direct {
		request.Header.Set("Authorization", "Bearer "+token)
	} else {
		request.Header.Set(v1alpha1.LedgerTokenHeader, token) // the API server passes no Authorization on
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, false, fmt.Errorf("cannot reach the manager: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		e, err = ledger.ReadExport(response.Body)
		return e, false, err
	}
	said, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return nil, false, fmt.Errorf("cannot reach the manager: %w", err)
	}
	text := refusal(said)
	switch response.StatusCode {
	case http.StatusServiceUnavailable:
		if strings.HasPrefix(text, v1alpha1.LedgerRebuilding) {
			return nil, true, ErrRebuilding
		}
		return nil, true, fmt.Errorf("no manager is there: %s", text)
	case http.StatusTooManyRequests:
		return nil, true, errors.New("the manager is giving its ledger to somebody else: try again")
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, false, fmt.Errorf("the ledger is not for you: %s", text)
	case http.StatusNotFound:
		return nil, false, fmt.Errorf("there is no ledger at %s: %s", c.target, text)
	}
	return nil, false, fmt.Errorf("the manager answered %s: %s", response.Status, text)
}

// refusal returns what an answer says: the message of the API server's, the text of others.
func refusal(said []byte) string {
	var status metav1.Status
	text := string(said)
	if err := json.Unmarshal(said, &status); err == nil && status.Message != "" {
		text = status.Message
	}
	return strings.TrimSpace(fmt.Sprintf("%.*s", maxTold, text))
}
