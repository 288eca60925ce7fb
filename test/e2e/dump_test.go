package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	results "github.com/plimsoll-dev/plimsoll/pkg/simulate"
	"github.com/plimsoll-dev/plimsoll/test/lab"
)

// play is the demo of the sample cluster, on its way.
type play struct {
	*cluster
	// jobs are in order of name; after is the Job, namespace/name, that has to be admitted before each, and seconds how long
	// each runs.
	jobs      []job
	after     map[string]string
	seconds   map[string]int
	submitted map[string]bool
	// folder has their manifests.
	folder string
}

// slower is by how much each Job runs longer than in the demo, at the least. A dump has whole seconds, and in the demo two events
// that decide who is served first may be closer than that. Where dumps take long it is more, up to slowestDemo, so that one can be
// taken between two events.
const (
	slower      = 2
	slowestDemo = 4
)

var seconds = regexp.MustCompile(lab.RunSecondsAnnotation + `: "(\d+)"`)

func (j job) String() string { return j.namespace + "/" + j.name }

// newPlay reads the demo's Jobs and the order in which they come. Dumps are taken with the rights of a kubeconfig.
func newPlay(ctx context.Context, c *cluster, kubeconfig string) *play {
	GinkgoHelper()
	p := &play{cluster: c, after: map[string]string{}, seconds: map[string]int{}, submitted: map[string]bool{}, folder: GinkgoT().TempDir()}
	expected := struct {
		Jobs []struct{ Job, After string }
	}{}
	Expect(yaml.Unmarshal(read("../../examples/expected.yaml"), &expected)).To(Succeed())
	began := time.Now()
	p.take(ctx, kubeconfig)
	slower := min(max(slower, int(3*time.Since(began)/time.Second)), slowestDemo)
	GinkgoWriter.Printf("a dump takes %s: each Job runs %d times as long as in the demo\n", time.Since(began).Round(time.Millisecond), slower)
	for _, e := range expected.Jobs {
		namespace, name, _ := strings.Cut(e.Job, "/")
		p.jobs = append(p.jobs, job{namespace: namespace, name: name})
		p.after[e.Job] = e.After
		text := seconds.ReplaceAllStringFunc(string(read(filepath.Join("../../examples/jobs", name+".yaml"))), func(line string) string {
			n, err := strconv.Atoi(seconds.FindStringSubmatch(line)[1])
			Expect(err).NotTo(HaveOccurred())
			p.seconds[e.Job] = slower * n
			return fmt.Sprintf("%s: %q", lab.RunSecondsAnnotation, strconv.Itoa(slower*n))
		})
		Expect(p.seconds).To(HaveKey(e.Job))
		Expect(os.WriteFile(p.file(name), []byte(text), 0o600)).To(Succeed())
	}
	slices.SortFunc(p.jobs, func(a, b job) int { return cmp.Compare(a.String(), b.String()) })
	return p
}

func read(path string) []byte {
	GinkgoHelper()
	data, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return data
}

func (p *play) file(name string) string { return filepath.Join(p.folder, name+".yaml") }

// submitDue submits the Jobs whose time has come, and says whether all are there.
func (p *play) submitDue(ctx context.Context) bool {
	GinkgoHelper()
	admitted := p.admitted(ctx)
	for _, j := range p.jobs {
		if after := p.after[j.String()]; p.submitted[j.String()] || after != "" && !admitted[after] {
			continue
		}
		Expect(p.Lab.Apply(ctx, p.file(j.name))).To(Succeed())
		p.submitted[j.String()] = true
	}
	return len(p.submitted) == len(p.jobs)
}

func (p *play) admitted(ctx context.Context) map[string]bool {
	GinkgoHelper()
	out := map[string]bool{}
	for _, j := range p.jobs {
		wl := p.workload(ctx, j)
		out[j.String()] = wl != nil && wl.Status.Admission != nil && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)
	}
	return out
}

// dumpCommand returns the arguments of the kubectl that the documentation says to make a dump with.
func dumpCommand() []string {
	GinkgoHelper()
	for line := range strings.Lines(string(read("../../docs/tasks/simulate.md"))) {
		if command, ok := strings.CutPrefix(line, "kubectl get -A "); ok {
			args, _, _ := strings.Cut(command, " >")
			return append([]string{"get", "-A"}, strings.Fields(args)...)
		}
	}
	Fail("the documentation does not say how to make a dump")
	return nil
}

// dump is what kubectl printed.
type dump struct {
	yaml []byte
	list unstructured.UnstructuredList
}

// take makes a dump as a user does, of a moment at which nothing changes.
func (p *play) take(ctx context.Context, kubeconfig string) *dump {
	GinkgoHelper()
	d := &dump{}
	cmd := exec.CommandContext(ctx, "../../bin/kubectl", append([]string{"--kubeconfig", kubeconfig}, dumpCommand()...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	var err error
	d.yaml, err = cmd.Output()
	Expect(err).NotTo(HaveOccurred(), stderr.String())
	Expect(yaml.Unmarshal(d.yaml, &d.list.Object)).To(Succeed())
	items, ok := d.list.Object["items"].([]any)
	Expect(ok).To(BeTrue())
	for _, item := range items {
		d.list.Items = append(d.list.Items, unstructured.Unstructured{Object: item.(map[string]any)})
	}
	return d
}

// still says whether everything that moves is now as a dump has it.
func (p *play) still(ctx context.Context, d *dump) bool {
	GinkgoHelper()
	versions := map[types.UID]string{}
	kinds := map[string]bool{"Pod": true, "Job": true, "Workload": true, "Placement": true, "ResourceClaim": true}
	for i := range d.list.Items {
		if o := &d.list.Items[i]; kinds[o.GetKind()] {
			versions[o.GetUID()] = o.GetResourceVersion()
		}
	}
	found := 0
	for i := range d.list.Items {
		o := &d.list.Items[i]
		if !kinds[o.GetKind()] {
			continue
		}
		kinds[o.GetKind()] = false
		now := &unstructured.UnstructuredList{}
		now.SetGroupVersionKind(o.GroupVersionKind())
		Expect(p.List(ctx, now)).To(Succeed())
		for j := range now.Items {
			if versions[now.Items[j].GetUID()] != now.Items[j].GetResourceVersion() {
				return false
			}
			found++
		}
	}
	return found == len(versions)
}

// workload returns a Job's Workload as it was, if it had one.
func (d *dump) workload(j job) *kueue.Workload {
	GinkgoHelper()
	for i := range d.list.Items {
		o := &d.list.Items[i]
		if o.GetKind() != "Workload" || o.GetNamespace() != j.namespace {
			continue
		}
		if refs := o.GetOwnerReferences(); len(refs) == 1 && refs[0].Kind == "Job" && refs[0].Name == j.name {
			wl := &kueue.Workload{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, wl)).To(Succeed())
			return wl
		}
	}
	return nil
}

// running and ended say of a Job what it was at a dump; one that is neither waited.
func (d *dump) running(j job) bool {
	wl := d.workload(j)
	return wl != nil && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) && !d.ended(j)
}

func (d *dump) ended(j job) bool {
	wl := d.workload(j)
	return wl != nil && meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
}

// without leaves a kind out.
func (d *dump) without(kind string) *dump {
	GinkgoHelper()
	out := &dump{}
	var items []any
	for i := range d.list.Items {
		if d.list.Items[i].GetKind() != kind {
			out.list.Items = append(out.list.Items, d.list.Items[i])
			items = append(items, d.list.Items[i].Object)
		}
	}
	var err error
	out.yaml, err = yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	Expect(err).NotTo(HaveOccurred())
	return out
}

// simulate says what comes of a dump, where each Job runs for as long as it does on the lab.
func (p *play) simulate(ctx context.Context, d *dump) (in *input.Input, found map[string]*results.Workload) {
	GinkgoHelper()
	var o input.Options
	for _, j := range p.jobs {
		o.Set = append(o.Set, fmt.Sprintf("job/%s.metadata.annotations[simulate.plimsoll.dev/duration]=%ds", j, p.seconds[j.String()]))
	}
	in, err := input.Read([]input.File{{Name: "dump.yaml", Data: d.yaml}}, o)
	Expect(err).NotTo(HaveOccurred())
	r, err := simulate.Run(ctx, in, simulate.Options{Warn: func(s string) { GinkgoWriter.Println("warning:", s) }})
	Expect(err).NotTo(HaveOccurred())
	Expect(r.Table(GinkgoWriter)).To(Succeed())
	found = map[string]*results.Workload{}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		found[w.Namespace+"/"+w.Name] = w
	}
	return in, found
}

// real is what a Job has come to on the lab.
func (p *play) real(ctx context.Context, j job) report.Entry {
	GinkgoHelper()
	s, err := explain.Gather(ctx, p, explain.Target{Kind: explain.KindJob, Namespace: j.namespace, Name: j.name}, time.Now())
	Expect(err).NotTo(HaveOccurred())
	return report.Workload(s.Input)
}

// places are a Job's nodes, one a pod.
func places(e report.Entry) []string {
	var out []string
	for _, p := range e.Pods {
		out = append(out, p.Node)
	}
	slices.Sort(out)
	return out
}

var _ = Describe("A dump of the demo", Ordered, ContinueOnFailure, func() {
	var p *play
	dumps := map[string]*dump{}

	BeforeAll(func(ctx context.Context) {
		c := startCluster(ctx)
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(c.WriteKubeconfig(kubeconfig, c.Admin())).To(Succeed())
		p = newPlay(ctx, c, kubeconfig)
		gang, flexible := job{namespace: teamA, name: "gang"}, job{namespace: teamA, name: "flexible"}
		Eventually(func(g Gomega) {
			g.Expect(p.submitDue(ctx)).To(BeTrue())
		}).Should(Succeed())
		// Three moments: before the first has ended, after some have, and once the gang has made room.
		moments := []struct {
			name string
			is   func(*dump) bool
		}{
			{"early", func(d *dump) bool { return d.running(gang) && !d.running(flexible) }},
			{"middle", func(d *dump) bool { return d.running(gang) && count(p.jobs, d.ended) >= 2 }},
			{"late", func(d *dump) bool { return d.ended(gang) && count(p.jobs, d.running) > 0 }},
		}
		Eventually(func(g Gomega) {
			d := p.take(ctx, kubeconfig)
			for _, m := range moments {
				if dumps[m.name] == nil && m.is(d) && p.still(ctx, d) {
					dumps[m.name] = d
					break
				}
			}
			g.Expect(count(p.jobs, d.ended)).To(Equal(len(p.jobs) - 2)) // all but nine and visual
		}).WithTimeout(late).Should(Succeed())
		Expect(slices.Sorted(maps.Keys(dumps))).To(Equal([]string{"early", "late", "middle"}), "the demo went by too fast")
	})

	for _, name := range []string{"early", "middle", "late"} {
		It("taken "+name+" goes on as the lab does", func(ctx context.Context) {
			d := dumps[name]
			in, found := p.simulate(ctx, d)
			Expect(in.Warnings).To(BeEmpty())
			waited := p.expectSame(ctx, d, in, found)
			if name != "late" { // then nobody waits that will start
				Expect(waited).NotTo(BeZero())
			}
		})
		It("taken "+name+" by somebody who may not read Placements keeps what runs where it is", func(ctx context.Context) {
			d := dumps[name].without("Placement")
			_, found := p.simulate(ctx, d)
			for _, j := range p.jobs {
				if d.running(j) {
					p.expectKept(ctx, j, found[j.String()])
				}
			}
		})
	}
})

func count(jobs []job, is func(job) bool) (n int) {
	for _, j := range jobs {
		if is(j) {
			n++
		}
	}
	return n
}

// expectKept holds what ran against where it was, and that nobody moved it.
func (p *play) expectKept(ctx context.Context, j job, w *results.Workload) {
	GinkgoHelper()
	real := p.real(ctx, j)
	Expect(w.Admissions).To(HaveLen(1), "%s was admitted once", j)
	Expect(int64(w.Admissions[0].At)).To(BeNumerically("<=", 0), "%s ran before", j)
	Expect(w.Outcome).To(Equal(report.OutcomeFinished), j.String())
	Expect(w.Flavors).To(Equal(real.Flavors), j.String())
	Expect(places(w.Entry)).To(Equal(places(real)), j.String())
}

// before says who had started and who had ended when a Job started, in whole seconds: on the lab, and as it was simulated.
func (p *play) before(ctx context.Context, j job, found map[string]*results.Workload) (lab, simulated []string) {
	GinkgoHelper()
	at := func(j job, condition string) *time.Time {
		if c := meta.FindStatusCondition(p.workload(ctx, j).Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
		return nil
	}
	since, own := at(j, kueue.WorkloadAdmitted), found[j.String()].AdmittedAt
	for _, k := range p.jobs {
		if k.String() == j.String() {
			continue
		}
		started, ended, w := at(k, kueue.WorkloadAdmitted), at(k, kueue.WorkloadFinished), found[k.String()]
		for what, is := range map[string][2]bool{
			"started": {started != nil && !started.After(*since), w.AdmittedAt != nil && *w.AdmittedAt <= *own},
			"ended":   {ended != nil && !ended.After(*since), w.FinishedAt != nil && *w.FinishedAt <= *own},
		} {
			if is[0] {
				lab = append(lab, k.String()+" "+what)
			}
			if is[1] {
				simulated = append(simulated, k.String()+" "+what)
			}
		}
	}
	slices.Sort(lab)
	slices.Sort(simulated)
	return lab, simulated
}

// expectSame holds what a dump comes to against what the lab has come to: on what everything ran, on which nodes where the same
// had started and ended before, and in which order those started that waited, where that was two seconds apart or more. It
// returns how many those were.
func (p *play) expectSame(ctx context.Context, d *dump, in *input.Input, found map[string]*results.Workload) int {
	GinkgoHelper()
	type started struct {
		job
		lab time.Time
		sim time.Duration
	}
	var waited []started
	for _, j := range p.jobs {
		real, w := p.real(ctx, j), found[j.String()]
		Expect(w).NotTo(BeNil(), j.String())
		switch {
		case d.ended(j):
			Expect(w.Outcome).To(Equal(report.OutcomeFinished), j.String())
			continue
		case d.running(j):
			p.expectKept(ctx, j, w)
			continue
		}
		Expect(w.Outcome).To(Equal(real.Outcome), j.String())
		if real.Outcome == report.OutcomeWaiting {
			Expect(w.Reason).To(Equal(real.Reason), j.String())
			continue
		}
		Expect(w.Flavors).To(Equal(real.Flavors), j.String())
		Expect(places(w.Entry)).To(HaveLen(len(places(real))), j.String())
		if lab, simulated := p.before(ctx, j, found); slices.Equal(lab, simulated) {
			Expect(places(w.Entry)).To(Equal(places(real)), j.String())
		} else { // a lab takes time, in which what ends at almost the same time may change places
			GinkgoWriter.Printf("%s started on %v after %v, and in simulate on %v after %v\n", j, places(real), lab, places(w.Entry), simulated)
		}
		admitted := meta.FindStatusCondition(p.workload(ctx, j).Status.Conditions, kueue.WorkloadAdmitted)
		s := started{j, admitted.LastTransitionTime.Time, time.Duration(*w.AdmittedAt) * time.Second}
		GinkgoWriter.Printf("%s started %s after the dump's time 0, and in simulate at %s\n", j, s.lab.Sub(in.Start), s.sim)
		waited = append(waited, s)
	}
	for _, a := range waited {
		for _, b := range waited {
			if b.lab.Sub(a.lab) >= 2*time.Second {
				Expect(a.sim).To(BeNumerically("<", b.sim), "%s started before %s", a, b)
			}
		}
	}
	return len(waited)
}
