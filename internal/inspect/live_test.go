package inspect

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

const (
	tokenPath = "/api/v1/namespaces/plimsoll-system/serviceaccounts/plimsoll-ledger-reader/token"
	proxyPath = "/api/v1/namespaces/plimsoll-system/services/https:plimsoll-metrics:metrics/proxy/ledger"
)

// servers are an API server that gives tokens and leads to a manager, and that manager itself.
type servers struct {
	api, manager *httptest.Server
	// answer is the manager's, to whoever shows the token.
	answer func(w http.ResponseWriter)
	// asked is how often it was given.
	asked int
}

func serve(t *testing.T, answer func(w http.ResponseWriter)) *servers {
	t.Helper()
	s := &servers{answer: answer}
	manager := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ledger" || r.Header.Get("Authorization") != "Bearer reader" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		s.asked++
		s.answer(w)
	})
	s.manager = httptest.NewUnstartedServer(manager)
	s.manager.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	s.manager.StartTLS()
	s.api = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer mine" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization") // as the API server does
		switch r.URL.Path {
		case tokenPath:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			out := &authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}}
			out.Status.Token = "reader"
			if err := json.NewEncoder(w).Encode(out); err != nil {
				t.Error(err)
			}
		case proxyPath:
			if token := r.Header.Get(v1alpha1.LedgerTokenHeader); token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			r.URL.Path = "/ledger"
			manager(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.api.Close)
	t.Cleanup(s.manager.Close)
	return s
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (s *servers) client(t *testing.T, m Manager) *Client {
	t.Helper()
	config := &rest.Config{Host: s.api.URL, BearerToken: "mine", TLSClientConfig: rest.TLSClientConfig{CAData: certificate(s.api)}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c, err := NewClient(config, m)
	if err != nil {
		t.Fatal(err)
	}
	c.pause = time.Nanosecond
	return c
}

func (s *servers) ca(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, certificate(s.manager), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func exportOf(t *testing.T) func(http.ResponseWriter) {
	e := held(t, ledger.SourceManager, 1)
	return func(w http.ResponseWriter) {
		if err := e.Write(w); err != nil {
			t.Error(err)
		}
	}
}

func TestTheLiveBookIsFetched(t *testing.T) {
	s := serve(t, exportOf(t))
	want := held(t, ledger.SourceManager, 1).Header.Digest
	for name, m := range map[string]Manager{
		"by way of the API server":     {},
		"from the manager, by its CA":  {URL: s.manager.URL, CAFile: s.ca(t)},
		"from the manager, on request": {URL: s.manager.URL + "/", Insecure: true},
	} {
		e, err := s.client(t, m).Fetch(t.Context())
		if err != nil || e.Header.Digest != want {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}

func TestTheLiveBookThatCannotBeHadIsASentence(t *testing.T) {
	text := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, body, status) }
	}
	cases := map[string]struct {
		answer func(http.ResponseWriter)
		want   string
		asked  int
	}{
		"a manager that fills its book":       {text(http.StatusServiceUnavailable, "Rebuilding: the ledger is not filled yet"), "filling its ledger", fetchTries},
		"no manager behind the Service":       {text(http.StatusServiceUnavailable, "no endpoints available"), "no manager is there: no endpoints", fetchTries},
		"what the API server says of its own": {text(http.StatusNotFound, `{"kind":"Status","message":"services not found"}`), ": services not found", 1},
		"a manager that is busy":              {text(http.StatusTooManyRequests, "x"), "try again", fetchTries},
		"no right":                            {text(http.StatusForbidden, "Authorization denied"), "not for you: Authorization denied", 1},
		"an older manager":                    {text(http.StatusNotFound, "404 page not found"), "there is no ledger at", 1},
		"a way to somewhere else": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://example.com")
			w.WriteHeader(http.StatusFound)
		}, "302", 1},
		"something else altogether": {text(http.StatusOK, "<html>"), "not a header", 1},
		"a very long refusal":       {text(http.StatusInternalServerError, strings.Repeat("x", 1<<20)), "500", 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.answer)
			_, err := s.client(t, Manager{}).Fetch(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
			if s.asked != c.asked {
				t.Errorf("asked %d times, want %d", s.asked, c.asked)
			}
		})
	}
}

func TestNobodyIsTrustedUnasked(t *testing.T) {
	s := serve(t, exportOf(t))
	if _, err := s.client(t, Manager{URL: s.manager.URL}).Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v, want one about the certificate", err)
	}
	if s.asked > 0 {
		t.Error("the token was shown to a server that nobody vouches for")
	}
	for want, m := range map[string]Manager{
		"is not https":          {URL: "http://10.0.0.1:8443"},
		`"10.0.0.1:8443"`:       {URL: "10.0.0.1:8443"},
		"not https://host:port": {URL: "https://10.0.0.1:8443/metrics"},
		"exclude each other":    {URL: "https://10.0.0.1:8443", CAFile: s.ca(t), Insecure: true},
		"is for --manager":      {Insecure: true},
		"read --manager-ca":     {URL: "https://10.0.0.1:8443", CAFile: "/does/not/exist"},
		"no certificate in PEM": {URL: "https://10.0.0.1:8443", CAFile: "live_test.go"},
	} {
		if _, err := NewClient(&rest.Config{Host: s.api.URL}, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one that says %q", m, err, want)
		}
	}
}

func TestWhoMayNotAskForTheToken(t *testing.T) {
	s := serve(t, exportOf(t))
	for want, status := range map[string]int{
		"bind Role plimsoll-ledger-reader": http.StatusForbidden,
		"is Plimsoll installed":            http.StatusNotFound,
		"ask for a token":                  http.StatusInternalServerError,
	} {
		s.api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) })
		if _, err := s.client(t, Manager{}).Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: error %v, want one that says %q", status, err, want)
		}
	}
}
