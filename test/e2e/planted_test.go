package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// planted is a change of one line of a decision.
type planted struct {
	file, from, to string
}

var (
	// fewestFreeLast makes Pack take the node with the most free devices.
	fewestFreeLast = planted{
		file: "pkg/admission/try.go",
		from: "return x.free < y.free != o.spread",
		to:   "return x.free < y.free == o.spread",
	}
	// worstFirst tries a policy's flavors from the last to the first.
	worstFirst = planted{
		file: "pkg/flavors/options.go",
		from: "out = append(out, Option{Variant: v, Flavor: f, Charge: p.Charge(s, v, f)})",
		to:   "out = append([]Option{{Variant: v, Flavor: f, Charge: p.Charge(s, v, f)}}, out...)",
	}
)

// build builds the manager and the kubectl plugin with the change, and returns their folder. A change that the code has
// outgrown is a failure.
func (p planted) build(ctx context.Context, root string) string {
	GinkgoHelper()
	source, err := os.ReadFile(filepath.Join(root, p.file))
	Expect(err).NotTo(HaveOccurred())
	Expect(bytes.Count(source, []byte(p.from))).To(Equal(1), "%s has this once: %s", p.file, p.from)
	changed := bytes.Replace(source, []byte(p.from), []byte(p.to), 1)
	folder := GinkgoT().TempDir()
	Expect(lab.BuildReplaced(ctx, root, folder, map[string][]byte{p.file: changed}, GinkgoWriter)).To(Succeed())
	return folder
}

// came is what of an Entry does not depend on when it is looked at.
type came struct {
	Outcome          report.Outcome
	Flavors, Charged map[string]string
	Pods             []report.Pod
}

func cameOf(e report.Entry) came {
	return came{Outcome: e.Outcome, Flavors: e.Flavors, Charged: e.Charged, Pods: e.Pods}
}

// simulatedBy returns what a kubectl plugin says of a Job on the sample cluster.
func simulatedBy(ctx context.Context, plugin string, j job) came {
	GinkgoHelper()
	template, object := j.template(), j.object()
	template.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"))
	object.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	folder := GinkgoT().TempDir()
	for name, o := range map[string]client.Object{"template.json": template, "job.json": object} {
		data, err := json.Marshal(o)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, name), data, 0o600)).To(Succeed())
	}
	cmd := exec.CommandContext(ctx, plugin, "simulate", "--strict", "-f", "../../examples/queues", "-f", "../../examples/cluster", "-f", folder, "-o", "json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	Expect(cmd.Run()).To(Succeed(), stderr.String)
	var result simulate.Result
	Expect(json.Unmarshal(stdout.Bytes(), &result)).To(Succeed())
	Expect(result.Workloads).To(HaveLen(1))
	return cameOf(result.Workloads[0].Entry)
}

var _ = Describe("A decision that is changed in one place", Ordered, func() {
	var c *cluster
	var root, manager string
	j := job{namespace: teamA, name: "planted", gpus: 2}

	// expectOnLab makes the manager in a folder the lab's, and waits until the Job comes to what is wanted with it.
	expectOnLab := func(ctx context.Context, folder string, want came) {
		GinkgoHelper()
		Expect(c.StopManager(ctx)).To(Succeed())
		Expect(os.Remove(manager)).To(Succeed())
		Expect(os.Symlink(filepath.Join(folder, lab.Manager), manager)).To(Succeed())
		Expect(c.StartManager(ctx)).To(Succeed())
		c.submit(ctx, j)
		DeferCleanup(c.remove, j)
		Eventually(func(g Gomega) {
			s, err := explain.Gather(ctx, c.Client, explain.Target{Kind: explain.KindJob, Namespace: j.namespace, Name: j.name}, time.Now())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cameOf(report.Workload(s.Input))).To(Equal(want))
		}).WithTimeout(late).Should(Succeed(), func() string { return c.story(ctx, j) })
	}

	BeforeAll(func(ctx context.Context) {
		var err error
		root, err = lab.FindRoot()
		Expect(err).NotTo(HaveOccurred())
		manager = filepath.Join(GinkgoT().TempDir(), lab.Manager)
		Expect(os.Symlink(filepath.Join(root, "bin", lab.Manager), manager)).To(Succeed())
		l, err := lab.Start(ctx, lab.Options{Out: GinkgoWriter, Release: release(), Manager: true, ManagerBinary: manager})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(l.Stop)
		Expect(l.Apply(ctx, "../../examples/queues", "../../examples/cluster")).To(Succeed())
		c = &cluster{Lab: l, Client: clientFor(l.Admin())}
	})

	DescribeTable("is changed on a cluster and simulated alike", func(ctx context.Context, p *planted, flavor, node string) {
		folder := filepath.Join(root, "bin")
		if p != nil {
			folder = p.build(ctx, root)
		}
		got := simulatedBy(ctx, filepath.Join(folder, "kubectl-plimsoll"), j)
		Expect(got.Outcome).To(Equal(report.OutcomeRunning))
		Expect(got.Flavors).To(HaveKeyWithValue("main", flavor))
		Expect(got.Pods).To(HaveLen(1))
		Expect(got.Pods[0].Node).To(Equal(node))
		expectOnLab(ctx, folder, got)
	},
		Entry("nothing planted: the best flavor, on the node with the fewest free devices", nil, "h100", "mixed-0"),
		Entry("in pkg/admission: another node", &fewestFreeLast, "h100", "h100-0"),
		Entry("in pkg/flavors: another flavor", &worstFirst, "other", "l4-0"),
	)
})
