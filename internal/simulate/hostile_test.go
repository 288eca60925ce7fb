package simulate

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
)

// cpuJob is a Job for cpus of alone.yaml, with more of its metadata's annotations and spec in between.
func cpuJob(name, cpus, image, annotations, spec string) string {
	return `---
apiVersion: batch/v1
kind: Job
metadata:
  namespace: team
  name: ` + name + `
  labels: {kueue.x-k8s.io/queue-name: cpus}
  annotations: {simulate.plimsoll.dev/duration: 10s` + annotations + `}
spec:
` + spec + `  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: ` + image + `, resources: {requests: {cpu: "` + cpus + `"}}}
`
}

const (
	at       = ", simulate.plimsoll.dev/at: "
	deleteAt = ", simulate.plimsoll.dev/delete-at: "
)

// aloneAnd is the cluster of alone.yaml without its Jobs, and more.
func aloneAnd(t *testing.T, text string) *input.Input {
	t.Helper()
	data, err := os.ReadFile("testdata/alone.yaml")
	if err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(string(data), "---\napiVersion: batch/v1\nkind: Job\n")
	in, err := input.Read([]input.File{{Name: "input.yaml", Data: []byte(base + text)}}, input.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestWhatComesAndGoes(t *testing.T) {
	cases := map[string]struct {
		text string
		want map[string]string
		warn string
	}{
		"a Job that is removed after its end has finished": {
			text: cpuJob("job", "4", "a", "", "  ttlSecondsAfterFinished: 5\n") + cpuJob("other", "8", "a", at+"1s", ""),
			want: map[string]string{"job": "Finished 0s 10s", "other": "Finished 10s 20s"},
		},
		"a Job that is removed at its end has finished": {
			text: cpuJob("job", "4", "a", "", "  ttlSecondsAfterFinished: 0\n"),
			want: map[string]string{"job": "Finished 0s 10s"},
		},
		"a Job that comes again is on its way since it came first": {
			text: cpuJob("job", "4", "a", deleteAt+"5s", "") + cpuJob("job", "4", "a", at+"20s", ""),
			want: map[string]string{"job": "Finished 20s 30s"},
		},
		"a Job that comes again after its end, and is deleted": {
			text: cpuJob("job", "4", "a", deleteAt+"15s", "") + cpuJob("job", "4", "a", at+"20s"+deleteAt+"25s", ""),
			want: map[string]string{"job": "Deleted 20s"},
		},
		"a Job that is given with other pods while it runs": {
			text: cpuJob("job", "4", "a", "", "") + cpuJob("job", "6", "b", at+"5s", ""),
			want: map[string]string{"job": "Finished 0s 10s"},
			warn: "input.yaml:56: Job team/job: spec.template cannot change while the Job runs, and is left as it is",
		},
		"a Job that is given with other pods while it waits": {
			text: cpuJob("first", "8", "a", "", "") + cpuJob("job", "4", "a", "", "") + cpuJob("job", "6", "b", at+"5s", ""),
			want: map[string]string{"first": "Finished 0s 10s", "job": "Finished 10s 20s"},
		},
		"a Namespace is deleted with what runs and waits in it": {
			text: "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, annotations: {simulate.plimsoll.dev/delete-at: 5s}}\n" +
				cpuJob("job", "8", "a", "", "") + cpuJob("waits", "8", "a", "", "") +
				"---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {namespace: other, name: cpus}\nspec: {clusterQueue: alone}\n" +
				strings.Replace(cpuJob("elsewhere", "8", "a", at+"1s", ""), "namespace: team", "namespace: other", 1),
			want: map[string]string{"job": "Deleted 0s", "waits": "Deleted", "elsewhere": "Finished 5s 15s"},
		},
		"a Job that is moved to no queue while it runs": {
			text: cpuJob("job", "4", "a", "", "") + strings.Replace(cpuJob("job", "4", "a", at+"5s", ""), "kueue.x-k8s.io/queue-name: cpus", "", 1),
			want: map[string]string{"job": "Finished 0s 10s"},
			warn: "input.yaml:56: Job team/job: metadata.labels[kueue.x-k8s.io/queue-name] cannot change while the Job runs, and is left as it is",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			var warned []string
			r, err := Run(ctx, aloneAnd(t, c.text), Options{Warn: func(s string) { warned = append(warned, s) }})
			if err != nil {
				t.Fatal(err)
			}
			expectOutcomes(t, r, c.want)
			for i := range r.Workloads {
				if wl := &r.Workloads[i]; wl.Name == "job" && *wl.SubmittedAt != 0 {
					t.Errorf("it was submitted at %v", *wl.SubmittedAt)
				}
			}
			if got := strings.Join(warned, "\n"); got != c.warn {
				t.Errorf("warned of %q", got)
			}
		})
	}
}
