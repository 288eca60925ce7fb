package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// explainAs runs kubectl plimsoll explain with somebody's rights, and returns its exit status and what it printed.
func (c *cluster) explainAs(ctx context.Context, who *rest.Config, args ...string) (int, string) {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(c.WriteKubeconfig(kubeconfig, who)).To(Succeed())
	cmd := exec.CommandContext(ctx, "../../bin/kubectl-plimsoll", append([]string{"explain", "--kubeconfig", kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

var _ = Describe("explain", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var tenant *rest.Config
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		var err error
		tenant, err = c.User("ada")
		Expect(err).NotTo(HaveOccurred())
		for _, role := range []string{"view", "kueue-batch-user-role"} {
			Expect(c.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: teamA, Name: "ada-" + role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ada"}},
			})).To(Succeed())
		}
	})

	It("tells a tenant, with the tenant's own rights, why a Job waits and what to do", func(ctx context.Context) {
		c.submit(ctx, job{namespace: teamA, name: "nine", gpus: 9})
		Eventually(func(g Gomega) {
			status, out := c.explainAs(ctx, tenant, "job/nine", "-n", teamA)
			g.Expect(status).To(BeZero(), out)
			g.Expect(out).To(And(
				ContainSubstring("Waiting"), ContainSubstring("NotEnoughDevices"), ContainSubstring("What to do"),
				ContainSubstring("main: h100 is Impossible"), ContainSubstring("main: other is Impossible"), Not(ContainSubstring("Note")),
			))
		}).Should(Succeed())
	})

	It("prints the same as one object of the simulator's format", func(ctx context.Context) {
		j := job{namespace: teamA, name: "one", gpus: 2, product: "A100", runSeconds: 1}
		c.submit(ctx, j)
		c.finished(ctx, j)
		Eventually(func(g Gomega) {
			status, out := c.explainAs(ctx, tenant, "job", "one", "-n", teamA, "-o", "json")
			g.Expect(status).To(BeZero(), out)
			var e report.Entry
			g.Expect(json.Unmarshal([]byte(out), &e)).To(Succeed(), out)
			g.Expect(e.Outcome).To(Equal(report.OutcomeFinished))
			g.Expect(e.Flavors).To(Equal(map[string]string{"main": "a100"}))
			g.Expect(e.Charged).To(Equal(map[string]string{"gpus": "2"}))
			g.Expect(e.Pods).To(HaveLen(1))
			g.Expect(e.Pods[0].Devices).To(HaveLen(2), "what it had is told after the end")
			g.Expect(e.SubmittedAt).To(Equal(ptr.To[report.Clock](0)))
			g.Expect(e.Reason).To(BeNil())
			g.Expect(*e.FinishedAt).To(BeNumerically(">=", *e.AdmittedAt))
		}).Should(Succeed())
	})

	It("says in one sentence what it cannot tell", func(ctx context.Context) {
		Expect(c.Create(ctx, job{namespace: teamA, name: "unqueued", change: func(j *batchv1.Job) { j.Labels = nil }}.object())).To(Succeed())
		for _, refusal := range []struct{ target, namespace, says string }{
			{"job/none", teamA, "job/none does not exist in namespace team-a"},
			{"job/unqueued", teamA, "has no Workload"},
			{"job/nine", teamB, "you may not read job/nine"},
		} {
			status, out := c.explainAs(ctx, tenant, refusal.target, "-n", refusal.namespace)
			Expect(status).To(Equal(1), out)
			Expect(out).To(And(HavePrefix("Error: "), ContainSubstring(refusal.says)))
		}
	})
})
