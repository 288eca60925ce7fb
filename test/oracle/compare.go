package oracle

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// Result is what the two sides answered to one world.
type Result struct {
	World                *world.World
	Scheduler, Predicted world.Answer
	// Disagreement says what they do not agree on; empty where they agree.
	Disagreement string
	// GaveUp says that the search for devices took admission too many steps; it can take any allocator ages.
	GaveUp bool
}

// Compare asks both sides about worlds, at the same time, and yields what they answered, in order. An error is the oracle's
// own, and the last that is yielded.
func Compare(ctx context.Context, worlds iter.Seq[*world.World]) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := Start(ctx)
		if err != nil {
			yield(Result{}, err)
			return
		}
		told := make(chan *world.World, 16)
		var telling error
		go func() {
			defer close(told)
			for w := range worlds {
				if telling = s.Tell(w); telling != nil {
					return
				}
				select {
				case told <- w:
				case <-ctx.Done():
					return
				}
			}
		}()
		p := NewPredictor()
		for w := range told {
			r := Result{World: w}
			if r.Predicted, err = p.Predict(ctx, w); err == nil {
				r.Scheduler, err = s.Answer()
			}
			r.GaveUp = strings.HasPrefix(r.Predicted.Why, string(v1alpha1.ReasonUndecided)+":")
			r.Disagreement = disagreement(&r)
			if err != nil {
				err = errors.Join(err, s.Close())
			}
			if !yield(r, err) || err != nil {
				cancel()
				_ = s.Close() // it was stopped
				return
			}
		}
		if err := errors.Join(telling, s.Close()); err != nil {
			yield(Result{}, err)
		}
	}
}

// disagreement compares the answers: whether the pod fits, and if so what its claims are given and take. Where predictions are
// unsure, kube-scheduler itself may say this or that: then they may say no where it says yes, and what is given is chance.
func disagreement(r *Result) string {
	s, p := &r.Scheduler, &r.Predicted
	switch {
	case r.GaveUp:
		return ""
	case p.Unsure && !unsure(r.World):
		return "the prediction is unsure, and there is no reason to be: " + p.Quirk
	case p.Unsure && !p.Fits:
		return ""
	case s.Fits && !p.Fits:
		return "kube-scheduler takes the pod; predicted was: " + p.Why
	case !s.Fits && p.Fits:
		return "predicted was that the pod fits; kube-scheduler says: " + s.Why
	case !s.Fits || p.Unsure:
		return ""
	}
	if diff := cmp.Diff(s.Devices, p.Devices); diff != "" {
		return "other devices (- kube-scheduler, + predicted):\n" + diff
	}
	if diff := cmp.Diff(s.Mapped, p.Mapped); diff != "" {
		return "other amounts (- kube-scheduler, + predicted):\n" + diff
	}
	return ""
}

// unsure says whether kube-scheduler may itself come to different answers. It looks up what a device maps to by the names of
// its pool and its own alone, and takes the first that it finds, in no order. And of two classes for one extended resource it
// may or may not know the one that it prefers less by that one's own name as well, as it saw them. And where slices of a pool
// do not agree on how many there are, it believes the first that it sees.
func unsure(w *world.World) bool {
	type name struct{ pool, device string }
	seen := map[name]map[corev1.ResourceName]resourcev1.NodeAllocatableResourceMapping{}
	for _, s := range w.Slices {
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			n := name{s.Spec.Pool.Name, d.Name}
			before, known := seen[n]
			if known && !apiequality.Semantic.DeepEqual(before, d.NodeAllocatableResourceMappings) {
				return true
			}
			seen[n] = d.NodeAllocatableResourceMappings
		}
	}
	counts := map[resourcev1.ResourcePool]int64{}
	for _, s := range w.Slices {
		p := s.Spec.Pool
		p.Name, p.ResourceSliceCount = s.Spec.Driver+"/"+p.Name, 0
		if n, known := counts[p]; known && n != s.Spec.Pool.ResourceSliceCount {
			return true
		}
		counts[p] = s.Spec.Pool.ResourceSliceCount
	}
	serves := map[string]bool{}
	for _, c := range w.Classes {
		if name := c.Spec.ExtendedResourceName; name != nil {
			if serves[*name] {
				return true
			}
			serves[*name] = true
		}
	}
	return false
}
