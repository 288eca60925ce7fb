package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fair  = &config.Configuration{FairSharing: &config.FairSharing{}}
)

const (
	never   = kueue.PreemptionPolicyNever
	lower   = kueue.PreemptionPolicyLowerPriority
	anybody = kueue.PreemptionPolicyAny
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// amounts reads "gpus=8 cpu=2".
func amounts(s string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, f := range strings.Fields(s) {
		n, q, _ := strings.Cut(f, "=")
		out[corev1.ResourceName(n)] = resource.MustParse(q)
	}
	return out
}

// group reads "gpus: h100=8/2/4 a100=8": nominal, borrowing limit and lending limit of every resource named.
func group(s string) (g kueue.ResourceGroup) {
	names, quotas, _ := strings.Cut(s, ":")
	for _, f := range strings.Fields(quotas) {
		name, q, _ := strings.Cut(f, "=")
		fq := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)}
		for _, n := range strings.Split(names, ",") {
			parts := append(strings.Split(q, "/"), "", "")
			rq := kueue.ResourceQuota{Name: corev1.ResourceName(n), NominalQuota: resource.MustParse(parts[0])}
			if parts[1] != "" {
				rq.BorrowingLimit = new(resource.MustParse(parts[1]))
			}
			if parts[2] != "" {
				rq.LendingLimit = new(resource.MustParse(parts[2]))
			}
			fq.Resources = append(fq.Resources, rq)
		}
		g.Flavors = append(g.Flavors, fq)
	}
	for _, n := range strings.Split(names, ",") {
		g.CoveredResources = append(g.CoveredResources, corev1.ResourceName(n))
	}
	return g
}

type edit = func(*kueue.ClusterQueueSpec)

// queue makes a ClusterQueue; groups are separated by ";".
func queue(name, cohort, groups string, edits ...edit) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: named(name)}
	q.Spec.CohortName = kueue.CohortReference(cohort)
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	for _, g := range strings.Split(groups, ";") {
		q.Spec.ResourceGroups = append(q.Spec.ResourceGroups, group(g))
	}
	for _, e := range edits {
		e(&q.Spec)
	}
	return q
}

func cohort(name, parent string, groups ...kueue.ResourceGroup) *kueue.Cohort {
	return &kueue.Cohort{ObjectMeta: named(name), Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent), ResourceGroups: groups}}
}

func preempts(within, reclaim kueue.PreemptionPolicy) edit {
	return func(q *kueue.ClusterQueueSpec) {
		q.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
	}
}

func fungible(borrow, preempt kueue.FlavorFungibilityPolicy) edit {
	return func(q *kueue.ClusterQueueSpec) {
		q.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: borrow, WhenCanPreempt: preempt}
	}
}

func checked(names ...kueue.AdmissionCheckReference) edit {
	return func(q *kueue.ClusterQueueSpec) {
		q.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for _, n := range names {
			q.AdmissionChecksStrategy.AdmissionChecks = append(q.AdmissionChecksStrategy.AdmissionChecks, kueue.AdmissionCheckStrategyRule{Name: n})
		}
	}
}

func check(name string, active metav1.ConditionStatus) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{
		ObjectMeta: named(name),
		Status:     kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: active}}},
	}
}

func flavor(name string) *kueue.ResourceFlavor {
	f := &kueue.ResourceFlavor{ObjectMeta: named(name)}
	if name != "cpu" && name != "memory" {
		f.Spec.NodeLabels = map[string]string{"gpu": name}
	}
	return f
}

// job makes a Workload of namespace default with a podset a request, p0, p1, …, of one pod each. Devices are written as
// the charge is: into the overhead.
func job(name string, priority int32, requests ...string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.NewTime(start),
	}}
	w.Spec.Priority, w.Spec.QueueName = &priority, "lq"
	for i, r := range requests {
		p := kueue.PodSet{Name: kueue.PodSetReference(fmt.Sprint("p", i)), Count: 1}
		list := amounts(r)
		p.Template.Spec.Overhead = corev1.ResourceList{}
		if gpus, ok := list["gpus"]; ok {
			p.Template.Spec.Overhead["gpus"] = gpus
			delete(list, "gpus")
		}
		p.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}
		w.Spec.PodSets = append(w.Spec.PodSets, p)
	}
	return w
}

// steered lets a Workload's podsets go to these flavors only; none closes them all.
func steered(w *kueue.Workload, flavors ...string) *kueue.Workload {
	w = w.DeepCopy()
	e := corev1.NodeSelectorRequirement{Key: "gpu", Operator: corev1.NodeSelectorOpIn, Values: flavors}
	if len(flavors) == 0 {
		e.Values = []string{"none"}
	}
	for i := range w.Spec.PodSets {
		w.Spec.PodSets[i].Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{e}}},
			},
		}}
	}
	return w
}

// holding is a Workload that has held gpus of a flavor since so many minutes after the start.
func holding(name, queue string, priority int32, since int, flavor string, gpus int) *kueue.Workload {
	w := job(name, priority, fmt.Sprint("gpus=", gpus))
	w.Status.Admission = &kueue.Admission{
		ClusterQueue: kueue.ClusterQueueReference(queue),
		PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "p0", Count: new(int32(1)),
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpus": kueue.ResourceFlavorReference(flavor)},
			ResourceUsage: amounts(fmt.Sprint("gpus=", gpus)),
		}},
	}
	w.Status.Conditions = []metav1.Condition{{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(start.Add(time.Duration(since) * time.Minute)),
	}}
	return w
}

// everywhere are the namespace and the flavors that every world has.
func everywhere() []client.Object {
	out := []client.Object{&corev1.Namespace{ObjectMeta: named("default")}}
	for _, f := range []string{"h100", "a100", "l40", "cpu", "memory"} {
		out = append(out, flavor(f))
	}
	return out
}

func newBook(t testing.TB, c *config.Configuration, objects ...client.Object) *Book {
	t.Helper()
	b, err := New(Options{Configuration: c})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(everywhere(), objects...) {
		b.Apply(o, false)
	}
	return b
}

func (b *Book) snap(t testing.TB) *Snapshot {
	t.Helper()
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// picture is all that Kueue's code may have changed in a snapshot. Simulations that were taken back leave zeros, which
// nothing reads.
func picture(s *Snapshot) string {
	var out []string
	for n, q := range s.kueue.ClusterQueues() {
		for k := range q.Workloads {
			out = append(out, fmt.Sprint(n, " has ", k))
		}
		for fr, v := range q.ResourceNode.Usage {
			out = append(out, fmt.Sprint(n, fr, v))
		}
	}
	for n, c := range s.kueue.Cohorts() {
		for fr, v := range c.ResourceNode.Usage {
			out = append(out, fmt.Sprint("cohort ", n, fr, v))
		}
	}
	for n, why := range s.inactive {
		out = append(out, n+" "+why)
	}
	out = slices.DeleteFunc(out, func(l string) bool { return strings.HasSuffix(l, "} 0") })
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// in words: "Preempt p0×1[cpu→cpu gpus→h100] victims=[v(InClusterQueue)]".
func (a Answer) words() string {
	out := string(a.Mode)
	for _, p := range a.PodSets {
		var flavors []string
		for _, r := range slices.Sorted(maps.Keys(p.Flavors)) {
			flavors = append(flavors, fmt.Sprint(r, "→", p.Flavors[r]))
		}
		out += fmt.Sprintf(" %s×%d%v", p.Name, p.Count, flavors)
	}
	for _, v := range a.Victims {
		out += fmt.Sprintf(" -%s/%s(%s)", v.ClusterQueue, v.Name, v.Reason)
	}
	return out
}

func ask(t testing.TB, s *Snapshot, queue string, w *kueue.Workload) Answer {
	t.Helper()
	before := picture(s)
	a := s.Ask(context.Background(), Request{Workload: w, ClusterQueue: queue})
	if after := picture(s); after != before {
		t.Fatalf("asking changed the snapshot from\n%s\nto\n%s", before, after)
	}
	return a
}
