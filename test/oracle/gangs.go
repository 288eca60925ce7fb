package oracle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/test/oracle/world"
)

// GangSummary is what came of gangs.
type GangSummary struct {
	// Worlds is how many were looked at; in Placed of them the gang has a place, of Pods pods together, of which Cut have claims.
	Worlds, Placed, Pods, Cut, Undecided, Disagreements int
}

// String returns it as a line.
func (s GangSummary) String() string {
	return fmt.Sprintf("%d gangs: %d placed (%d %%) with %d pods, %d of them with claims of their own; %d undecided, %d disagreements",
		s.Worlds, s.Placed, 100*s.Placed/max(1, s.Worlds), s.Pods, s.Cut, s.Undecided, s.Disagreements)
}

// told is a gang that was decided on, and that kube-scheduler was told of if it was placed.
type told struct {
	world   *world.World
	decided *decided
}

// AgreeGangs has admission place a gang in the world of each seed, and the real kube-scheduler bind its pods one after another,
// each as the manager releases it: to its node, and with its devices. Each disagreement is written down with its seed.
func AgreeGangs(ctx context.Context, out io.Writer, seeds Seeds) (GangSummary, error) {
	fmt.Fprintf(out, "gangs of seeds %d to %d\n", seeds.First, seeds.First+seeds.Count-1)
	var sum GangSummary
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := Start(ctx)
	if err != nil {
		return sum, err
	}
	list := make(chan *told, 16)
	var telling error
	go func() {
		defer close(list)
		telling = tellGangs(ctx, s, seeds, list)
	}()
	for t := range list {
		seed := seeds.First + uint64(sum.Worlds)
		sum.Worlds++
		if seeds.Count == 1 {
			fmt.Fprintf(out, "%s\npromised: %+v\n", t.world, t.decided.podSets)
		}
		if t.decided.why != "" {
			if strings.HasPrefix(t.decided.why, string(v1alpha1.ReasonUndecided)+":") {
				sum.Undecided++
			}
			if seeds.Count == 1 {
				fmt.Fprintf(out, "not placed: %s\n", t.decided.why)
			}
			continue
		}
		sum.add(t.decided)
		answer, err := s.Answer()
		var no string
		if err == nil {
			no, err = gangDisagreement(t.decided, &answer)
		}
		if err != nil {
			cancel()
			return sum, errors.Join(fmt.Errorf("seed %d: %w", seed, err), s.Close())
		}
		if seeds.Count == 1 {
			fmt.Fprintf(out, "kube-scheduler: %+v\n", answer)
		}
		if no == "" {
			continue
		}
		sum.Disagreements++
		fmt.Fprintf(out, "gang of seed %d: %s\n", seed, no)
		if seeds.Stop {
			cancel()
			_ = s.Close() // it was stopped
			return sum, nil
		}
	}
	return sum, errors.Join(telling, s.Close())
}

func (s *GangSummary) add(d *decided) {
	s.Placed++
	s.Pods += len(d.slots)
	if len(d.slots[0].claims) > 0 {
		s.Cut += len(d.slots)
	}
}

// tellGangs decides on the gangs of seeds, and tells a scheduler of those that have a place.
func tellGangs(ctx context.Context, s *Scheduler, seeds Seeds, list chan<- *told) error {
	for i := range seeds.Count {
		w, g := world.MakeGang(seeds.First + i)
		d, err := decide(ctx, w, g)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seeds.First+i, err)
		}
		if d.why == "" {
			for _, slot := range d.slots {
				w.Gang, w.Claims = append(w.Gang, slot.pod), append(w.Claims, slot.claims...)
			}
			if err := s.Tell(w); err != nil {
				return err
			}
		}
		select {
		case list <- &told{w, d}:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
