package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/workload"
)

// maxMessage is how long a message may be, in bytes.
const maxMessage = 1024

func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const more = "…"
	cut := maxMessage - len(more)
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + more
}

// refused says why Kueue's scheduler would not even look for quota, or nothing. It is what its nominate asks, in that order,
// and before that whether the LocalQueue lets the Workload through.
func (s *Snapshot) refused(ctx context.Context, r Request, info *workload.Info) string {
	w, name := info.Obj, r.ClusterQueue
	if q := s.stopped(w); q != nil {
		return fmt.Sprintf("LocalQueue %s is stopped", q.Name)
	}
	if workload.HasRetryChecks(w) || workload.HasRejectedChecks(w) {
		return "The workload has failed admission checks"
	}
	if why, ok := s.inactive[name]; ok {
		return fmt.Sprintf("ClusterQueue %s is inactive: %s", name, why)
	}
	queue := s.kueue.ClusterQueue(info.ClusterQueue)
	if queue == nil {
		return fmt.Sprintf("ClusterQueue %s does not exist", name)
	}
	namespace := &corev1.Namespace{}
	if err := s.reads.Get(ctx, types.NamespacedName{Name: w.Namespace}, namespace); err != nil {
		return fmt.Sprintf("Namespace %v", err)
	}
	if !queue.NamespaceSelector.Matches(labels.Set(namespace.Labels)) {
		return fmt.Sprintf("ClusterQueue %s does not take workloads of namespace %s", name, w.Namespace)
	}
	if errs := workload.ValidateResources(info); errs != nil {
		return "Resources are not valid: " + places(errs)
	}
	if errs := workload.ValidateLimitRange(ctx, s.reads, info); errs != nil {
		return "A LimitRange of the namespace forbids it: " + places(errs)
	}
	return ""
}

// places names fields and what is wrong with them. The values, which Kueue lists in map order, are left out.
func places(errs field.ErrorList) string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Detail)
	}
	return strings.Join(out, "; ")
}

// why says what keeps a Workload from fitting. It asks for one resource at a time: the assigner goes over resources in map
// order and stops at the first that is short, so that with two short ones its own message names either.
func (s *Snapshot) why(info *workload.Info) string {
	wanted := map[corev1.ResourceName]bool{}
	for _, p := range info.TotalRequests {
		for r := range p.Requests {
			wanted[r] = true
		}
	}
	queue := s.kueue.ClusterQueue(info.ClusterQueue)
	var parts []string
	names := slices.Sorted(maps.Keys(wanted))
	for _, r := range names {
		one := *info
		one.LastAssignment, one.TotalRequests = nil, slices.Clone(info.TotalRequests)
		for i := range one.TotalRequests {
			p := &one.TotalRequests[i]
			p.Requests = maps.Clone(p.Requests)
			maps.DeleteFunc(p.Requests, func(n corev1.ResourceName, _ int64) bool { return n != r })
			if r != corev1.ResourcePods {
				p.Count = 0 // the assigner asks for as many pods, where the queue counts them
			}
		}
		found := flavorassigner.New(&one, queue, s.kueue.ResourceFlavors, s.rules.fairly, noOracle{}, nil).Assign(silent, nil)
		if m := found.Message(); m != "" && !slices.Contains(parts, m) {
			parts = append(parts, m)
		}
	}
	if len(parts) == 0 {
		texts := make([]string, len(names))
		for i, n := range names {
			texts[i] = string(n)
		}
		return "No flavor has room for all of " + strings.Join(texts, ", ") + " together"
	}
	return strings.Join(parts, "; ")
}
