package quota

import (
	"strings"
	"testing"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestMessagesNameNoOtherWorkload: a message goes into the record of a tenant, who may not know who the others are.
func TestMessagesNameNoOtherWorkload(t *testing.T) {
	others := func(queues ...kueue.ClusterQueueReference) objects {
		var out objects
		for i, q := range queues {
			for j, name := range []string{"secret-one", "secret-two"} {
				w := holding(name, string(q), int32(j), 10*i+j, "h100", 4)
				w.Namespace = "secret-team"
				w.Spec.QueueName = "secret-queue"
				out = append(out, w)
			}
		}
		return out
	}
	worlds := map[string]objects{
		"a queue alone":            {queue("a", "", "gpus: h100=8 a100=2")},
		"one that preempts lower":  {queue("a", "", "gpus: h100=8", preempts(lower, never))},
		"a cohort":                 {queue("a", "co", "gpus: h100=4"), queue("b", "co", "gpus: h100=4")},
		"a cohort that reclaims":   {queue("a", "co", "gpus: h100=8", preempts(never, anybody)), queue("b", "co", "gpus: h100=0")},
		"a cohort with plenty":     {queue("a", "co", "gpus: h100=1"), queue("b", "co", "gpus: h100=40")},
		"without quota of its own": {queue("a", "co", "gpus: h100=0"), queue("b", "co", "gpus: h100=8")},
	}
	asked := map[Mode]int{}
	for name, world := range worlds {
		for _, c := range []*config.Configuration{nil, fair} {
			for _, gpus := range []string{"gpus=1", "gpus=4", "gpus=8", "gpus=9", "gpus=4 cpu=1"} {
				for _, holders := range []objects{others("a"), others("b"), others("a", "b")} {
					all := append(append(objects{}, world...), holders...)
					for _, priority := range []int32{0, 9} {
						s := newBook(t, c, all...).snap(t)
						for _, fitOnly := range []bool{true, false} {
							got := s.Ask(t.Context(), Request{Workload: job("w", priority, gpus), ClusterQueue: "a", FitOnly: fitOnly})
							if asked[got.Mode]++; strings.Contains(got.Message, "secret") {
								t.Errorf("%s, %s: %s %q", name, gpus, got.Mode, got.Message)
							}
						}
					}
				}
			}
		}
	}
	for _, m := range []Mode{Fit, Borrow, Preempt, Wait, NoFit} {
		if asked[m] == 0 {
			t.Errorf("no answer was %s", m)
		}
	}
}
