package e2e

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/webhook"
)

// short is a window in which every watch is heard where nothing happens: the first bookmark may come after more than the 90 seconds
// that are the shortest window.
const short = 2 * time.Minute

// window is a policy's window by default. The server sends a bookmark a minute, and now and then leaves one out.
const window = 180 * time.Second

// quietly, as an environment variable, is how long nothing turns stale while nothing happens, as "10m": `make quiet`. CI has less
// time: so much longer than the window that a watch whose bookmarks were not heard would show.
const quietly = "PLIMSOLL_QUIET"

func quiet() time.Duration {
	GinkgoHelper()
	value := os.Getenv(quietly)
	if value == "" {
		return window + 20*time.Second
	}
	d, err := time.ParseDuration(value)
	Expect(err).NotTo(HaveOccurred())
	return d
}

// line lets the manager reach the API server, as itself, until it is cut: then a kind's watches stay open and nothing comes of
// them, as behind a load balancer that has forgotten a connection.
type line struct {
	*httptest.Server
	mu sync.Mutex
	// dead is what nothing comes of; spliced is closed when it does again.
	dead    string
	spliced chan struct{}
}

// newLine starts a line that is whole.
func (c *cluster) newLine() *line {
	GinkgoHelper()
	manager := c.Manager()
	target, err := url.Parse(manager.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(manager)
	Expect(err).NotTo(HaveOccurred())
	l := &line{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if watches := r.Request.URL.Query().Get("watch"); watches == "true" || watches == "1" {
				r.Body = &heldBack{ReadCloser: r.Body, line: l, resource: filepath.Base(r.Request.URL.Path), gone: r.Request.Context().Done()}
			}
			return nil
		},
	}
	l.Server = httptest.NewUnstartedServer(proxy)
	l.Config.ErrorLog = nil
	l.EnableHTTP2 = true
	l.StartTLS()
	return l
}

// kubeconfig writes one by which whoever uses it is the manager.
func (l *line) kubeconfig(c *cluster) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw})
	Expect(c.WriteKubeconfig(path, &rest.Config{Host: l.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})).To(Succeed())
	return path
}

// cut lets nothing more through of the watches of a resource.
func (l *line) cut(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead, l.spliced = resource, make(chan struct{})
}

// splice lets all through again, what came meanwhile first.
func (l *line) splice() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != "" {
		l.dead = ""
		close(l.spliced)
	}
}

// heldBack is what a watch sends.
type heldBack struct {
	io.ReadCloser
	line     *line
	resource string
	gone     <-chan struct{}
}

func (h *heldBack) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.line.mu.Lock()
	dead, spliced := h.line.dead == h.resource, h.line.spliced
	h.line.mu.Unlock()
	if dead {
		select {
		case <-spliced:
		case <-h.gone:
		}
	}
	return n, err
}

// ages returns for how long each of the manager's own watches has been silent.
func (c *cluster) ages(ctx context.Context, token string) map[string]time.Duration {
	GinkgoHelper()
	_, body := c.scrape(ctx, token)
	out := map[string]time.Duration{}
	for labels, value := range series(body, "plimsoll_watch_age_seconds") {
		seconds, err := strconv.ParseFloat(value, 64)
		Expect(err).NotTo(HaveOccurred())
		out[strings.TrimSuffix(strings.TrimPrefix(labels, `{kind="`), `"}`)] = time.Duration(seconds * float64(time.Second))
	}
	return out
}

var _ = Describe("The manager's own watches", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var scraper string
	running := job{namespace: teamA, name: "running", gpus: 4, product: "H100"}
	waiting := job{namespace: teamA, name: "nine", gpus: 9}
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		scraper = c.token(ctx, "listener", "plimsoll-metrics-reader")
		c.submit(ctx, running)
		c.bound(ctx, running)
		c.submit(ctx, waiting)
		c.expectRecord(ctx, waiting, v1alpha1.ReasonNotEnoughDevices)
	})
	AfterAll(func(ctx context.Context) {
		c.remove(ctx, running)
		c.remove(ctx, waiting)
	})

	It("are heard while nothing happens: nothing turns stale, decides or writes", func(ctx context.Context) {
		By("coming to rest")
		var before map[string]map[string]string
		Eventually(func(g Gomega) {
			before = c.figures(ctx, scraper)
			g.Consistently(func(g Gomega) { g.Expect(c.figures(ctx, scraper)).To(Equal(before)) }).WithTimeout(glance).Should(Succeed())
		}).WithTimeout(late).Should(Succeed())

		By("being quiet")
		since, oldest := time.Now(), map[string]time.Duration{}
		Consistently(func(g Gomega) {
			ages := c.ages(ctx, scraper)
			for _, kind := range []string{"Node", "Pod", "ResourceSlice", "ResourceClaim"} {
				g.Expect(ages).To(HaveKey(kind))
				g.Expect(ages[kind]).To(BeNumerically("<", window), kind)
				oldest[kind] = max(oldest[kind], ages[kind])
			}
			g.Expect(c.figures(ctx, scraper)).To(Equal(before))
			writes, _ := c.writesBy(webhook.ManagerUsername, since)
			g.Expect(writes).To(BeEmpty())
		}).WithTimeout(quiet()).WithPolling(glance).Should(Succeed())
		Expect(oldest["Node"]).To(BeNumerically(">", 20*time.Second), "the cluster was quiet")
		AddReportEntry("quiet", fmt.Sprintf("for %s the watches were silent for at most %v, and nothing was decided or written", quiet(), oldest))
		GinkgoWriter.Printf("quiet for %s: silent for at most %v\n", quiet(), oldest)
		later := job{namespace: teamA, name: "after-quiet", gpus: 2, product: "H100"}
		c.started(ctx, later)
		c.bound(ctx, later)
	})

	It("lend nothing once one is dead for longer than the window, evict nobody, and go on by themselves", func(ctx context.Context) {
		c.setPolicy(ctx, func(s *v1alpha1.DevicePolicySpec) { s.Freshness.WindowSeconds = ptr.To(int32(short.Seconds())) })
		l := c.newLine()
		DeferCleanup(l.Close)
		DeferCleanup(func(ctx context.Context) { c.restartManager(ctx) })
		DeferCleanup(l.splice)
		c.restartManager(ctx, "KUBECONFIG="+l.kubeconfig(c))
		first := job{namespace: teamA, name: "heard", gpus: 2, product: "H100"}
		c.started(ctx, first)
		kept := c.bound(ctx, first)

		By("cutting the watch of ResourceSlices")
		l.cut("resourceslices")
		Eventually(func(g Gomega) {
			g.Expect(c.ages(ctx, scraper)["ResourceSlice"]).To(BeNumerically(">", short+2*time.Second))
		}).WithTimeout(short + late).WithPolling(time.Second).Should(Succeed())
		ages := c.ages(ctx, scraper)
		for _, kind := range []string{"Node", "Pod", "ResourceClaim"} {
			Expect(ages[kind]).To(BeNumerically("<", window), kind)
		}
		j := job{namespace: teamA, name: "unheard", gpus: 2, product: "H100"}
		c.started(ctx, j)
		c.expectStanding(ctx, j, "h100", v1alpha1.StandingBlocked, v1alpha1.ReasonPoolStale, "Fit")
		Expect(c.placement(ctx, j).Status.Record.Message).To(ContainSubstring("nothing was heard of ResourceSlices since "))
		status, out := c.explainAs(ctx, c.Admin(), "job/unheard", "-n", teamA)
		Expect(status).To(BeZero(), out)
		Expect(out).To(ContainSubstring("PoolStale"))
		Consistently(func(g Gomega) {
			c.holdsNothing(ctx, g, j)
			g.Expect(c.podsOf(ctx, first)).To(HaveLen(1))
			g.Expect(c.podsOf(ctx, first)[0].UID).To(Equal(kept[0].UID))
		}).WithTimeout(2*while).Should(Succeed(), func() string { return c.story(ctx, j) })

		By("splicing it")
		l.splice()
		c.expectAsPromised(ctx, j, c.bound(ctx, j))
		Expect(c.podsOf(ctx, first)[0].UID).To(Equal(kept[0].UID))
	})
})
