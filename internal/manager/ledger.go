package manager

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// ledgerSeconds bounds how long one export may take its reader.
const ledgerSeconds = 60

// ledgerHandler serves the live ledger as an export. Who may have it is the metrics server's filter to say.
type ledgerHandler struct {
	snapshot func() *ledger.Snapshot
	// synced says whether the book is filled; elected is closed once this manager leads.
	synced  func() bool
	elected <-chan struct{}
	clock   clock.PassiveClock
	// busy holds a token while an export is being given: there is one at a time.
	busy chan struct{}
}

// serveLedger adds the live ledger to the metrics server.
func serveLedger(mgr ctrl.Manager, book *ledger.Book, synced func() bool) error {
	h := &ledgerHandler{snapshot: book.Snapshot, synced: synced, elected: mgr.Elected(), clock: clock.RealClock{}, busy: make(chan struct{}, 1)}
	if err := mgr.AddMetricsServerExtraHandler(v1alpha1.LedgerPath, h); err != nil {
		return fmt.Errorf("serve the ledger: %w", err)
	}
	return nil
}

func (h *ledgerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "The ledger can be read, nothing else", http.StatusMethodNotAllowed)
		return
	case !h.synced():
		w.Header().Set("Retry-After", "2")
		http.Error(w, v1alpha1.LedgerRebuilding+": the ledger is not filled yet", http.StatusServiceUnavailable)
		return
	}
	select {
	case h.busy <- struct{}{}:
		defer func() { <-h.busy }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "The ledger is being given to somebody else", http.StatusTooManyRequests)
		return
	}
	logger := ctrl.LoggerFrom(r.Context())
	now := h.clock.Now()
	// A reader that stands still must not keep others away. What cannot bound it is no server of ours.
	if err := http.NewResponseController(w).SetWriteDeadline(now.Add(ledgerSeconds * time.Second)); err != nil {
		logger.V(3).Info("Could not bound the time of an export", "error", err.Error())
	}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Encoding")
	if err := h.write(w, r, ledger.Header{Time: now.UTC(), Source: ledger.SourceManager, Leader: h.leads()}); err != nil {
		logger.V(2).Info("Did not get through with an export of the ledger", "error", err.Error())
		panic(http.ErrAbortHandler) // the reader must not take the part for the whole
	}
}

func (h *ledgerHandler) write(w http.ResponseWriter, r *http.Request, header ledger.Header) error {
	s := h.snapshot()
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return s.Export(w, header)
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	if err := s.Export(z, header); err != nil {
		return err
	}
	return z.Close()
}

func (h *ledgerHandler) leads() bool {
	select {
	case <-h.elected:
		return true
	default:
		return false
	}
}

// authorized is the metrics server's filter: who asks must be known to the API server and be let. The ledger may be asked for
// by way of the API server's proxy, which keeps Authorization to itself: there the token comes in a header of its own.
func authorized(c *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(c, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		inner, err := filter(log, handler)
		if err != nil {
			return nil, err
		}
		return tokenFromHeader(inner), nil
	}, nil
}

func tokenFromHeader(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(v1alpha1.LedgerTokenHeader)
		if r.URL.Path == v1alpha1.LedgerPath && token != "" && r.Header.Get("Authorization") == "" {
			r = r.Clone(r.Context())
			r.Header.Del(v1alpha1.LedgerTokenHeader)
			r.Header.Set("Authorization", "Bearer "+token)
		}
		inner.ServeHTTP(w, r)
	})
}
