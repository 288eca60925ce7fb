package round

import (
	"fmt"
	"math/rand/v2"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/steering"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// TestRoundsComeToRest lets things happen at random, and after each has rounds run until one writes nothing: none may go on
// for ever, none may promise a device twice, and what is written is valid.
func TestRoundsComeToRest(t *testing.T) {
	promises := 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
			b := newBench(t, map[string]string{"h1": "h100", "h2": "h100", "a": "a100"}, func(cq *kueue.ClusterQueue, _ *v1alpha1.DevicePolicySpec) {
				cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse(fmt.Sprint(8 * r.IntN(4)))
				if cq.Spec.Preemption = nil; r.IntN(2) == 0 {
					cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
				}
			})
			at, strangers := 0, map[string]string{}
			for step := range 20 {
				switch r.IntN(6) {
				case 0, 1:
					priority := int32(r.IntN(3)) //nolint:gosec // small
					b.waits(fmt.Sprintf("wl-%d", step), func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To(priority) })
				case 2:
					node := []string{"h1", "h2", "a"}[r.IntN(3)]
					if name := strangers[node]; name != "" {
						b.goes(name)
						delete(strangers, node)
					} else if !b.promisedOn(node) {
						strangers[node] = fmt.Sprintf("stranger-%d", step)
						b.pod(strangers[node], node, r.IntN(8))
					}
				case 3:
					b.kueueTakes(r)
				case 4:
					b.kueueEvicts(r)
				case 5:
					at += r.IntN(30)
				}
				b.settle(at)
				promises += b.promisedOnce()
			}
		})
	}
	if promises == 0 {
		t.Error("nothing was ever promised")
	}
}

func (b *bench) all() []kueue.Workload {
	b.t.Helper()
	list := &kueue.WorkloadList{}
	b.must(b.Client.List(b.t.Context(), list))
	return list.Items
}

// kueueTakes has Kueue give one Workload that something is open to quota for it.
func (b *bench) kueueTakes(r *rand.Rand) {
	b.t.Helper()
	for _, wl := range b.all() {
		if of := flavors.AllowedOf(&wl); len(of) > 0 && wl.Status.Admission == nil && ptr.Deref(wl.Spec.Active, true) && r.IntN(2) == 0 {
			b.reserve(wl.Name, of[0])
			return
		}
	}
}

// kueueEvicts has Kueue take the quota of one Workload, and of all that are not active.
func (b *bench) kueueEvicts(r *rand.Rand) {
	b.t.Helper()
	done := false
	for _, wl := range b.all() {
		if wl.Status.Admission == nil || done && !steering.Deactivated(&wl) {
			continue
		}
		if done = true; r.IntN(2) == 0 || steering.Deactivated(&wl) {
			b.change(wl.Name, func(wl *kueue.Workload) {
				wl.Status.Admission, wl.Status.Conditions = nil, nil
				for i := range wl.Status.AdmissionChecks {
					wl.Status.AdmissionChecks[i].State, wl.Status.AdmissionChecks[i].PodSetUpdates = kueue.CheckStatePending, nil
				}
			})
		}
	}
}

// promisedOn says whether any device of a node is promised.
func (b *bench) promisedOn(node string) bool {
	b.t.Helper()
	list := &v1alpha1.PlacementList{}
	b.must(b.Client.List(b.t.Context(), list))
	for _, p := range list.Items {
		for _, ps := range p.Spec.PodSets {
			for _, n := range ps.Nodes {
				if n.Name == node {
					return true
				}
			}
		}
	}
	return false
}

// promisedOnce holds the promises against each other, and returns how many there are.
func (b *bench) promisedOnce() int {
	b.t.Helper()
	list, taken, n := &v1alpha1.PlacementList{}, map[string]string{}, 0
	b.must(b.Client.List(b.t.Context(), list))
	held := map[string]bool{}
	claims := &resourcev1.ResourceClaimList{}
	b.must(b.Client.List(b.t.Context(), claims))
	for _, c := range claims.Items {
		for _, d := range c.Status.Allocation.Devices.Results {
			held[d.Driver+"/"+d.Pool+"/"+d.Device] = true
		}
	}
	for _, p := range list.Items {
		for _, ps := range p.Spec.PodSets {
			n++
			for _, node := range ps.Nodes {
				for _, d := range node.Requests[0].Devices {
					if other := taken[d]; other != "" || held[d] {
						b.t.Errorf("%s is promised to %s and to %q, held by a stranger: %t", d, p.Name, other, held[d])
					}
					taken[d] = p.Name
				}
			}
		}
	}
	return n
}
