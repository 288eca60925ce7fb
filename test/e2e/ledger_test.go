package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/inspect"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// ledgerAs runs kubectl plimsoll ledger with somebody's rights, and returns its exit status and what it printed on either side.
func (c *cluster) ledgerAs(ctx context.Context, who *rest.Config, args ...string) (status int, stdout, stderr string) {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(c.WriteKubeconfig(kubeconfig, who)).To(Succeed())
	cmd := exec.CommandContext(ctx, "../../bin/kubectl-plimsoll", append([]string{"ledger", "--kubeconfig", kubeconfig}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	return cmd.ProcessState.ExitCode(), out.String(), problems.String()
}

// toManager is how the plugin reaches the lab's manager, which no Service leads to.
func (c *cluster) toManager() []string {
	return []string{"--manager", c.ManagerURL(), "--manager-ca", c.CAFile()}
}

// ledger returns the export that the plugin gives an administrator: the manager's, or a cold one.
func (c *cluster) ledger(ctx context.Context, args ...string) *ledger.Export {
	GinkgoHelper()
	status, out, problems := c.ledgerAs(ctx, c.Admin(), append([]string{"export"}, args...)...)
	Expect(status).To(BeZero(), problems)
	e, err := ledger.ReadExport(strings.NewReader(out))
	Expect(err).NotTo(HaveOccurred())
	return e
}

// verified waits until verify says that the manager's ledger is what the cluster is, and returns its digest.
func (c *cluster) verified(ctx context.Context) string {
	GinkgoHelper()
	status, out, problems := c.ledgerAs(ctx, c.Admin(), append([]string{"verify"}, c.toManager()...)...)
	Expect(status).To(BeZero(), "%s%s", out, problems)
	return regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(out)
}

// askLedger asks the manager for its ledger, with a token if that is not empty.
func (c *cluster) askLedger(ctx context.Context, token string) int {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ManagerURL()+v1alpha1.LedgerPath, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport, err := rest.TransportFor(&rest.Config{Host: c.ManagerURL(), TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile()}})
	Expect(err).NotTo(HaveOccurred())
	response, err := (&http.Client{Timeout: soon, Transport: transport}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode
}

// without returns an export that was made to lack the line of a key, and is whole all the same.
func without(e *ledger.Export, key string) []byte {
	GinkgoHelper()
	left, h := *e, sha256.New()
	left.Entries = nil
	for _, l := range e.Entries {
		if strings.HasPrefix(l.Key(), key) {
			kind, _, _ := strings.Cut(l.Key(), " ")
			left.Header.Counts[kind]--
			continue
		}
		left.Entries = append(left.Entries, l)
		if !l.History() {
			h.Write(l.Raw)
			h.Write([]byte("\n"))
		}
	}
	Expect(left.Entries).To(HaveLen(len(e.Entries) - 1))
	left.Header.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	var out bytes.Buffer
	Expect(left.Write(&out)).To(Succeed())
	return out.Bytes()
}

var _ = Describe("The ledger", Ordered, ContinueOnFailure, func() {
	var c *cluster
	gang := job{namespace: teamA, name: "gang", pods: 4, gpus: 8, product: "H100"}
	nine := job{namespace: teamB, name: "nine", gpus: 9}
	busy := job{namespace: teamB, name: "busy", gpus: 8, product: "H100"}

	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		c.started(ctx, gang)
		c.bound(ctx, gang)
		c.submit(ctx, nine)
		c.submit(ctx, busy)
		for _, j := range []job{nine, busy} {
			Eventually(func(g Gomega) {
				p := c.placement(ctx, j)
				g.Expect(p).NotTo(BeNil())
				g.Expect(p.Status.Record).NotTo(BeNil())
				g.Expect(p.Status.Record.Verdict).To(Equal(v1alpha1.VerdictWait))
			}).Should(Succeed(), func() string { return c.story(ctx, j) })
		}
	})

	It("is the same before the manager is killed, after, and computed from the API server", func(ctx context.Context) {
		digest := c.verified(ctx)
		live := c.ledger(ctx, c.toManager()...)
		Expect(live.Header.Source).To(Equal(ledger.SourceManager))
		Expect(live.Header.Leader).To(BeTrue())
		Expect(live.Header.Digest).To(Equal(digest))

		Expect(c.KillManager(ctx)).To(Succeed())
		cold := c.ledger(ctx)
		Expect(cold.Header.Source).To(Equal(ledger.SourceAPI), "without a manager it is computed")
		Expect(live.Compare(cold)).To(BeEmpty())
		Expect(cold.Header.Digest).To(Equal(digest))
		status, _, problems := c.ledgerAs(ctx, c.Admin(), append([]string{"verify"}, c.toManager()...)...)
		Expect(status).To(Equal(2), problems)
		Expect(problems).To(ContainSubstring("cannot reach the manager"))

		Expect(c.StartManager(ctx)).To(Succeed())
		Expect(c.verified(ctx)).To(Equal(digest))
		again := c.ledger(ctx, c.toManager()...)
		Expect(live.Compare(again)).To(BeEmpty())
		Expect(again.Header.Digest).To(Equal(digest))
	})

	It("is verified while Jobs come and go", func(ctx context.Context) {
		for i, name := range []string{"one", "two", "three"} {
			j := job{namespace: teamA, name: name, gpus: int64(i + 1), product: "A100", runSeconds: 1}
			c.submit(ctx, j)
			DeferCleanup(c.remove, j)
			c.verified(ctx)
		}
	})

	It("counts each device once", func(ctx context.Context) {
		status, out, problems := c.ledgerAs(ctx, c.Admin(), append([]string{"status", "--nodes", "-o", "json"}, c.toManager()...)...)
		Expect(status).To(BeZero(), problems)
		var s inspect.Status
		Expect(json.Unmarshal([]byte(out), &s)).To(Succeed())
		got := map[string]inspect.Counts{}
		for _, f := range s.Flavors {
			got[f.Flavor] = f.Counts
		}
		Expect(got).To(Equal(map[string]inspect.Counts{
			"h100": {Total: 36, Free: 4, Held: 32}, "a100": {Total: 20, Free: 20}, "other": {Total: 12, Free: 8, Unhealthy: 4}, "t4": {Total: 4, Free: 4},
		}), "a node of four L40S is cordoned, and one of four T4 has a device plugin")
		status, out, problems = c.ledgerAs(ctx, c.Admin(), "status", "--cold")
		Expect(status).To(BeZero(), problems)
		Expect(out).To(MatchRegexp(`(?m)^\S+ +h100 +5 +36 +4 +32 +0 +0 +0 +0 +0$`))
	})

	It("that is not what the cluster is, is printed both ways", func(ctx context.Context) {
		const key = "device h100-0 gpu.nvidia.com/h100-0/gpu-0 "
		edited := without(c.ledger(ctx, c.toManager()...), key)
		var shown []string
		liar := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown = append(shown, r.Header.Get("Authorization"))
			_, err := w.Write(edited)
			Expect(err).NotTo(HaveOccurred())
		}))
		defer liar.Close()
		ca := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: liar.Certificate().Raw}), 0o600)).To(Succeed())

		status, out, problems := c.ledgerAs(ctx, c.Admin(), "verify", "--manager", liar.URL, "--manager-ca", ca)
		Expect(status).To(Equal(1), "%s%s", out, problems)
		Expect(out).To(And(HavePrefix(key), ContainSubstring("\n  live: nothing\n  api:  {"), ContainSubstring(`"kind":"Claim"`)))
		Expect(strings.Split(strings.TrimSpace(out), "\n")).To(HaveLen(3), "nothing else differs")
		Expect(problems).To(ContainSubstring("differs from the cluster in 1 line"))

		for _, token := range shown {
			as := clientFor(&rest.Config{Host: c.Admin().Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.Admin().CAData}, BearerToken: strings.TrimPrefix(token, "Bearer ")})
			Expect(c.may(ctx, as, "list pods", teamA, "")).To(BeFalse(), "what the manager is shown is good for the ledger alone")
			Expect(c.may(ctx, as, "list nodes", "", "")).To(BeFalse())
		}
	})

	It("is for operators, and for no tenant", func(ctx context.Context) {
		olga, err := c.User("olga")
		Expect(err).NotTo(HaveOccurred())
		ada, err := c.User("ada")
		Expect(err).NotTo(HaveOccurred())
		bind := func(namespace, kind, role, user string) {
			GinkgoHelper()
			Expect(c.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user + "-" + role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			})).To(Succeed())
		}
		bind(v1alpha1.SystemNamespace, "Role", v1alpha1.LedgerReader, "olga")
		bind(teamA, "ClusterRole", "admin", "ada")
		bind(teamA, "ClusterRole", "kueue-batch-admin-role", "ada")

		Eventually(func(g Gomega) {
			status, _, problems := c.ledgerAs(ctx, olga, append([]string{"export"}, c.toManager()...)...)
			g.Expect(status).To(BeZero(), problems)
		}).Should(Succeed())
		status, out, problems := c.ledgerAs(ctx, ada, append([]string{"export"}, c.toManager()...)...)
		Expect(status).To(Equal(1))
		Expect(out).To(BeEmpty())
		Expect(problems).To(ContainSubstring("you may not read the ledger"))

		for role, want := range map[string]int{"": http.StatusForbidden, "admin": http.StatusForbidden, "view": http.StatusForbidden, "plimsoll-metrics-reader": http.StatusForbidden, v1alpha1.LedgerReader: http.StatusOK} {
			Expect(c.askLedger(ctx, c.token(ctx, "ask-"+role+"x", role))).To(Equal(want), role)
		}
		Expect(c.askLedger(ctx, "")).To(Equal(http.StatusUnauthorized))
		Expect(c.askLedger(ctx, "made-up")).To(BeElementOf(http.StatusUnauthorized, http.StatusInternalServerError), "controller-runtime says of a token that is none that it failed")
	})
})
