package explain

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestWords(t *testing.T) {
	cases := map[string]*Subject{
		"waits-for-devices": subject(reserved, waiting),
		"waits-for-quota": subject(noQuota, func(s *Subject) {
			s.Workload.Annotations[v1alpha1.AllowedFlavorsAnnotation] = "h100,a100"
		}),
		"unmanaged": subject(noQuota, func(s *Subject) {
			s.Workload.Annotations, s.Workload.Spec.PodSets[0].Template.Spec.Overhead, s.Checks = nil, nil, []string{}
		}),
		"unknown": subject(noQuota, func(s *Subject) {
			s.Workload.Annotations, s.Checks, s.LocalQueue = nil, nil, nil
			s.Notes = []string{"you may not read LocalQueue gpus: localqueues is forbidden"}
		}),
		"admitted": subject(admitted, granted, func(s *Subject) {
			bound := pod("train-0-aaaaa")
			bound.Spec.NodeName = "a100-0"
			failing := pod("train-3-ddddd")
			failing.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/9 nodes are available"}}
			s.Pods = []corev1.Pod{bound, pod("train-1-bbbbb", v1alpha1.PlacementGate), pod("train-2-ccccc", "example.com/quiet", v1alpha1.PlacementGate), failing}
		}),
		"asked-by-pod": subject(admitted, granted, func(s *Subject) {
			s.Pod = "train-1-bbbbb"
			s.Pods = []corev1.Pod{pod("train-0-aaaaa", v1alpha1.PlacementGate), pod("train-1-bbbbb", v1alpha1.PlacementGate)}
			s.Placement = nil
		}),
		"not-looked-at": subject(func(s *Subject) { s.Workload.Annotations[v1alpha1.AllowedFlavorsAnnotation] = "h100,a100" }),
		"finished":      subject(admitted, with(condition(kueue.WorkloadFinished, "True", "Succeeded", "Job finished successfully", 60))),
		"evicted": subject(with(
			condition(kueue.WorkloadQuotaReserved, "False", "Pending", "Preempted to accommodate a workload", 70),
			condition(kueue.WorkloadEvicted, "True", "Preempted", "Preempted to accommodate a workload", 70),
		)),
		"hostile": subject(reserved, waiting, func(s *Subject) {
			s.Workload.OwnerReferences[0].Name = "train\x1b[2J\nOutcome     Finished"
			s.Placement.Status.Record.Message = "green \x1b[32mtext\x9b0m, \u202ereversed, \xff invalid\r\nQueue       none"
			s.Placement.Status.Record.Standings[0].Reasons[0].Message = "\a\b\u2028"
		}),
	}
	for name, s := range cases {
		t.Run(name, func(t *testing.T) {
			got := Words(s)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("words (-want +got):\n%s", diff)
			}
			for _, r := range got {
				if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u2028') {
					t.Errorf("the words contain %U, which a terminal acts on", r)
				}
			}
			for i, line := range strings.Split(got, "\n") {
				if strings.HasSuffix(line, " ") {
					t.Errorf("line %d ends in a blank: %q", i+1, line)
				}
			}
		})
	}
}

// TestWordsFitOnOneScreen holds the longest answer, that of a big gang, to what a terminal shows.
func TestWordsFitOnOneScreen(t *testing.T) {
	s := subject(admitted, granted)
	nodes := &s.Placement.Spec.PodSets[0].Nodes
	for len(*nodes) < 200 {
		*nodes = append(*nodes, (*nodes)[0])
		(*nodes)[len(*nodes)-1].Name = strings.Repeat("n", len(*nodes))
	}
	for range 500 {
		s.Pods = append(s.Pods, pod("train", v1alpha1.PlacementGate))
	}
	for range 8 {
		s.Placement.Status.History = append(s.Placement.Status.History, v1alpha1.DecisionSummary{Time: at(1), Verdict: v1alpha1.VerdictWait})
	}
	if lines := strings.Count(Words(s), "\n"); lines > 50 {
		t.Errorf("%d lines:\n%s", lines, Words(s))
	}
}

func TestPrintable(t *testing.T) {
	cases := map[string]struct{ in, want string }{
		"plain text stays":              {"gpu-0 is fine, größer ist möglich", "gpu-0 is fine, größer ist möglich"},
		"escape sequences are shown":    {"\x1b]0;title\a", `\x1b]0;title\a`},
		"line ends are shown":           {"a\r\nb", `a\r\nb`},
		"C1 controls are shown":         {"a\u009bb", `a\u009bb`},
		"invalid bytes are shown":       {"a\xffb", `a\xffb`},
		"changes of direction":          {"a\u202eb", `a\u202eb`},
		"the replacement character is":  {"a\ufffdb", "a\ufffdb"},
		"a character beyond 16 bits is": {"\U000e0001", `\U000e0001`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Printable(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
