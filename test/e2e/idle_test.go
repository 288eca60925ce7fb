package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/webhook"
)

const (
	// idle is how long nothing may happen, and glance how often that is looked at.
	idle   = 60 * time.Second
	glance = 5 * time.Second
	// maxResident is what the manager may hold resident on the sample cluster, in bytes.
	maxResident = 100 << 20
)

// token makes a service account and returns a token of it. With a role, the account is bound to that ClusterRole.
func (c *cluster) token(ctx context.Context, name, role string) string {
	GinkgoHelper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	Expect(c.Create(ctx, sa)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, sa)).To(Succeed()) })
	if role != "" {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: sa.Namespace, Name: sa.Name}},
		}
		Expect(c.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, binding)).To(Succeed()) })
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}
	Expect(c.SubResource("token").Create(ctx, sa, request)).To(Succeed())
	return request.Status.Token
}

// scrape asks for the manager's metrics, with a token if that is not empty.
func (c *cluster) scrape(ctx context.Context, token string) (status int, body string) {
	GinkgoHelper()
	scraper := &http.Client{Timeout: soon, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the manager's certificate is self-signed
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.MetricsURL(), nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := scraper.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
}

// series returns the samples of a metric by their labels, as they are written.
func series(text, name string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{.*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// figures returns the metrics that move whenever the manager does anything.
func (c *cluster) figures(ctx context.Context, token string) map[string]map[string]string {
	GinkgoHelper()
	status, body := c.scrape(ctx, token)
	Expect(status).To(Equal(http.StatusOK))
	out := map[string]map[string]string{}
	for _, name := range []string{"plimsoll_decisions_total", "plimsoll_rounds_total", "plimsoll_ledger_version"} {
		out[name] = series(body, name)
		Expect(out[name]).NotTo(BeEmpty(), name)
	}
	return out
}

// heartbeat does what kubelets do about every five minutes: it writes into each node's status that nothing has changed.
func (c *cluster) heartbeat(ctx context.Context) {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(c.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		n := &nodes.Items[i]
		patch := client.StrategicMergeFrom(n.DeepCopy())
		for k := range n.Status.Conditions {
			n.Status.Conditions[k].LastHeartbeatTime = metav1.Now()
		}
		Expect(c.Status().Patch(ctx, n, patch)).To(Succeed())
	}
}

// nodesSeen returns how many versions of nodes the ledger has been given.
func (c *cluster) nodesSeen(ctx context.Context, token string) int {
	GinkgoHelper()
	_, body := c.scrape(ctx, token)
	value := series(body, "plimsoll_observations_total")[`{kind="Node",outcome="Applied"}`]
	n, err := strconv.Atoi(value)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// writesBy returns what a user has written since a time, Leases and questions about who somebody is left out: the API
// server stores no answer to those.
func (c *cluster) writesBy(user string, since time.Time) (writes []string, leases int) {
	GinkgoHelper()
	events, err := c.AuditSince(since)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range events {
		if e.User.Username != user {
			continue
		}
		switch resource := resourceOf(e); resource {
		case "leases.coordination.k8s.io":
			Expect(e.ObjectRef.Namespace + "/" + e.ObjectRef.Name).To(Equal(v1alpha1.SystemNamespace + "/" + v1alpha1.LeaseName))
			leases++
		case "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io":
		default:
			writes = append(writes, fmt.Sprintf("%s %s %s %s/%s", e.StageTimestamp.Format(time.StampMilli), e.Verb, resource, e.ObjectRef.Namespace, e.ObjectRef.Name))
		}
	}
	return writes, leases
}

func resourceOf(e auditv1.Event) string {
	return strings.TrimSuffix(e.ObjectRef.Resource+"."+e.ObjectRef.APIGroup, ".")
}

var _ = Describe("The manager of a cluster at rest", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var scraper string
	running := []job{
		{namespace: teamA, name: "gang", pods: 4, gpus: 8, product: "H100"},
		{namespace: teamA, name: "few", pods: 2, gpus: 2, product: "A100"},
		{namespace: teamB, name: "pairs", pods: 4, gpus: 2, product: "A100"},
		{namespace: teamB, name: "cheap", pods: 2, gpus: 1, product: "L4"},
		{namespace: teamB, name: "none", pods: 2},
	}
	waiting := job{namespace: teamA, name: "waits", gpus: 8, product: "H100"}
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		scraper = c.token(ctx, "scraper", "plimsoll-metrics-reader")
		for _, j := range running {
			c.submit(ctx, j)
			c.bound(ctx, j)
		}
		c.submit(ctx, waiting)
		Eventually(func(g Gomega) {
			p := c.placement(ctx, waiting)
			g.Expect(p).NotTo(BeNil())
			g.Expect(p.Status.Record).NotTo(BeNil())
			g.Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictWait))
		}).Should(Succeed(), func() string { return c.story(ctx, waiting) })
	})

	It("shows its metrics to those whom RBAC lets, and to nobody else", func(ctx context.Context) {
		status, body := c.scrape(ctx, scraper)
		Expect(status).To(Equal(http.StatusOK))
		Expect(series(body, "plimsoll_decisions_total")).NotTo(BeEmpty())
		status, body = c.scrape(ctx, "")
		Expect(status).To(Equal(http.StatusUnauthorized))
		Expect(body).NotTo(ContainSubstring("plimsoll_"))
		status, body = c.scrape(ctx, scraper+"x") // controller-runtime calls a token that is not valid an error of its own
		Expect(status).To(BeElementOf(http.StatusUnauthorized, http.StatusInternalServerError))
		Expect(body).NotTo(ContainSubstring("plimsoll_"))
		status, body = c.scrape(ctx, c.token(ctx, "stranger", ""))
		Expect(status).To(Equal(http.StatusForbidden))
		Expect(body).NotTo(ContainSubstring("plimsoll_"))
	})

	var before map[string]map[string]string
	It("decides nothing and writes nothing but its Lease for a minute", func(ctx context.Context) {
		var since time.Time
		By("coming to rest")
		Eventually(func(g Gomega) {
			before, since := c.figures(ctx, scraper), time.Now()
			g.Consistently(func(g Gomega) {
				g.Expect(c.figures(ctx, scraper)).To(Equal(before))
				writes, _ := c.writesBy(webhook.ManagerUsername, since)
				g.Expect(writes).To(BeEmpty())
			}).WithTimeout(glance).Should(Succeed())
		}).WithTimeout(late).Should(Succeed())

		By("being idle while every node's heartbeats go on")
		before, since = c.figures(ctx, scraper), time.Now()
		seen, beats := c.nodesSeen(ctx, scraper), 0
		Consistently(func(g Gomega) {
			c.heartbeat(ctx)
			beats++
			g.Expect(c.figures(ctx, scraper)).To(Equal(before))
			writes, _ := c.writesBy(webhook.ManagerUsername, since)
			g.Expect(writes).To(BeEmpty())
		}).WithTimeout(idle).WithPolling(glance).Should(Succeed())
		_, leases := c.writesBy(webhook.ManagerUsername, since)
		Expect(leases).To(BeNumerically(">", 5), "the audit log shows what the manager writes")
		Expect(beats).To(BeNumerically(">", 1))
		Eventually(func() int { return c.nodesSeen(ctx, scraper) }).Should(BeNumerically(">=", seen+8*beats), "the heartbeats came, and were no reason to decide")
		AddReportEntry("idle", fmt.Sprintf("in %s: decisions %v unmoved, rounds %v, ledger version %v, %d writes of the Lease and no other",
			idle, before["plimsoll_decisions_total"], before["plimsoll_rounds_total"], before["plimsoll_ledger_version"], leases))
	})

	It("holds at most 100 MiB resident", func() {
		resident, err := c.ManagerRSS()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("resident", fmt.Sprintf("%.1f MiB", float64(resident)/(1<<20)))
		Expect(resident).To(BeNumerically("<=", maxResident))
	})

	It("gives a device that comes free to who waits for it, for no other reason than that", func(ctx context.Context) {
		holder := c.bound(ctx, running[0])[0]
		workload := c.workload(ctx, waiting)
		Expect(reservedNow(workload)).To(BeFalse())
		h := c.history()
		Eventually(func() bool { return h.has(&holder) }).Should(BeTrue(), "the watches are at work")
		Expect(c.figures(ctx, scraper)).To(Equal(before), "no clock and no resync has made the manager move since the minute began")

		c.end(ctx, &holder)
		var s []step
		Eventually(func() []step {
			s = afterFreed(h, &holder, workload.UID)
			return s
		}).WithTimeout(late).ShouldNot(BeNil(), func() string { return c.story(ctx, waiting) })
		GinkgoWriter.Printf("after the devices were free: %v\n", s)
		var all, ours []string
		for _, x := range s {
			all = append(all, x.what)
			if x.what != stepGiven && x.what != stepFreed { // by the Job and the claim controller, each going its own way
				ours = append(ours, x.what)
			}
		}
		Expect(ours).To(Equal([]string{stepOpened, stepReserved, stepReady}))
		Expect(slices.Index(all, stepReady)).To(BeNumerically(">", slices.Index(all, stepFreed)), "%v", all)
		Expect(c.figures(ctx, scraper)).NotTo(Equal(before))
	})

	AfterAll(func(ctx context.Context) {
		for _, j := range append(running, waiting) {
			Expect(client.IgnoreNotFound(c.Delete(ctx, j.object(), client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
		}
	})
})
