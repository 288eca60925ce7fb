package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/internal/explain"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

func TestRunRefusesInOneSentence(t *testing.T) {
	const nowhere = "--kubeconfig=/does/not/exist"
	cases := map[string]struct {
		args []string
		want string
	}{
		"nothing to explain":      {[]string{"explain"}, "name a workload, a job or a pod"},
		"a name without kind":     {[]string{"explain", "train"}, `"train" has no kind`},
		"an unknown format":       {[]string{"explain", "job/train", "-o", "xml"}, "-o xml is not known: use one of words, json, yaml"},
		"an unknown command":      {[]string{"explane", "job/train"}, `unknown command "explane"`},
		"an unknown flag":         {[]string{"explain", "job/train", "--frob"}, "unknown flag: --frob"},
		"no such kubeconfig":      {[]string{"explain", "job/train", nowhere}, "/does/not/exist"},
		"what a terminal acts on": {[]string{"explain", "\x1b[2J/train"}, `\x1b[2J`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := Run(t.Context(), c.args, &stdout, &stderr); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			if got := stderr.String(); !strings.HasPrefix(got, "Error: ") || !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("stderr %q, want one line that says %q", got, c.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout %q, want nothing", stdout.String())
			}
		})
	}
}

func someone() *explain.Subject {
	start := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	return &explain.Subject{Input: report.Input{Now: start.Add(time.Minute), Workload: &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "wl", CreationTimestamp: metav1.NewTime(start)},
		Spec:       kueue.WorkloadSpec{QueueName: "<gpus>\u009b\u202e\x7f"},
	}}}
}

func TestFormatsSayTheSame(t *testing.T) {
	want := report.Workload(someone().Input)
	decoders := map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, v any) error { return yaml.UnmarshalStrict(data, v) },
	}
	for format, decode := range decoders {
		var out bytes.Buffer
		if err := printSubject(&out, someone(), format); err != nil {
			t.Fatal(err)
		}
		var got report.Entry
		if err := decode(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v\n%s", format, err, out.String())
		}
		if got.Queue != want.Queue || got.Outcome != want.Outcome || *got.SubmittedAt != *want.SubmittedAt {
			t.Errorf("%s: got %+v, want %+v", format, got, want)
		}
		if strings.ContainsAny(out.String(), "\u009b\x7f") {
			t.Errorf("%s holds what a terminal acts on: %q", format, out.String())
		}
	}
	var out bytes.Buffer
	if err := printSubject(&out, someone(), "words"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "Workload team-a/wl\n") {
		t.Errorf("words begin with %q", out.String())
	}
}
