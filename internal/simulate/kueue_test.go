package simulate

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/util/wait"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	"github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

// read reads a file of testdata.
func read(t *testing.T, name string) *input.Input {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	in, err := input.Read([]input.File{{Name: name, Data: data}}, input.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// outcomes are what Jobs came to and when they were admitted and had finished, by name.
func outcomes(r *simulate.Result) map[string]string {
	out := map[string]string{}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		text := string(w.Outcome)
		for _, c := range []*report.Clock{w.AdmittedAt, w.FinishedAt} {
			if c != nil {
				text += " " + c.String()
			}
		}
		out[w.Name] = text
	}
	return out
}

func expectOutcomes(t *testing.T, r *simulate.Result, want map[string]string) {
	t.Helper()
	got := outcomes(r)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: got %q, want %q", name, got[name], text)
		}
	}
}

// At first the lower priority alone does not suffice for eight cpus; once the other has ended it does.
func TestQueueWithoutCohortIsPreemptedFairly(t *testing.T) {
	r, err := Run(context.Background(), read(t, "alone.yaml"), Options{Warn: func(s string) { t.Error(s) }})
	if err != nil {
		t.Fatal(err)
	}
	expectOutcomes(t, r, map[string]string{"holds": "Finished 0s 20s", "holds-low": "Finished 30s 60s", "wants": "Finished 20s 30s"})
}

// A panic of Kueue's own is said once, and what happens afterwards is tried.
func TestPanicOfKueueDoesNotEndTheRun(t *testing.T) {
	in := read(t, "alone.yaml")
	var warnings []string
	r, cleanup, err := prepare(context.Background(), in, Options{Warn: func(s string) { warnings = append(warnings, s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	panics := 0
	r.kueue.schedule = func(s *scheduler.Scheduler, ctx context.Context) wait.SpeedSignal {
		if now := r.clock.Since(in.Start); now < 20*time.Second && now > 0 {
			panics++
			panic("assignment to entry in nil map")
		}
		return kueueSchedule(s, ctx)
	}
	got, err := r.play(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if panics == 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "panicked on /alone") {
		t.Errorf("%d panics, warnings %q", panics, warnings)
	}
	expectOutcomes(t, got, map[string]string{"wants": "Finished 20s 30s"})
}

// Kueue's reconciler of Workloads has no option for its clock.
func TestKueueTellsTheTimeByTheClock(t *testing.T) {
	now := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	r := core.NewWorkloadReconciler(nil, nil, nil, mute{})
	setClock(r, testingclock.NewFakeClock(now))
	if got := (*clockField(r)).Now(); !got.Equal(now) {
		t.Errorf("it is %s there, want %s", got, now)
	}
}

func TestUntilEndsTheRun(t *testing.T) {
	for until, want := range map[time.Duration]map[string]string{
		3 * time.Second:  {"holds": "Running 0s", "wants": "NotSubmitted"},
		20 * time.Second: {"holds": "Finished 0s 20s", "wants": "Running 20s"},
		19 * time.Second: {"holds": "Running 0s", "wants": "Waiting"},
		time.Hour:        {"wants": "Finished 20s 30s"},
	} {
		r, err := Run(context.Background(), read(t, "alone.yaml"), Options{Until: &until})
		if err != nil {
			t.Fatal(err)
		}
		if r.Ended != until {
			t.Errorf("until %s: it ended at %s", until, r.Ended)
		}
		expectOutcomes(t, r, want)
	}
}

func TestProgressIsTold(t *testing.T) {
	last, told := -1, 0
	_, err := Run(context.Background(), read(t, "alone.yaml"), Options{Progress: func(_ time.Duration, finished, all int) {
		if finished < last || finished > all {
			t.Errorf("%d finished of %d, after %d", finished, all, last)
		}
		last, told = finished, told+1
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last != 3 || told < 5 {
		t.Errorf("told %d times, last of %d", told, last)
	}
}
