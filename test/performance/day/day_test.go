package day

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
	result "github.com/plimsoll-dev/plimsoll/pkg/simulate"
)

func run(t *testing.T, w World, shuffle uint64, threads int) (*result.Result, []byte) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	in, err := input.Read(w.Files(shuffle), input.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(context.Background(), in, simulate.Options{Warn: func(s string) { t.Error(s) }})
	if err != nil {
		t.Fatal(err)
	}
	return r, r.JSON()
}

func TestADayPrintsTheSameBytes(t *testing.T) {
	t.Logf("%+v", Short)
	first, want := run(t, Short, 0, 2)
	outcomes, evicted, waited := map[report.Outcome]int{}, 0, 0
	for i := range first.Workloads {
		w := &first.Workloads[i]
		outcomes[w.Outcome]++
		evicted += max(0, len(w.Admissions)-1)
		if w.AdmittedAt != nil && w.SubmittedAt != nil && *w.AdmittedAt > *w.SubmittedAt {
			waited++
		}
	}
	t.Logf("%v, %d had to wait, %d evictions", outcomes, waited, evicted)
	if outcomes[report.OutcomeFinished] < Short.Jobs*9/10 || waited < Short.Jobs/10 || evicted == 0 {
		t.Errorf("a day on which little happens: %v, %d had to wait, %d evictions", outcomes, waited, evicted)
	}
	for _, tc := range []struct {
		shuffle uint64
		threads int
	}{{1, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("order %d on %d threads", tc.shuffle, tc.threads), func(t *testing.T) {
			if _, got := run(t, Short, tc.shuffle, tc.threads); !bytes.Equal(got, want) {
				t.Error("other bytes than the first run")
			}
		})
	}
}

func TestFilesDependOnTheWorldAlone(t *testing.T) {
	w := World{Seed: 1, Nodes: 10, Jobs: 20, Hours: 2, Load: 0.8}
	if !bytes.Equal(w.Files(3)[0].Data, w.Files(3)[0].Data) {
		t.Error("the same world in the same order gave other bytes")
	}
	if bytes.Equal(w.Files(3)[0].Data, w.Files(4)[0].Data) {
		t.Error("another order gave the same bytes")
	}
	other := w
	other.Seed = 2
	if bytes.Equal(w.Files(0)[0].Data, other.Files(0)[0].Data) {
		t.Error("another seed gave the same bytes")
	}
}
