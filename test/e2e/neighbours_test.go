package e2e

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

var _ = Describe("A tenant whose neighbour holds the devices", Ordered, func() {
	var c *cluster
	BeforeAll(func(ctx context.Context) { c = startCluster(ctx) })

	It("is told why he waits without a word of who his neighbour is", func(ctx context.Context) {
		theirs := job{namespace: teamA, name: "confidential", gpus: 4, change: onNode("mixed-0")}
		c.submit(ctx, theirs)
		pods := c.bound(ctx, theirs)
		j := job{namespace: teamB, name: "curious", gpus: 1, product: "H100", change: onNode("mixed-0")}
		c.submit(ctx, j)
		Eventually(func(g Gomega) {
			p := c.placement(ctx, j)
			g.Expect(p).NotTo(BeNil())
			g.Expect(p.Status.Record).NotTo(BeNil())
			g.Expect(p.Status.Record.Reason).To(Equal(v1alpha1.ReasonDevicesInUse))
			g.Expect(c.events(ctx, teamB, "Job", j.name)).To(ContainElement(HavePrefix("DevicesInUse: ")))
		}).Should(Succeed(), func() string { return c.story(ctx, j) })

		user := "curious-user"
		cfg, err := c.User(user)
		Expect(err).NotTo(HaveOccurred())
		for _, role := range []string{"edit", "kueue-batch-user-role"} {
			Expect(c.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: teamB, Name: user + "-" + role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			})).To(Succeed())
		}
		said := map[string]string{}
		for _, format := range []string{"words", "json", "yaml"} {
			status, out := c.explainAs(ctx, cfg, "job/curious", "-n", teamB, "-o", format)
			Expect(status).To(BeZero(), out)
			Expect(out).To(ContainSubstring("DevicesInUse"))
			said["explain -o "+format] = out
		}
		for name, object := range map[string]any{"Placement": c.placement(ctx, j), "Workload": c.workload(ctx, j)} {
			raw, err := json.Marshal(object)
			Expect(err).NotTo(HaveOccurred())
			said[name] = string(raw)
		}
		for _, on := range []string{"Job", "Workload", "Placement"} {
			said["events on "+on] = strings.Join(append(c.events(ctx, teamB, on, j.name), c.events(ctx, teamB, on, c.workload(ctx, j).Name)...), "\n")
		}
		names := []string{teamA, theirs.name, string(c.workload(ctx, theirs).UID), string(pods[0].UID), *pods[0].Status.ResourceClaimStatuses[0].ResourceClaimName}
		for where, text := range said {
			for _, n := range names {
				Expect(text).NotTo(ContainSubstring(n), where)
			}
		}
	})
})
