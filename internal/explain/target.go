package explain

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is a kind of object that can be asked about.
type Kind string

// The kinds.
const (
	KindWorkload Kind = "workload"
	KindJob      Kind = "job"
	KindPod      Kind = "pod"
)

var kinds = map[string]Kind{
	"workload": KindWorkload, "workloads": KindWorkload, "wl": KindWorkload,
	"workload.kueue.x-k8s.io": KindWorkload, "workloads.kueue.x-k8s.io": KindWorkload,
	"job": KindJob, "jobs": KindJob, "job.batch": KindJob, "jobs.batch": KindJob,
	"pod": KindPod, "pods": KindPod, "po": KindPod,
}

// Target is the object asked about.
type Target struct {
	Kind      Kind
	Namespace string
	Name      string
}

func (t Target) String() string { return string(t.Kind) + "/" + t.Name }

const forms = "name a workload, a job or a pod, as in workload/NAME, job/NAME, pod/NAME or job NAME"

// ParseTarget reads KIND/NAME or KIND NAME.
func ParseTarget(args ...string) (Target, error) {
	var kind, name string
	switch len(args) {
	case 0:
		return Target{}, errors.New(forms)
	case 1:
		var ok bool
		if kind, name, ok = strings.Cut(args[0], "/"); !ok {
			return Target{}, fmt.Errorf("%q has no kind: %s", args[0], forms)
		}
	case 2:
		kind, name = args[0], args[1]
	default:
		return Target{}, fmt.Errorf("that is more than one: %s", forms)
	}
	k, ok := kinds[strings.ToLower(kind)]
	switch {
	case !ok:
		return Target{}, fmt.Errorf("%q cannot be explained: %s", kind, forms)
	case name == "" || strings.Contains(name, "/"):
		return Target{}, fmt.Errorf("%q is no name: %s", name, forms)
	}
	return Target{Kind: k, Name: name}, nil
}
