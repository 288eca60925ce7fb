package simulate

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// whole is DESIGN's example, filled in.
const whole = `{
  "version": 1,
  "workloads": [
    {
      "namespace": "team-a",
      "name": "train",
      "kind": "Job",
      "queue": "gpus",
      "clusterQueue": "team-a",
      "outcome": "Running",
      "submittedAt": "0s",
      "admittedAt": "12s",
      "finishedAt": null,
      "admissions": [
        {
          "at": "12s",
          "flavors": {
            "main": "a100"
          },
          "endedAt": null,
          "end": null
        }
      ],
      "flavors": {
        "main": "a100"
      },
      "charged": {
        "gpus": "8"
      },
      "pods": [
        {
          "podSet": "main",
          "index": 0,
          "node": "node-b",
          "devices": [
            "gpu.nvidia.com/node-b/gpu-0"
          ]
        }
      ],
      "standings": [
        {
          "podSet": "main",
          "flavor": "h100",
          "standing": "Busy",
          "reasons": [
            {
              "reason": "DevicesInUse",
              "nodes": 1,
              "message": "busy"
            }
          ]
        }
      ],
      "reason": null,
      "message": "admitted"
    }
  ],
  "shares": [
    {
      "name": "team-a",
      "kind": "ClusterQueue",
      "weight": "1",
      "share": 125
    }
  ],
  "ledger": {
    "digest": "sha256:00"
  }
}
`

func TestJSONIsTheContract(t *testing.T) {
	w := ran(job("team-a", "train", 0), 12, "a100", 8, -1)
	w.Charged = map[string]string{"gpus": "8"}
	w.Pods = []report.Pod{{PodSet: "main", Node: "node-b", Devices: []string{"gpu.nvidia.com/node-b/gpu-0"}}}
	w.Standings = []report.Standing{{PodSet: "main", Flavor: "h100", Standing: v1alpha1.StandingBusy, Reasons: []report.StandingReason{
		{Reason: v1alpha1.ReasonDevicesInUse, Nodes: 1, Message: "busy"},
	}}}
	w.Message = "admitted"
	r := result(60, w)
	r.Shares = r.Shares[:1]
	r.Log = []Event{{At: time.Second, Kind: EventArrived, Workload: w.Key()}}
	if diff := cmp.Diff(whole, string(r.JSON())); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestJSONOfNothingHasNoNullList(t *testing.T) {
	if got := string((&Result{}).JSON()); strings.Contains(got, "null") {
		t.Errorf("an empty result holds null:\n%s", got)
	}
	got := string((&Result{Workloads: []Workload{{Entry: report.Entry{Outcome: report.OutcomeNotSubmitted}}}}).JSON())
	for _, list := range []string{"admissions", "pods", "standings"} {
		if !strings.Contains(got, `"`+list+`": []`) {
			t.Errorf("%s of what was not submitted is not an empty list:\n%s", list, got)
		}
	}
	for _, m := range []string{"flavors", "charged"} {
		if !strings.Contains(got, `"`+m+`": {}`) {
			t.Errorf("%s of what was not submitted is not an empty object:\n%s", m, got)
		}
	}
	for _, c := range []string{"submittedAt", "admittedAt", "finishedAt", "reason"} {
		if !strings.Contains(got, `"`+c+`": null`) {
			t.Errorf("%s of what was not submitted is not null:\n%s", c, got)
		}
	}
}

func TestJSONIsReadBack(t *testing.T) {
	r := result(60, ran(job("team-a", "train", 0), 12, "a100", 8, 30))
	var back Result
	decoder := json.NewDecoder(bytes.NewReader(r.JSON()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(r.JSON()), string(back.JSON())); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func drawWorkload(t *rapid.T) Workload {
	text := rapid.StringN(0, 12, 80)
	w := job(rapid.SampledFrom([]string{"team-a", "team-b", ""}).Draw(t, "queue"), rapid.StringMatching("[a-z]{1,70}").Draw(t, "name"), rapid.IntRange(0, 9).Draw(t, "submitted"))
	w.Name, w.Message = w.Name+text.Draw(t, "name's end"), strings.Repeat(text.Draw(t, "message"), rapid.IntRange(0, 30).Draw(t, "times"))
	if rapid.Bool().Draw(t, "ran") {
		w = ran(w, 10, text.Draw(t, "flavor"), 8, rapid.IntRange(-1, 20).Draw(t, "end"))
	}
	for range rapid.IntRange(0, 4).Draw(t, "pods") {
		w.Pods = append(w.Pods, report.Pod{PodSet: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "podset"), Index: len(w.Pods), Node: text.Draw(t, "node"), Devices: []string{"d/b", "d/a"}})
	}
	if rapid.Bool().Draw(t, "says why") {
		w.Reason = ptr.To(v1alpha1.ReasonDevicesInUse)
	}
	return w
}

func drawResult(t *rapid.T) *Result {
	r := result(100)
	seen := map[string]bool{}
	for range rapid.IntRange(0, 8).Draw(t, "workloads") {
		if w := drawWorkload(t); !seen[w.Namespace+"/"+w.Name] {
			seen[w.Namespace+"/"+w.Name] = true
			r.Workloads = append(r.Workloads, w)
		}
	}
	return r
}

func TestTheOrderOfListsChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResult(t)
		other := *r
		other.Workloads = rapid.Permutation(r.Workloads).Draw(t, "workloads' order")
		other.Shares = rapid.Permutation(r.Shares).Draw(t, "shares' order")
		for i := range other.Workloads {
			w := &other.Workloads[i]
			w.Pods = rapid.Permutation(w.Pods).Draw(t, "pods' order")
		}
		want := string(r.JSON())
		if got := string(other.JSON()); got != want {
			t.Fatalf("other order, other bytes:\n%s", cmp.Diff(want, got))
		}
		var a, b bytes.Buffer
		if err := r.Table(&a); err != nil {
			t.Fatal(err)
		}
		if err := other.Table(&b); err != nil {
			t.Fatal(err)
		}
		if a.String() != b.String() {
			t.Fatalf("other order, other table:\n%s", cmp.Diff(a.String(), b.String()))
		}
		again := Compare(r, &other)
		if len(again.Changed) > 0 {
			t.Fatalf("another order changed %+v", again.Changed)
		}
	})
}

func TestPrintingDoesNotChangeTheResult(t *testing.T) {
	w := ran(job("team-b", "late", 3), 12, "a100", 8, -1)
	w.Pods = []report.Pod{{PodSet: "main", Index: 1, Devices: []string{"b", "a"}}, {PodSet: "main"}}
	r, before := result(60, w, job("team-a", "early", 0)), result(60, w, job("team-a", "early", 0))
	before.Workloads[0].Pods = []report.Pod{{PodSet: "main", Index: 1, Devices: []string{"b", "a"}}, {PodSet: "main"}}
	r.JSON()
	if err := r.Table(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	Compare(r, r)
	if !reflect.DeepEqual(before, r) {
		t.Errorf("the result changed:\n%s", cmp.Diff(before, r))
	}
}

const wholeTable = `Simulated 100s: 4 workloads.

CLUSTERQUEUE  WEIGHT  SHARE  FINISHED  RUNNING  WAITING
team-a        1       125    1         1        0
team-b        3       0      0         0        2

WORKLOAD      QUEUE   OUTCOME             FLAVOR  NODES      SUBMITTED  WAITED  ENDED
team-a/done   team-a  Finished            a100    node-a100  0s         12s     30s
team-a/twice  team-a  Running (2 starts)  h100    node-h100  5s         1s      -
team-b/new    team-b  Waiting             -       -          40s        60s     -
team-b/wants  team-b  Waiting             -       -          10s        90s     -
    DevicesInUse: flavor h100 is Busy
`

func TestTable(t *testing.T) {
	twice := ran(evicted(ran(job("team-a", "twice", 5), 6, "a100", 8, -1), 20), 30, "h100", 8, -1)
	r := result(100, waitsFor(job("team-b", "wants", 10), "h100"), job("team-b", "new", 40), twice, ran(job("team-a", "done", 0), 12, "a100", 8, 30))
	var out bytes.Buffer
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wholeTable, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestTableOfNothing(t *testing.T) {
	var out bytes.Buffer
	if err := (&Result{}).Table(&out); err != nil {
		t.Fatal(err)
	}
	if want := "Simulated 0s: 0 workloads.\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestLinesAreBoundedAndHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResult(t)
		var out bytes.Buffer
		if err := r.Table(&out); err != nil {
			t.Fatal(err)
		}
		if err := Compare(drawResult(t), r).Table(&out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n > pageWidth {
				t.Fatalf("a line of %d characters: %q", n, line)
			}
			if got := report.Printable(line); got != line {
				t.Fatalf("a terminal acts on %q", line)
			}
		}
	})
}

type broken struct{ after int }

func (b *broken) Write(p []byte) (int, error) {
	if b.after--; b.after < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

var errBroken = &brokenError{}

type brokenError struct{}

func (*brokenError) Error() string { return "disk full" }

func TestAWriterThatFailsIsTold(t *testing.T) {
	r := result(100, job("team-a", "early", 0))
	for after := range 3 {
		if err := r.Table(&broken{after}); err == nil {
			t.Errorf("no error from a writer that fails after %d writes", after)
		}
		if err := Compare(r, result(100)).Table(&broken{after}); err == nil {
			t.Errorf("no error of a comparison from a writer that fails after %d writes", after)
		}
	}
}
