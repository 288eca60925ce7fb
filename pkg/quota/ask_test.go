package quota

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

type objects = []client.Object

type question struct {
	config  *config.Configuration
	world   objects
	ask     *kueue.Workload // in ClusterQueue a
	want    string
	message string // part of it
	refused bool
}

func (q question) run(t *testing.T) {
	t.Helper()
	for range 10 { // Kueue's maps are walked in another order each time
		got := ask(t, newBook(t, q.config, q.world...).snap(t), "a", q.ask)
		if words := got.words(); words != q.want {
			t.Fatalf("got  %s %q\nwant %s", words, got.Message, q.want)
		}
		if got.Refused != q.refused {
			t.Fatalf("refused is %t, want %t", got.Refused, q.refused)
		}
		if !got.Final {
			t.Fatal("an answer with victims looked for is not final")
		}
		if q.message == "" && got.Message != "" && (got.Mode == Fit || got.Mode == Borrow) || !strings.Contains(got.Message, q.message) {
			t.Fatalf("message %q, want %q", got.Message, q.message)
		}
	}
}

func TestModes(t *testing.T) {
	siblings := func(x, y string) objects { return objects{queue("a", "co", x), queue("b", "co", y)} }
	cases := map[string]question{
		"free quota fits": {
			world: objects{queue("a", "", "gpus: h100=8 a100=8;cpu: cpu=10")}, ask: job("w", 0, "gpus=8 cpu=2"),
			want: "Fit p0×1[cpu→cpu gpus→h100]",
		},
		"a charge in overhead counts for every pod": {
			world: objects{queue("a", "", "gpus: h100=8 a100=16")},
			ask: func() *kueue.Workload {
				w := job("w", 0, "gpus=4")
				w.Spec.PodSets[0].Count = 3
				return w
			}(),
			want: "Fit p0×3[gpus→a100]",
		},
		"podsets add up": {
			world: objects{queue("a", "", "gpus: h100=8 a100=8")}, ask: job("w", 0, "gpus=6", "gpus=6"),
			want: "Fit p0×1[gpus→h100] p1×1[gpus→a100]",
		},
		"more than the queue's own is borrowed": {
			world: siblings("gpus: h100=4", "gpus: h100=4"), ask: job("w", 0, "gpus=6"), want: "Borrow p0×1[gpus→h100]",
		},
		"a borrowing limit is not exceeded": {
			world: siblings("gpus: h100=4/1", "gpus: h100=4"), ask: job("w", 0, "gpus=6"),
			want: "NoFit", message: "insufficient quota for gpus in flavor h100",
		},
		"a lending limit is not exceeded": {
			world: siblings("gpus: h100=4", "gpus: h100=4//1"), ask: job("w", 0, "gpus=6"), want: "NoFit",
		},
		"more than the quota never fits": {
			world: objects{queue("a", "", "gpus: h100=8")}, ask: job("w", 0, "gpus=9"),
			want: "NoFit", message: "(9) > maximum capacity (8)",
		},
		"quota in use and nobody to preempt waits": {
			world: objects{queue("a", "", "gpus: h100=8"), holding("v", "a", 0, 1, "h100", 6)}, ask: job("w", 9, "gpus=4"),
			want: "Wait p0×1[gpus→h100]", message: "insufficient unused quota for gpus in flavor h100, 2 more needed",
		},
		"lower priority in the queue is preempted, the newest first": {
			world: objects{
				queue("a", "", "gpus: h100=8", preempts(lower, never)),
				holding("old", "a", 0, 1, "h100", 4), holding("new", "a", 0, 2, "h100", 4),
			},
			ask: job("w", 9, "gpus=4"), want: "Preempt p0×1[gpus→h100] -a/new(InClusterQueue)",
		},
		"equal priority is not preempted": {
			world: objects{queue("a", "", "gpus: h100=8", preempts(lower, never)), holding("v", "a", 9, 1, "h100", 8)},
			ask:   job("w", 9, "gpus=4"), want: "Wait p0×1[gpus→h100]",
		},
		"nominal quota that is lent is reclaimed": {
			world: append(objects{queue("a", "co", "gpus: h100=8", preempts(never, anybody)), queue("b", "co", "gpus: h100=8")},
				holding("b1", "b", 9, 1, "h100", 8), holding("b2", "b", 9, 2, "h100", 4)),
			ask: job("w", 0, "gpus=8"), want: "Preempt p0×1[gpus→h100] -b/b2(InCohortReclamation)",
		},
		"under fair sharing the larger share gives": {
			config: fair,
			world: objects{
				cohort("co", "", group("gpus: h100=8")),
				queue("a", "co", "gpus: h100=0", preempts(never, anybody)), queue("b", "co", "gpus: h100=0"),
				holding("b1", "b", 0, 1, "h100", 4), holding("b2", "b", 0, 2, "h100", 4),
			},
			ask: job("w", 0, "gpus=4"), want: "Preempt p0×1[gpus→h100] -b/b2(InCohortFairSharing)",
		},
		"quota of the cohort's parent is lent through two levels": {
			world: objects{cohort("root", "", group("gpus: h100=8")), cohort("co", "root"), queue("a", "co", "gpus: h100=0")},
			ask:   job("w", 0, "gpus=8"), want: "Borrow p0×1[gpus→h100]",
		},
		"what would be borrowed is in use, and nobody may be preempted for borrowing": {
			world: objects{
				cohort("root", "", group("gpus: h100=8")), cohort("co", "root"), cohort("co2", "root"),
				queue("a", "co", "gpus: h100=0"), queue("b", "co2", "gpus: h100=0"), holding("b1", "b", 0, 1, "h100", 8),
			},
			ask: job("w", 0, "gpus=8"), want: "NoFit", message: "insufficient unused quota for gpus in flavor h100, 8 more needed",
		},
		"a podset with minCount takes what fits": {
			world: objects{queue("a", "", "gpus: h100=8")},
			ask: func() *kueue.Workload {
				w := job("w", 0, "gpus=2")
				w.Spec.PodSets[0].Count, w.Spec.PodSets[0].MinCount = 6, new(int32(1))
				return w
			}(),
			want: "Fit p0×4[gpus→h100]",
		},
		"three short resources are all named": {
			world: objects{queue("a", "", "gpus: h100=8;cpu: cpu=10;memory: memory=10Gi")},
			ask:   job("w", 0, "gpus=9 cpu=11 memory=11Gi"),
			want:  "NoFit", message: "(11) > maximum capacity (10); couldn't assign flavors to pod set p0: insufficient quota for gpus",
		},
		"resources that fit on no flavor together are said so": {
			world: objects{func() *kueue.ClusterQueue {
				q := queue("a", "", "gpus,cpu: h100=8 a100=8")
				q.Spec.ResourceGroups[0].Flavors[0].Resources[1].NominalQuota = amounts("cpu=1")["cpu"]
				q.Spec.ResourceGroups[0].Flavors[1].Resources[0].NominalQuota = amounts("gpus=1")["gpus"]
				return q
			}()},
			ask: job("w", 0, "gpus=8 cpu=8"), want: "NoFit", message: "No flavor has room for all of cpu, gpus together",
		},
		"a resource that no group covers is named": {
			world: objects{queue("a", "", "cpu: cpu=8")}, ask: job("w", 0, "gpus=1"),
			want: "NoFit", message: "resource gpus unavailable in ClusterQueue",
		},
	}
	for name, c := range cases {
		t.Run(name, c.run)
	}
}

func TestSteering(t *testing.T) {
	world := objects{queue("a", "", "gpus: h100=8 a100=8 l40=8;cpu: cpu=10")}
	full := append(objects{queue("a", "", "gpus: h100=8 a100=8", preempts(lower, never))}, holding("v", "a", 0, 1, "h100", 8))
	stop := append(objects{queue("a", "", "gpus: h100=8 a100=8", preempts(lower, never), fungible(kueue.MayStopSearch, kueue.MayStopSearch))},
		holding("v", "a", 0, 1, "h100", 8))
	borrows := func(p kueue.FlavorFungibilityPolicy) objects {
		return objects{queue("a", "co", "gpus: h100=4 a100=8", fungible(p, kueue.TryNextFlavor)), queue("b", "co", "gpus: h100=4 a100=0")}
	}
	cases := map[string]question{
		"a closed affinity fits nowhere": {
			world: world, ask: steered(job("w", 0, "gpus=1 cpu=1")), want: "NoFit", message: "flavor a100 doesn't match node affinity",
		},
		"only allowed flavors are looked at, in the queue's order": {
			world: world, ask: steered(job("w", 0, "gpus=8 cpu=1"), "l40", "a100"), want: "Fit p0×1[cpu→cpu gpus→a100]",
		},
		"an allowed flavor that is used up is waited for": {
			world: full, ask: steered(job("w", 0, "gpus=8"), "h100"), want: "Wait p0×1[gpus→h100]",
		},
		"by default the next flavor is taken before anybody is preempted": {
			world: full, ask: job("w", 9, "gpus=8"), want: "Fit p0×1[gpus→a100]",
		},
		"whenCanPreempt may stop the search": {
			world: stop, ask: job("w", 9, "gpus=8"), want: "Preempt p0×1[gpus→h100] -a/v(InClusterQueue)",
		},
		"by default borrowing stops the search": {
			world: borrows(kueue.MayStopSearch), ask: job("w", 0, "gpus=8"), want: "Borrow p0×1[gpus→h100]",
		},
		"whenCanBorrow may try the next flavor": {
			world: borrows(kueue.TryNextFlavor), ask: job("w", 0, "gpus=8"), want: "Fit p0×1[gpus→a100]",
		},
		"a flavor with a topology is asked about its quota only": {
			world: objects{
				queue("a", "", "gpus: h100=8"),
				&kueue.ResourceFlavor{ObjectMeta: named("h100"), Spec: kueue.ResourceFlavorSpec{
					NodeLabels: map[string]string{"gpu": "h100"}, TopologyName: new(kueue.TopologyReference("racks")),
				}},
			},
			ask: func() *kueue.Workload {
				w := job("w", 0, "gpus=8")
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("rack")}
				return w
			}(),
			want: "Fit p0×1[gpus→h100]",
		},
	}
	for name, c := range cases {
		t.Run(name, c.run)
	}
}

func TestRefusals(t *testing.T) {
	stopped := func(q *kueue.ClusterQueueSpec) { q.StopPolicy = new(kueue.Hold) }
	ending := queue("a", "", "gpus: h100=8")
	ending.DeletionTimestamp = &metav1.Time{Time: start}
	cases := map[string]question{
		"a queue that nobody knows": {ask: job("w", 0, "gpus=1"), message: "ClusterQueue a does not exist"},
		"a queue whose check is not active": {
			world: objects{queue("a", "", "gpus: h100=8", checked("ledger", "other")), check("ledger", "False"), check("other", "True")},
			ask:   job("w", 0, "gpus=1"), message: "ClusterQueue a is inactive: Can't admit new workloads: references inactive AdmissionCheck(s): ledger.",
		},
		"a queue whose check is missing": {
			world: objects{queue("a", "", "gpus: h100=8", checked("ledger"))},
			ask:   job("w", 0, "gpus=1"), message: "references missing AdmissionCheck(s): ledger",
		},
		"a queue that is stopped": {
			world: objects{queue("a", "", "gpus: h100=8", stopped)}, ask: job("w", 0, "gpus=1"), message: "is stopped",
		},
		"a queue that is being deleted": {world: objects{ending}, ask: job("w", 0, "gpus=1"), message: "clusterQueue is terminating"},
		"a queue whose flavor is missing": {
			world: objects{queue("a", "", "gpus: b200=8")}, ask: job("w", 0, "gpus=1"), message: "references missing ResourceFlavor(s): b200",
		},
		"a queue under cohorts in a cycle": {
			world: objects{queue("a", "x", "gpus: h100=8"), cohort("x", "y"), cohort("y", "x"), holding("v", "a", 0, 1, "h100", 4)},
			ask:   job("w", 0, "gpus=1"), message: "cohort x is in a cycle of cohorts",
		},
		"a queue below cohorts in a cycle": {
			world: objects{queue("a", "low", "gpus: h100=8"), cohort("low", "x"), cohort("x", "x"), holding("v", "a", 0, 1, "h100", 4)},
			ask:   job("w", 0, "gpus=1"), message: "cohort low is in a cycle of cohorts",
		},
		"a queue with a selector that cannot be read": {
			world: objects{queue("a", "", "gpus: h100=8", func(q *kueue.ClusterQueueSpec) {
				q.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}
			})},
			ask: job("w", 0, "gpus=1"), message: "ClusterQueue a is inactive",
		},
		"a stopped LocalQueue": {
			world: objects{queue("a", "", "gpus: h100=8"), &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}, Spec: kueue.LocalQueueSpec{StopPolicy: new(kueue.Hold)},
			}},
			ask: job("w", 0, "gpus=1"), message: "LocalQueue lq is stopped",
		},
		"a namespace that the queue does not take": {
			world: objects{queue("a", "", "gpus: h100=8", func(q *kueue.ClusterQueueSpec) {
				q.NamespaceSelector.MatchLabels = map[string]string{"team": "a"}
			})},
			ask: job("w", 0, "gpus=1"), message: "does not take workloads of namespace default",
		},
		"a container below the namespace's least": {
			world: objects{queue("a", "", "cpu,memory: cpu=8Gi"), &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "least"},
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
					Type: corev1.LimitTypeContainer, Min: amounts("cpu=2 memory=2Gi"),
				}}},
			}},
			ask:     job("w", 0, "cpu=1 memory=1Gi"),
			message: "A LimitRange of the namespace forbids it: spec.podSets[0].template.spec.containers[0]: requests must not be below",
		},
		"a check that asks for a retry": {
			world: objects{queue("a", "", "gpus: h100=8")},
			ask: func() *kueue.Workload {
				w := job("w", 0, "gpus=1")
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "x", State: kueue.CheckStateRetry}}
				return w
			}(),
			message: "failed admission checks",
		},
	}
	for name, c := range cases {
		c.want, c.refused = "NoFit", true
		t.Run(name, c.run)
	}
}

func TestDefaultsOfTheNamespace(t *testing.T) {
	inRange := func(o metav1.ObjectMeta, item corev1.LimitRangeItem) client.Object {
		item.Type = corev1.LimitTypeContainer
		return &corev1.LimitRange{ObjectMeta: o, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	}
	sandboxed := func(overhead string) *kueue.Workload {
		w := job("w", 0, "cpu=1")
		w.Spec.PodSets[0].Template.Spec.RuntimeClassName = new("sandbox")
		w.Spec.PodSets[0].Template.Spec.Overhead = amounts(overhead)
		return w
	}
	class := &nodev1.RuntimeClass{ObjectMeta: named("sandbox"), Overhead: &nodev1.Overhead{PodFixed: amounts("cpu=2")}}
	of := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "defaults"}
	}
	cases := map[string]question{
		"a LimitRange's default request counts": {
			world: objects{queue("a", "", "cpu: cpu=2"), inRange(of("default"), corev1.LimitRangeItem{DefaultRequest: amounts("cpu=3")})},
			ask:   job("w", 0, ""), want: "NoFit", message: "insufficient quota for cpu",
		},
		"that of another namespace does not": {
			world: objects{queue("a", "", "cpu: cpu=2"), inRange(of("other"), corev1.LimitRangeItem{DefaultRequest: amounts("cpu=3")})},
			ask:   job("w", 0, ""), want: "Fit p0×1[]",
		},
		"a runtime class adds its overhead": {
			world: objects{queue("a", "", "cpu: cpu=2"), class}, ask: sandboxed(""), want: "NoFit", message: "insufficient quota for cpu",
		},
		"but not where there is a charge": {
			world: objects{queue("a", "", "cpu: cpu=2;gpus: h100=8"), class}, ask: sandboxed("gpus=1"), want: "Fit p0×1[cpu→cpu gpus→h100]",
		},
		"an excluded prefix is not counted": {
			config: &config.Configuration{Resources: &config.Resources{ExcludeResourcePrefixes: []string{"example.com/"}}},
			world:  objects{queue("a", "", "cpu: cpu=2")}, ask: job("w", 0, "cpu=1 example.com/nic=1"), want: "Fit p0×1[cpu→cpu]",
		},
		"a transformed resource is counted under its new name": {
			config: &config.Configuration{Resources: &config.Resources{Transformations: []config.ResourceTransformation{{
				Input: "example.com/gpu", Strategy: new(config.Replace), Outputs: amounts("gpus=7"),
			}}}},
			world: objects{queue("a", "", "gpus: h100=13 a100=14")}, ask: job("w", 0, "example.com/gpu=2"), want: "Fit p0×1[gpus→a100]",
		},
	}
	for name, c := range cases {
		t.Run(name, c.run)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	world, groups := objects{}, "gpus:"
	for i := range 64 {
		name := fmt.Sprint("ein-ziemlich-langer-name-für-ein-modell-", i)
		world, groups = append(world, flavor(name)), groups+" "+name+"=1"
	}
	first := ""
	for range 5 {
		got := ask(t, newBook(t, nil, append(world, queue("a", "", groups))...).snap(t), "a", job("w", 0, "gpus=2"))
		if got.Mode != NoFit || len(got.Message) > maxMessage || len(got.Message) < maxMessage-8 || !utf8.ValidString(got.Message) ||
			!strings.HasSuffix(got.Message, "…") {
			t.Fatalf("%d bytes: %q", len(got.Message), got.Message)
		}
		if first == "" {
			first = got.Message
		}
		if got.Message != first {
			t.Errorf("first %q, then %q", first, got.Message)
		}
	}
}

func TestVictims(t *testing.T) {
	v := holding("v", "a", 0, 1, "h100", 8)
	v.UID = "the-uid"
	got := ask(t, newBook(t, nil, queue("a", "", "gpus: h100=8", preempts(lower, never)), v).snap(t), "a", job("w", 9, "gpus=1")).Victims
	want := []Victim{{UID: "the-uid", Namespace: "default", Name: "v", ClusterQueue: "a", Reason: "InClusterQueue"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
