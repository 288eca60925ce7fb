package quota

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// State names all that answers about a ClusterQueue's Workloads depend on, beside the Workload: as long as it is the same, also
// in another copy of the same book, the same question has the same answer. Empty where that cannot be told.
func (s *Snapshot) State(clusterQueue string) string {
	root, known := s.roots[clusterQueue]
	if !known {
		return ""
	}
	return s.states[root]
}

// Told returns what an answer says, without what Take needs.
func (a Answer) Told() Answer {
	a.targets, a.taken = nil, nil
	return a
}

// turn counts a change. Queues that no cache was built with yet count as every root's.
func (b *Book) turn(k kind, old, now client.Object) {
	if k != kindWorkload {
		b.all++
		return
	}
	for _, o := range []client.Object{old, now} {
		if o == nil {
			continue
		}
		root, known := b.roots[string(o.(*kueue.Workload).Status.Admission.ClusterQueue)]
		if !known {
			b.all++
			continue
		}
		if b.turns == nil {
			b.turns = map[string]int64{}
		}
		b.turns[root]++
	}
}

// rootsOf returns the root cohort of every ClusterQueue, or "/" and its name where it has no cohort or one without a root.
func (b *Book) rootsOf() map[string]string {
	roots := map[string]string{}
	for name, o := range b.objects[kindClusterQueue] {
		cohort := o.(*kueue.ClusterQueue).Spec.CohortName
		if cohort == "" || b.inCycle(cohort) {
			roots[name] = "/" + name
			continue
		}
		for {
			c, ok := b.objects[kindCohort][string(cohort)].(*kueue.Cohort)
			if !ok || c.Spec.ParentName == "" {
				break
			}
			cohort = c.Spec.ParentName
		}
		roots[name] = string(cohort)
	}
	return roots
}

func (b *Book) states() map[string]string {
	states := map[string]string{}
	for _, root := range slices.Collect(maps.Values(b.roots)) {
		states[root] = fmt.Sprintf("%d %d %s", b.all, b.turns[root], root)
	}
	return states
}

// takeState names the state after an answer was taken: taken again after the same changes, it is the same.
func (s *Snapshot) takeState(a *Answer) {
	root, known := s.roots[string(a.taken.ClusterQueue)]
	if !known {
		return
	}
	raw, err := json.Marshal(a.taken.Obj)
	if err != nil { // it came as JSON
		delete(s.states, root)
		return
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d\n%s\n", s.states[root], s.takes, raw)
	for _, t := range a.targets {
		fmt.Fprintf(h, "%s\n", t.WorkloadInfo.Obj.UID)
	}
	s.states[root] = string(h.Sum(nil))
}
