package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
)

const (
	fuzzUntil = 10 * time.Minute // of virtual time
	fuzzLimit = 10 * time.Second // of real time; runs of this size take a few hundredths of a second
	fuzzPods  = 8                // of a Job or podset
	fuzzEdits = 12
)

// FuzzRun looks for inputs that are read and then make a run panic, hang, warn of a fault of our own, or come out otherwise
// when its documents are in another order. The bytes choose a scenario and edits of it.
func FuzzRun(f *testing.F) {
	var scenarios [][]any
	for _, name := range []string{
		"testdata/alone.yaml", "../../test/scenarios/busy-then-next/input.yaml", "../../test/scenarios/weights/input.yaml",
		"../../test/scenarios/two-podsets/input.yaml", "../../test/scenarios/node-deleted-evicted/input.yaml",
		"../../test/scenarios/preempt-grace/input.yaml", "../../test/scenarios/reclaim/input.yaml",
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var documents []any
		for _, text := range bytes.Split(data, []byte("\n---\n")) {
			var d any
			if err := yaml.Unmarshal(text, &d); err != nil {
				f.Fatal(err)
			}
			documents = append(documents, d)
		}
		scenarios = append(scenarios, documents)
	}
	for i := range scenarios {
		f.Add([]byte{byte(i)})
		for edit := range byte(edits) {
			f.Add([]byte{byte(i), edit, 3 * byte(i), 5, 7, edit, 9, 11, 13, edit + 1, 2, 4, 6})
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{data: data}
		documents := clone(scenarios[c.of(len(scenarios))])
		for n := 0; n < fuzzEdits && len(c.data) > 0; n++ {
			documents = edit(documents, c)
		}
		first := fuzzed(t, documents)
		slices.Reverse(documents)
		if second := fuzzed(t, documents); !bytes.Equal(first, second) {
			t.Errorf("in reverse order it came to\n%s\nand before to\n%s", second, first)
		}
	})
}

// fuzzed runs documents and returns what came of it; nil for what is refused.
func fuzzed(t *testing.T, documents []any) []byte {
	t.Helper()
	var text bytes.Buffer
	for _, d := range documents {
		one, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s\n", one)
	}
	in, err := input.Read([]input.File{{Name: "input.json", Data: text.Bytes()}}, input.Options{})
	if err != nil || large(in) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fuzzLimit)
	defer cancel()
	until, done := fuzzUntil, make(chan []byte, 1)
	go func() {
		r, err := Run(ctx, in, Options{Until: &until, Warn: func(s string) {
			// What Kueue's controllers miss, and what a Job cannot be changed in, are the input's.
			if !strings.HasPrefix(s, "kueue-") && !strings.Contains(s, " cannot change while ") {
				t.Errorf("warned of %s\n%s", s, text.Bytes())
			}
		}})
		if err != nil {
			t.Errorf("%v\n%s", err, text.Bytes())
			done <- nil
			return
		}
		done <- r.JSON()
	}()
	select {
	case out := <-done:
		return out
	case <-time.After(2 * fuzzLimit):
		t.Fatalf("it hangs\n%s", text.Bytes())
		return nil
	}
}

// large says whether an input asks for more pods than a short run is made for.
func large(in *input.Input) bool {
	for i := range in.Objects {
		switch o := in.Objects[i].Object.(type) {
		case *batchv1.Job:
			if p, c := o.Spec.Parallelism, o.Spec.Completions; p != nil && *p > fuzzPods || c != nil && *c > fuzzPods {
				return true
			}
		case *kueue.Workload:
			for j := range o.Spec.PodSets {
				if o.Spec.PodSets[j].Count > fuzzPods {
					return true
				}
			}
		}
	}
	return len(in.Objects) > 100
}

// choices are made by bytes; when there are no more, it is always the first.
type choices struct{ data []byte }

func (c *choices) of(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

func clone[T any](v T) T {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out T
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}

// times are those at which edits have things happen.
var times = []string{"0s", "1s", "3s", "4s", "6s", "8s", "12s", "20s", "60s", "90s"}

// values are what edits set fields to.
var values = []any{
	0, 1, 2, 3, 8, -1, "0", "1", "8", "64", "1Gi", "", true, false, nil, "h100", "a100", "team-a", "team-b", "Frozen", "Shadow", "Never",
	"Any", "LowerPriority", "HoldAndDrain", "Hold", "NoSchedule", "NoExecute", "true", "false", []any{}, map[string]any{},
}

// edits is how many kinds of edits there are.
const edits = 5

// edit changes a list of documents in one way.
func edit(documents []any, c *choices) []any {
	if len(documents) == 0 {
		return documents
	}
	kind, i := c.of(edits), c.of(len(documents))
	switch kind {
	case 0: // it goes
		annotated(documents[i], "delete-at", times[c.of(len(times))])
	case 1: // it comes later
		annotated(documents[i], "at", times[c.of(len(times))])
	case 2: // it comes again, otherwise
		again := clone(documents[i])
		annotated(again, "at", times[c.of(len(times))])
		alter(again, c)
		return append(documents, again)
	case 3:
		alter(documents[i], c)
	case 4:
		return slices.Delete(documents, i, i+1)
	}
	return documents
}

func annotated(document any, name, value string) {
	metadata, ok := document.(map[string]any)["metadata"].(map[string]any)
	if !ok {
		return
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations["simulate.plimsoll.dev/"+name] = value
}

// alter sets or removes one field somewhere in an object.
func alter(v any, c *choices) {
	for {
		switch at := v.(type) {
		case map[string]any:
			if len(at) == 0 {
				return
			}
			key := slices.Sorted(maps.Keys(at))[c.of(len(at))]
			if inner, ok := leads(at[key]); ok {
				v = inner
				continue
			}
			if value := c.of(len(values) + 1); value < len(values) {
				at[key] = values[value]
			} else {
				delete(at, key)
			}
		case []any:
			i := c.of(len(at))
			if inner, ok := leads(at[i]); ok {
				v = inner
				continue
			}
			at[i] = values[c.of(len(values))]
		}
		return
	}
}

// leads says whether there is more within a value.
func leads(v any) (any, bool) {
	switch in := v.(type) {
	case map[string]any:
		return v, len(in) > 0
	case []any:
		return v, len(in) > 0
	}
	return v, false
}
