package admission

import (
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
	"k8s.io/utils/ptr"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
	"github.com/plimsoll-dev/plimsoll/pkg/quota"
)

// market is a world with Kueue in it: ClusterQueue cq and its neighbour next, in one cohort.
type market struct {
	*world
	kueue *quota.Book
	// cq is the queue that the waiters wait in.
	cq *kueue.ClusterQueue
}

func newMarket(t testing.TB, nominal string, edits ...func(*kueue.ClusterQueue)) *market {
	t.Helper()
	book, err := quota.New(quota.Options{Configuration: &config.Configuration{}})
	if err != nil {
		t.Fatal(err)
	}
	m := &market{world: newWorld().at(-1000), kueue: book}
	m.kueue.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, false)
	for _, f := range []string{"h100", "a100", "other"} {
		m.kueue.Apply(resourceFlavor(f), false)
	}
	return m.queue("cq", nominal, edits...)
}

func resourceFlavor(name string) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor-" + name: "true"}}}
}

// queue adds a ClusterQueue of the cohort with so much nominal quota, such as "h100=8 a100=8".
func (m *market) queue(name, nominal string, edits ...func(*kueue.ClusterQueue)) *market {
	q := clusterQueue(name, nominal)
	for _, e := range edits {
		e(q)
	}
	m.kueue.Apply(q, false)
	if name == "cq" {
		m.cq = q
	}
	return m
}

func clusterQueue(name, nominal string) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{CohortName: "all", NamespaceSelector: &metav1.LabelSelector{}}}
	g := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"gpus"}}
	for _, part := range strings.Fields(nominal) {
		flavor, n, _ := strings.Cut(part, "=")
		g.Flavors = append(g.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceQuota{{Name: "gpus", NominalQuota: resource.MustParse(n)}}})
	}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{g}
	return q
}

func preemptsLower(q *kueue.ClusterQueue) {
	q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

func (m *market) with(models map[string]string) *market {
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m.node(name, models[name], nil)
	}
	return m
}

// uses has a Workload of a queue hold quota of a flavor, and devices of a node; without devices quota alone.
func (m *market) uses(queue, flavor, node string, priority int32, gpus int64, devices ...int) *market {
	name := fmt.Sprintf("holder-%s-%d", node, gpus)
	if len(devices) > 0 {
		m.held(node, true, false, devices...)
		name = fmt.Sprintf("holder-%s-%d", node, devices[0])
	}
	m.kueue.Apply(reservation(name, queue, flavor, priority, gpus), false)
	return m
}

func reservation(name, queue, flavor string, priority int32, gpus int64) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: name, UID: types.UID("wl-" + name)}}
	wl.Spec.Priority = ptr.To(priority)
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"gpus": kueue.ResourceFlavorReference(flavor)},
		ResourceUsage: corev1.ResourceList{"gpus": *resource.NewQuantity(gpus, resource.DecimalSI)}}}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}
	return wl
}

func choicePolicy(t testing.TB, change func(*v1alpha1.DevicePolicySpec)) *flavors.Policy {
	t.Helper()
	dp := &v1alpha1.DevicePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.DevicePolicySpec{QuotaResource: "gpus", Ordering: v1alpha1.OrderingPack}}
	for _, name := range []string{"h100", "a100", "other"} {
		dp.Spec.Flavors = append(dp.Spec.Flavors, v1alpha1.PolicyFlavor{Name: name, Selectors: modelSelector(name)})
	}
	p, problems := flavors.Resolve(dp, resourceFlavor)
	if len(problems) > 0 {
		t.Fatalf("policy: %v", problems)
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// waiter makes the Workload that asks for podsets, with a Request at so many seconds after noon.
func (m *market) waiter(p *flavors.Policy, name string, now int, podSets ...PodSet) *Waiter {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	wl.Spec.Priority = ptr.To(int32(100))
	for i := range podSets {
		ps := &podSets[i]
		spec := ps.Spec.DeepCopy()
		for _, c := range ps.Shape.Claims {
			spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: c.Name, ResourceClaimTemplateName: ptr.To(c.Template)})
		}
		asked := kueue.PodSet{Name: kueue.PodSetReference(ps.Name), Count: ps.Count, Template: corev1.PodTemplateSpec{Spec: *spec}}
		if ps.MinCount > 0 {
			asked.MinCount = &ps.MinCount
		}
		wl.Spec.PodSets = append(wl.Spec.PodSets, asked)
	}
	return &Waiter{
		Request:  &Request{Now: after(now), Policy: p, Namespace: "team", PodSets: podSets, EveryFlavor: true},
		Workload: wl, ClusterQueue: m.cq, Lookup: resourceFlavor,
	}
}

func (m *market) snap(t testing.TB) *quota.Snapshot {
	t.Helper()
	s, err := m.kueue.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wordsOf puts a Choice into one line: the set with its charge, the offer, waits, victims, reason, and when it changes by itself.
func wordsOf(c Choice) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.Plan.AllowedFor)) {
		if of := c.Plan.AllowedFor[name]; len(of) > 0 {
			out = append(out, fmt.Sprintf("%s=%s@%d", name, strings.Join(of, "|"), c.Plan.Charge[name]))
		}
	}
	if len(out) == 0 {
		out = append(out, "closed")
	}
	if c.Offer != nil {
		out = append(out, string(c.Offer.Mode))
	}
	if len(c.Waits) > 0 {
		out = append(out, "waits="+strings.Join(c.Waits, "|"))
	}
	for _, v := range c.Victims {
		out = append(out, "victim="+string(v.UID))
	}
	if c.Decision.Verdict != v1alpha1.VerdictWait {
		out = append(out, string(c.Decision.Verdict))
	}
	if c.Decision.Reason != "" {
		out = append(out, string(c.Decision.Reason))
	}
	if u := c.Decision.Until; !u.IsZero() {
		out = append(out, "until="+u.Sub(noon).Truncate(time.Second).String())
	}
	return strings.Join(out, " ")
}

// standingsOf puts the standings into one line: the physical half and Kueue's.
func standingsOf(c Choice) string {
	var out []string
	for _, s := range c.Decision.Standings {
		name := s.Flavor
		if s.Alternative != "" {
			name = s.Alternative + ":" + name
		}
		out = append(out, fmt.Sprintf("%s=%s/%s", name, s.Standing, s.Quota))
	}
	return strings.Join(out, " ")
}

// timesOf reads pairs of a flavor and seconds after noon.
func timesOf(pairs []any) map[string]time.Time {
	out := map[string]time.Time{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = after(pairs[i+1].(int))
	}
	return out
}

// wedge cordons a node, as foreign use would.
func (m *market) wedge(node string) *market {
	m.held(node, false, false, 0)
	return m
}

func (m *market) lost(node string, at int) *market {
	m.at(at).loses(node)
	return m
}

func (m *market) ending(node string, device, seconds int) *market {
	m.ends(node, device, seconds)
	return m
}

// seen has another node come just now.
func (m *market) seen(t *testing.T) *market {
	t.Helper()
	m.at(0).node("z", "h100:2", nil)
	return m
}
