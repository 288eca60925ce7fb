package manager

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

func ledgerOfOneNode() *ledgerHandler {
	book := ledger.New()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "a"}}
	book.Apply(ledger.Observation{Ref: ledger.Ref{Kind: ledger.KindNode, UID: "a", ResourceVersion: 1}, Node: node})
	return &ledgerHandler{
		snapshot: book.Snapshot, synced: func() bool { return true }, elected: make(chan struct{}),
		clock: clocktesting.NewFakePassiveClock(time.Unix(1800000000, 0)), busy: make(chan struct{}, 1),
	}
}

func ask(h http.Handler, method string, headers map[string]string) *http.Response {
	r := httptest.NewRequest(method, "https://manager"+v1alpha1.LedgerPath, nil)
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestTheLiveLedgerIsServed(t *testing.T) {
	h := ledgerOfOneNode()
	for name, c := range map[string]struct {
		headers map[string]string
		leads   bool
	}{
		"to whom takes it plain":      {headers: nil},
		"to whom takes it compressed": {headers: map[string]string{"Accept-Encoding": "gzip"}},
		"by the leader":               {leads: true},
	} {
		t.Run(name, func(t *testing.T) {
			elected := make(chan struct{})
			if c.leads {
				close(elected)
			}
			h.elected = elected
			response := ask(h, http.MethodGet, c.headers)
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Fatalf("status %d", response.StatusCode)
			}
			var body io.Reader = response.Body
			if c.headers != nil {
				z, err := gzip.NewReader(body)
				if err != nil {
					t.Fatal(err)
				}
				body = z
			}
			e, err := ledger.ReadExport(body)
			if err != nil {
				t.Fatal(err)
			}
			s := h.snapshot()
			want := ledger.Header{Format: ledger.ExportFormat, Version: s.Version, Digest: s.Digest(), Time: h.clock.Now().UTC(), Source: ledger.SourceManager, Leader: c.leads}
			got := e.Header
			if got.Counts["node"] != 1 {
				t.Errorf("counts %v, want one node", got.Counts)
			}
			if got.Format != want.Format || got.Version != want.Version || got.Digest != want.Digest || !got.Time.Equal(want.Time) || got.Source != want.Source || got.Leader != want.Leader {
				t.Errorf("header %+v, want %+v", got, want)
			}
		})
	}
}

func TestTheLiveLedgerIsRefused(t *testing.T) {
	cases := map[string]struct {
		method string
		change func(*ledgerHandler)
		status int
		says   string
	}{
		"before it is filled":                 {http.MethodGet, func(h *ledgerHandler) { h.synced = func() bool { return false } }, http.StatusServiceUnavailable, v1alpha1.LedgerRebuilding},
		"while somebody else is being served": {http.MethodGet, func(h *ledgerHandler) { h.busy <- struct{}{} }, http.StatusTooManyRequests, "somebody else"},
		"to whom would write":                 {http.MethodPost, func(*ledgerHandler) {}, http.StatusMethodNotAllowed, "nothing else"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := ledgerOfOneNode()
			c.change(h)
			response := ask(h, c.method, nil)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != c.status || !strings.Contains(string(body), c.says) {
				t.Errorf("status %d, %q; want %d and %q", response.StatusCode, body, c.status, c.says)
			}
		})
	}
	h := ledgerOfOneNode()
	for range 2 {
		response := ask(h, http.MethodGet, nil)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("status %d for one after the other", response.StatusCode)
		}
	}
}

// failing takes some bytes and then no more.
type failing struct{ *httptest.ResponseRecorder }

func (f failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAnExportThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	h := ledgerOfOneNode()
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler { //nolint:errorlint // recover gives the very value
				t.Error("the answer ended as if it were whole")
			}
		}()
		h.ServeHTTP(failing{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "https://manager/ledger", nil))
	}()
	if len(h.busy) > 0 {
		t.Error("nobody else can be served")
	}
}

func TestATokenMayComeInAHeaderOfItsOwnForTheLedgerAlone(t *testing.T) {
	cases := map[string]struct {
		path, authorization, want string
	}{
		"the ledger":                        {v1alpha1.LedgerPath, "", "Bearer secret"},
		"the ledger, by another credential": {v1alpha1.LedgerPath, "Bearer own", "Bearer own"},
		"the metrics":                       {"/metrics", "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "https://manager"+c.path, nil)
			r.Header.Set(v1alpha1.LedgerTokenHeader, "secret")
			if c.authorization != "" {
				r.Header.Set("Authorization", c.authorization)
			}
			got := ""
			tokenFromHeader(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") })).ServeHTTP(httptest.NewRecorder(), r)
			if got != c.want {
				t.Errorf("authorization %q, want %q", got, c.want)
			}
		})
	}
}
